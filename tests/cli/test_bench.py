import csv
import re
import runpy
import shlex
import sys

import pytest

from support.places import ROOT
from usd3.bench import floor
from usd3.cli.commands import Command
from usd3.cli.main import main

DOCS = (ROOT / "docs" / "benchmarks.md").read_text()
SCRIPTS = ("loss", "draw", "projection", "cpu", "scaling")
TINY = ["--device", "cpu", "--sizes", "2,4,8", "--repeats", "2", "--seconds", "0.05"]


@pytest.fixture(autouse=True)
def small_copy(monkeypatch):
    monkeypatch.setitem(floor._COPIED, "cpu", 1 << 16)
    monkeypatch.setattr("usd3.bench.problem._MOST_SETS", 2)


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def error_of(capsys, *arguments):
    assert main(["bench", *arguments]) != 0
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    return lines[0]


def test_everything_on_a_tiny_size(tmp_path, capsys):
    other = tmp_path / "mine.py"
    other.write_text("def loss(logits, *rest): return logits.sum()\ndef step(logits, x_t, *rest): return x_t")
    out = tmp_path / "out"
    assert main(["bench", *TINY, "--most", "1024", "--other", str(other), "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert "GB/s" in printed.out
    assert "exponents of time" in printed.out
    assert "loss " in printed.err  # progress
    assert {path.name for path in out.iterdir()} == {"loss.csv", "sampling.csv", "scaling.csv", "time_against_k.png"}
    assert [row["contestant"] for row in read(out / "loss.csv")][-1] == "mine"
    assert {row["note"] for name in ("loss", "sampling", "scaling") for row in read(out / f"{name}.csv")} == {""}
    scaling = read(out / "scaling.csv")
    assert {row["varied"] for row in scaling} == {"K", "B", "D"}
    assert {row["kind"] for row in scaling} == {"loss", "step"}
    assert all(row["slope"] for row in scaling if row["varied"] == "K")


def test_one_table_in_every_combination(tmp_path, capsys):
    choice = ["--noise", "uniform,absorbing", "--time", "continuous,discrete", "--dtype", "fp32,bf16"]
    assert main(["bench", "loss", *TINY, *choice, "--objective", "usd3,usd3*", "--out", str(tmp_path)]) == 0
    rows = read(tmp_path / "loss.csv")
    assert len({(r["noise"], r["time"], r["dtype"], r["objective"]) for r in rows}) == 16
    assert {row["note"] for row in rows} == {""}
    assert [path.name for path in tmp_path.iterdir()] == ["loss.csv"]


def test_large_k_is_measured_from_hidden_states(monkeypatch, capsys):
    monkeypatch.setattr("usd3.cli.bench.LARGE", 8)
    assert main(["bench", "loss", *TINY, "--hidden", "4"]) == 0
    assert "projection" in capsys.readouterr().out
    assert main(["bench", "loss", *TINY, "--hidden", "0"]) == 0
    assert "projection" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["speed"], "speed"),
        (["loss", "--sizes", "1,2"], 'size = 1,2: expected "B,D,K"'),
        (["loss", "--sizes", " "], 'sizes = : expected one or more "B,D,K"'),
        (["loss", "--noise", "pink"], "noise = pink: expected one or more of uniform, absorbing, marginal"),
        (["loss", "--dtype", "fp32,fp8"], "dtype = fp8: expected one or more of fp32, bf16"),
        (["loss", "--device", "tpu"], 'device = tpu: expected "cpu" or "cuda"'),
        (["loss", "--repeats", "0"], "repeats = 0: expected an integer >= 1"),
        (["loss", "--other", "nowhere.py"], "other = nowhere.py: expected a Python file"),
        (["scaling", "--most", "2"], "most = 2: expected room to grow K"),
        (["scaling", "--factor", "1"], "factor = 1: expected an integer >= 2"),
        (["loss", "sampling"], "one word too many"),
    ],
)
def test_bad_input_is_refused_in_one_line(arguments, message, capsys):
    assert message in error_of(capsys, *arguments)


def test_results_are_not_overwritten(tmp_path, capsys):
    (tmp_path / "loss.csv").write_text("mine")
    assert "expected a new or an empty folder" in error_of(capsys, "loss", *TINY, "--out", str(tmp_path))
    assert (tmp_path / "loss.csv").read_text() == "mine"


def test_the_commands_of_the_documentation_are_understood(monkeypatch):
    done = []
    monkeypatch.setattr(Command, "run", lambda command, options: done.append(options))
    commands = re.findall(r"^usd3 bench[^#\n]*", DOCS, re.MULTILINE)
    assert len(commands) >= 6
    for command in commands:
        assert main(shlex.split(command)[1:]) == 0
    assert len(done) == len(commands)
    assert done[0].table == "all"
    assert done[1].sizes == "64,256,129 8,512,50257"


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_scripts_run(script, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    device = [] if script == "cpu" else ["--device", "cpu"]
    csv_file = tmp_path / f"{script}.csv"
    quick = ["--repeats", "2", "--seconds", "0.02", "--sizes", "2,4,8", "--csv", str(csv_file)]
    monkeypatch.setattr(sys, "argv", [script, *device, *quick])
    namespace = runpy.run_path(str(ROOT / "benchmarks" / f"{script}.py"))
    if script == "scaling":
        namespace["MOST"]["cpu"] = 512
    namespace["main"]()
    assert {row["note"] for row in read(csv_file)} == {""}
    assert str(csv_file) in capsys.readouterr().out
    sys.modules.pop("shared")
