"""Melodies cut into windows of one length, and split by piece."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from usd3._internal.checks import as_count, require
from usd3.kinds.dataset import Dataset, Sequences
from usd3.kinds.melody.kind import Melody
from usd3.kinds.melody.notation import MELODY_CLASSES, REST
from usd3.kinds.splits import grouped, is_test_group

__all__ = ["Voice", "cut", "melodies_dataset", "worth_keeping"]

_MOST_REST = 0.9
_FEWEST_CHANGES = 8
_FIRST_NOTE = 2  # among changes: a note after rests, in a stretch that begins with them


@dataclass(frozen=True, eq=False)
class Voice:
    """One voice of a piece: `steps` (L,) uint8, the MIDI pitch that sounds at each grid point, 128 for a rest."""

    piece: str
    voice: str
    steps: NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class _Window:
    name: str
    steps: NDArray[np.uint8]
    real: int


def worth_keeping(melodies: Sequence[Voice]) -> list[Voice]:
    """Without voices of more than 90 % rest, and without exact repeats of a voice within its piece."""
    seen: set[tuple[str, bytes]] = set()
    kept = []
    for melody in melodies:
        key = (melody.piece, melody.steps.tobytes())
        if len(melody.steps) and np.mean(melody.steps == REST) <= _MOST_REST and key not in seen:
            seen.add(key)
            kept.append(melody)
    return kept


def cut(steps: NDArray[np.uint8], length: int) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """(start, window) without overlap; the last may be shorter, but not below length // 4. Silent ones are left out."""
    for start in range(0, len(steps), length):
        window = steps[start : start + length]
        if len(window) >= max(1, length // 4) and bool((window != REST).any()):
            yield start, window


def melodies_dataset(
    name: str, melodies: Sequence[Voice], length: int, test_fraction: float, seed: int, stretch: int | None = None
) -> Dataset:
    """Windows of melodies, padded with rest, split by piece.

    Pieces that share a voice (the same melody in any key, up to rests around it) or `stretch` steps of one in any key
    are on the same side: training may transpose. The sides do not depend on `length`.
    """
    length = as_count(length, "length", 1)
    pieces = list(dict.fromkeys(melody.piece for melody in melodies))
    on_test = _pieces_of_test(pieces, melodies, test_fraction, seed, stretch)
    sides: dict[bool, list[_Window]] = {False: [], True: []}
    for melody in melodies:
        for start, window in cut(melody.steps, length):
            row = _padded(window, length)
            label = f"{melody.piece} | {melody.voice} | {start}"
            sides[melody.piece in on_test].append(_Window(label, row, len(window)))
    for side, windows in (("train", sides[False]), ("test", sides[True])):
        require(len(windows) > 0, f"windows of {side}", 0, f"melodies of at least length // 4 = {length // 4} steps")
    train, test = (_stacked(sides[side], length) for side in (False, True))
    return Dataset(name, MELODY_CLASSES, train, test, kind=Melody(MELODY_CLASSES, (length,)))


def _padded(window: NDArray[np.uint8], length: int) -> NDArray[np.uint8]:
    return np.pad(window, (0, length - len(window)), constant_values=REST)


def _stacked(windows: list[_Window], length: int) -> Sequences:
    tokens = torch.from_numpy(np.stack([window.steps for window in windows]))
    real = torch.tensor([window.real for window in windows])
    pad = torch.arange(length) >= real[:, None]
    return Sequences(tokens, pad if pad.any() else None, tuple(window.name for window in windows))


def _pieces_of_test(
    pieces: list[str], melodies: Sequence[Voice], fraction: float, seed: int, stretch: int | None
) -> set[str]:
    index = {piece: i for i, piece in enumerate(pieces)}
    keys = ((index[melody.piece], key) for melody in melodies for key in _tell_tales(melody.steps, stretch))
    group_of = grouped(len(pieces), keys)
    sizes = [0] * len(set(group_of))
    for melody in melodies:
        sizes[group_of[index[melody.piece]]] += len(melody.steps)
    apart = "some that share no melody, so that one can be held out from another"
    require(len(sizes) >= 2 or len(pieces) < 2, "pieces", f"{len(pieces)} that share melodies", apart)
    chosen = is_test_group(sizes, fraction, seed)
    return {piece for piece, group in zip(pieces, group_of) if chosen[group]}


def _tell_tales(steps: NDArray[np.uint8], stretch: int | None) -> Iterator[Hashable]:
    """What two pieces share only if they are related, in whatever key: a whole melody, and any `stretch` steps of one.

    The rests around a melody do not count. A held note says nothing: whatever changes fewer than 8 times is left out.
    """
    sounding = np.flatnonzero(steps != REST)
    whole = _changes(steps[sounding[0] : sounding[-1] + 1])
    if np.count_nonzero(whole) >= _FEWEST_CHANGES:
        yield whole.tobytes()
    if stretch is None or len(steps) < stretch:
        return
    stretches = sliding_window_view(_changes(steps), stretch - 1)
    lively = np.count_nonzero(stretches, axis=1) >= _FEWEST_CHANGES
    in_rest = steps[: len(stretches)][lively] == REST
    stretches = stretches[lively]  # a copy
    first = (stretches[in_rest] != 0).argmax(1)  # its interval is to a note before the stretch, and does not count
    stretches[np.flatnonzero(in_rest), first] = _FIRST_NOTE
    yield from np.unique(stretches.astype(np.uint64) @ _hash_weights(stretch - 1)).tolist()


def _changes(steps: NDArray[np.uint8]) -> NDArray[np.int16]:
    """A melody without its key, (L - 1,).

    At each step but the first: 0 if nothing changes, 1 if a rest begins, and for a note the semitones from the last
    one, plus 200.
    """
    index = np.arange(len(steps))
    last = np.maximum.accumulate(np.where(steps != REST, index, 0))  # where the last note is that sounded
    intervals = 200 + steps[1:].astype(np.int16) - steps[last[:-1]]
    return np.where(steps[1:] == steps[:-1], 0, np.where(steps[1:] == REST, 1, intervals)).astype(np.int16)


def _hash_weights(length: int) -> NDArray[np.uint64]:
    """Random numbers whose products with a row, summed modulo 2^64, tell rows apart."""
    return np.random.default_rng(0).integers(2**64, size=length, dtype=np.uint64)
