"""Which sampler harmonises best: the script, and what the page of chorales says of it."""

import csv
import importlib
import sys

import numpy as np
import pytest

from support.places import ROOT
from usd3.kinds.chorale.kind import Chorale
from usd3.kinds.options import DataConfig
from usd3.nets.options import ModelConfig
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.pipeline import Pipeline

MUSIC = np.random.default_rng(0).integers(0, 5, (60, 4)) + np.array([70, 62, 55, 45])


@pytest.fixture
def harmonise(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    yield importlib.import_module("harmonise")
    sys.modules.pop("harmonise", None)


def test_each_sampler_has_a_row_after_that_of_bach(harmonise, tmp_path, monkeypatch, capsys):
    pieces = np.stack([MUSIC[:40], MUSIC[20:]]).astype(np.int16)
    pieces[1, 30:] = -1
    np.savez(tmp_path / "chorales.npz", train=pieces, test=pieces)
    data = DataConfig("chorales", str(tmp_path / "chorales.npz"), length=16)
    config = PipelineConfig(129, [16, 4], data=data)
    config.kind, config.given = Chorale(129, (16, 4), from_files=True).as_dict(), "none"
    config.diffusion.noise, config.diffusion.schedule = "absorbing", "linear"
    config.model = ModelConfig(net="voices", dim=8, depth=1, heads=1, time_dim=4, hollow=False, timeless=True)
    Pipeline(config).save_pretrained(tmp_path / "model")
    words = [str(tmp_path / "model"), "--samplers", "exact", "entropy", "--steps", "2", "--limit", "3"]
    words += ["--device", "cpu", "--out", str(tmp_path / "new" / "a.csv")]
    monkeypatch.setattr(sys, "argv", ["harmonise.py", *words])
    harmonise.main()
    assert "exact, 2 steps" in capsys.readouterr().out
    with (tmp_path / "new" / "a.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["sampler"], row["steps"]) for row in rows] == [("Bach", ""), ("exact", "2"), ("entropy", "2")]
    assert rows[0]["as_bach"] == "1.000"
    assert float(rows[0]["bits"]) == pytest.approx(np.log2(129), abs=2e-3)  # a new model knows nothing
    assert float(rows[1]["as_bach"].split()[0]) < 0.2
    assert any(" ± " in value for value in rows[1].values())
    assert float(rows[1]["seconds"]) > 0
    assert {row["windows"] for row in rows} == {"3"}


def test_the_page_of_chorales_has_the_table():
    page = (ROOT / "docs" / "kinds" / "chorale.md").read_text()
    with (ROOT / "benchmarks" / "results" / "chorales" / "samplers.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 19
    digits = {"as_bach": 2, "bits": 2, "parallel_fifths": 1, "parallel_octaves": 1, "crossings": 3, "spacing": 3}
    for row in rows:
        name = "Bach's own" if row["sampler"] == "Bach" else f"`{row['sampler']}`"
        cells = [name, row["steps"], *(f"{float(row[key]):.{n}f}" for key, n in (digits | {"on_beat": 2}).items())]
        assert f"| {' | '.join(cells)} |" in page
