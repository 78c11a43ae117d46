"""Whole runs: they learn, they resume exactly, they survive, and two processes do what one does."""

import csv
import errno
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import lightning.pytorch as pl
import pytest
import torch
import yaml

from support.processes import ended, forked, in_two_processes
from support.runs import tiny_recipe, weights_of
from usd3._internal.files import new_folder
from usd3.cli.main import main
from usd3.nets.options import ModelConfig
from usd3.pipeline.pipeline import Pipeline
from usd3.training.checkpoints import find_checkpoints, require_whole, step_of
from usd3.training.diffusion import DiffusionTraining
from usd3.training.logs import column, read_log, run_logs
from usd3.training.run import fit

TESTS = Path(__file__).parents[1]


def test_a_run_leaves_everything_behind(tmp_path):
    recipe = tiny_recipe(tmp_path)
    fit(recipe, tmp_path / "run", progress=False)
    run = tmp_path / "run"
    assert [p.name for p in find_checkpoints(run / "checkpoints")] == ["step-00000008.ckpt", "step-00000004.ckpt"]
    assert yaml.safe_load((run / "recipe.yaml").read_text())["training"]["steps"] == 8
    assert json.loads((run / "config.json").read_text())["steps"] == 8
    assert (run / "loss.png").stat().st_size > 1000
    assert list(run.glob("logs/version_0/events.*"))
    with open(run / "logs" / "version_0" / "metrics.csv") as file:
        log = list(csv.DictReader(file))
    assert [row["step"] for row in log if row["train/loss"]] == ["2", "4", "6", "8"]
    assert [row["step"] for row in log if row["val/bits_per_element"]] == ["4", "8"]
    assert not list(run.rglob("*.part*"))


def test_it_learns_and_all_three_tasks_work(tmp_path):
    recipe = tiny_recipe(tmp_path, steps=300, lr=1e-2, warmup=20, ema=0.9, validate_every=0, batch_size=32)
    recipe.model = ModelConfig(dim=32, depth=2, heads=2, mlp=64)
    pipeline = fit(recipe, tmp_path / "run", progress=False)
    truth = (torch.arange(8) + torch.arange(5)[:, None]) % 5
    assert pipeline.bound(truth).mean() < 5.0  # log 5 = 1.6; nothing learnt: 8 log 5 = 12.9
    free = pipeline.sample(100, num_steps=20)
    assert ((free[:, 1:] - free[:, :-1]) % 5 == 1).float().mean() > 0.75
    middle = torch.tensor([True] * 2 + [False] * 4 + [True] * 2)
    for given in (torch.arange(8) < 2, middle):
        filled = pipeline.sample(num_steps=20, tokens=truth.repeat(20, 1), given=given)
        assert torch.equal(filled[:, given], truth.repeat(20, 1)[:, given])
        assert (filled == truth.repeat(20, 1)).float().mean() > 0.8


@pytest.mark.parametrize(("stop", "accumulate"), [(3, 1), (4, 1), (6, 1), (6, 2)])
def test_a_resumed_run_reaches_the_same_weights(tmp_path, stop, accumulate, monkeypatch):
    recipe = tiny_recipe(tmp_path, accumulate=accumulate)
    whole = fit(recipe, tmp_path / "whole", progress=False)

    class Stopped(Exception):
        pass

    original = DiffusionTraining.training_step

    def failing(self, batch, batch_idx):
        if batch["step"] == stop and not (tmp_path / "stopped").exists():
            (tmp_path / "stopped").touch()
            raise Stopped
        return original(self, batch, batch_idx)

    monkeypatch.setattr(DiffusionTraining, "training_step", failing)
    with pytest.raises(Stopped):
        fit(recipe, tmp_path / "parts", progress=False)
    resumed = fit(recipe, tmp_path / "parts", resume=True, progress=False)
    assert torch.equal(weights_of(whole), weights_of(resumed))
    first, second = (torch.load(find_checkpoints(tmp_path / run / "checkpoints")[0]) for run in ("whole", "parts"))
    for name, value in first["state_dict"].items():
        assert torch.equal(value, second["state_dict"][name])


def test_a_run_may_begin_with_the_weights_of_a_model(tmp_path):
    first = fit(tiny_recipe(tmp_path), tmp_path / "first", progress=False)
    still = {"steps": 1, "lr": 1e-30, "weight_decay": 0.0, "start_from": str(tmp_path / "first")}
    recipe = tiny_recipe(tmp_path, **still)
    recipe.diffusion.schedule = "linear"  # how it is trained may differ
    second = fit(recipe, tmp_path / "second", progress=False)
    assert torch.equal(weights_of(second), weights_of(first))


def test_a_run_refuses_weights_of_another_network_or_of_other_data(tmp_path):
    fit(tiny_recipe(tmp_path), tmp_path / "first", progress=False)
    wider = tiny_recipe(tmp_path, start_from=str(tmp_path / "first"))
    wider.model = replace(wider.model, dim=2 * wider.model.dim)
    with pytest.raises(ValueError, match=r"training\.start_from .*first: expected a model with the same network"):
        fit(wider, tmp_path / "wider", progress=False)
    other = tiny_recipe(tmp_path, start_from="bach")
    with pytest.raises(ValueError, match=r"training\.start_from bach: kind"):
        fit(other, tmp_path / "other", progress=False)
    missing = tiny_recipe(tmp_path, start_from=str(tmp_path / "nothing"))
    with pytest.raises(FileNotFoundError, match=r"nothing has no config.json: expected a folder with"):
        fit(missing, tmp_path / "missing", progress=False)
    assert not (tmp_path / "wider").exists()
    assert not (tmp_path / "other").exists()


def test_every_step_trains_with_dropout(tmp_path):
    """Also after a validation, and in a run that goes on; what comes out is ready for use."""
    seen = []

    class Look(pl.Callback):
        def on_train_batch_start(self, trainer, module, *_):
            seen.append((trainer.global_step, {part.training for part in module.model.modules()}))

    recipe = tiny_recipe(tmp_path, steps=3, validate_every=2)
    fit(recipe, tmp_path / "run", progress=False, callbacks=[Look()])
    longer = replace(recipe, training=replace(recipe.training, steps=5))
    pipeline = fit(longer, tmp_path / "run", resume=True, progress=False, callbacks=[Look()])
    assert seen == [(step, {True}) for step in range(5)]
    assert not any(part.training for part in pipeline.model.modules())


def test_a_finished_run_can_be_prolonged(tmp_path):
    recipe = tiny_recipe(tmp_path, decay="constant")
    fit(recipe, tmp_path / "run", progress=False)
    longer = replace(recipe, training=replace(recipe.training, steps=12))
    resumed = fit(longer, tmp_path / "run", resume=True, progress=False)
    assert torch.equal(weights_of(resumed), weights_of(fit(longer, tmp_path / "whole", progress=False)))


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The recipe and the weights of a run that nobody disturbs."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    recipe = tiny_recipe(folder, steps=24, checkpoint_every=100, log_every=1, validate_every=0)
    return recipe, weights_of(fit(recipe, folder / "run", progress=False))


@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.3])
def test_a_killed_run_goes_on(uninterrupted, tmp_path, seconds):
    """kill -9, with a checkpoint written at every step."""
    recipe, weights = uninterrupted
    recipe, run = replace(recipe, training=replace(recipe.training, checkpoint_every=1)), tmp_path / "run"
    child = forked(lambda: fit(recipe, run, progress=False))
    while not find_checkpoints(run / "checkpoints"):
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
        time.sleep(0.01)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    assert ended(child) in (0, -signal.SIGKILL)
    for path in find_checkpoints(run / "checkpoints"):
        require_whole(path)
    resumed = fit(recipe, run, resume=True, progress=False)
    assert torch.equal(weights_of(resumed), weights)
    assert not list(run.rglob("*.part*"))


@pytest.mark.parametrize("steps", [3, 6])
def test_what_a_killed_run_left_half_written_goes(tmp_path, steps):
    """Also where it was killed after its last step, over its picture."""
    recipe = tiny_recipe(tmp_path, steps=3)
    fit(recipe, tmp_path / "run", progress=False)
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = [tmp_path / "run" / f".loss.{dead.pid}.part.png", tmp_path / f"run/checkpoints/.step.{dead.pid}.part.ckpt"]
    for path in left:
        path.touch()
    fit(replace(recipe, training=replace(recipe.training, steps=steps)), tmp_path / "run", resume=True, progress=False)
    assert not any(path.exists() for path in left)


def _environment() -> dict[str, str]:
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}


def test_a_run_that_is_told_to_stop_does_not_validate_first(tmp_path):
    """That would take a while, and count as minutes of the run: it would have fewer steps than the others."""

    class StopAtSix(pl.Callback):
        def on_train_batch_end(self, trainer, *_):
            if trainer.global_step == 6:
                signal.raise_signal(signal.SIGTERM)

    recipe, run = tiny_recipe(tmp_path, steps=10, minutes=5.0), tmp_path / "run"
    with pytest.raises(KeyboardInterrupt, match="stopped at step 6"):
        fit(recipe, run, progress=False, callbacks=[StopAtSix()])
    validated = column(read_log(run_logs(run)), "val/bits_per_element")
    assert validated[:, 0].tolist() == [4]
    fit(recipe, run, resume=True, progress=False)
    assert column(read_log(run_logs(run)), "val/bits_per_element")[:, 0].tolist() == [4, 8]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_told_to_stop_saves_its_step(uninterrupted, tmp_path, monkeypatch, number):
    recipe, weights = uninterrupted
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(asdict(recipe)))
    run, original = tmp_path / "run", DiffusionTraining.training_step
    begun, told = tmp_path / "begun", tmp_path / "told"

    def waiting(self, batch, batch_idx):
        if batch["step"] == 5:
            begun.touch()
            while not told.exists():
                time.sleep(0.01)
        return original(self, batch, batch_idx)

    monkeypatch.setattr(DiffusionTraining, "training_step", waiting)
    words = ["train", str(tmp_path / "recipe.yaml"), "--run", str(run), "--progress", "false"]
    child = forked(lambda: main(words), errors=tmp_path / "errors.txt")
    while not begun.exists():
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
        time.sleep(0.01)
    os.kill(child, number)
    told.touch()
    assert ended(child) == 130
    errors = (tmp_path / "errors.txt").read_text()
    assert f"`usd3 train --resume {run}` goes on" in errors
    (saved,) = find_checkpoints(run / "checkpoints")
    assert 0 < step_of(saved) < recipe.training.steps
    assert f"stopped at step {step_of(saved)}" in errors
    monkeypatch.undo()
    resumed = fit(recipe, run, resume=True, progress=False)
    assert torch.equal(weights_of(resumed), weights)


def test_a_resumed_run_takes_new_settings_of_training_and_no_other_model(tmp_path):
    recipe = tiny_recipe(tmp_path, decay="constant", warmup=0)
    fit(recipe, tmp_path / "run", progress=False)
    faster = replace(recipe, training=replace(recipe.training, steps=10, lr=0.5, weight_decay=0.7, betas=(0.5, 0.6)))
    fit(faster, tmp_path / "run", resume=True, progress=False)
    saved = torch.load(find_checkpoints(tmp_path / "run" / "checkpoints")[0])["optimizer_states"][0]["param_groups"]
    assert [group["lr"] for group in saved] == [0.5, 0.5]
    assert [group["weight_decay"] for group in saved] == [0.7, 0.0]
    assert saved[0]["betas"] == (0.5, 0.6)
    other = replace(faster, model=replace(faster.model, dim=32))
    with pytest.raises(ValueError, match=r"model\.dim = 32: expected 16, as in .*recipe\.yaml; start a new run"):
        fit(other, tmp_path / "run", resume=True, progress=False)
    assert yaml.safe_load((tmp_path / "run" / "recipe.yaml").read_text())["model"]["dim"] == 16


def test_a_damaged_checkpoint_is_passed_over(tmp_path):
    recipe = tiny_recipe(tmp_path)
    whole = fit(recipe, tmp_path / "run", progress=False)
    newest, older = find_checkpoints(tmp_path / "run" / "checkpoints")
    for damage in (_flip_a_byte, _cut_in_half):
        damage(newest)
        assert len(find_checkpoints(newest.parent)) == 2
        with pytest.warns(UserWarning, match="expected a whole checkpoint"):
            resumed = fit(recipe, tmp_path / "run", resume=True, progress=False)
        assert torch.equal(weights_of(whole), weights_of(resumed))
    _cut_in_half(newest)
    _cut_in_half(older)
    with (
        pytest.raises(ValueError, match="none of its checkpoints is whole"),
        pytest.warns(UserWarning, match="whole"),
    ):
        fit(recipe, tmp_path / "run", resume=True, progress=False)


def _flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)


def _cut_in_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    recipe = tiny_recipe(tmp_path)
    save = torch.save

    def full(content, file):
        if "00000008" in file.name:
            file.write(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        save(content, file)

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space left"):
        fit(recipe, tmp_path / "run", progress=False)
    assert [p.name for p in find_checkpoints(tmp_path / "run" / "checkpoints")] == ["step-00000004.ckpt"]
    assert not list((tmp_path / "run").rglob("*.part*"))
    monkeypatch.undo()
    resumed = fit(recipe, tmp_path / "run", resume=True, progress=False)
    assert torch.equal(weights_of(resumed), weights_of(fit(recipe, tmp_path / "whole", progress=False)))


def test_a_nan_loss_ends_the_run_and_is_never_saved(tmp_path, monkeypatch):
    original = DiffusionTraining._eager_loss

    def poisoned(self, *batch):
        loss, shown = original(self, *batch)
        bad = float("nan") if self.global_step == 6 else 0.0
        return loss + bad, shown + bad

    monkeypatch.setattr(DiffusionTraining, "_eager_loss", poisoned)
    with pytest.raises(ArithmeticError, match=r"the loss is nan at step 8: try a smaller training\.lr"):
        fit(tiny_recipe(tmp_path, log_every=8), tmp_path / "run", progress=False)
    assert [p.name for p in find_checkpoints(tmp_path / "run" / "checkpoints")] == ["step-00000004.ckpt"]
    assert all(p.isfinite().all() for p in Pipeline.from_pretrained(tmp_path / "run").model.parameters())


def test_a_run_never_overwrites_another(tmp_path):
    recipe = tiny_recipe(tmp_path, steps=2)
    assert [new_folder(tmp_path, "run").name for _ in range(3)] == ["run", "run-2", "run-3"]
    fit(recipe, tmp_path / "run", progress=False)
    with pytest.raises(ValueError, match="expected a folder that is new or empty"):
        fit(recipe, tmp_path / "run", progress=False)
    with pytest.raises(FileNotFoundError, match="expected the folder of a run"):
        fit(recipe, tmp_path / "nothing", resume=True, progress=False)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_processes_do_what_one_does_in_two_parts(tmp_path, strategy):
    one = fit(tiny_recipe(tmp_path, accumulate=2), tmp_path / "one", progress=False)
    recipe, run = tiny_recipe(tmp_path, devices=2, strategy=strategy), tmp_path / "two"
    if strategy == "ddp":  # the command starts the other process
        (tmp_path / "two.yaml").write_text(yaml.safe_dump(asdict(recipe)))
        command = [sys.executable, "-m", "usd3", "train", str(tmp_path / "two.yaml"), "--run", str(run)]
        done = subprocess.run([*command, "--progress", "false"], env=_environment(), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    else:
        in_two_processes(lambda: fit(recipe, run, progress=False))
    two = weights_of(Pipeline.from_pretrained(run))
    torch.testing.assert_close(two, weights_of(one), atol=1e-6, rtol=1e-5)
    logs = [(tmp_path / name / "logs/version_0/metrics.csv").read_text() for name in ("one", "two")]
    validated = [
        [float(r["val/bits_per_element"]) for r in csv.DictReader(t.splitlines()) if r["val/bits_per_element"]]
        for t in logs
    ]
    assert len(validated[0]) == 2
    assert not (run / ".run.lock").exists()
    assert validated[1] == pytest.approx(validated[0], rel=0.5)  # the draws of validation are others
    find_checkpoints(run / "checkpoints")[0].unlink()
    in_two_processes(lambda: fit(recipe, run, resume=True, progress=False))
    resumed = weights_of(Pipeline.from_pretrained(run))
    torch.testing.assert_close(resumed, two, atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize(
    "change",
    [
        {"diffusion.noise": "absorbing", "diffusion.schedule": "linear"},
        {"diffusion.noise": "marginal", "diffusion.num_steps": None},
        {"model.net": "film", "model.hollow": False},
        {"training.objective": "usd3*"},
        {"training.objective": "ce", "diffusion.num_steps": None},
        {"training.objective": "vlb", "training.given": "prefix", "training.optimizer": "adam"},
        {"training.ema": 0.0, "training.clip": None, "training.given": "none", "training.stratified": False},
        {"training.precision": "bf16"},
    ],
    ids=lambda change: "-".join(f"{value}" for value in change.values()),
)
def test_every_choice_trains_and_samples(tmp_path, change):
    recipe = tiny_recipe(tmp_path, steps=2, validate_every=2)
    for key, value in change.items():
        part, name = key.split(".")
        setattr(getattr(recipe, part), name, value)
    pipeline = fit(recipe, tmp_path / "run", progress=False)
    x = pipeline.sample(3, num_steps=4)
    assert x.shape == (3, 8)
    assert 0 <= x.min() <= x.max() < 5


def test_without_an_average_the_last_weights_are_exported(tmp_path):
    pipeline = fit(tiny_recipe(tmp_path, ema=0.0), tmp_path / "run", progress=False)
    state = torch.load(find_checkpoints(tmp_path / "run" / "checkpoints")[0])["state_dict"]
    for name, value in pipeline.model.state_dict().items():
        assert torch.equal(value, state[f"model.{name}"])
