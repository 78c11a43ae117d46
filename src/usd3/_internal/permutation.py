"""Pseudo-random permutations of very many numbers, each computed when it is asked for: no table is kept."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from usd3._internal.checks import as_count
from usd3._internal.random import seed_of

__all__ = ["Permutation"]

_ROUNDS = 8
_Words = NDArray[np.uint64]


class Permutation:
    """A pseudo-random permutation of 0..size-1 in constant memory, for index tensors on the CPU.

    It is a Feistel network on the pairs (left, right) of a grid of `height` x `width` >= size cells: in turns, a hash
    of one half is added to the other half. A number that leaves 0..size-1 is permuted again until it is back (cycle
    walking). The grid has fewer than `height` cells too many, so this is rare.

    Args:
        size: how many numbers there are, at most 2^62.
        seed: another seed gives another permutation.
    """

    def __init__(self, size: int, seed: int = 0):
        self.size = as_count(size, "size", 1, 2**62)
        height = max(1, int(self.size**0.5))
        self._height, self._width = np.uint64(height), np.uint64(-(-self.size // height))
        self._keys = [np.uint64(seed_of(seed, number)) for number in range(_ROUNDS)]

    def __call__(self, index: Tensor) -> Tensor:
        """Where each number of `index` goes, int64 in its shape."""
        return self._walked(index, self._forward)

    def inverse(self, index: Tensor) -> Tensor:
        """Where each number of `index` comes from, int64 in its shape."""
        return self._walked(index, self._backward)

    def _walked(self, index: Tensor, step: Callable[[_Words], _Words]) -> Tensor:
        numbers = step(index.numpy().astype(np.uint64).ravel())
        while (outside := np.flatnonzero(numbers >= self.size)).size:
            numbers[outside] = step(numbers[outside])
        return torch.from_numpy(numbers.astype(np.int64)).reshape(index.shape)

    def _forward(self, numbers: _Words) -> _Words:
        left, right = numbers // self._width, numbers % self._width
        for number, key in enumerate(self._keys):
            if number % 2:
                right = (right + _hashed(left, key) % self._width) % self._width
            else:
                left = (left + _hashed(right, key) % self._height) % self._height
        return left * self._width + right

    def _backward(self, numbers: _Words) -> _Words:
        left, right = numbers // self._width, numbers % self._width
        for number, key in reversed(list(enumerate(self._keys))):
            if number % 2:
                right = (right + (self._width - _hashed(left, key) % self._width)) % self._width
            else:
                left = (left + (self._height - _hashed(right, key) % self._height)) % self._height
        return left * self._width + right


def _hashed(numbers: _Words, key: np.uint64) -> _Words:
    """64 well mixed bits of each number and a key: the finaliser of SplitMix64."""
    z = numbers ^ key
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
