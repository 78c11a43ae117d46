"""The script that times a training step: its modes."""

import importlib
import sys

import pytest

from support.places import ROOT
from usd3.nets import _dropout


@pytest.fixture
def train_step(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    yield importlib.import_module("train_step")
    sys.modules.pop("train_step", None)
    sys.modules.pop("shared", None)


def test_a_mode_leaves_out_the_kernel_for_dropout_and_the_others_take_it(train_step, monkeypatch):
    monkeypatch.setattr(_dropout, "_HAS_TRITON", True)
    taken = {}
    for name, mode in train_step.MODES.items():
        with train_step.dropout_of(mode):
            taken[name] = _dropout._HAS_TRITON
        assert _dropout._HAS_TRITON
    assert [name for name, has_kernel in taken.items() if not has_kernel] == ["bf16 compiled graph, torch's dropout"]


def test_profiles_are_written_below_each_other(train_step, tmp_path):
    profiles, file = [], tmp_path / "profile.txt"
    for title in ("small", "large"):
        train_step.write_profile(file, profiles, title, ["all kernels", "one kernel"])
    assert file.read_text() == "small\nall kernels\none kernel\n\nlarge\nall kernels\none kernel\n\n"
