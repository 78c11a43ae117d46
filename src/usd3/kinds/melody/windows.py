"""Melodies cut into windows of one length, and split into training and test by piece."""

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
_FIRST_NOTE = 2  # in `_changes`: the first note of a stretch that begins with rests


@dataclass(frozen=True, eq=False)
class Voice:
    """One voice of a piece.

    Args:
        piece: name of the piece.
        voice: name of the voice.
        steps: (L,) the MIDI pitch at each grid point, or 128 for a rest.
    """

    piece: str
    voice: str
    steps: NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class _Window:
    name: str
    steps: NDArray[np.uint8]
    real: int


def worth_keeping(melodies: Sequence[Voice]) -> list[Voice]:
    """The melodies without those of more than 90 % rest, and without copies of a voice in the same piece."""
    seen: set[tuple[str, bytes]] = set()
    kept = []
    for melody in melodies:
        key = (melody.piece, melody.steps.tobytes())
        if len(melody.steps) and np.mean(melody.steps == REST) <= _MOST_REST and key not in seen:
            seen.add(key)
            kept.append(melody)
    return kept


def cut(steps: NDArray[np.uint8], length: int) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """(start, window) for each window of a melody, without overlap.

    The last window may be shorter, but has at least length // 4 steps. Windows of rests alone are left out.
    """
    for start in range(0, len(steps), length):
        window = steps[start : start + length]
        if len(window) >= max(1, length // 4) and bool((window != REST).any()):
            yield start, window


def melodies_dataset(
    name: str, melodies: Sequence[Voice], length: int, test_fraction: float, seed: int, stretch: int | None = None
) -> Dataset:
    """Windows of melodies, padded with rests, split by piece. The split does not depend on `length`.

    Args:
        name: name of the data.
        melodies: the voices of all pieces.
        length: length of a window.
        test_fraction: fraction of the music that is held out.
        seed: seed of the split.
        stretch: pieces that share so many steps are in the same split; None: only pieces that share a whole voice.
            Both count in any key, as training may transpose; rests around a voice do not count.
    """
    length = as_count(length, "length", 1)
    pieces = list(dict.fromkeys(melody.piece for melody in melodies))
    test_pieces = _test_pieces(pieces, melodies, test_fraction, seed, stretch)
    splits: dict[str, list[_Window]] = {"train": [], "test": []}
    for melody in melodies:
        for start, window in cut(melody.steps, length):
            row = _padded(window, length)
            label = f"{melody.piece} | {melody.voice} | {start}"
            splits["test" if melody.piece in test_pieces else "train"].append(_Window(label, row, len(window)))
    for split, windows in splits.items():
        require(len(windows) > 0, f"windows of {split}", 0, f"melodies of at least length // 4 = {length // 4} steps")
    train, test = (_stacked(windows, length) for windows in splits.values())
    return Dataset(name, MELODY_CLASSES, train, test, kind=Melody(MELODY_CLASSES, (length,)))


def _padded(window: NDArray[np.uint8], length: int) -> NDArray[np.uint8]:
    return np.pad(window, (0, length - len(window)), constant_values=REST)


def _stacked(windows: list[_Window], length: int) -> Sequences:
    tokens = torch.from_numpy(np.stack([window.steps for window in windows]))
    real = torch.tensor([window.real for window in windows])
    pad = torch.arange(length) >= real[:, None]
    return Sequences(tokens, pad if pad.any() else None, tuple(window.name for window in windows))


def _test_pieces(
    pieces: list[str], melodies: Sequence[Voice], fraction: float, seed: int, stretch: int | None
) -> set[str]:
    """The pieces of the test split; related pieces stay together."""
    index = {piece: i for i, piece in enumerate(pieces)}
    keys = ((index[melody.piece], key) for melody in melodies for key in _relation_keys(melody.steps, stretch))
    group_of = grouped(len(pieces), keys)
    sizes = [0] * len(set(group_of))
    for melody in melodies:
        sizes[group_of[index[melody.piece]]] += len(melody.steps)
    apart = "some that share no melody, so that one can be held out from another"
    require(len(sizes) >= 2 or len(pieces) < 2, "pieces", f"{len(pieces)} that share melodies", apart)
    chosen = is_test_group(sizes, fraction, seed)
    return {piece for piece, group in zip(pieces, group_of) if chosen[group]}


def _relation_keys(steps: NDArray[np.uint8], stretch: int | None) -> Iterator[Hashable]:
    """Keys that two melodies share only if they are related: one for the whole melody, one for every `stretch` steps.

    They do not depend on the key of the music, nor on the rests around it. Music with fewer than 8 changes, such as a
    held note, has no key: it may be the same by chance.
    """
    sounding = np.flatnonzero(steps != REST)
    melody = _changes(steps[sounding[0] : sounding[-1] + 1])
    if np.count_nonzero(melody) >= _FEWEST_CHANGES:
        yield melody.tobytes()
    if stretch is None or len(steps) < stretch:
        return
    stretches = sliding_window_view(_changes(steps), stretch - 1)
    lively = np.count_nonzero(stretches, axis=1) >= _FEWEST_CHANGES
    in_rest = steps[: len(stretches)][lively] == REST
    stretches = stretches[lively]  # a copy
    first = (stretches[in_rest] != 0).argmax(1)  # the interval from a note before the stretch does not count
    stretches[np.flatnonzero(in_rest), first] = _FIRST_NOTE
    yield from np.unique(stretches.astype(np.uint64) @ _hash_weights(stretch - 1)).tolist()


def _changes(steps: NDArray[np.uint8]) -> NDArray[np.int16]:
    """The changes of a melody (L,), which are the same in every key, (L - 1,).

    For each step but the first: 0 if nothing changes, 1 if a rest begins, otherwise 200 + the interval from the last
    note in semitones.
    """
    index = np.arange(len(steps))
    last = np.maximum.accumulate(np.where(steps != REST, index, 0))  # index of the last note so far
    intervals = 200 + steps[1:].astype(np.int16) - steps[last[:-1]]
    return np.where(steps[1:] == steps[:-1], 0, np.where(steps[1:] == REST, 1, intervals)).astype(np.int16)


def _hash_weights(length: int) -> NDArray[np.uint64]:
    """Random weights; the hash of a row is its dot product with them, modulo 2^64."""
    return np.random.default_rng(0).integers(2**64, size=length, dtype=np.uint64)
