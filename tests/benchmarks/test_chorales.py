"""The likelihood of chorales, frame by frame and in any order of the notes, and what a model draws."""

import importlib
import json
import sys

import numpy as np
import pytest
import torch

from support.places import ROOT
from usd3.kinds.chorale.kind import Chorale
from usd3.kinds.chorale.windows import Piece
from usd3.kinds.options import DataConfig
from usd3.nets.options import ModelConfig
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.pipeline import Pipeline

REST = 128
MUSIC = np.random.default_rng(0).integers(0, 5, (60, 4)) + np.array([70, 62, 55, 45])


@pytest.fixture
def chorales(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    yield importlib.import_module("chorales")
    sys.modules.pop("chorales", None)


@pytest.fixture
def pipeline():
    """A new model, to which all categories are equally likely."""
    kind = Chorale(129, (16, 4), from_files=True)
    config = PipelineConfig(129, [16, 4], data=DataConfig("chorales", "chorales.npz", length=16))
    config.kind, config.given = kind.as_dict(), "none"
    config.diffusion.noise, config.diffusion.schedule = "absorbing", "linear"
    config.model = ModelConfig(net="voices", dim=8, depth=1, heads=1, time_dim=4, hollow=False, timeless=True)
    pipeline = Pipeline(config)
    pipeline.model.eval()
    return pipeline


def piece(steps=12, silent=0):
    music = MUSIC[:steps].astype(np.uint8)
    music[:silent, 3] = REST
    return Piece("a", music)


def test_a_model_that_knows_nothing_has_log_129_nats_a_note(chorales, pipeline):
    nats = chorales.any_order(pipeline, [piece(12), piece(20)], 32)
    np.testing.assert_allclose(nats, [12 * 4 * np.log(129), 20 * 4 * np.log(129)], rtol=1e-4)
    whole, sounding = chorales.framewise(pipeline, piece(12, silent=5), 3, 0)
    assert whole == pytest.approx(12 * 4 * np.log(129), rel=1e-4)
    assert sounding == pytest.approx((12 * 4 - 5) * np.log(129), rel=1e-4)  # silence costs nothing


class Copies(torch.nn.Module):
    """Is sure that all notes are the highest one that it sees; without one, everything is equally likely."""

    ignores_time = True

    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, x_t, t):
        """Logits (B, T, 4, 130)."""
        self.seen.append(x_t.clone())
        logits = torch.zeros(*x_t.shape, 130)
        known = torch.where(x_t < 129, x_t, -1).flatten(1).amax(1)  # any note that is shown
        rows = known >= 0
        others = torch.arange(130) != known[rows, None]  # (n, 130)
        logits[rows] -= 100 * others.float()[:, None, None]
        return logits


def test_frames_see_the_true_frames_before_and_what_the_model_took_for_likeliest(chorales, pipeline):
    pipeline.model = copies = Copies()
    same = Piece("a", np.full((6, 4), 60, np.uint8))
    nats, _ = chorales.framewise(pipeline, same, 1, 0)
    # the first frame sees nothing: its first voice costs log 129. The model then takes category 0 for likeliest, and
    # is sure of it for the other voices, which cost 100 nats each. All later frames see the truth
    assert nats == pytest.approx(np.log(129) + 3 * 100, rel=1e-4)
    first, last = copies.seen[0], copies.seen[3]
    assert sorted((first < 129).all(2).sum(1).tolist()) == [0, 1, 2, 3, 4, 5]  # row i shows i whole frames
    assert ((first == 129).all(2) | (first < 129).all(2)).all()
    assert sorted((last < 129).sum((1, 2)).tolist()) == [3, 7, 11, 15, 19, 23]


def test_some_frames_stand_for_all(chorales, pipeline):
    pipeline.model = copies = Copies()
    same = Piece("a", np.full((6, 4), 60, dtype=np.uint8))
    nats, _ = chorales.framewise(pipeline, same, 1, 0, most=2)
    assert [len(x) for x in copies.seen] == [2] * 4
    assert nats in (
        0,
        pytest.approx(3 * (np.log(129) + 3 * 100), rel=1e-4),
    )
    found = [chorales.framewise(pipeline, same, 1, seed, most=2)[0] for seed in range(60)]
    assert 0 < np.count_nonzero(found) < 60
    assert np.mean(found) == pytest.approx(np.log(129) + 3 * 100, rel=0.4)  # the standard error is 18 %


def test_orders_are_averaged_as_probabilities(chorales, pipeline, monkeypatch):
    sure = iter([0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.25])  # p of a note: four voices in two orders

    def log_probs(pipeline, x, frames, voice):
        return torch.full((len(x), 129), np.log(next(sure)), dtype=torch.float64)

    monkeypatch.setattr(chorales, "_log_probs", log_probs)
    nats, _ = chorales.framewise(pipeline, piece(1), 2, 0)
    assert nats == pytest.approx(-np.log((0.5**4 + 0.25**4) / 2))


def test_means_over_frames_and_over_chorales(chorales):
    found = chorales.summary(np.array([10.0, 60.0]), [piece(10), piece(20)])
    assert found["per_frame"] == pytest.approx(70 / 30)
    assert found["of_chorales"] == pytest.approx((1 + 3) / 2)
    assert found["error"] == pytest.approx(1.0)
    assert found["per_note"] == pytest.approx(70 / 120)


def test_bars_are_copied_in_any_key(chorales):
    train = Piece("train", MUSIC[:40].astype(np.uint8))
    known = chorales.bars_of([train])
    assert len(known) == 7  # at every beat
    drawn = torch.from_numpy(np.concatenate([MUSIC[4:20] + 3, MUSIC[44:60]]))[None, None]
    assert chorales.copied(drawn, None, known) == 1 / 2
    pad = torch.zeros(1, 32, 4, dtype=torch.bool)
    pad[:, 16:] = True
    assert chorales.copied(drawn, pad, known) == 1
    silent = torch.full((1, 1, 16, 4), REST)
    assert np.isnan(chorales.copied(silent, None, known))


def test_the_script_measures_a_model(chorales, pipeline, tmp_path, monkeypatch, capsys):
    pieces = np.stack([MUSIC[:40], MUSIC[20:]]).astype(np.int16)
    pieces[1, 30:] = -1
    np.savez(tmp_path / "jsb.npz", train=pieces, test=pieces)
    pipeline.save_pretrained(tmp_path / "model")
    words = [str(tmp_path / "model"), "--data", str(tmp_path / "jsb.npz"), "--samples", "16", "--frames", "0"]
    words += ["--orders", "1", "--runs", "2", "--steps", "2", "--device", "cpu", "--out", str(tmp_path / "out.json")]
    monkeypatch.setattr(sys, "argv", ["chorales.py", *words])
    chorales.main()
    printed = capsys.readouterr().out
    assert f"any order: {4 * np.log(129):.4f} nats a frame" in printed
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["frames"]["per_frame"] == pytest.approx(4 * np.log(129), rel=1e-4)
    assert found["chorales"] == 2
    assert found["settings"]["orders"] == 1
    assert found["torch"] == torch.__version__
    assert set(found["voice leading"]) == {"Bach, test", "Bach, training", "ours, harmonised", "ours, from nothing"}
    assert found["voice leading"]["Bach, test"]["copied"] == 1


def test_the_page_of_chorales_has_what_was_measured():
    page = (ROOT / "docs" / "kinds" / "chorale.md").read_text()
    results = ROOT / "benchmarks" / "results" / "chorales"
    frames, notes = (json.loads((results / f"jsb-{name}.json").read_text()) for name in ("frames", "any-order"))
    assert frames["settings"] | {"frames": 12, "orders": 5, "half": True} == frames["settings"]
    assert notes["settings"]["samples"] == 128
    for found in (frames["frames, sounding"], frames["frames"], notes["any order"]):
        mean = f"{found['of_chorales']:.3f} ± {found['error']:.3f}"
        line = next(line for line in page.splitlines() if mean in line)
        assert f"{found['per_frame']:.3f}" in line
        assert f"{found['per_note']:.3f}" in line
