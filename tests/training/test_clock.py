"""A run with a budget of minutes, by a clock of our own: every step takes six seconds."""

import csv
import json
from dataclasses import replace

import lightning.pytorch as pl
import pytest
import torch

from support.runs import tiny_recipe, weights_of
from usd3._internal.graphs import SETTLED
from usd3.training.checkpoints import find_checkpoints
from usd3.training.clock import Clock
from usd3.training.options import TrainingConfig
from usd3.training.run import fit


@pytest.fixture
def time(monkeypatch):
    """Seconds, to be moved by hand."""
    now = [1000.0]
    monkeypatch.setattr(Clock, "now", staticmethod(lambda: now[0]))
    return now


class SixSeconds(pl.Callback):
    def __init__(self, time, stop=None):
        self.time, self.stop, self.rates = time, stop, []

    def on_train_batch_start(self, trainer, *_):
        self.rates.append(trainer.optimizers[0].param_groups[0]["lr"])
        if trainer.global_step == self.stop:
            raise RuntimeError("stopped")
        self.time[0] += 6


def steps_of(folder):
    return json.loads((folder / "config.json").read_text())["steps"]


def test_the_clock_counts_after_the_first_steps(time):
    clock = Clock(limit=2.0)
    for _ in range(SETTLED):
        time[0] += 600
        clock.tick()
    assert (clock.minutes, clock.spent, clock.over) == (0, 0, False)
    time[0] += 90
    assert (clock.minutes, clock.spent) == (1.5, 0.75)
    clock.tick()
    assert not clock.over
    time[0] += 30
    clock.tick()
    assert clock.over
    time[0] += 600
    assert clock.minutes == 2  # the last validation does not count
    assert (Clock().minutes, Clock().spent) == (0, 0)


def test_a_resumed_clock_goes_on_and_compiles_again_for_free(time):
    clock = Clock(limit=2.0)
    clock.start(1.5)
    assert not clock.over
    for _ in range(SETTLED):
        time[0] += 600
        clock.tick()
    assert clock.minutes == 1.5
    time[0] += 30
    clock.tick()
    assert clock.over
    clock.start(2.5)
    assert clock.over


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_run_ends_in_good_order_after_its_minutes(tmp_path, time, accumulate):
    recipe = tiny_recipe(tmp_path, steps=100, minutes=1.2, warmup=0, log_every=1, accumulate=accumulate)
    watch = SixSeconds(time)
    pipeline = fit(recipe, tmp_path / "run", progress=False, callbacks=[watch])
    expected = SETTLED + 12 // accumulate
    assert steps_of(tmp_path / "run") == pipeline.config.steps == expected
    assert pipeline.config.minutes == pytest.approx(1.2)
    assert find_checkpoints(tmp_path / "run" / "checkpoints")[0].name == f"step-{expected:08d}.ckpt"
    with open(tmp_path / "run/logs/version_0/metrics.csv") as file:
        log = list(csv.DictReader(file))
    assert float(log[-1]["minutes"]) == pytest.approx(1.2)
    assert float([row["train/lr"] for row in log if row["train/lr"]][-1]) == pytest.approx(0, abs=1e-9)
    assert [row["step"] for row in log if row["val/bits_per_element"]][-1] == str(expected)
    assert watch.rates == sorted(watch.rates, reverse=True)
    assert watch.rates[-1] < 0.1 * recipe.training.lr


def test_the_steps_end_a_run_that_has_time_left(tmp_path, time, capsys):
    recipe = tiny_recipe(tmp_path, steps=6, minutes=60.0, validate_every=0)
    fit(recipe, tmp_path / "run", callbacks=[SixSeconds(time)])
    assert steps_of(tmp_path / "run") == 6
    shown = capsys.readouterr().err
    assert "training (s)" in shown
    assert "/3600  step " in shown


def test_a_resumed_run_has_the_rest_of_its_minutes(tmp_path, time):
    recipe = tiny_recipe(tmp_path, steps=100, minutes=1.0, validate_every=0)
    with pytest.raises(RuntimeError, match="stopped"):
        fit(recipe, tmp_path / "run", progress=False, callbacks=[SixSeconds(time, stop=8)])
    newest = find_checkpoints(tmp_path / "run" / "checkpoints")[0]
    assert torch.load(newest)["minutes"] == pytest.approx(0.1 * (8 - SETTLED))
    time[0] += 1e6
    resumed = fit(recipe, tmp_path / "run", resume=True, progress=False, callbacks=[SixSeconds(time)])
    assert resumed.config.steps == 8 + SETTLED + 10 - (8 - SETTLED)
    again = fit(recipe, tmp_path / "run", resume=True, progress=False, callbacks=[SixSeconds(time)])
    assert again.config.steps == resumed.config.steps
    assert torch.equal(weights_of(again), weights_of(resumed))
    longer = replace(recipe, training=replace(recipe.training, minutes=1.5))
    assert fit(longer, tmp_path / "run", resume=True, progress=False, callbacks=[SixSeconds(time)]).config.steps == (
        resumed.config.steps + SETTLED + 5
    )


def test_bad_budgets_are_refused(tmp_path):
    for minutes in (0, -1.0, float("nan")):
        with pytest.raises(ValueError, match=r"training\.minutes = .*: expected a number in \(0, inf\)"):
            TrainingConfig(minutes=minutes)
    recipe = tiny_recipe(tmp_path, minutes=1.0, devices=2, strategy="ddp")
    with pytest.raises(ValueError, match=r"training\.minutes = 1\.0: expected null with several processes"):
        fit(recipe, tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()
