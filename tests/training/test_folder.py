"""The folder of a run: who has it, what may go on in it, and what is left where it fails."""

import errno
import json
import os
import resource
import shutil
import signal
import stat
from dataclasses import replace
from pathlib import Path

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from safetensors import SafetensorError

import usd3.pipeline
from support.runs import tiny_recipe
from usd3._internal.files import full_disk
from usd3._internal.locks import locked
from usd3.cli.main import main
from usd3.kinds.fingerprints import fingerprint
from usd3.pipeline.pipeline import Pipeline
from usd3.training import diffusion as train
from usd3.training.checkpoints import find_checkpoints
from usd3.training.run import fit


class At(pl.Callback):
    """Do something after a step."""

    def __init__(self, step, do):
        self.step, self.do = step, do

    def on_train_batch_end(self, trainer, module, *_):
        if trainer.global_step == self.step:
            self.do(module)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def longer(recipe, steps=12):
    return replace(recipe, training=replace(recipe.training, steps=steps))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run that is finished, and its recipe."""
    folder = tmp_path_factory.mktemp("finished")
    recipe = tiny_recipe(folder, steps=2, validate_every=0)
    fit(recipe, folder / "run", progress=False)
    return recipe, folder / "run"


# ---- one process at a time ----------------------------------------------------------------------------------------


def test_a_live_run_can_neither_be_begun_again_nor_resumed(tmp_path):
    recipe, run, told = tiny_recipe(tmp_path, validate_every=0), tmp_path / "run", []

    def again(module):
        for resume in (False, True):
            with pytest.raises(ValueError, match="expected a folder") as seen:
                fit(recipe, run, resume=resume, progress=False)
            told.append(str(seen.value))

    fit(recipe, run, progress=False, callbacks=[At(1, again)])
    assert told[0].startswith(f"run = {run}: expected a folder that is new or empty")
    assert told[1].startswith(
        f"resume = {run}: expected a folder that no other process uses, but process {os.getpid()}"
    )
    assert not list(run.glob(".*"))


def test_two_that_begin_at_once_do_not_share_a_folder(tmp_path):
    """The other one has the folder, and has written nothing yet."""
    with locked(tmp_path / "run", "run", "run"):
        with pytest.raises(ValueError, match=f"run = .*, but process {os.getpid()} on"):
            fit(tiny_recipe(tmp_path), tmp_path / "run", progress=False)
        assert [path.name for path in (tmp_path / "run").iterdir()] == [".run.lock"]


def test_the_other_processes_of_a_run_ask_for_no_lock(tmp_path, monkeypatch):
    from usd3.training.folder import own_folder

    with own_folder(tmp_path / "run", resume=False):
        for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID"):
            with monkeypatch.context() as other:
                other.setenv(name, "1")
                with own_folder(tmp_path / "run", resume=False):
                    pass
        with pytest.raises(ValueError, match="no other process"), own_folder(tmp_path / "run", resume=False):
            pass


# ---- what may go on -----------------------------------------------------------------------------------------------


def test_a_run_is_not_resumed_with_other_data(finished, tmp_path):
    recipe, run = finished
    rows = np.load(recipe.data.path)["train"]
    before = contents(run)
    for change, message in [
        ({"train": (rows + np.arange(len(rows))[:, None] // 40) % 6}, "num_classes of .* = 6: expected 5"),
        ({"train": rows[:, :6]}, r"shape of .* = \[6\]: expected \[8\]"),
        ({"train": rows[:40]}, "train_objects of .* = 40: expected 50"),
        ({"train": rows[::-1]}, "fingerprint of .*: expected [0-9a-f]{16}, as those that the run had; start a new run"),
    ]:
        np.savez(tmp_path / "other.npz", test=change["train"][:5], **change)
        other = replace(longer(recipe), data=replace(recipe.data, path=str(tmp_path / "other.npz")))
        with pytest.raises(ValueError, match=message):
            fit(other, run, resume=True, progress=False)
    assert contents(run) == before
    np.savez(tmp_path / "moved.npz", train=rows, test=rows[:5])  # other held-out data harm no weights
    moved = replace(recipe, data=replace(recipe.data, path=str(tmp_path / "moved.npz")))
    fit(moved, run, resume=True, progress=False)


def test_a_run_without_a_fingerprint_goes_on_with_data_of_its_shape(tmp_path):
    recipe, run = tiny_recipe(tmp_path, steps=2, validate_every=0), tmp_path / "run"
    fit(recipe, run, progress=False)
    (run / "data.json").unlink()
    np.savez(tmp_path / "other.npz", train=np.arange(60).reshape(10, 6) % 5, test=np.zeros((2, 6), int))
    other = replace(recipe, data=replace(recipe.data, path=str(tmp_path / "other.npz")))
    with pytest.raises(ValueError, match=r"shape of .*other.npz = \[6\]: expected \[8\]"):
        fit(other, run, resume=True, progress=False)
    fit(recipe, run, resume=True, progress=False)
    assert json.loads((run / "data.json").read_text())["train_objects"] == 50


def test_a_network_that_the_checkpoint_does_not_fit_is_refused_before_anything_is_written(tmp_path):
    recipe, run = tiny_recipe(tmp_path, steps=2, validate_every=0), tmp_path / "run"
    fit(recipe, run, progress=False)
    edited = (run / "recipe.yaml").read_text().replace("mlp: 16", "mlp: 24")
    (run / "recipe.yaml").write_text(edited)
    (run / "model.safetensors").unlink()  # which would be refused first
    before = contents(run)
    other = replace(longer(recipe), model=replace(recipe.model, mlp=24))
    with pytest.raises(ValueError, match=r"step-00000002.ckpt: expected weights of the network's shapes, \(.*24"):
        fit(other, run, resume=True, progress=False)
    assert contents(run) == before


class Evil:
    """What is done when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("executed",)


@pytest.mark.parametrize(
    "content",
    [Evil(), {"state_dict": Evil()}, {"state_dict": 1}, {}, [1]],
    ids=["a pickle", "a pickle among weights", "a number among weights", "nothing", "a list"],
)
def test_a_checkpoint_of_anything_else_is_refused_in_one_line(finished, tmp_path, monkeypatch, content):
    """And not with torch's, which says how to have it executed."""
    recipe, run = finished
    monkeypatch.chdir(tmp_path)
    shutil.copytree(run, "run")
    (newest, *_) = find_checkpoints(Path("run/checkpoints"))
    torch.save(content, newest)
    with pytest.raises(ValueError, match=f"{newest}: expected a checkpoint of usd3, tensors and plain values alone$"):
        fit(longer(recipe), "run", resume=True, progress=False)
    assert not Path("executed").exists()


def test_fingerprints_see_content_order_padding_and_shape():
    rows = torch.arange(24, dtype=torch.uint8).reshape(6, 4)
    pad = torch.zeros(6, 4, dtype=torch.bool)
    found = [fingerprint(*given) for given in [(rows,), (rows.flip(0),), (rows.reshape(4, 6),), (rows.int(),)]]
    found += [fingerprint(rows, None), fingerprint(rows, pad), fingerprint(rows, ~pad)]
    assert len(set(found)) == len(found)
    assert fingerprint(rows) == fingerprint(rows.clone())


def test_the_fingerprint_of_a_large_array_reads_a_part_of_it(monkeypatch):
    monkeypatch.setattr("usd3.kinds.fingerprints._MOST_BYTES", 40)
    rows = torch.arange(400, dtype=torch.uint8).reshape(100, 4)
    other = rows.clone()
    other[1] = 0
    assert fingerprint(rows) == fingerprint(other)
    assert fingerprint(rows) != fingerprint(rows + 1)
    assert fingerprint(rows) != fingerprint(rows[:99])


def test_resuming_a_finished_run_says_how_to_go_on(finished, capsys):
    _, run = finished
    assert main(["train", "--resume", str(run), "--progress", "false"]) == 0
    told = capsys.readouterr().err.strip()
    assert told == f"{run} is finished, with 2 steps; for more: --resume {run} --training.steps 4"


def test_resuming_a_run_whose_minutes_are_over_says_so(tmp_path, capsys, monkeypatch):
    seconds = iter(range(10_000))
    monkeypatch.setattr("usd3.training.clock.Clock.now", staticmethod(lambda: float(next(seconds))))
    recipe = tiny_recipe(tmp_path, steps=100, minutes=0.1, validate_every=0)
    fit(recipe, tmp_path / "run", progress=False)
    capsys.readouterr()
    fit(recipe, tmp_path / "run", resume=True, progress=False)
    assert capsys.readouterr().err.strip().endswith(f"--resume {tmp_path / 'run'} --training.minutes 0.2")


# ---- what is saved is finite --------------------------------------------------------------------------------------


def _ruin_weight(module):
    next(module.model.parameters()).data.view(-1)[0] = torch.nan


def _ruin_average(module):
    module._ema.averages[0].view(-1)[0] = torch.inf


def _ruin_optimiser(module):
    state = module.trainer.optimizers[0].state
    next(iter(state.values()))["exp_avg_sq"].view(-1)[0] = torch.inf


@pytest.mark.parametrize("ruin", [_ruin_weight, _ruin_average, _ruin_optimiser])
def test_a_step_that_ruins_the_weights_is_not_saved_though_its_loss_is_finite(tmp_path, monkeypatch, ruin):
    """At the last step no further loss would tell."""
    run, original = tmp_path / "run", train.DiffusionTraining.training_step

    def ruined(self, batch, batch_idx):
        loss = original(self, batch, batch_idx)
        if batch["step"] == 7:
            ruin(self)
        return loss

    monkeypatch.setattr(train.DiffusionTraining, "training_step", ruined)
    with pytest.raises(ArithmeticError, match=r"no longer finite at step 8, which is not saved: try a smaller tr"):
        fit(tiny_recipe(tmp_path, validate_every=0), run, progress=False)
    assert [path.name for path in find_checkpoints(run / "checkpoints")] == ["step-00000004.ckpt"]
    assert json.loads((run / "config.json").read_text())["steps"] == 4
    assert all(weight.isfinite().all() for weight in Pipeline.from_pretrained(run).model.parameters())


def test_an_infinite_gradient_without_clipping_is_not_saved(tmp_path, monkeypatch):
    """The loss is a number; its gradient is not."""
    original = train.DiffusionTraining._eager_loss

    def steep(self, *batch):
        loss, shown = original(self, *batch)
        weight = next(self.model.parameters()).view(-1)[0]
        return loss + (weight - weight.detach()).abs().sqrt(), shown  # its slope at 0 is infinite times 0

    monkeypatch.setattr(train.DiffusionTraining, "_eager_loss", steep)
    with pytest.raises(ArithmeticError, match=r"no longer finite at step 1, .* training\.clip 1"):
        fit(tiny_recipe(tmp_path, steps=1, clip=None, validate_every=0), tmp_path / "run", progress=False)
    assert not list((tmp_path / "run").rglob("*.ckpt"))
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_a_mask_with_infinities_in_a_network_is_no_fault(tmp_path, monkeypatch):
    from usd3.nets import Transformer

    original = Transformer.__init__

    def masked(self, *given, **named):
        original(self, *given, **named)
        self.register_buffer("mask", torch.full((2,), -torch.inf))

    monkeypatch.setattr(Transformer, "__init__", masked)
    fit(tiny_recipe(tmp_path, steps=1, validate_every=0), tmp_path / "run", progress=False)


# ---- what is left -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data.path", "missing.npy"], "missing.npy: no such file"),
        (["--model.heads", "7"], "model.dim = 96: expected a multiple of 14"),
        (["--training.batch_size", "7", "--training.accumulate", "2"], "training.batch_size = 7"),
        (["--training.given", "prefix", "--training.prefix", "9"], "prefix = 9"),
    ],
    ids=["data", "network", "trainer", "first step"],
)
@pytest.mark.parametrize("run", [[], ["--run", "some/where"]])
def test_a_run_that_does_not_begin_leaves_nothing(tmp_path, monkeypatch, capsys, options, message, run):
    monkeypatch.chdir(tmp_path)
    recipe = tiny_recipe(tmp_path)
    words = ["array", "small", "--data.path", recipe.data.path, "--training.accelerator", "cpu", "--progress", "false"]
    assert main(["train", *words, *run, *options]) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line
    assert [path.name for path in tmp_path.iterdir()] == ["data.npz"]


@pytest.mark.parametrize("written", range(3))
def test_a_run_that_is_killed_while_it_begins_can_go_on(tmp_path, monkeypatch, written):
    """Whatever it has written by then: it is resumed, or begins anew, in the same folder."""
    recipe, run = tiny_recipe(tmp_path, steps=2, validate_every=0), tmp_path / "run"
    write, done = usd3._internal.files.write_whole, []

    def killed(path, content):
        if len(done) == written:
            os._exit(9)
        done.append(write(path, content))

    child = os.fork()
    if child == 0:
        monkeypatch.setattr("usd3.training.folder.write_whole", killed)
        fit(recipe, run, progress=False, callbacks=[At(1, lambda module: os._exit(9))])
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    fit(recipe, run, resume=(run / "recipe.yaml").exists(), progress=False)
    assert {path.name for path in run.iterdir()} >= {"recipe.yaml", "data.json", "model.safetensors"}


def test_a_run_that_fails_later_keeps_its_log(tmp_path):
    def fail(module):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fit(tiny_recipe(tmp_path, validate_every=0), tmp_path / "run", progress=False, callbacks=[At(3, fail)])
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"logs", "recipe.yaml", "data.json"}


def test_a_folder_below_a_file_is_refused_in_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("afile").touch()
    for command, option in (("train", "run"), ("compare", "out")):
        assert main([command, f"--{option}", "afile/sub"]) == 1
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert f"error: {option} = afile/sub: expected a folder that is new" in line
        assert line.endswith(f", but {tmp_path / 'afile'} is a file")


def test_a_full_disk_is_told_in_one_line_and_keeps_the_last_whole_checkpoint(tmp_path):
    """The system refuses to write files as large as a checkpoint."""
    recipe, run = tiny_recipe(tmp_path, validate_every=0), tmp_path / "run"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(module):
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, hard))

    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with pytest.raises(OSError, match="expected room on its disk") as seen:
            fit(recipe, run, progress=False, callbacks=[At(5, fill)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    then = f"make some, then --resume {run} goes on from step 4"
    assert str(seen.value) == f"run = {run}: expected room on its disk (File too large); {then}"
    assert [path.name for path in find_checkpoints(run / "checkpoints")] == ["step-00000004.ckpt"]
    assert not list(run.rglob("*.part*"))
    fit(recipe, run, resume=True, progress=False)


def test_every_way_to_say_that_a_disk_is_full_is_understood(tmp_path, monkeypatch):
    said = "Error while serializing: I/O error: No space left on device (os error 28)"
    assert full_disk(SafetensorError(said)) == os.strerror(errno.ENOSPC)
    assert full_disk(OSError(errno.EDQUOT, "quota")) == os.strerror(errno.EDQUOT)
    assert full_disk(ValueError("no")) is None
    assert full_disk(OSError(errno.EACCES, "no")) is None

    def full(*_):
        raise SafetensorError(said)

    monkeypatch.setattr(usd3.pipeline.pipeline, "save_file", full)
    with pytest.raises(OSError, match=r"\(No space left on device\); make some, then --resume .* from step 0"):
        fit(tiny_recipe(tmp_path, validate_every=0), tmp_path / "run", progress=False)


def test_all_files_of_a_run_can_be_read_by_those_that_the_umask_allows(tmp_path):
    before = os.umask(0o027)
    try:
        fit(tiny_recipe(tmp_path, steps=1, validate_every=0), tmp_path / "run", progress=False)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert {"model.safetensors", "step-00000001.ckpt", "recipe.yaml"} <= modes.keys()
    assert set(modes.values()) == {0o640}
