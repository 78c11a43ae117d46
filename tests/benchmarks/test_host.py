"""The host's share of a call: no call has more operators than the page says."""

import csv
import importlib
import sys

import pytest

from support.places import ROOT

pytest.importorskip("triton")

MOST = {  # operators of a call, for any noise and in both kinds of time
    "cross entropy": 5,
    "loss": 20,
    "loss_from_logits": 16,
    "draw": 9,
    "draw at own times": 15,
    "sample 20 steps": 16 + 3 * 20,  # once a call, and each step: the uniforms, the coefficients and the draw
}


@pytest.fixture(scope="module")
def counted():
    """The operators of each call on the way of a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "benchmarks")
        host = importlib.import_module("host")
    with host.idle_kernels():
        counts = {tuple(about.values()): host.measured(call, rounds=1)["operators"] for about, call in host.calls()}
    for name in ("host", "shared"):
        sys.modules.pop(name, None)
    return counts


def test_no_call_has_more_operators_than_it_needs(counted):
    assert {call for call, *_ in counted} == set(MOST)
    assert {about: count for about, count in counted.items() if count > MOST[about[0]]} == {}


def test_continuous_time_takes_as_many_as_discrete_time(counted):
    """But for those that turn a user's step into a time."""
    for (call, noise, time), count in counted.items():
        if time == "continuous":
            in_discrete_time = counted[call, noise, "discrete"]
            assert count == in_discrete_time if call == "loss" else 0 <= in_discrete_time - count <= 2


def test_the_stored_results_are_those_of_this_code(counted):
    with (ROOT / "benchmarks" / "results" / "host.csv").open(newline="") as lines:
        stored = {(row["call"], row["noise"], row["time"]): int(row["operators"]) for row in csv.DictReader(lines)}
    assert stored.keys() == counted.keys()
    assert {about: count for about, count in counted.items() if count > stored[about]} == {}
