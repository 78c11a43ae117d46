"""`usd3 cost` as a user calls it, on random tokens."""

import csv
import io
import json
import re
import shlex
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict

import pytest
import torch
import yaml

from support.places import ROOT
from support.runs import tiny_recipe
from usd3.bench.cost import COLUMNS, Cost
from usd3.cli import cost
from usd3.cli.commands import Command
from usd3.cli.main import main
from usd3.metrics.summary import Summary

SIZES = ["--shape", "2,3", "--num_classes", "5", "--steps", "4", "--draw", "4", "--draw_steps", "12"]
SHORT = ["--timed_draw_steps", "2", "--corrector_steps", "1", "--objects", "100", "--device", "cpu"]


def command(folder, *further, methods="usd3+discrete masked:mdlm"):
    return ["cost", str(folder / "base.yaml"), "--methods", methods, *SIZES, *SHORT, *further]


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cost")
    (folder / "base.yaml").write_text(yaml.safe_dump(asdict(tiny_recipe(folder, steps=1800))))
    printed, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(printed), redirect_stderr(errors):
        assert main(command(folder, "--out", str(folder / "out"))) == 0, errors.getvalue()
    return folder, printed.getvalue(), errors.getvalue()


def results(out):
    return json.loads((out / "cost.json").read_text())


def faked(monkeypatch, fails=(), error=None):
    """Which methods are measured; nothing is."""
    asked = []

    def measure(recipe, settings, device):
        asked.append(recipe.method.name)
        if recipe.method.name in fails:
            raise error
        return Cost(dict.fromkeys(COLUMNS, Summary(2.0, 0.5)), 4, 2)

    monkeypatch.setattr(cost, "measure_cost", measure)
    return asked


def test_the_results_are_in_every_table(done):
    folder, printed, errors = done
    found = results(folder / "out")
    assert found["recipes"] == {"usd3+discrete": "usd3+discrete", "masked": "mdlm"}
    assert found["settings"]["shape"] == [2, 3]
    assert {"machine", "torch", "commit"} <= found["machine"].keys()
    for row in found["rows"].values():
        assert list(row) == list(COLUMNS)
        assert row["train_mib"] == {"mean": None, "std": None}  # no GPU
        known = [row[key] for key in COLUMNS if key != "train_mib"]
        assert all(value["mean"] > 0 and value["std"] >= 0 for value in known)
        assert row["train_hours"]["mean"] == pytest.approx(row["train_ms"]["mean"] / 2000)  # of 1800 steps
    assert "hours of 100 objects in 12 steps each, extrapolated from 2 steps of one batch (masked: from 12)" in printed
    assert "random tokens, 2 x 3 of 5 categories" in printed
    assert "measuring masked (2/2)" in errors
    with open(folder / "out" / "cost.csv") as file:
        table = {row["label"]: row for row in csv.DictReader(file)}
    assert float(table["masked"]["train_ms_mean"]) == pytest.approx(found["rows"]["masked"]["train_ms"]["mean"])
    assert (table["masked"]["train_mib_mean"], table["masked"]["note"]) == ("", "")
    text = (folder / "out" / "cost.tex").read_text()
    assert text.startswith("% ")
    assert all(line.count("&") == len(COLUMNS) for line in text.splitlines() if line.endswith(r"\\"))


def test_what_is_known_is_not_measured_again(done, monkeypatch, capsys):
    folder, printed, _ = done
    asked = faked(monkeypatch)
    assert main(command(folder, "--out", str(folder / "out"))) == 0
    assert (asked, capsys.readouterr().out) == ([], printed)
    before = results(folder / "out")
    assert main(command(folder, "--out", str(folder / "out"), methods="sedd usd3+discrete")) == 0
    found = results(folder / "out")
    assert asked == ["sedd"]
    assert list(found["rows"]) == ["sedd", "usd3+discrete", "masked"]  # what was asked for comes first
    assert {label: found["rows"][label] for label in before["rows"]} == before["rows"]
    (folder / "out" / "cost.json").write_text(json.dumps(before))


@pytest.mark.parametrize(
    ("methods", "options", "message"),
    [
        ("usd3+discrete", ["--steps", "9"], "steps = 9: expected 4, as in"),
        ("usd3+discrete", ["--shape", "6"], "shape = [6]: expected [2, 3], as in"),
        ("usd3+discrete", ["--model.dim", "32"], "model.dim of usd3+discrete = 32: expected 16, as in"),
        ("usd3+discrete", ["--seed", "1"], "seed of usd3+discrete = 1"),
        ("usd3+discrete", ["--out", "full"], "out = full: expected a folder that is new, empty, or that of an earlier"),
        ("usd3+discrete", ["--out", "broken"], "expected the results of usd3 cost"),
        ("trained", [], "methods = trained: expected recipes, not the folder of a trained model"),
        ("usd3*3", [], "methods = usd3*3: expected no number of trainings"),
        ("usd3 usd3", [], "methods = usd3: expected names that differ"),
        ("usd3", ["--shape", "8x8"], "shape = 8x8: expected numbers with commas between them"),
        ("usd3", ["--num_classes", "null"], "num_classes is missing"),
        ("usd3", ["--shape", "null"], "num_classes = 5: expected null without --shape"),
        ("usd3", ["--device", "cuda:7"], 'device = cuda:7: expected "cpu"'),
        ("usd3", ["--draw", "0"], "draw = 0"),
        ("usd3+discrete", ["--draw_steps", "5000", "--out", "new"], "usd3+discrete: num_steps = 5000: expected"),
        ("sddm", ["--model.net", "film", "--out", "new"], "sddm: model.net = film: expected hollow_transformer"),
    ],
)
def test_wrong_commands_end_in_one_line_before_any_work(done, tmp_path, monkeypatch, capsys, methods, options, message):
    monkeypatch.chdir(tmp_path)
    for name, file in (("full", "mine.txt"), ("broken", "cost.json"), ("trained", "config.json")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("{}")
    asked, before = faked(monkeypatch), sorted(tmp_path.rglob("*"))
    assert main(command(done[0], "--out", str(done[0] / "out"), *options, methods=methods)) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert message in lines[0]
    assert (asked, sorted(tmp_path.rglob("*"))) == ([], before)


def test_results_of_another_machine_are_refused(done, monkeypatch, capsys):
    folder, _, _ = done
    monkeypatch.setattr(cost, "machine", lambda device: results(folder / "out")["machine"] | {"machine": "another"})
    assert main(command(folder, "--out", str(folder / "out"))) == 1
    assert "machine.machine = another: expected" in capsys.readouterr().err


def test_a_failure_is_noted_and_the_others_go_on(done, tmp_path, monkeypatch, capsys):
    out = ["--out", str(tmp_path)]
    monkeypatch.delenv("USD3_DEBUG", raising=False)
    faked(monkeypatch, fails=["mdlm"], error=torch.OutOfMemoryError())
    assert main(command(done[0], *out, methods="mdlm usd3")) == 1
    captured = capsys.readouterr()
    assert captured.err.splitlines()[-1] == "usd3 cost: error: 1 of the methods failed: mdlm: out of memory"
    assert "mdlm: out of memory" in captured.out
    assert list(results(tmp_path)["rows"]) == ["usd3"]
    with open(tmp_path / "cost.csv") as file:
        assert [(row["label"], row["note"]) for row in csv.DictReader(file)] == [
            ("usd3", ""),
            ("mdlm", "out of memory"),
        ]
    asked = faked(monkeypatch)
    assert main(command(done[0], *out, methods="mdlm usd3")) == 0
    assert asked == ["mdlm"]
    assert results(tmp_path)["failed"] == {}


def test_the_commands_of_the_documentation_are_understood(monkeypatch):
    text = (ROOT / "docs" / "benchmarks.md").read_text()
    commands, seen = re.findall(r"^usd3 cost[^#\n]*", text, re.MULTILINE), []
    monkeypatch.setattr(Command, "run", lambda command, *arguments: seen.append(arguments))
    for command in commands:
        assert main(shlex.split(command)[1:]) == 0
    assert len(seen) >= 3
    options, words, read = seen[0]
    assert (options.shape, words) == ("8,8", ["vqcifar10", "paper-image"])
    assert read([*words, "sddm", "paper-image-sddm"]).model.net == "masked_transformer"


def test_an_interruption_keeps_what_was_measured(done, tmp_path, monkeypatch, capsys):
    faked(monkeypatch, fails=["mdlm"], error=KeyboardInterrupt())
    assert main(command(done[0], "--out", str(tmp_path), methods="usd3 mdlm sedd")) == 130
    assert f"--out {tmp_path} goes on" in capsys.readouterr().err.splitlines()[-1]
    asked = faked(monkeypatch)
    assert main(command(done[0], "--out", str(tmp_path), methods="usd3 mdlm sedd")) == 0
    assert asked == ["mdlm", "sedd"]
