"""What the documentation says runs and exists: code, commands, links, notebooks."""

import inspect
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import usd3
from support.places import ROOT
from support.runs import tiny_recipe
from usd3.cli import main as cli
from usd3.cli.commands import Command
from usd3.core import belief, coefficients, diffusion, mixture, noise, objectives, samplers, schedules, terms, two_pass
from usd3.kinds.image.classifier import Classifier
from usd3.kinds.image.folders import save_network
from usd3.kinds.image.vqgan import VQGAN
from usd3.kinds.options import DataConfig
from usd3.kinds.registry import kind_of_file
from usd3.methods import METHODS
from usd3.training.images import write_results
from usd3.training.run import pipeline_for

SITE = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
PAGES = {name: (ROOT / name).read_text() for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md", *SITE)}
EQUATIONS, KERNELS = PAGES["docs/equations.md"], PAGES["docs/kernels.md"]
METHODS_PAGE = PAGES["docs/methods.md"]
MODULES = [usd3, belief, coefficients, diffusion, mixture, noise, objectives, samplers, schedules, terms, two_pass]
ELSEWHERE = {  # pages whose code has a test of its own
    "docs/adding-a-method.md": "tests/methods/test_mdlm.py",
    "docs/kinds/image.md": "test_the_code_about_images_runs",
}


def blocks(page, language):
    """(file name or "", text) of each block of code; a name is that of the file in which the page wants it."""
    return re.findall(rf'^```{language}(?: title="([^"]+)")?\n(.*?)^```', PAGES[page], re.DOTALL | re.MULTILINE)


def commands():
    """Every call of `usd3` in a block of commands."""
    for page in PAGES:
        for _, block in blocks(page, "sh"):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                if "usd3" in words:
                    yield shlex.join(words[words.index("usd3") + 1 :])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty current folder, from which Python imports."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) == str(tmp_path / f"{name}.py"):
            del sys.modules[name]


def untrained(folder):
    """A model in a folder, as if it were trained."""
    recipe = tiny_recipe(Path.cwd())
    pipeline_for(recipe, recipe.data.load()).save_pretrained(folder)


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ELSEWHERE and blocks(page, "python")])
def test_the_code_of_a_page_runs(page, folder, capsys):
    """All blocks from top to bottom; one with a title is the file that later ones import."""
    torch.manual_seed(0)
    for name, code in blocks(page, "python"):
        for trained in re.findall(r'from_pretrained\("(runs/[\w-]+)"', code):
            untrained(trained)
        if name:
            (folder / name).write_text(code)
        code = re.sub(r"minutes=[\d.]+", "minutes=0.03", code)  # enough to see that it runs
        exec(compile(code, f"{page}: {name or code.splitlines()[0]}", "exec"), {})
    if page == "README.md":
        assert 1.55 < float(re.search(r"([\d.]+) nats per object", capsys.readouterr().out)[1]) < 2.1


def test_the_code_about_images_runs(folder):
    """With networks that learnt nothing, and a few images."""
    pixels = np.random.default_rng(0).integers(256, size=(24, 32, 32, 3), dtype=np.uint8)
    np.savez("cifar-10-batches-py.npz", train=pixels[:16], test=pixels[16:], train_labels=np.arange(16) % 2)
    save_network("runs/vqgan", VQGAN(512, 4, (4, 4, 4), 1), size=[32, 32])
    save_network("runs/judge", Classifier(2, 4, 1), size=[32, 32])
    for name in ("runs/vqgan", "runs/judge"):
        write_results(name, {})
    assert cli.main(["encode", "runs/vqgan", "--images", "cifar-10-batches-py.npz", "--out", "tokens.npz"]) == 0
    recipe = replace(tiny_recipe(folder), data=DataConfig("image_tokens", "tokens.npz"))
    recipe.diffusion.num_steps = None
    pipeline_for(recipe, recipe.data.load()).save_pretrained("runs/image")
    ((_, code),) = blocks("docs/kinds/image.md", "python")
    code = code.replace('"cifar-10-batches-py"', '"cifar-10-batches-py.npz"').replace("sample(100", "sample(8")
    exec(compile(code, "docs/kinds/image.md", "exec"), {})
    assert (folder / "drawn.png").stat().st_size > 1000


@pytest.mark.parametrize("page", ["docs/adding-a-kind.md", "docs/adding-a-network.md", "docs/adding-a-sampler.md"])
def test_the_commands_for_a_class_of_ones_own_work(page, folder, capsys):
    """Trained for two steps, drawn from and measured, as the page says."""
    for name, code in blocks(page, "python"):
        if name:
            (folder / name).write_text(code)
        elif "kind" in page:  # makes the data
            exec(compile(code, page, "exec"), {})
    tiny_recipe(folder)
    net = "" if "network" in page else "--model.dim 16 --model.depth 1 --model.heads 2 --model.time_dim 8"
    short = "--training.steps 2 --training.validate_every 2 --training.batch_size 4 --training.accelerator cpu"
    extra = {
        "train": f"{net} {short} --training.prefix 2 --progress false",
        "sample": "--steps 3",
        "evaluate": "--steps 3 --limit 2 --runs 1 --baselines false",
    }
    called = [shlex.split(line) for _, block in blocks(page, "sh") for line in block.splitlines()]
    assert {words[2] for words in called} >= {"train", "sample"}
    for words in called:
        assert words[:2] == ["PYTHONPATH=.", "usd3"]
        assert cli.main([*words[2:], *extra[words[2]].split()]) == 0, capsys.readouterr().err


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


@pytest.mark.parametrize("command", sorted(set(commands())))
def test_the_commands_of_the_documentation_are_understood(command, tmp_path, monkeypatch):
    """Each is parsed, with its recipes and options, up to the point where it would do its work."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("seed: 1\n")
    (tmp_path / "runs" / "bach").mkdir(parents=True)
    (tmp_path / "runs" / "bach" / "recipe.yaml").write_text("seed: 1\n")
    name, *words = shlex.split(command)
    for word in words if name in ("train", "compare") else ():
        if not word.startswith("--") and kind_of_file(Path(word)) is not None:
            Path(word).touch()  # the data; the kind is told from the name
    done = []
    monkeypatch.setattr(Command, "run", lambda command, *arguments: done.append(arguments))
    assert cli.main(shlex.split(command)) == 0
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


# ---- links, files, notebooks --------------------------------------------------------------------------------------

MARKDOWN = [
    path
    for pattern in ("*.md", "docs/**/*.md", "benchmarks/*.md", "paper/**/*.md", "src/usd3/pipeline/models/*/*.md")
    for path in sorted(ROOT.glob(pattern))
]


def anchors(path):
    """What `#...` may follow a link to a page: its headings, as code hosts and the site write them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", MARKDOWN, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path):
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    for link, anchor in re.findall(r"\]\((?!https?:)([^()\s#]*)(?:#([^()\s]*))?\)", text):
        target = (path.parent / link).resolve() if link else path
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), f"{link}#{anchor}"


def test_scripts_and_targets_that_pages_name_exist():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page, text in PAGES.items():
        for script in re.findall(r"python ((?:benchmarks|examples|notebooks)/[\w/]+\.py)", text):
            assert (ROOT / script).is_file(), f"{page}: {script}"
        code = (
            " ".join(re.findall(r"`make (\w+)", text)) + " " + " ".join(re.findall(r"^make (\w+)", text, re.MULTILINE))
        )
        assert set(code.split()) <= targets, page
        for file in re.findall(r"`((?:src|tests|paper|docs|examples|benchmarks)/[\w/.-]+\.(?:py|md|yaml|csv))`", text):
            assert (ROOT / file).is_file() or "NAME" in file, f"{page}: {file}"


def test_the_site_has_every_page_and_every_package():
    nav = (ROOT / "mkdocs.yml").read_text().partition("nav:")[2]
    named = set(re.findall(r"[\w/-]+\.md", nav))
    assert {name.removeprefix("docs/") for name in SITE} <= named
    for name in named:
        file = ROOT / "docs" / name
        if name.startswith("repository/"):
            file = ROOT / name.removeprefix("repository/")
        elif name.startswith("notebooks/"):
            file = (ROOT / name).with_suffix(".ipynb")
        assert file.is_file(), name
    packages = {path.parent.name for path in (ROOT / "src" / "usd3").glob("[a-z]*/__init__.py")}
    without = {"bench", "cli", "paper", "recipes"}  # their reference is `usd3 COMMAND --help` and the guide
    assert {name for name in packages - without if f"docs/api/{name}.md" not in PAGES} == set()


def test_the_table_of_layers_is_that_of_the_contract():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = [layer.split(" | ") for contract in contracts for layer in contract.get("layers", [])]
    section = PAGES["docs/architecture.md"].partition("## Who may import whom")[2].partition("\n## ")[0]
    rows = [re.findall(r"`(\w+)`", line.split("|")[1]) for line in section.splitlines() if line.startswith("| `")]
    assert rows == layers


@pytest.mark.parametrize("name", ["mathematics", "train-and-draw"])
def test_a_notebook_runs_and_its_outputs_are_stored(name):
    script = ROOT / "notebooks" / "run.py"
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run([sys.executable, script, name], env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    cells = json.loads((script.parent / f"{name}.ipynb").read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    shown = [cell for cell in code if "print(" in "".join(cell["source"]) or ".show()" in "".join(cell["source"])]
    assert len(shown) > 5
    assert all(cell["outputs"] for cell in shown)


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    """Its quick siblings check the links, the names and the layout of the pages."""
    pytest.importorskip("mkdocs", reason="make docs installs what builds the site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    silent = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    built = subprocess.run(command, cwd=ROOT, env=silent, capture_output=True, text=True)
    assert (built.returncode, built.stderr) == (0, "")
