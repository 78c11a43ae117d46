"""Runs that keep the model with the best bound on held-out objects."""

import csv
import json

import pytest
import torch

from support.runs import tiny_recipe, weights_of
from usd3.pipeline.pipeline import Pipeline
from usd3.training.diffusion import DiffusionTraining
from usd3.training.run import fit


def bits_of(monkeypatch, values):
    """Let the held-out bits be these, one estimate after the other, whatever the network does."""
    given, before = iter(values), DiffusionTraining.on_validation_end

    def after(module):
        module._bound = torch.tensor([next(given) * 1e6 * 0.6931471805599453, 1e6], dtype=torch.float64)
        before(module)

    monkeypatch.setattr(DiffusionTraining, "on_validation_end", after)


def config_of(folder):
    return json.loads((folder / "config.json").read_text())


def recipe_for(folder, **training):
    return tiny_recipe(folder, **{"steps": 20, "validate_every": 2, "checkpoint_every": 20, "patience": 3, **training})


def test_a_run_ends_when_the_bound_no_longer_improves_and_keeps_the_best_model(tmp_path, monkeypatch):
    """Bits at steps 2, 4, 6, ...: the best at 6; three that are no better follow, and the run ends at step 12."""
    with monkeypatch.context() as patch:
        bits_of(patch, [5.0, 4.0, 3.0, 3.5, 3.0, 4.0])
        stopped = fit(recipe_for(tmp_path), tmp_path / "run", progress=False)
    config = config_of(tmp_path / "run")
    assert (config["best_step"], config["steps"], config["stopped_early"]) == (6, 12, True)
    last = fit(recipe_for(tmp_path, patience=0, checkpoint_every=2, keep=20), tmp_path / "all", progress=False)
    saved = torch.load(tmp_path / "all" / "checkpoints" / "step-00000006.ckpt", weights_only=True)["ema"]
    torch.testing.assert_close(weights_of(stopped), torch.cat([w.flatten() for w in saved.values()]))
    assert not torch.equal(weights_of(stopped), weights_of(last))


def test_a_run_that_goes_on_improving_trains_all_steps_and_is_judged_at_its_end(tmp_path, monkeypatch):
    bits_of(monkeypatch, [9.0 - i for i in range(9)])
    fit(recipe_for(tmp_path, steps=5), tmp_path / "run", progress=False)
    config = config_of(tmp_path / "run")
    assert (config["best_step"], config["steps"], config["stopped_early"]) == (5, 5, False)


def test_the_last_model_is_not_kept_where_an_earlier_one_is_better(tmp_path, monkeypatch):
    bits_of(monkeypatch, [1.0, 2.0, 3.0])
    fit(recipe_for(tmp_path, steps=5), tmp_path / "run", progress=False)
    assert config_of(tmp_path / "run")["best_step"] == 2


def test_the_bound_of_the_last_step_is_that_of_the_averaged_weights(tmp_path):
    """Judged without Lightning's loop, it is what the loop would find."""
    found = []
    for validate_every in (2, 3):
        folder = tmp_path / str(validate_every)
        fit(recipe_for(tmp_path, steps=4, validate_every=validate_every), folder, progress=False)
        with open(folder / "logs" / "version_0" / "metrics.csv", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["val/bits_per_element"]]
        found.append({int(row["step"]): float(row["val/bits_per_element"]) for row in rows})
    assert sorted(found[0]) == [2, 4]
    assert sorted(found[1]) == [3, 4]
    assert found[0][4] == pytest.approx(found[1][4], rel=1e-6)


def test_a_resumed_run_remembers_the_best(tmp_path, monkeypatch):
    bits_of(monkeypatch, [3.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0])
    fit(recipe_for(tmp_path, steps=6, checkpoint_every=6), tmp_path / "run", progress=False)
    best = weights_of(Pipeline.from_pretrained(tmp_path / "run"))
    resumed = fit(recipe_for(tmp_path), tmp_path / "run", resume=True, progress=False)
    config = config_of(tmp_path / "run")
    assert (config["best_step"], config["stopped_early"]) == (4, True)
    assert torch.equal(weights_of(resumed), best)


def test_a_checkpoint_of_a_judged_step_knows_the_judgement(tmp_path, monkeypatch):
    """A run that goes on from it remembers the best, although it was found at the very step of the checkpoint."""
    bits_of(monkeypatch, [1.0, 2.0, 3.0, 4.0])
    recipe = recipe_for(tmp_path, steps=2, checkpoint_every=2)
    fit(recipe, tmp_path / "run", progress=False)
    best = weights_of(Pipeline.from_pretrained(tmp_path / "run"))
    resumed = fit(recipe_for(tmp_path, steps=6, checkpoint_every=2), tmp_path / "run", resume=True, progress=False)
    assert config_of(tmp_path / "run")["best_step"] == 2
    assert torch.equal(weights_of(resumed), best)


def test_a_run_that_is_over_stays_so_when_it_is_resumed(tmp_path, monkeypatch, capsys):
    """It ended at a step that is saved anyway; with more patience it goes on."""
    bits_of(monkeypatch, [1.0, 2.0, 3.0])
    recipe = recipe_for(tmp_path, patience=1, checkpoint_every=4)
    fit(recipe, tmp_path / "run", progress=False)
    assert (config_of(tmp_path / "run")["steps"], config_of(tmp_path / "run")["stopped_early"]) == (4, True)
    fit(recipe, tmp_path / "run", resume=True, progress=False)
    assert config_of(tmp_path / "run")["steps"] == 4
    assert "is finished, with 4 steps" in capsys.readouterr().err
    fit(recipe_for(tmp_path, patience=2, checkpoint_every=4), tmp_path / "run", resume=True, progress=False)
    assert config_of(tmp_path / "run")["steps"] == 6


def test_a_resumed_run_with_estimates_reaches_the_same_weights(tmp_path):
    """The checkpoint is of a step with an estimate, from which Lightning goes on after its validation."""
    whole = fit(recipe_for(tmp_path, steps=8, checkpoint_every=4, patience=9), tmp_path / "whole", progress=False)
    fit(recipe_for(tmp_path, steps=8, checkpoint_every=4, patience=9), tmp_path / "parts", progress=False)
    (tmp_path / "parts" / "checkpoints" / "step-00000008.ckpt").unlink()
    parts = fit(
        recipe_for(tmp_path, steps=8, checkpoint_every=4, patience=9), tmp_path / "parts", resume=True, progress=False
    )
    torch.testing.assert_close(weights_of(parts), weights_of(whole), rtol=0, atol=0)


def test_a_run_that_ended_early_counts_as_trained(tmp_path, monkeypatch):
    bits_of(monkeypatch, [1.0, 2.0])
    pipeline = fit(recipe_for(tmp_path, patience=1), tmp_path / "run", progress=False)
    assert pipeline.config.steps == 4
    assert pipeline.config.has_trained(20, None)


def test_without_estimates_the_last_model_is_kept(tmp_path):
    pipeline = fit(recipe_for(tmp_path, steps=3, validate_every=0), tmp_path / "run", progress=False)
    assert (pipeline.config.steps, pipeline.config.best_step, pipeline.config.stopped_early) == (3, None, False)
