"""Weak scaling: the script."""

import importlib
import sys

import pytest

from support.places import ROOT


@pytest.fixture
def weak_scaling(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    yield importlib.import_module("weak_scaling")
    for name in ("weak_scaling", "shared"):
        sys.modules.pop(name, None)


def test_a_step_is_timed_between_the_rows_of_the_log(weak_scaling, tmp_path):
    log = tmp_path / "logs" / "version_0" / "metrics.csv"
    log.parent.mkdir(parents=True)
    log.write_text("minutes,step\n1.0,10\n1.5,20\n3.0,40\n")
    assert weak_scaling.between_rows(tmp_path) == pytest.approx(4.0)


def test_efficiency_is_the_time_of_one_process_over_that_of_two(weak_scaling):
    times = {"one": 1.0, "two alone": 1.25, "ddp": 2.0, "fsdp": 4.0}
    found = [times, times | {"ddp": 1.0}, times | {"ddp": 4.0}]
    rows = {row["way"]: row for row in weak_scaling.table(64, found)}
    assert [rows[way]["efficiency"] for way in times] == ["1.000", "0.800", "0.500", "0.250"]
    assert (rows["ddp"]["efficiency_low"], rows["ddp"]["efficiency_high"]) == ("0.250", "1.000")
    assert rows["ddp"]["ms"] == "2000.0"


def test_a_training_of_one_process_is_timed(weak_scaling, monkeypatch):
    monkeypatch.setattr(weak_scaling, "FIRST", 5)
    monkeypatch.setattr(weak_scaling, "LENGTH", 8)
    monkeypatch.setattr(weak_scaling, "OBJECTS", 2)
    assert weak_scaling.seconds_a_step("one", 16, 15) > 0
