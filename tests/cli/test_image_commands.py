"""usd3 classifier and usd3 vqgan, called as a user calls them."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import yaml

from usd3.cli.main import main
from usd3.training import images as fitting

COMMON = ["--accelerator", "cpu", "--batch_size", "8", "--steps", "2", "--warmup", "1", "--progress", "false"]
SMALL = {
    "classifier": [*COMMON, "--width", "4", "--blocks", "1"],
    "vqgan": [
        *COMMON,
        *["--num_codes", "8", "--code_dim", "4", "--filters", "[4,4]", "--blocks", "1", "--discriminator_width", "4"],
    ],
}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A place with a file of images."""
    pixels = np.random.default_rng(0).integers(256, size=(20, 8, 8, 3), dtype=np.uint8)
    labels = np.arange(20) % 2
    splits = {"train": pixels[:12], "test": pixels[12:], "train_labels": labels[:12], "test_labels": labels[12:]}
    np.savez(tmp_path / "some.npz", **splits, classes=["a", "b"])
    monkeypatch.chdir(tmp_path)


def test_one_after_the_other_and_on(tmp_path, capsys):
    assert main(["classifier", "--images", "some.npz", *SMALL["classifier"]]) == 0
    printed = capsys.readouterr().out
    assert "held-out images, 2 classes" in printed
    assert f"the classifier is in runs{os.sep}classifier" in printed
    arguments = ["vqgan", "--images=some.npz", "--perceptual", "runs/classifier", "--run", "mine", *SMALL["vqgan"]]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "perceptual loss: classifier" in printed
    assert "codes used" in printed
    assert (tmp_path / "mine" / "reconstructions.png").exists()
    assert main(["vqgan", "--resume", "mine", "--steps", "3", "--progress", "false"]) == 0
    assert json.loads((tmp_path / "mine" / "config.json").read_text())["steps"] == 3
    kept = yaml.safe_load((tmp_path / "mine" / "recipe.yaml").read_text())
    assert (kept["steps"], kept["num_codes"], kept["filters"]) == (3, 8, [4, 4])
    assert kept["perceptual"] == str(tmp_path / "runs" / "classifier")
    assert "run" not in kept
    capsys.readouterr()
    assert main(["info", "mine"]) == 0
    printed = capsys.readouterr().out
    for words in ("vqgan:", "num_codes 8", "images: 8 x 8 from", "perceptual loss: classifier", "results:"):
        assert words in printed


def test_a_run_of_another_command_is_not_resumed(capsys):
    assert main(["classifier", "--images", "some.npz", "--run", "mine", *SMALL["classifier"]]) == 0
    (Path("diffusion")).mkdir()
    Path("diffusion/recipe.yaml").write_text("data: {source: bach}\nseed: 0\n")
    capsys.readouterr()
    for command, folder, of in (
        ("vqgan", "mine", "classifier"),
        ("train", "mine", "classifier"),
        ("classifier", "diffusion", "train"),
    ):
        assert main([command, "--resume", folder]) == 1
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert f"resume = {folder}, a run of `usd3 {of}`: expected one of `usd3 {command}`" in line


@pytest.mark.parametrize("command", ["classifier", "vqgan", "train"])
@pytest.mark.parametrize("run", [None, "a/b", "mine"])
def test_an_interruption_before_training_leaves_what_was_there(command, run, capsys, tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "a").mkdir()
    before = sorted(tmp_path.rglob("*"))

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    for module in ("training.images.load_images", "kinds.options.DataConfig.load"):
        monkeypatch.setattr(f"usd3.{module}", interrupted)
    arguments = [command, *([] if command == "train" else ["--images", "some.npz"])]
    assert main([*arguments, *([] if run is None else ["--run", run])]) == 130
    assert capsys.readouterr().err.strip() == f"usd3 {command}: interrupted (nothing was begun)"
    assert sorted(tmp_path.rglob("*")) == before


def test_an_interruption_after_the_start_says_how_to_go_on(capsys, monkeypatch):
    original = fitting.ImageTraining.training_step

    def interrupted(self, batch, batch_idx):
        if batch["step"] == 1:
            raise KeyboardInterrupt
        return original(self, batch, batch_idx)

    monkeypatch.setattr(fitting.ImageTraining, "training_step", interrupted)
    words = ["--run", "mine", *SMALL["classifier"], "--log_every", "1"]
    assert main(["classifier", "--images", "some.npz", *words]) == 130
    printed = capsys.readouterr().err.strip().splitlines()[-1]
    assert printed == "usd3 classifier: interrupted (`usd3 classifier --resume mine` goes on)"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("vqgan", "images = None: expected the images, a file or a folder"),
        ("classifier --images nowhere", "expected a file or folder that exists"),
        ("classifier some.npz", "'some.npz' is one word too many: expected options alone"),
        ("vqgan --images some.npz --steps 0", "steps = 0: expected an integer >= 1"),
        ("vqgan --images some.npz --perceptual runs/none", "expected a folder that `usd3 classifier` made, or a file"),
        ("vqgan --images some.npz --filters [4,4,4,4,4]", "expected multiples of 16"),
        ("vqgan --images some.npz --colour red", "colour"),
        ("vqgan --resume nowhere", "resume = nowhere: expected the folder of a run, with its recipe.yaml"),
        ("classifier --images some.npz --run .", "expected a folder that is new or empty"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(arguments, message, capsys, tmp_path):
    assert main(arguments.split()) != 0
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line
    assert [path.name for path in tmp_path.iterdir()] == ["some.npz"]
