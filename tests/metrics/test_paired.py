"""Paired differences, against a bootstrap of loops and on data whose false alarms can be counted."""

import math

import numpy as np
import pytest
import torch

from usd3.metrics import paired_difference, paired_differences


def slow_bootstrap(first, second, groups, weights, resamples, rng):
    """The plain bootstrap, group by group and object by object."""
    members = {name: [i for i, group in enumerate(groups) if group == name] for name in set(groups)}
    names, differences = sorted(members), []
    for _ in range(resamples):
        objects = [i for name in rng.choice(names, len(names)) for i in members[name]]
        means = []
        for values in (first, second):
            drawn = rng.integers(0, len(values), len(values))
            of_trainings = [
                sum(weights[i] * values[t][i] for i in objects) / sum(weights[i] for i in objects) for t in drawn
            ]
            means.append(sum(of_trainings) / len(of_trainings))
        differences.append(means[0] - means[1])
    return np.quantile(differences, [0.025, 0.975])


def made(rng, groups, trainings, of_group=0.0, of_training=0.0, of_object=0.0):
    """Values (T, N) around 0 that differ by group, training and object."""
    by_group = rng.normal(0, of_group, groups.max() + 1)[groups]
    by_training = rng.normal(0, of_training, (trainings, 1))
    return by_group + by_training + rng.normal(0, of_object, (trainings, len(groups)))


def test_groups_are_resampled_as_in_the_obvious_bootstrap():
    """With 80 groups, what makes up for few of them changes little."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(80), rng.integers(1, 4, 80))
    first, second = (made(rng, groups, 1, of_group=1, of_object=1) + shift for shift in (0.3, 0))
    weights = rng.integers(1, 5, len(groups))
    low, high = slow_bootstrap(first, second, groups.tolist(), weights.tolist(), 2000, rng)
    found = paired_difference(first, second, groups, weights)
    expected = np.average(first[0], weights=weights) - np.average(second[0], weights=weights)
    assert found.mean == pytest.approx(expected)
    width = high - low
    assert found.low == pytest.approx(low, abs=0.05 * width)  # two errors of a quantile are 0.03 of the width
    assert found.high == pytest.approx(high, abs=0.05 * width)
    assert not found.over_trainings


def test_many_trainings_are_resampled_as_in_the_obvious_bootstrap():
    """With 40 trainings of each method, what makes up for few of them changes little."""
    rng = np.random.default_rng(1)
    groups = np.repeat(np.arange(5), 2)
    first, second = (made(rng, groups, 40, of_group=0.1, of_training=1, of_object=0.1) for _ in range(2))
    low, high = slow_bootstrap(first.tolist(), second.tolist(), groups.tolist(), [1] * 10, 2000, rng)
    found = paired_difference(first, second, groups)
    assert found.over_trainings
    assert found.low == pytest.approx(low, abs=0.08 * (high - low))
    assert found.high == pytest.approx(high, abs=0.08 * (high - low))


@pytest.mark.parametrize(
    ("trainings", "spread", "least", "most"),
    [
        ((1, 1), {"of_group": 1.0, "of_object": 0.5}, 0.02, 0.09),
        ((3, 3), {"of_training": 1.0}, 0.02, 0.09),
        ((2, 2), {"of_training": 1.0}, 0.02, 0.10),
        ((3, 3), {"of_group": 1.0, "of_training": 0.1, "of_object": 0.5}, 0.0, 0.09),
        ((2, 10), {"of_training": 1.0}, 0.0, 0.09),
    ],
    ids=["groups alone", "three trainings", "two trainings", "all", "unequal numbers"],
)
def test_intervals_of_equal_methods_rarely_miss_0(trainings, spread, least, most):
    """About 5 % miss it. That fewer than 2 % or more than 9 % of 400 do then has a chance of 0.3 %."""
    rng = np.random.default_rng(2)
    misses = 0
    for seed in range(400):
        groups = np.repeat(np.arange(20), rng.integers(1, 4, 20))
        first, second = (made(rng, groups, number, **spread) for number in trainings)
        misses += paired_difference(first, second, groups, resamples=800, seed=seed).is_clear
    assert least <= misses / 400 <= most


def test_methods_are_paired_by_their_objects():
    """What makes objects hard for both methods cancels."""
    rng = np.random.default_rng(3)
    hard, groups = rng.normal(0, 10, 200), np.arange(200) // 4
    first = hard + rng.normal(0, 0.1, 200) + 0.1
    found = paired_difference(first, hard, groups)
    assert found.is_clear
    assert 0 < found.low < 0.1 < found.high < 0.2
    assert found.other_side < 0.01


def test_objects_of_one_group_count_as_one():
    rng = np.random.default_rng(4)
    of_groups = rng.normal(0, 1, 10)
    alone = paired_difference(of_groups, np.zeros(10))
    copied = paired_difference(np.repeat(of_groups, 50), np.zeros(500), np.repeat(np.arange(10) + 7, 50))
    assert (copied.low, copied.high) == pytest.approx((alone.low, alone.high))
    assert (copied.objects, copied.groups) == (500, 10)
    ungrouped = paired_difference(np.repeat(of_groups, 50), np.zeros(500))
    assert ungrouped.high - ungrouped.low < (alone.high - alone.low) / 5


def test_equal_methods_differ_by_nothing():
    values = np.random.default_rng(5).random((1, 30))
    found = paired_difference(values, torch.from_numpy(values[0]), np.arange(30) // 3)
    assert found[:4] == (0, 0, 0, 1)
    assert not found.is_clear
    three = np.tile(values, (3, 1))
    assert paired_difference(three, three)[:3] == pytest.approx((0, 0, 0))


def test_one_training_leaves_trainings_out_of_the_interval():
    rng = np.random.default_rng(6)
    one, three = rng.normal(0, 0.1, (1, 40)), rng.normal(0, 0.1, (3, 40)) + np.array([[-1], [0], [1]])
    found = paired_difference(one, three)
    assert found.trainings == (1, 3)
    assert not found.over_trainings
    both = paired_difference(three, three + 0.01)
    assert both.over_trainings
    assert found.high - found.low < 0.2 < both.high - both.low


def test_one_group_has_no_interval():
    found = paired_difference(np.ones(5), np.zeros(5), np.zeros(5, dtype=int))
    assert found.mean == 1
    assert all(math.isnan(value) for value in (found.low, found.high, found.other_side))
    assert not found.is_clear


def test_all_pairs_are_there_and_the_draws_are_seeded():
    rng = np.random.default_rng(7)
    values = [rng.random((2, 30)) for _ in range(3)]
    found = paired_differences(values, np.arange(30) // 5, resamples=500)
    assert list(found) == [(0, 1), (0, 2), (1, 2)]
    assert found[0, 1] == paired_difference(*values[:2], np.arange(30) // 5, resamples=500)
    assert found[0, 1] != paired_difference(*values[:2], np.arange(30) // 5, resamples=500, seed=1)


def test_many_objects_are_drawn_in_parts(monkeypatch):
    values = np.random.default_rng(8).random((2, 1, 50))
    whole = paired_difference(*values, resamples=100)
    monkeypatch.setattr("usd3.metrics.paired._AT_ONCE", 7 * 50)
    assert paired_difference(*values, resamples=100)[:4] == pytest.approx(whole[:4])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0, 2.0], [1.0]), r"methods\[1\].shape = \(1, 1\): expected \(T, N\), with the same N"),
        (([1.0, math.nan], [1.0, 2.0]), r"methods\[0\] = nan or infinity"),
        (([1.0, 2.0], [1.0, 2.0], np.zeros(3, dtype=int)), r"groups.shape = \(3,\): expected \(2,\)"),
        (([1.0, 2.0], [1.0, 2.0], None, np.zeros(2)), r"weights .* expected \(2,\) numbers > 0"),
        (([1.0, 2.0], [1.0, 2.0], None, None, 0), "resamples = 0"),
    ],
)
def test_values_that_cannot_be_compared_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        paired_difference(*arguments)
