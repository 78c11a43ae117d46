from itertools import combinations

import numpy as np
import pytest
import torch

from usd3.metrics import edit_diversity
from usd3.metrics.edits import pair_edits


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def levenshtein(a, b):
    table = np.zeros((len(a) + 1, len(b) + 1), int)
    table[:, 0], table[0] = np.arange(len(a) + 1), np.arange(len(b) + 1)
    for i in range(len(a)):
        for j in range(len(b)):
            change = table[i, j] + (a[i] != b[j])
            table[i + 1, j + 1] = min(change, table[i, j + 1] + 1, table[i + 1, j] + 1)
    return table[-1, -1]


@pytest.mark.parametrize("runs", [2, 3, 4])
@pytest.mark.parametrize(("classes", "length"), [(2, 1), (2, 12), (5, 30), (129, 20)])
def test_agrees_with_the_textbook(runs, classes, length, rng):
    x = rng.integers(0, classes, (runs, 4, length))
    expected = [[levenshtein(a, b) / length for a, b in combinations(x[:, i], 2)] for i in range(4)]
    np.testing.assert_allclose(pair_edits(x), np.transpose(expected), rtol=1e-12)
    np.testing.assert_allclose(edit_diversity(x), np.mean(expected, axis=1), rtol=1e-12)
    np.testing.assert_array_equal(edit_diversity(torch.from_numpy(x)), edit_diversity(x))


def test_by_hand():
    x = np.array([[[1, 2, 3, 4]], [[2, 3, 4, 5]], [[1, 2, 3, 4]]])  # one removed, one added; equal
    np.testing.assert_allclose(edit_diversity(x), [(2 + 0 + 2) / 3 / 4])


def test_bounds(rng):
    x = rng.integers(0, 9, (1, 5, 20))
    np.testing.assert_array_equal(edit_diversity(np.repeat(x, 3, axis=0)), 0)
    np.testing.assert_array_equal(edit_diversity(np.concatenate([x, x + 9, x + 18])), 1)


def test_padding_is_left_out(rng):
    x, pad = rng.integers(0, 3, (3, 5, 12)), rng.random((5, 12)) < 0.3
    expected = [edit_diversity(x[:, i : i + 1][..., ~pad[i]])[0] for i in range(5)]
    np.testing.assert_allclose(edit_diversity(x, pad), expected)
    np.testing.assert_array_equal(edit_diversity(np.where(pad, -1, x), pad), edit_diversity(x, pad))


def test_large_categories(rng):
    x = rng.integers(0, 4, (3, 5, 30))
    values = np.array([0, 0x10FFFF + 7, 2**61 - 1, 2**62])  # Python's hash gives the third one 0
    np.testing.assert_array_equal(edit_diversity(values[x]), edit_diversity(x))


X = np.zeros((2, 3, 4), int)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((X[0],), r"samples.shape = \(3, 4\): expected \(R, N, L\)"),
        ((X[:1],), r"samples.shape = \(1, 3, 4\): expected \(R, N, L\) with R >= 2"),
        ((X[:, :0],), r"samples.shape = \(2, 0, 4\): expected"),
        ((X - 1,), r"samples.min\(\) = -1: expected categories >= 0"),
        ((X, X > 0), r"pad.shape = \(2, 3, 4\): expected \(3, 4\)"),
        ((X, np.array([[False] * 4, [True] * 4, [False] * 4])), r"pad\[1\] = all True: expected at least one element"),
    ],
)
def test_bad_values(args, message):
    with pytest.raises(ValueError, match=message):
        edit_diversity(*args)


def test_bad_types():
    with pytest.raises(TypeError, match="samples has dtype float64: expected"):
        edit_diversity(X + 0.5)
