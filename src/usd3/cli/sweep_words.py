"""The words of --sweep: a corrector and a number of sampling steps each."""

from typing import Any, NamedTuple

from usd3._internal.checks import as_count, require
from usd3.cli.sample import CorrectorOptions

__all__ = ["Variant", "label", "variants"]

_PAPER = ["0", *(f"{moves},{last}" for last in (10, 20) for moves in ("2,0.001", "2,0.005", "5,0.001", "5,0.002"))]
_EQUAL_CALLS = [  # 64 + 2 * 32 = 128
    *("0@64", "0@128"),
    *(f"2,{size},32@64" for size in ("0.001", "0.01", "0.1", "1")),
    *(f"gibbs:2,{elements},32@64" for elements in ("1", "5%", "25%")),
]
_NAMED = {"paper": _PAPER, "equal-calls": _EQUAL_CALLS}
_GIBBS, _INFORMED = "gibbs:", ",informed"
_EXPECTED = """NUM_STEPS,STEP_SIZE,LAST, as in 2,0.001,10 (STEP_SIZE may be auto, LAST all), \
gibbs:NUM_STEPS,COUNT,LAST[,informed], as in gibbs:2,5%,all, or 0; each may end with @STEPS"""


class Variant(NamedTuple):
    """What a word names.

    Args:
        corrector: the corrector; with no moves for none.
        steps: number of sampling steps; None: that of the command.
    """

    corrector: CorrectorOptions
    steps: int | None = None


def variants(words: str) -> list[Variant]:
    """What the words of --sweep name, in their order."""
    chosen = [_variant(word) for word in _NAMED.get(words.strip(), words.split())]
    require(len(chosen) > 0, "sweep", words, f"words with spaces between them, {_EXPECTED}; or {' or '.join(_NAMED)}")
    twice = next((label(variant) for variant in chosen if chosen.count(variant) > 1), None)
    require(twice is None, "sweep", twice, "correctors that differ")
    return chosen


def _variant(word: str) -> Variant:
    corrector, at, steps = word.partition("@")
    try:
        return Variant(_corrector(corrector), as_count(int(steps), "steps", 1) if at else None)
    except ValueError as error:
        raise ValueError(f"sweep = {word}: expected {_EXPECTED} ({error})") from None


def _corrector(word: str) -> CorrectorOptions:
    if word == "0":
        return CorrectorOptions(0, last=None)
    is_gibbs = word.startswith(_GIBBS)
    informed = is_gibbs and word.endswith(_INFORMED)
    moves, size, last = (word.removeprefix(_GIBBS).removesuffix(_INFORMED) if is_gibbs else word).split(",")
    require(int(moves) > 0, "num_steps", moves, "a number > 0, or the word 0 alone")
    how: dict[str, Any] = {"num_steps": int(moves), "last": None if last == "all" else int(last)}
    if is_gibbs:
        how |= {"share": float(size[:-1]) / 100} if size.endswith("%") else {"count": int(size)}
        corrector = CorrectorOptions(**how, kind="gibbs", informed=informed)
    else:
        corrector = CorrectorOptions(**how, step_size="auto" if size == "auto" else float(size))
    corrector.build()
    return corrector


def label(variant: Variant) -> str:
    """The name of a corrector, and of its number of steps if it has its own, in the tables."""
    corrector, steps = variant
    name = _name(corrector) if corrector.num_steps else "no corrector"
    return name if steps is None else f"{steps} steps, {name}"


def _name(corrector: CorrectorOptions) -> str:
    last = "all steps" if corrector.last is None else f"last {corrector.last}"
    if corrector.kind == "mcmc":
        return f"N = {corrector.num_steps}, Δn = {corrector.step_size}, {last}"
    drawn = f"{corrector.count}" if corrector.share is None else f"{100 * corrector.share:g} %"
    which = "the least likely" if corrector.informed else "all"
    return f"Gibbs, N = {corrector.num_steps}, {drawn} of {which} elements, {last}"
