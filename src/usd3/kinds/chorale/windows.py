"""Chorales cut into windows: at every bar to train on, side by side where they are held out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from usd3._internal.checks import as_count, require
from usd3.kinds.chorale.kind import Chorale
from usd3.kinds.chorale.notation import VOICES
from usd3.kinds.dataset import Dataset, Sequences
from usd3.kinds.melody.notation import MELODY_CLASSES, REST

__all__ = ["Piece", "as_sequences", "chorale_dataset"]

_BAR = 16  # steps


@dataclass(frozen=True, eq=False)
class Piece:
    """A chorale.

    Args:
        name: its name.
        steps: (T, 4) the MIDI pitch of each voice at each sixteenth note, or 128 for silence.
    """

    name: str
    steps: NDArray[np.uint8]


def chorale_dataset(
    name: str,
    train: Sequence[Piece],
    test: Sequence[Piece],
    length: int,
    from_files: bool,
    groups: Mapping[str, int] | None = None,
) -> Dataset:
    """Windows of chorales, (length, 4) each, padded at the end.

    Training windows begin at every bar of 16 steps, counted from the beginning of the chorale, and overlap; the first
    and the last ones are shorter, at least half as long. Held-out windows stand side by side, so that each step is in
    one of them.

    Args:
        name: name of the data.
        train: the chorales to train on.
        test: the held-out chorales.
        length: steps of a window.
        from_files: they are the user's, not those of music21.
        groups: a number for each held-out chorale, equal for related ones; None: each is a group of its own.
    """
    length = as_count(length, "length", 1)
    held_out = [(piece.name, window) for piece in test for window in _side_by_side(piece, length)]
    splits = {
        "train": [window for piece in train for window in _at_every_bar(piece, length)],
        "test": [window for _, window in held_out],
    }
    for split, windows in splits.items():
        require(len(windows) > 0, f"chorales of {split}", 0, "at least one with a note")
    first, second = (as_sequences(windows, length) for windows in splits.values())
    group_of = {piece.name: i for i, piece in enumerate(test)} if groups is None else groups
    second = replace(second, groups=torch.tensor([group_of[name] for name, _ in held_out]))
    return Dataset(name, MELODY_CLASSES, first, second, kind=Chorale(MELODY_CLASSES, (length, len(VOICES)), from_files))


def as_sequences(pieces: Sequence[Piece], length: int) -> Sequences:
    """Chorales of at most `length` steps as objects of so many, padded at the end."""
    steps = torch.tensor([len(piece.steps) for piece in pieces])
    padded = [np.pad(piece.steps, ((0, length - len(piece.steps)), (0, 0))) for piece in pieces]
    pad = (torch.arange(length) >= steps[:, None])[..., None].expand(-1, -1, len(VOICES)).contiguous()
    names = tuple(piece.name for piece in pieces)
    return Sequences(torch.from_numpy(np.stack(padded)), pad if pad.any() else None, names)


def _at_every_bar(piece: Piece, length: int) -> Iterator[Piece]:
    """The windows at every bar that have at least half of `length`, or of the chorale if that is shorter."""
    total = len(piece.steps)
    least = min(length, total) // 2
    for start in range(-(length // _BAR) * _BAR, total, _BAR):
        begin, end = max(0, start), min(start + length, total)
        if end - begin >= max(1, least):
            yield from _with_notes(piece, begin, end)


def _side_by_side(piece: Piece, length: int) -> Iterator[Piece]:
    for start in range(0, len(piece.steps), length):
        yield from _with_notes(piece, start, min(start + length, len(piece.steps)))


def _with_notes(piece: Piece, begin: int, end: int) -> Iterator[Piece]:
    """The steps of a chorale from `begin` to `end`; nothing if they are silent."""
    steps = piece.steps[begin:end]
    if (steps != REST).any():
        yield Piece(f"{piece.name} | {begin}", steps)
