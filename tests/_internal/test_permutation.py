"""Permutations that are computed, not stored: every number once, back again, and without a pattern."""

import pytest
import torch

from support.runs import memory_below
from usd3._internal.permutation import Permutation


@pytest.mark.parametrize("size", [1, 2, 3, 5, 16, 17, 99, 100, 101, 1000, 65_537])
@pytest.mark.parametrize("seed", [0, 1])
def test_every_number_comes_once_and_goes_back(size, seed):
    numbers = torch.arange(size)
    permutation = Permutation(size, seed)
    moved = permutation(numbers)
    assert torch.equal(moved.sort().values, numbers)
    assert torch.equal(permutation.inverse(moved), numbers)
    assert torch.equal(permutation(permutation.inverse(numbers)), numbers)


def test_it_depends_on_the_seed_alone_and_keeps_the_shape():
    index = torch.arange(600).reshape(20, 30)
    assert torch.equal(Permutation(1000, 3)(index), Permutation(1000, 3)(index))
    assert not torch.equal(Permutation(1000, 3)(index), Permutation(1000, 4)(index))
    assert torch.equal(Permutation(1000, 3)(index).flatten(), Permutation(1000, 3)(index.flatten()))


def test_sizes_beyond_memory_take_none():
    size = 2**62
    index = torch.tensor([0, 1, size // 2, size - 1])
    with memory_below(2**20):
        permutation = Permutation(size, 0)
        moved = permutation(index)
        assert torch.equal(permutation.inverse(moved), index)
    assert moved.min() >= 0
    assert moved.max() < size
    assert len(moved.unique()) == 4


def _deviations(counts: torch.Tensor) -> float:
    """How many standard deviations chi-square is above its mean, for counts (cells,) that should be equal."""
    expected = counts.sum() / len(counts)
    chi_square = ((counts - expected) ** 2 / expected).sum()
    return float((chi_square - (len(counts) - 1)) / (2 * (len(counts) - 1)) ** 0.5)


def test_places_and_steps_look_uniform():
    """Chi-square of three counts, each alarmed above 4 standard deviations: a false alarm once in about 10,000."""
    size, seeds = 23, 4000
    moved = torch.stack([Permutation(size, seed)(torch.arange(size)) for seed in range(seeds)])
    places = torch.bincount((torch.arange(size) * size + moved).flatten(), minlength=size * size).double()
    assert _deviations(places) < 4
    steps = torch.bincount(((moved[:, 1:] - moved[:, :-1]) % size).flatten(), minlength=size)[1:].double()
    assert _deviations(steps) < 4
    large, bins = Permutation(2**40 + 1, 5)(torch.arange(200_000)), 100  # neighbours of one large permutation
    pairs = (large[:-1] * bins // (2**40 + 1)) * bins + large[1:] * bins // (2**40 + 1)
    assert _deviations(torch.bincount(pairs, minlength=bins * bins).double()) < 4
