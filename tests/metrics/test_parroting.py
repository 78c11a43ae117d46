from functools import partial

import numpy as np
import pytest

from usd3.metrics import distances_to_matches, matching_rows, ngram_hellinger, train_to_test_ratio


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def test_ratio_identities(rng):
    a, b = rng.random((2, 100))
    literal, swapped = train_to_test_ratio(a, b)
    np.testing.assert_allclose(literal, a / (b * (a + b)))
    np.testing.assert_allclose(swapped, b / (a * (a + b)))
    np.testing.assert_allclose(literal * b + swapped * a, 1)
    np.testing.assert_allclose(literal / swapped, (a / b) ** 2)
    np.testing.assert_array_equal(train_to_test_ratio(b, a).swapped, literal)


def test_ratio_of_numbers():
    assert train_to_test_ratio(0.5, 0.25) == pytest.approx((0.5 / (0.25 * 0.75), 0.25 / (0.5 * 0.75)))


def test_ratio_where_a_distance_is_zero():
    literal, swapped = train_to_test_ratio(np.array([1.0, 0.0, 0.0, np.nan]), [0.0, 1.0, 0.0, 1.0])
    np.testing.assert_array_equal(literal, [np.inf, 0, np.nan, np.nan])
    np.testing.assert_array_equal(swapped, [0, np.inf, np.nan, np.nan])


def test_the_literal_ratio_grows_with_copying():
    close, far = train_to_test_ratio(0.5, 0.01), train_to_test_ratio(0.5, 0.5)
    assert close.literal > far.literal
    assert close.swapped < far.swapped


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((-1.0, 1.0), "distance_to_test = -1.0: expected no negative distance"),
        ((np.ones(2), np.ones(3)), r"distance_to_train.shape = \(3,\): expected one that broadcasts"),
    ],
)
def test_ratio_refuses(args, message):
    with pytest.raises(ValueError, match=message):
        train_to_test_ratio(*args)


def test_matching_rows(rng):
    test, train = rng.integers(0, 2, (20, 6)), rng.integers(0, 2, (50, 9))
    for length in (1, 3, 6):
        for row, matches in zip(test, matching_rows(test, train, length), strict=True):
            expected = [i for i, t in enumerate(train) if (t[:length] == row[:length]).all()]
            assert matches.tolist() == expected


def test_distances_to_matches(rng):
    test, train = rng.integers(0, 2, (20, 6)), rng.integers(0, 2, (50, 6))
    matches = matching_rows(test, train, 5)
    distance = partial(ngram_hellinger, n=2)
    assert {len(m) == 0 for m in matches} == {True, False}
    for reduce, function in (("mean", np.mean), ("min", np.min)):
        seen = distances_to_matches(distance, test, train, matches, reduce=reduce)
        for row, rows, value in zip(test, matches, seen):
            each = [distance(row[None], train[i : i + 1])[0] for i in rows]
            np.testing.assert_allclose(value, function(each) if each else np.nan, rtol=1e-12)
    none = distances_to_matches(distance, test[:2], train, [np.arange(0)] * 2)
    assert np.isnan(none).all()


X = np.zeros((2, 4), int)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: matching_rows(X, X, 0), "prefix_length = 0: expected an integer 1..4"),
        (lambda: matching_rows(X, X[:, :3], 4), "prefix_length = 4: expected an integer 1..3"),
        (lambda: matching_rows(X[0], X, 1), r"prefixes.shape = \(4,\): expected"),
        (lambda: distances_to_matches(None, X, X, []), r"len\(matches\) = 0: expected one entry .* 2"),
        (lambda: distances_to_matches(None, X, X, [X[0], X[0] + 2]), r"matches = .*: expected indices .* 0..1"),
        (lambda: distances_to_matches(None, X, X, [X[0]] * 2, "max"), "reduce = 'max': expected 'mean' or 'min'"),
    ],
)
def test_matches_refuse(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_many_matches_are_compared_some_at_a_time(rng, monkeypatch):
    generated, train = rng.integers(0, 3, (4, 6)), rng.integers(0, 3, (30, 6))
    matches, distance = [np.arange(30), np.arange(0), np.arange(7), np.arange(5, 30)], partial(ngram_hellinger, n=2)
    whole = distances_to_matches(distance, generated, train, matches)
    monkeypatch.setattr("usd3.metrics.parroting._AT_ONCE", 20)
    np.testing.assert_allclose(distances_to_matches(distance, generated, train, matches), whole)
