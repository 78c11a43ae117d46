"""Melodies cut into windows of one length, and split into training and test by piece."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from usd3._internal.checks import as_count, require
from usd3.kinds.dataset import Dataset, Sequences
from usd3.kinds.melody.kind import Melody
from usd3.kinds.melody.notation import MELODY_CLASSES, REST
from usd3.kinds.melody.related import Voice, held_out_pieces

__all__ = ["cut", "melodies_dataset", "worth_keeping"]

_MOST_REST = 0.9


@dataclass(frozen=True, eq=False)
class _Window:
    name: str
    steps: NDArray[np.uint8]
    real: int
    group: int


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

    Held-out windows of related pieces are a group.

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
    test_pieces = held_out_pieces(melodies, test_fraction, seed, stretch)
    splits: dict[str, list[_Window]] = {"train": [], "test": []}
    for melody in melodies:
        for start, window in cut(melody.steps, length):
            row = _padded(window, length)
            label = f"{melody.piece} | {melody.voice} | {start}"
            group = test_pieces.get(melody.piece)
            splits["train" if group is None else "test"].append(_Window(label, row, len(window), group or 0))
    for split, windows in splits.items():
        require(len(windows) > 0, f"windows of {split}", 0, f"melodies of at least length // 4 = {length // 4} steps")
    train, test = (_stacked(windows, length) for windows in splits.values())
    test = replace(test, groups=torch.tensor([window.group for window in splits["test"]]))
    return Dataset(name, MELODY_CLASSES, train, test, kind=Melody(MELODY_CLASSES, (length,)))


def _padded(window: NDArray[np.uint8], length: int) -> NDArray[np.uint8]:
    return np.pad(window, (0, length - len(window)), constant_values=REST)


def _stacked(windows: list[_Window], length: int) -> Sequences:
    tokens = torch.from_numpy(np.stack([window.steps for window in windows]))
    real = torch.tensor([window.real for window in windows])
    pad = torch.arange(length) >= real[:, None]
    return Sequences(tokens, pad if pad.any() else None, tuple(window.name for window in windows))
