"""Boards with other names for their symbols: drawn at random in training, and in one form to compare boards by."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from usd3._internal.device import moved_to
from usd3.kinds.base import Augment

__all__ = ["canonical", "renamer"]


def renamer(num_classes: int) -> Augment:
    """A function that renames the symbols of each board of a batch by a permutation of its own."""

    def rename(tokens: Tensor, pad: Tensor | None, generator: torch.Generator) -> Tensor:
        names = torch.rand(len(tokens), num_classes, generator=generator).argsort(1)
        names = moved_to(names, tokens.device)
        return names.gather(1, tokens.flatten(1).long()).reshape(tokens.shape)

    return rename


def canonical(boards: npt.NDArray[Any], num_classes: int) -> npt.NDArray[np.int64]:
    """Boards (N, ...) with their symbols numbered in the order in which they occur.

    Two boards are the same up to the names of their symbols where the results are the same.
    """
    flat = boards.reshape(len(boards), -1)
    cells = flat.shape[1]
    first = np.full((len(flat), num_classes), cells, dtype=np.int64)
    for cell in reversed(range(cells)):
        first[np.arange(len(flat)), flat[:, cell]] = cell
    names = first.argsort(1, kind="stable").argsort(1)
    return np.take_along_axis(names, flat.astype(np.int64), 1).reshape(boards.shape)
