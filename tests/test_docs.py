"""What the documentation says runs and exists."""

import re
import runpy
import sys
from pathlib import Path

import pytest
import torch

import usd3
from usd3 import belief, diffusion, mixture, noise, objectives, process, samplers, schedules, two_pass

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
EQUATIONS = (ROOT / "docs" / "equations.md").read_text()
MODULES = [usd3, belief, diffusion, mixture, noise, objectives, process, samplers, schedules, two_pass]


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", README, re.DOTALL)[1:])
def test_the_code_of_the_readme_runs(block):
    exec(compile(block, "README.md", "exec"), {})


def test_the_first_example_learns_what_the_readme_says(capsys):
    torch.manual_seed(0)
    exec(compile(re.findall(r"```python\n(.*?)```", README, re.DOTALL)[0], "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert 1.55 < float(printed.split()[0]) < 2.1


def test_every_test_named_in_the_equations_exists():
    named = re.findall(r"(test_\w+\.py)?`?,? ?`?::(test_\w+)", EQUATIONS)
    defined = "".join(path.read_text() for path in (ROOT / "tests").glob("test_*.py"))
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


def test_the_demo_runs_and_overwrites_nothing(tmp_path, monkeypatch, capsys):
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
