"""The count of false alarms, in few repetitions."""

import importlib
import sys

import numpy as np
import pytest

from support.places import ROOT


@pytest.fixture
def false_alarms(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    yield importlib.import_module("false_alarms")
    sys.modules.pop("false_alarms", None)


def test_values_have_the_spreads_that_a_row_names(false_alarms):
    groups = np.repeat(np.arange(400), 3)
    for spread, axis in (((2.0, 0.0, 0.0), 1), ((0.0, 2.0, 0.0), 0)):
        values = false_alarms.made(np.random.default_rng(0), groups, 400, spread)
        assert values.std() == pytest.approx(2, rel=0.15)
        assert np.ptp(values, axis=1 - axis).max() == 0


def test_the_plain_bootstrap_of_two_trainings_misses_0_far_too_often(false_alarms):
    settings = (20, 2, false_alarms.SPREADS["trainings"], 100, 300)
    plain, ours = (
        false_alarms.share_of_misses(interval, *settings)
        for interval in (false_alarms.plain_interval, false_alarms.our_interval)
    )
    assert ours < 0.15 < plain  # 0.05 and 0.32; each has a chance below 0.1 %
