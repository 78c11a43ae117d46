"""The folders of image trainings: who has them, what may go on in them, and what they never save."""

import json
import os
import stat

import pytest
import torch

from usd3._internal.locks import locked
from usd3.kinds.image.images import Images
from usd3.training import images as fitting
from usd3.training import vqgan as vqgan_training
from usd3.training.checkpoints import find_checkpoints
from usd3.training.classifier import ClassifierConfig, train_classifier
from usd3.training.vqgan import VQGANConfig, train_vqgan

SMALL = {"accelerator": "cpu", "batch_size": 8, "warmup": 1, "log_every": 9, "checkpoint_every": 2, "crop": 1}


@pytest.fixture
def images():
    pixels = torch.randint(256, (24, 3, 8, 8), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    labels = torch.arange(24) % 2
    return Images("some", pixels[:16], pixels[16:], labels[:16], labels[16:], ("a", "b"))


@pytest.fixture(params=["classifier", "vqgan"])
def train(request, images, monkeypatch):
    """A training of one of the two networks, of `steps` steps."""
    monkeypatch.setattr(vqgan_training, "reconstruction_grid", lambda *_: None)

    def trained(folder, steps=4, images=images, resume=False):
        if request.param == "classifier":
            config = ClassifierConfig(**SMALL, steps=steps, width=4, blocks=1)
            return train_classifier(config, folder, images, resume=resume, progress=False)
        sizes = {"num_codes": 8, "code_dim": 4, "filters": [4, 4], "blocks": 1, "discriminator_width": 4}
        config = VQGANConfig(**SMALL, **sizes, steps=steps, gan_start=0.0)
        return train_vqgan(config, folder, images, resume=resume, progress=False)

    return trained


def test_one_process_at_a_time_has_the_folder(train, tmp_path):
    with locked(tmp_path / "run", "run", "run"):
        with pytest.raises(ValueError, match=f"run = .*, but process {os.getpid()} on"):
            train(tmp_path / "run")
        (tmp_path / "run" / "recipe.yaml").touch()
        with pytest.raises(ValueError, match=f"resume = .*, but process {os.getpid()} on"):
            train(tmp_path / "run", resume=True)


def test_other_images_of_the_same_kind_are_refused_before_anything_is_written(train, tmp_path, images, capsys):
    train(tmp_path / "run", steps=1)
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    turned = Images("other", images.train.flip(0), images.test, images.train_labels, images.test_labels, images.classes)
    with pytest.raises(ValueError, match=r"fingerprint of the images = .*, as those that the run had; start a new run"):
        train(tmp_path / "run", steps=2, images=turned, resume=True)
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before
    capsys.readouterr()
    train(tmp_path / "run", steps=1, resume=True)
    run = tmp_path / "run"
    assert capsys.readouterr().err == f"{run} is finished, with 1 steps; for more: --resume {run} --steps 2\n"


@pytest.mark.parametrize("where", ["weights", "optimiser"])
def test_a_step_that_ruins_the_weights_is_not_saved_though_its_loss_is_finite(train, where, tmp_path, monkeypatch):
    original = fitting.ImageTraining.training_step

    def ruined(self, batch, batch_idx):
        loss = original(self, batch, batch_idx)
        if batch["step"] == 3:
            state = next(iter(self.optimisers()[-1].state.values()))
            spoilt = next(self.parameters()).data if where == "weights" else state["exp_avg"]
            spoilt[(0,) * spoilt.dim()] = torch.nan
        return loss

    monkeypatch.setattr(fitting.ImageTraining, "training_step", ruined)
    with pytest.raises(ArithmeticError, match="no longer finite at step 4, which is not saved: try a smaller lr"):
        train(tmp_path / "run")
    assert [path.name for path in find_checkpoints(tmp_path / "run" / "checkpoints")] == ["step-00000002.ckpt"]
    assert json.loads((tmp_path / "run" / "config.json").read_text())["steps"] == 2


def test_a_training_that_fails_in_its_first_step_leaves_nothing(train, tmp_path, monkeypatch):
    def failing(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(fitting.ImageTraining, "training_step", failing)
    with pytest.raises(ZeroDivisionError):
        train(tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_the_weights_can_be_read_by_those_that_the_umask_allows(train, tmp_path):
    train(tmp_path / "run", steps=1)
    modes = {stat.S_IMODE((tmp_path / "run" / name).stat().st_mode) for name in ("model.safetensors", "config.json")}
    assert len(modes) == 1
