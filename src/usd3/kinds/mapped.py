"""Objects in a memory-mapped array: they are read from the disk when they are taken.

Nothing here holds more than a few million elements at once, however large the array is.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from usd3._internal.checks import require
from usd3.kinds.rows import PIECE, Sequences, Taken, compact, in_chunks
from usd3.kinds.splits import Part, split_rows

__all__ = ["Facts", "MappedRows", "facts_of", "mapped_splits", "row_chunks"]


class Facts(NamedTuple):
    """What one pass over an array finds out.

    Args:
        least: the smallest token that is no padding.
        largest: the largest one. Less than `least` if all is padding.
        has_padding: whether there is any padding.
        empty_row: the first row that is nothing but padding; None: there is none.
    """

    least: int
    largest: int
    has_padding: bool
    empty_row: int | None = None


def row_chunks(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """The array (N, ...) in parts of some rows, which stay where they are."""
    rows = max(1, PIECE // max(1, math.prod(array.shape[1:])))
    return (array[first : first + rows] for first in range(0, len(array), rows))


def facts_of(array: NDArray[Any], pad_value: int | None = None) -> Facts:
    """The facts on an array of integers (N, ...)."""
    least, largest, has_padding, empty_row, row = 0, -1, False, None, 0
    for part in row_chunks(array):
        is_pad = None if pad_value is None else part == pad_value
        real = part if is_pad is None else part[~is_pad]
        if is_pad is not None and real.size < part.size:
            has_padding = True
            empty = np.flatnonzero(is_pad.reshape(len(part), -1).all(1))
            empty_row = row + int(empty[0]) if empty_row is None and empty.size else empty_row
        if real.size:
            lowest, highest = int(real.min()), int(real.max())
            least, largest = (lowest, highest) if largest < least else (min(least, lowest), max(largest, highest))
        row += len(part)
    return Facts(least, largest, has_padding, empty_row)


@dataclass(frozen=True, eq=False)
class MappedRows(Taken):
    """Objects of K categories in an array that may be larger than memory.

    Args:
        array: (N, ...) integers of any type, such as np.load(path, mmap_mode="r").
        num_classes: K.
        facts: on the array.
        pad_value: the integer that marks padding, which becomes token 0; None: there is none.
        part: which rows belong to the split; None: all.
        table: (V,) the token of each integer; None: the integers are the tokens.
    """

    array: NDArray[Any]
    num_classes: int
    facts: Facts
    pad_value: int | None = None
    part: Part | None = None
    table: Tensor | None = None

    def __post_init__(self) -> None:
        array = self.array
        require(array.dtype.kind in "iu", "array.dtype", array.dtype, "integers")
        require(array.ndim >= 2 and array.size > 0, "array.shape", array.shape, "(N, ...), at least one object")
        row = self.facts.empty_row
        require(row is None, "pad", f"True everywhere in row {row}", "no object that is all padding")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one object."""
        return tuple(self.array.shape[1:])

    def __len__(self) -> int:
        return len(self.array) if self.part is None else len(self.part)

    def take(self, index: Tensor) -> tuple[Tensor, Tensor | None]:
        """The objects with these numbers, read from the disk."""
        return self._at(index if self.part is None else self.part.rows(index))

    def pieces(self) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Some objects after the other, in the order of the array."""
        size = max(1, PIECE // math.prod(self.shape))
        for rows in in_chunks(len(self.array), size) if self.part is None else self.part.chunks(size):
            yield self._at(rows)

    def limits(self) -> tuple[int, int]:
        """The smallest token and the largest one of the whole array, or of the table."""
        if self.table is not None:
            return int(self.table.min()), int(self.table.max())
        return min(0, self.facts.least) if self.facts.has_padding else self.facts.least, self.facts.largest

    def renamed(self, names: Tensor) -> "MappedRows":
        """The same objects with other tokens; the array stays as it is."""
        return replace(self, table=names if self.table is None else names[self.table.long()])

    @property
    def nbytes(self) -> int:
        """Size of tokens and padding in memory."""
        size = len(self) * math.prod(self.shape)
        return size * (1 if self.num_classes <= 256 else 4) + (size if self._padded else 0)

    def to(self, device: torch.device) -> "MappedRows | Sequences":
        """The objects in the memory of another device; for the CPU they stay on the disk."""
        return self if device.type == "cpu" else self.in_memory(device)

    def in_memory(self, device: torch.device) -> Sequences:
        """All objects in the memory of a device."""
        size, one = len(self), self.take(torch.tensor([0]))
        tokens, pad = (None if x is None else x.new_empty(size, *self.shape, device=device) for x in one)
        assert tokens is not None
        for index in in_chunks(size, max(1, PIECE // math.prod(self.shape))):
            some_tokens, some_pad = self.take(index)
            tokens[index[0] : index[-1] + 1] = some_tokens
            if pad is not None and some_pad is not None:
                pad[index[0] : index[-1] + 1] = some_pad
        return Sequences(tokens, pad)

    @property
    def _padded(self) -> bool:
        return self.pad_value is not None and self.facts.has_padding

    def _at(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        """The objects in these rows of the array."""
        values = np.asarray(self.array[rows.numpy()])
        pad = torch.from_numpy(values == self.pad_value) if self._padded else None
        tokens = torch.from_numpy(values.astype(np.int64 if self.table is not None else np.int32))
        tokens = tokens if pad is None else tokens.masked_fill(pad, 0)
        return compact(tokens, self.num_classes) if self.table is None else self.table[tokens], pad


def mapped_splits(
    array: NDArray[Any],
    num_classes: int,
    fraction: float,
    seed: int,
    pad_value: int | None = None,
    facts: Facts | None = None,
) -> tuple[MappedRows, MappedRows]:
    """Rows of an array to train on, and held-out rows, drawn at random; the array stays where it is.

    Args:
        array: (N, ...) integers, as `token_file` and `np.load(path, mmap_mode="r")` return them.
        num_classes: number of categories.
        fraction: the fraction of rows that are held out.
        seed: seed of the split.
        pad_value: the integer that marks padding; None: there is none.
        facts: on the array, if they are known; None: the array is read once.
    """
    facts = facts_of(array, pad_value) if facts is None else facts
    train, test = split_rows(len(array), fraction, seed)
    first = MappedRows(array, num_classes, facts, pad_value, train)
    return first, replace(first, part=test)
