"""Random splits into training and test, by groups that must stay together."""

from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from usd3._internal.checks import as_count, as_number, require

__all__ = ["grouped", "is_test_group"]


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
