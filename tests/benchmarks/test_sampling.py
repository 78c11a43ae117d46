"""The script that draws many objects: what its rows say."""

import csv
import importlib
import sys

import pytest
import torch

from support.places import ROOT


@pytest.fixture
def sampling(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    yield importlib.import_module("sampling")
    sys.modules.pop("sampling", None)
    sys.modules.pop("shared", None)


def test_a_row_is_of_as_many_network_calls_as_the_draw_makes(sampling, tmp_path, monkeypatch):
    calls = []
    pipeline = sampling.pipeline_of(sampling.NETS["small"], sampling.DIFFUSIONS["uniform"], torch.device("cpu"), False)
    denoiser = pipeline.denoiser
    monkeypatch.setattr(pipeline, "denoiser", lambda *a: lambda x, t, **kw: calls.append(len(x)) or denoiser(*a)(x, t))
    row = sampling.measure(pipeline, batch=2, steps=3, repeats=1, rate=1e12)
    drawn, alone = calls[:6], calls[6:]  # each once to warm up
    assert drawn == alone == [2] * 6
    assert 2 / row["objects_per_second"] == pytest.approx(row["seconds"], abs=0.0006)  # both are rounded
    assert row["hours"] == pytest.approx(50_000 / row["objects_per_second"] / 3600, rel=0.01)


def test_the_arithmetic_counts_every_product_of_the_network(sampling):
    pipeline = sampling.pipeline_of(sampling.NETS["small"], sampling.DIFFUSIONS["uniform"], torch.device("cpu"), False)
    row = sampling.measure(pipeline, batch=2, steps=1, repeats=1, rate=1.0)  # one operation a second
    operations = row["arithmetic_share"] * row["seconds"]
    matrices = sum(p.numel() for p in pipeline.model.parameters() if p.ndim == 2)
    assert operations == pytest.approx(2 * 2 * 64 * matrices, rel=0.3)


@pytest.mark.parametrize("name", ["uniform", "uniform, discrete"])
def test_the_network_sees_times_as_in_a_draw_and_one_object_where_operations_are_counted(sampling, name):
    pipeline = sampling.pipeline_of(sampling.NETS["small"], sampling.DIFFUSIONS[name], torch.device("cpu"), False)
    seen = []
    pipeline.model.register_forward_pre_hook(lambda _, args: seen.append((*args[:2], torch.is_grad_enabled())))
    sampling.measure(pipeline, batch=2, steps=1, repeats=1, rate=1.0)
    assert {t.dtype for _, t, _ in seen} == {torch.float32}
    assert all(((t > 0) & (t <= 1)).all() for _, t, _ in seen)
    assert [len(x) for x, _, with_gradient in seen if with_gradient] == [1]


def test_a_profile_without_a_gpu_is_refused(sampling, tmp_path, capsys):
    with pytest.raises(SystemExit):
        sampling.main(["--device", "cpu", "--profile", str(tmp_path / "profile.txt")])
    assert "--profile: expected a GPU" in capsys.readouterr().err


def test_it_writes_a_row_for_each_batch(sampling, tmp_path):
    file = tmp_path / "sampling.csv"
    only = ["--nets", "small", "--diffusions", "absorbing", "--batches", "1", "2", "--repeats", "1", "--steps", "2"]
    sampling.main([*only, "--device", "cpu", "--csv", str(file)])
    with file.open(newline="") as lines:
        assert [row["batch"] for row in csv.DictReader(lines)] == ["1", "2"]
