from collections import Counter

import numpy as np
import pytest
import torch

from usd3.metrics import ngram_hellinger, ngram_outliers


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def grams(row, n, pad=None):
    pad = np.zeros(len(row), bool) if pad is None else pad
    return [tuple(row[i : i + n].tolist()) for i in range(len(row) - n + 1) if not pad[i : i + n].any()]


def brute_hellinger(generated, true, n, pad=None):
    p, q = Counter(grams(generated, n, pad)), Counter(grams(true, n, pad))
    squares = [(np.sqrt(p[g] / p.total()) - np.sqrt(q[g] / q.total())) ** 2 for g in p | q]
    return np.sqrt(sum(squares) / 2)


def brute_outliers(generated, true, n, pad=None):
    known = set(grams(true, n, pad))
    return np.mean([g not in known for g in grams(generated, n, pad)])


PAIRS = [(ngram_hellinger, brute_hellinger), (ngram_outliers, brute_outliers)]


@pytest.mark.parametrize(("fast", "brute"), PAIRS)
@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize(("classes", "length"), [(2, 5), (3, 9), (129, 40)])
def test_agrees_with_counting(fast, brute, n, classes, length, rng):
    generated, true = rng.integers(0, classes, (2, 6, length))
    seen = fast(generated, true, n)
    assert seen.dtype == np.float64
    np.testing.assert_allclose(seen, [brute(a, b, n) for a, b in zip(generated, true)], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("fast", "brute"), PAIRS)
def test_lengths_may_differ(fast, brute, rng):
    generated, true = rng.integers(0, 3, (4, 7)), rng.integers(0, 3, (4, 11))
    np.testing.assert_allclose(fast(generated, true, 2), [brute(a, b, 2) for a, b in zip(generated, true)], rtol=1e-12)


@pytest.mark.parametrize(("fast", "brute"), PAIRS)
@pytest.mark.parametrize("n", [1, 2, 3])
def test_padding_is_not_counted(fast, brute, n, rng):
    generated, true = rng.integers(0, 3, (2, 8, 20))
    pad = rng.random((8, 20)) < 0.1
    pad[0], pad[1] = False, np.arange(20) >= 12
    expected = [brute(a, b, n, p) for a, b, p in zip(generated, true, pad)]
    np.testing.assert_allclose(fast(generated, true, n, pad), expected, rtol=1e-12)
    hidden = np.where(pad, -100, generated)
    np.testing.assert_array_equal(fast(hidden, true, n, torch.from_numpy(pad)), fast(generated, true, n, pad))
    np.testing.assert_array_equal(fast(generated, true, n, np.zeros_like(pad)), fast(generated, true, n))


def test_by_hand():
    generated, true = np.array([[0, 0, 1, 1]]), np.array([[0, 0, 0, 2]])
    assert ngram_hellinger(generated, true, 1)[0] == pytest.approx(
        np.sqrt(((np.sqrt(0.5) - np.sqrt(0.75)) ** 2 + 0.5 + 0.25) / 2)
    )
    assert ngram_outliers(generated, true, 1)[0] == 0.5
    assert ngram_outliers(generated, true, 2)[0] == pytest.approx(2 / 3)  # 00 is known; 01 and 11 are not


def test_bounds(rng):
    x = rng.integers(0, 50, (30, 64))
    for n in (1, 2, 3):
        assert not ngram_hellinger(x, x, n).any()
        assert not ngram_outliers(x, x, n).any()
        np.testing.assert_allclose(ngram_hellinger(x, x + 50, n), 1, rtol=1e-12)
        assert ngram_hellinger(x, x + 50, n).max() <= 1
        np.testing.assert_array_equal(ngram_outliers(x, x + 50, n), 1)


def test_rows_do_not_mix():
    x = np.array([[0, 1], [2, 3]])
    np.testing.assert_array_equal(ngram_outliers(x, x[::-1].copy(), 1), [1, 1])


@pytest.mark.parametrize("shift", [0, 50_257, 2**31, 2**62])
def test_large_categories(shift, rng):
    small = rng.integers(0, 4, (2, 5, 30))
    generated, true = small * 12_345 + shift
    for n in (1, 2, 5):
        np.testing.assert_array_equal(ngram_hellinger(generated, true, n), ngram_hellinger(*small, n))
        np.testing.assert_array_equal(ngram_outliers(generated, true, n), ngram_outliers(*small, n))


def test_powers_of_k_would_overflow(rng):
    generated = rng.integers(0, 50_257, (3, 40))
    true = generated.copy()
    true[:, 20:] = rng.integers(0, 50_257, (3, 20))
    expected = [brute_hellinger(a, b, 5) for a, b in zip(generated, true)]
    np.testing.assert_allclose(ngram_hellinger(generated, true, 5), expected, rtol=1e-12)
    other = np.array([[2**61, 0, 0, 0, 0]])  # 2^61 8^4 would wrap around to 0
    assert ngram_outliers(other, np.zeros((1, 5), int), 5)[0] == 1


@pytest.mark.parametrize("kind", ["uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_any_integer_type(kind, rng):
    generated, true = rng.integers(0, 5, (2, 4, 12))
    expected = ngram_hellinger(generated, true, 2)
    np.testing.assert_array_equal(ngram_hellinger(generated.astype(kind), true, 2), expected)
    tensors = (torch.from_numpy(x.astype(kind)) for x in (generated, true))
    np.testing.assert_array_equal(ngram_hellinger(*tensors, 2), expected)


X = np.zeros((2, 4), int)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((X[0], X, 1), r"generated.shape = \(4,\): expected \(N, L\)"),
        ((X[:0], X[:0], 1), r"generated.shape = \(0, 4\): expected \(N, L\), none of them 0"),
        ((X, X[:1], 1), r"truth.shape = \(1, 4\): expected as many rows as generated, 2"),
        ((X, X, 0), "n = 0: expected an integer >= 1"),
        ((X, X[:, :2], 3), "n = 3: expected at most the length of the sequences, 2"),
        ((X - 1, X, 1), r"generated.min\(\) = -1: expected categories >= 0"),
        ((X, X - 1, 1), r"truth.min\(\) = -1: expected categories >= 0"),
        ((np.full((2, 4), 2**63, np.uint64), X, 1), r"generated.max\(\) = 9223372036854775808: expected"),
        ((X, X, 1, X[:1] > 0), r"pad.shape = \(1, 4\): expected \(2, 4\)"),
        ((X, X[:, :2], 1, X > 0), r"truth.shape = \(2, 2\): expected \(2, 4\)"),
        ((X, X, 2, np.array([[False] * 4, [False, True] * 2])), r"pad\[1\] = .*: expected at least one 2-gram free"),
    ],
)
@pytest.mark.parametrize("function", [ngram_hellinger, ngram_outliers])
def test_bad_values(function, args, message):
    with pytest.raises(ValueError, match=message):
        function(*args)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((X + 0.5, X, 1), "generated has dtype float64: expected a NumPy array or a tensor of integers"),
        ((X, torch.zeros(2, 4), 1), "truth has dtype float32: expected"),
        ((X > 0, X, 1), "generated has dtype bool: expected"),
        ((X.tolist(), X, 1), "generated is a list: expected"),
        ((X, X, 1.0), "n is a float: expected an integer >= 1"),
        ((X, X, 1, X), "pad has dtype int64: expected a boolean array"),
    ],
)
def test_bad_types(args, message):
    with pytest.raises(TypeError, match=message):
        ngram_hellinger(*args)
