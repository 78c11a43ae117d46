"""Random splits into training and test: of rows, and of groups that must stay together."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from usd3._internal.checks import as_count, as_number, require
from usd3._internal.permutation import Permutation

__all__ = ["Part", "grouped", "is_test_group", "is_test_row", "split_rows"]

_MOST_LISTED = 2**24  # rows; a split of more is computed, not stored


class Part(Protocol):
    """A part of the rows of a table: which row has the number 0, 1, ... in it."""

    def __len__(self) -> int: ...

    def rows(self, index: Tensor) -> Tensor:
        """The rows with these numbers (n,), int64 (n,)."""

    def chunks(self, size: int) -> Iterator[Tensor]:
        """All rows of the part in the order of the table, at most `size` at once."""


def is_test_row(count: int, fraction: float, seed: int) -> NDArray[np.bool_]:
    """(count,) for each row whether it belongs to the test split: what `is_test_group` says of groups of one."""
    fraction = as_number(fraction, "test_fraction", 0, 1)
    seed = as_count(seed, "seed", 0)
    require(count >= 2, "number of rows to split", count, "at least 2, one to train and one to test on")
    is_test, chosen = np.zeros(count, dtype=bool), int(fraction * count)
    is_test[np.random.default_rng(seed).permutation(count)[:chosen] if chosen else 0] = True
    return is_test


def split_rows(count: int, fraction: float, seed: int) -> tuple[Part, Part]:
    """The rows of training and the test rows of a table of any size, in little memory.

    Up to 2^24 rows it is the split of `is_test_row`; beyond that, of a permutation that is computed.
    """
    if count <= _MOST_LISTED:
        is_test = torch.from_numpy(is_test_row(count, fraction, seed))
        return ListedPart((~is_test).nonzero().flatten()), ListedPart(is_test.nonzero().flatten())
    fraction = as_number(fraction, "test_fraction", 0, 1)
    permutation, held_out = Permutation(count, as_count(seed, "seed", 0)), max(1, int(fraction * count))
    return PermutedPart(permutation, held_out, count), PermutedPart(permutation, 0, held_out)


@dataclass(frozen=True, eq=False)
class ListedPart:
    """The rows in a list, (n,) int64."""

    listed: Tensor

    def __len__(self) -> int:
        return len(self.listed)

    def rows(self, index: Tensor) -> Tensor:
        """The rows at these places of the list."""
        return self.listed[index]

    def chunks(self, size: int) -> Iterator[Tensor]:
        """The list in pieces."""
        yield from self.listed.split(size)


@dataclass(frozen=True)
class PermutedPart:
    """The rows at the places first..last-1 of a permutation."""

    permutation: Permutation
    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first

    def rows(self, index: Tensor) -> Tensor:
        """The rows at these places, counted from `first`."""
        return self.permutation(index + self.first)

    def chunks(self, size: int) -> Iterator[Tensor]:
        """Every `size` rows of the table those that belong to the part."""
        for begin in range(0, self.permutation.size, size):
            rows = torch.arange(begin, min(begin + size, self.permutation.size))
            place = self.permutation.inverse(rows)
            yield rows[(self.first <= place) & (place < self.last)]


def is_test_group(sizes: Sequence[int], fraction: float, seed: int) -> list[bool]:
    """For each group, whether it belongs to the test split.

    Groups are tried in a random order; a group is taken if the test split then has at most `fraction` of the total
    size. If none can be taken, the smallest is. At least one group stays in the training split.
    """
    fraction = as_number(fraction, "test_fraction", 0, 1)
    seed = as_count(seed, "seed", 0)
    require(len(sizes) >= 2, "number of groups to split", len(sizes), "at least 2, one to train and one to test on")
    target = fraction * sum(sizes)
    chosen = [False] * len(sizes)
    test_size = 0
    for group in np.random.default_rng(seed).permutation(len(sizes)).tolist():
        if test_size + sizes[group] <= target:
            test_size += sizes[group]
            chosen[group] = True
    if not any(chosen):
        chosen[min(range(len(sizes)), key=sizes.__getitem__)] = True
    return chosen


def grouped(count: int, keys: Iterable[tuple[int, Hashable]]) -> list[int]:
    """The group of each item, numbered from 0: items that share a key are in one group.

    If a and b share a key, and b and c share another, all three are in one group.

    Args:
        count: number of items.
        keys: pairs (item, key).
    """
    parent = list(range(count))

    def root(item: int) -> int:
        while parent[item] != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return item

    first: dict[Hashable, int] = {}
    for item, key in keys:
        a, b = root(first.setdefault(key, item)), root(item)
        parent[max(a, b)] = min(a, b)
    numbers: dict[int, int] = {}
    return [numbers.setdefault(root(item), len(numbers)) for item in range(count)]
