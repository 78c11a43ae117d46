"""The samplers by name, and what a user may write: "revision", or with options "revision:schedule=loop,eta=0.05"."""

import types
import typing
from dataclasses import fields, is_dataclass, replace
from typing import Any

from usd3._internal.checks import require, require_type
from usd3._internal.messages import suggestion
from usd3.core.samplers.certain_first import CertainFirst
from usd3.core.samplers.euler import euler
from usd3.core.samplers.exact import exact
from usd3.core.samplers.first_hitting import first_hitting
from usd3.core.samplers.gillespie import gillespie
from usd3.core.samplers.revision import Revision
from usd3.core.samplers.run import Sampler
from usd3.core.samplers.tau_leaping import tau_leaping
from usd3.core.samplers.trapezoidal import Trapezoidal

__all__ = [
    "ABOUT",
    "FOR_ABSORBING_NOISE",
    "SAMPLERS",
    "base_name",
    "option_names",
    "sampler_named",
    "shown_name",
    "with_options",
]

SAMPLERS: dict[str, Sampler] = {
    "exact": exact,
    "euler": euler,
    "tau_leaping": tau_leaping,
    "gillespie": gillespie,
    "first_hitting": first_hitting,
    "revision": Revision(),
    "confidence": CertainFirst("confidence"),
    "margin": CertainFirst("margin"),
    "entropy": CertainFirst("entropy", bound=0.1),
    "trapezoidal": Trapezoidal(),
}
"""The samplers of `Diffusion.sample`, by name."""

ABOUT = {
    "exact": "the paper's: an exact backward step for each step of the grid",
    "euler": "Euler steps of the reverse chain, for comparison",
    "tau_leaping": "tau-leaping by the rates of the reverse chain, for comparison",
    "gillespie": "the reverse chain simulated jump by jump, for comparison; as many calls as there are candidates",
    "first_hitting": "one element a call, in random order, at its exact time; for absorbing noise",
    "revision": "steps that may take elements back and draw them anew (ReMDM for absorbing noise)",
    "confidence": "the elements with the largest probability first",
    "margin": "the elements whose likeliest category is farthest ahead of the second first",
    "entropy": "the elements of lowest entropy first, several at once where they are sure enough",
    "trapezoidal": "two calls a step, for an error of second order",
}
"""What each sampler does, in a line."""

FOR_ABSORBING_NOISE = ("first_hitting",)
"""Those of them that need absorbing noise."""


def sampler_named(sampler: str | Sampler) -> Sampler:
    """The sampler of a name with or without options; a function is a sampler itself."""
    if callable(sampler):
        is_function = not (isinstance(sampler, type) and is_dataclass(sampler))  # as in sampler=Revision, without ()
        require_type(is_function, "sampler", sampler, "an object of this class, or a function of a run and its grid")
        return sampler
    name = base_name(sampler)
    if name not in SAMPLERS:
        expected = f"one of {', '.join(SAMPLERS)}{suggestion(name, SAMPLERS)}, or a function of a run and its grid"
        require(False, "sampler", sampler, expected)
    return with_options(SAMPLERS[name], sampler)


_NAMED = ("score",)  # the name of the sampler says it


def shown_name(sampler: str | Sampler) -> str:
    """A sampler in a message: its name, or that of its function or class."""
    return sampler if isinstance(sampler, str) else getattr(sampler, "__name__", type(sampler).__name__)


def base_name(text: str) -> str:
    """The name in "name:option=value,..."."""
    return str(text).partition(":")[0]


def option_names(sampler: Sampler) -> tuple[str, ...]:
    """The options of a sampler; a plain function has none."""
    return tuple(field.name for field in fields(sampler)) if is_dataclass(sampler) else ()


def with_options(sampler: Sampler, text: str) -> Sampler:
    """A sampler with the options of "name:option=value,..."; the sampler itself if there are none."""
    name, colon, written = text.partition(":")
    if not colon:
        return sampler
    known = [option for option in option_names(sampler) if option not in _NAMED]
    expected = f"{name}:option=value,... with options {', '.join(known)}" if known else f"{name}, which has no options"
    options: dict[str, Any] = {}
    for part in written.split(","):
        key, sign, value = (word.strip() for word in part.partition("="))
        require(bool(sign) and key in known, "sampler", text, expected)
        require(key not in options, "sampler", text, f"{key} once")
        options[key] = _read(value, typing.get_type_hints(type(sampler))[key], f"sampler {name}, {key}")
    return replace(sampler, **options)  # type: ignore[type-var]


def _read(text: str, hint: Any, name: str) -> Any:
    """The value of an option of type str, float or float | None, from its text."""
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if type(None) in kinds and text.lower() in ("none", "null"):
        return None
    if str in kinds:
        return text
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{name} = {text}: expected a number") from None
