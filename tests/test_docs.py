"""What the documentation says runs and exists."""

import inspect
import re
import runpy
import shlex
import sys
from dataclasses import replace

import pytest
import torch

import usd3
from support.places import ROOT
from support.runs import tiny_recipe
from usd3.cli import main as cli
from usd3.core import belief, coefficients, diffusion, mixture, noise, objectives, samplers, schedules, terms, two_pass
from usd3.methods import METHODS
from usd3.training.run import pipeline_for

README = (ROOT / "README.md").read_text()
TRAINING = (ROOT / "docs" / "training.md").read_text()
COMPARING = (ROOT / "docs" / "compare.md").read_text()
TRAINED_MODELS = (ROOT / "docs" / "models.md").read_text()
IMAGES = (ROOT / "docs" / "images.md").read_text()
EQUATIONS = (ROOT / "docs" / "equations.md").read_text()
KERNELS = (ROOT / "docs" / "kernels.md").read_text()
METHODS_PAGE = (ROOT / "docs" / "methods.md").read_text()
MODULES = [usd3, belief, coefficients, diffusion, mixture, noise, objectives, samplers, schedules, terms, two_pass]


BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
LEARNS = next(block for block in BLOCKS if "optimizer" in block)
TRAINED = [block for block in [*BLOCKS, *re.findall(r"```python\n(.*?)```", TRAINING, re.DOTALL)] if '"runs/' in block]
COMMANDS = [
    line.partition("#")[0].replace("\\\n", " ").strip()
    for text in (README, TRAINING, TRAINED_MODELS, COMPARING, IMAGES)
    for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    for line in block.replace("\\\n", " ").splitlines()
    if line.startswith("usd3 ")
]


@pytest.mark.parametrize("block", [block for block in BLOCKS if block not in (LEARNS, *TRAINED)])
def test_the_code_of_the_readme_runs(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "README.md", "exec"), {})


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", KERNELS + METHODS_PAGE, re.DOTALL))
def test_the_code_about_kernels_and_methods_runs(block):
    exec(compile(block, "docs", "exec"), {})


@pytest.mark.parametrize("name", METHODS)
def test_the_options_of_a_method_are_those_of_its_page(name):
    row = next(line for line in METHODS_PAGE.splitlines() if line.startswith(f"| {name} |"))
    _, _, options, drawn, _ = (cell.strip() for cell in row.split("|"))
    named = {word for word in re.findall(r"`([\w.]+)`", options) if "." not in word}
    taken = set(inspect.signature(METHODS[name]).parameters) - {"diffusion", "objective"}
    assert named == taken
    kind = METHODS[name]
    if "{" not in drawn:
        words = re.sub(r"; a corrector", "", drawn).split(", ")
        assert tuple(words) == kind.samplers
        assert ("; a corrector" in drawn) is kind.corrects


def test_the_first_example_learns_what_the_readme_says(capsys):
    torch.manual_seed(0)
    exec(compile(LEARNS, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert 1.55 < float(printed.split()[0]) < 2.1


@pytest.mark.parametrize("block", TRAINED)
def test_the_code_for_a_trained_model_runs(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = re.search(r'"(runs/[\w-]+)"', block)[1]
    recipe = tiny_recipe(tmp_path)
    pipeline_for(recipe, recipe.data.load()).save_pretrained(tmp_path / folder)
    recipe.diffusion.num_steps = None
    pipeline_for(recipe, recipe.data.load()).save_pretrained(tmp_path / folder)
    exec(compile(block, "docs", "exec"), {})


@pytest.mark.parametrize("command", sorted(set(COMMANDS)))
def test_the_commands_of_the_documentation_are_understood(command, tmp_path, monkeypatch):
    """Each is parsed, with its recipes and options, up to the point where it would do its work."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("seed: 1\n")
    (tmp_path / "runs" / "bach").mkdir(parents=True)
    (tmp_path / "runs" / "bach" / "recipe.yaml").write_text("seed: 1\n")
    done = []
    for name, chosen in list(cli.COMMANDS.items()):
        monkeypatch.setitem(cli.COMMANDS, name, replace(chosen, run=lambda *made: done.append(made)))
    assert cli.main(shlex.split(command)[1:]) == 0
    assert done or "--print_config" in command or "--help" in command


def test_every_test_named_in_the_equations_exists():
    named = re.findall(r"(test_\w+\.py)?`?,? ?`?::(test_\w+)", EQUATIONS + KERNELS)
    defined = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(named) > 40
    for _, test in named:
        assert f"def {test}(" in defined, test


def test_every_function_named_in_the_equations_exists():
    names = set(re.findall(r"`(?:\w+\.)?(\w+)\.(\w+)(?:\([^`]*)?`", EQUATIONS))
    checked = 0
    for owner, name in names:
        owners = [m for m in MODULES if m.__name__.split(".")[-1] == owner]
        owners += [getattr(m, owner) for m in MODULES if hasattr(m, owner)]
        if owners and name != "py":
            assert any(hasattr(o, name) for o in owners), f"{owner}.{name}"
            checked += 1
    assert checked > 15


def test_the_toy_runs_and_overwrites_nothing(tmp_path, monkeypatch, capsys):
    out = tmp_path / "toy.png"
    out.write_bytes(b"mine")
    monkeypatch.setattr(
        sys, "argv", ["toy.py", "--steps", "20", "--batch", "64", "--sampling-steps", "4", "--out", str(out)]
    )
    runpy.run_path(str(ROOT / "examples" / "toy.py"), run_name="__main__")
    assert out.read_bytes() == b"mine"
    assert (tmp_path / "toy-1.png").stat().st_size > 10_000
    printed = capsys.readouterr().out
    entropy, cross_entropy, bound = (
        float(re.search(rf"{name}\s+([\d.]+) nats", printed)[1])
        for name in ("true entropy", "cross entropy of the learned sampler", "its bound")
    )
    assert entropy < cross_entropy < bound


def test_the_demo_does_the_whole_job(tmp_path, monkeypatch, capsys):
    small = ["--model.dim", "16", "--model.depth", "1", "--model.heads", "2", "--training.batch_size", "4"]
    short = ["--training.steps", "2", "--training.validate_every", "0", "--limit", "6", "--steps", "2"]
    monkeypatch.setattr(sys, "argv", ["bach.py", "--runs", str(tmp_path), *short, *small])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(ROOT / "examples" / "bach.py"), run_name="__main__")
    assert stopped.value.code == 0
    printed = capsys.readouterr().out
    assert "Markov chain" in printed
    for name in (
        "tunes/sample-04.mid",
        "tunes/samples.png",
        "demo/continued/sample-04.mid",
        "demo/continued/denoising.gif",
        "demo/filled/sample-01.mid",
        "demo/evaluation.json",
        "demo/loss.png",
    ):
        assert (tmp_path / name).stat().st_size > 0
        assert name in printed or name.endswith(".json")


@pytest.mark.filterwarnings("ignore:images.classifier")  # so little training is not enough for it
def test_the_example_of_images_goes_the_whole_way(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["images.py", "--runs", str(tmp_path), "--scale", "0.02"])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(ROOT / "examples" / "images.py"), run_name="__main__")
    assert stopped.value.code == 0
    printed = capsys.readouterr().out
    for words in ("held-out images, 9 classes", "codes used", "images as 4 x 4 tokens", "VQGAN reconstruction"):
        assert words in printed
    for name in ("drawn/samples.png", "drawn/denoising.gif", "drawn/neighbours.png", "filled/inpainting.png"):
        assert (tmp_path / "images" / name).stat().st_size > 1000
        assert name in printed
    for name in ("decoded.png", "vqgan/reconstructions.png", "model/evaluation.json"):
        assert (tmp_path / "images" / name).is_file()
