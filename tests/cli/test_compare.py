"""`usd3 compare` as a user calls it, on sequences that count up modulo 5."""

import csv
import io
import json
import os
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import lightning.pytorch as pl
import numpy as np
import pytest
import yaml

from support.runs import tiny_recipe
from usd3._internal.locks import locked
from usd3.cli import compare, compare_jobs, compare_results
from usd3.cli.main import main
from usd3.recipes import find_recipe
from usd3.training.options import Recipe
from usd3.training.run import fit

MEASURED = ["--evaluation.steps", "3", "--evaluation.runs", "2", "--evaluation.bound_samples", "2"]
METHOD_WORDS = "usd3+discrete late:usd3+continuous"


class Stopped(Exception):
    pass


class StopAtFive(pl.Callback):
    def on_train_batch_start(self, trainer, *_):
        if trainer.global_step == 5:
            raise Stopped


def command(folder: Path, *further: str, methods: str = METHOD_WORDS) -> list[str]:
    return ["compare", str(folder / "base.yaml"), "--methods", methods, *MEASURED, *further]


def usd3_discrete(recipe: Recipe) -> Recipe:
    for part, values in yaml.safe_load(find_recipe("discrete").read_text()).items():
        for name, value in values.items():
            setattr(getattr(recipe, part), name, value)
    return recipe


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A whole comparison of two methods, of which the first had been interrupted."""
    folder = tmp_path_factory.mktemp("compare")
    (folder / "base.yaml").write_text(yaml.safe_dump(asdict(tiny_recipe(folder))))
    out = folder / "out"
    with pytest.raises(Stopped):
        fit(usd3_discrete(tiny_recipe(folder)), out / "usd3+discrete", progress=False, callbacks=[StopAtFive()])
    (out / "comparison.json").write_text("{}")
    printed, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(printed), redirect_stderr(errors):
        assert main(command(folder, "--out", str(out), "--jobs", "2")) == 0, errors.getvalue()
    return folder, SimpleNamespace(stdout=printed.getvalue(), stderr=errors.getvalue())


def test_both_are_trained_measured_and_in_every_table(done):
    folder, found = done
    out = folder / "out"
    assert "training 0/2  usd3+discrete, late" in found.stderr
    assert found.stderr.splitlines()[-1] == "measuring 2/2"
    text = (out / "table.txt").read_text()
    assert text in found.stdout
    for word in ("usd3+discrete", "late", "Markov chain", "another held-out object", "the truth itself", "**"):
        assert word in text
    assert "10 held-out objects, first 2 elements given, 2 continuations of each in 3 steps, seed 0" in text
    assert r"\begin{tabular}" in (out / "table.tex").read_text()
    with open(out / "table.csv") as file:
        table = {row["label"]: row for row in csv.DictReader(file)}
    for name in ("usd3+discrete", "late"):
        assert (table[name]["steps"], table[name]["sampling_steps"]) == ("8", "3")
        assert float(table[name]["bits_per_element_mean"]) > 0
        assert int(table[name]["parameters"]) > 1000
        config = json.loads((out / name / "config.json").read_text())
        assert config["diffusion"]["num_steps"] == (1000 if name == "usd3+discrete" else None)
        assert float(table[name]["minutes"]) == pytest.approx(config["minutes"], rel=1e-6)
    assert table["late"]["1g_hellinger_mean"] != table["usd3+discrete"]["1g_hellinger_mean"]
    assert {table[name]["1g_hellinger_mark"] for name in ("usd3+discrete", "late")} <= {"0", "1"}
    with open(out / "differences.csv") as file:
        differences = {row["metric"]: row for row in csv.DictReader(file)}
    bits = differences["bits_per_element"]
    means = [float(table[bits[name]]["bits_per_element_mean"]) for name in ("first", "second")]
    assert float(bits["difference"]) == pytest.approx(means[0] - means[1], rel=1e-5)
    assert float(bits["low"]) < float(bits["difference"]) < float(bits["high"])
    assert (bits["objects"], bits["groups"], bits["over_trainings"]) == ("10", "10", "0")
    assert "resampled are the 10 objects, not trainings, though another may differ by more" in text
    for picture in ("metrics.png", "training.png"):
        assert (out / picture).stat().st_size > 10_000
    with open(out / "training.csv") as file:
        logged = list(csv.DictReader(file))
    assert {row["label"] for row in logged if row["held_out_bits_per_element"]} == {"usd3+discrete", "late"}
    assert max(int(row["step"]) for row in logged) == 8


def test_an_interrupted_run_was_resumed(done):
    out = done[0] / "out"
    assert "train --resume" in (out / "usd3+discrete.log").read_text()
    assert len(list((out / "usd3+discrete" / "logs").iterdir())) == 2
    assert "--run" in (out / "late.log").read_text()


def test_a_repeated_command_does_nothing_anew(done, monkeypatch, capsys):
    folder, found = done
    monkeypatch.setattr(subprocess, "Popen", None)
    monkeypatch.setattr(compare_results, "evaluate_references", None)
    weights = folder / "out" / "late" / "model.safetensors"
    kept = weights.rename(folder / "kept")
    assert main(command(folder, "--out", str(folder / "out"))) == 0  # results count without their weights
    kept.rename(weights)
    assert main(command(folder, "--out", str(folder / "out"))) == 0
    assert capsys.readouterr().out == 2 * found.stdout


def test_results_of_older_versions_are_compared_by_their_means(done, monkeypatch, capsys):
    folder, _ = done
    out = folder / "out"
    file = out / "late" / "comparison.json"
    whole = file.read_text()
    results = json.loads(whole)
    assert len(results.pop("per_object")["nats"]) == 10
    file.write_text(json.dumps(results))
    monkeypatch.setattr(subprocess, "Popen", None)  # nothing is measured again
    assert main(command(folder, "--out", str(out))) == 0
    printed = capsys.readouterr().out
    assert "** best, * second best by the means alone, which may be chance" in printed
    assert "not shown to be worse" not in printed
    assert not (out / "differences.csv").exists()
    file.write_text(whole)
    assert main(command(folder, "--out", str(out))) == 0
    assert (out / "differences.csv").exists()
    assert "not shown to be worse" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "changed", "expected"),
    [
        (["--evaluation.seed", "1"], None, ["usd3+discrete", "late"]),
        ([], "late", ["late"]),
    ],
    ids=["other settings", "new weights"],
)
def test_what_is_out_of_date_is_measured_again(done, monkeypatch, options, changed, expected):
    folder, _ = done
    asked = {}

    def failing(title, todo, at_once):
        asked[title] = [job.label for job in todo]
        return dict.fromkeys(asked[title], "not run")

    monkeypatch.setattr(compare_jobs, "run_jobs", failing)
    monkeypatch.setattr(compare, "kept_references", lambda *_: {})
    monkeypatch.setattr(compare, "write_results", lambda *_: None)
    if changed:
        weights = folder / "out" / changed / "model.safetensors"
        before = weights.stat()
        os.utime(weights, (before.st_atime + 1e6, before.st_mtime + 1e6))
    assert main(command(folder, "--out", str(folder / "out"), *options)) == 1
    if changed:
        os.utime(weights, (before.st_atime, before.st_mtime))
    assert asked == {"training": [], "measuring": expected}


def test_what_was_measured_before_an_interruption_is_kept(done, tmp_path, monkeypatch, capsys):
    words = " ".join(f"{name}:{done[0] / 'out' / 'late'}" for name in ("first", "second"))
    asked = []

    def interrupted(title, todo, at_once):
        asked.append([job.label for job in todo])
        if title == "measuring":
            assert main([*todo[0].arguments, "--device", "cpu"]) == 0
            raise KeyboardInterrupt
        return {}

    monkeypatch.setattr(compare_jobs, "run_jobs", interrupted)
    options = ["--out", str(tmp_path / "out"), "--evaluation.baselines", "false"]
    assert main(command(done[0], *options, methods=words)) == 130
    assert main(command(done[0], *options, methods=words)) == 130
    assert asked == [[], ["first", "second"], [], ["second"]]
    monkeypatch.setattr(compare_jobs, "run_jobs", lambda title, todo, at_once: {job.label: "not run" for job in todo})
    capsys.readouterr()
    assert main(command(done[0], *options, methods=words)) == 0
    assert "second" in capsys.readouterr().out


def test_a_failure_is_reported_and_a_trained_model_is_taken(done, tmp_path, capsys):
    folder, _ = done
    (tmp_path / "wrong.yaml").write_text("training: {lr: 1.0e+30, warmup: 0, clip: null}\n")
    out = tmp_path / "out"
    words = f"bad:{tmp_path / 'wrong.yaml'} taken:{folder / 'out' / 'late'}"
    assert main(command(folder, "--out", str(out), "--evaluation.baselines", "false", methods=words)) == 1
    captured = capsys.readouterr()
    errors = captured.err.splitlines()
    assert any(line.startswith("training bad failed:") and str(out / "bad.log") in line for line in errors)
    assert errors[-1].startswith("usd3 compare: error: 1 of the methods failed: bad: ")
    assert "try a smaller training.lr" in errors[-1]
    assert "taken" in captured.out
    assert "Markov chain" not in captured.out
    with open(out / "table.csv") as file:
        assert [row["label"] for row in csv.DictReader(file)] == ["taken"]
    assert json.loads((out / "taken" / "comparison.json").read_text())["model"] == str(folder / "out" / "late")
    assert not (out / "taken" / "checkpoints").exists()


@pytest.mark.parametrize(
    ("methods", "options", "message"),
    [
        ("usd3 usd3", [], "methods = usd3: expected names that differ"),
        ("a/b:usd3", [], "methods = a/b: expected a name that begins"),
        ("..:usd3", [], "methods = ..: expected a name that begins"),
        ("", [], "methods = : expected recipes"),
        ("nope", [], "methods = nope: expected words with spaces between them"),
        ("usd3+discret", [], "vqcifar10 (is discrete meant?)"),
        ("usd3 other.yaml", [], "data.seed of other = 3: expected 0, as usd3 has"),
        ("usd3 given.yaml", [], "prefix of given = 5: expected 2, as usd3 has"),
        ("table.txt:usd3", [], "methods = table.txt: expected a name that begins"),
        ("usd3", ["--jobs", "0"], "jobs = 0"),
        ("usd3", ["--evaluation.steps", "5000"], "num_steps = 5000: expected"),
        ("usd3 sedd", ["--evaluation.temperature", "0.5"], "temperature = 0.5: expected 1 for SEDD"),
        ("usd3", ["--evaluation.sampler", "best"], "evaluation.sampler = best: expected one of exact"),
        ("sddm", ["--model.net", "film"], "model.net = film: expected hollow_transformer or masked_transformer"),
        ("usd3", ["--evaluation.steps", "0"], "steps"),
        ("usd3", ["--evaluation.prefix", "8"], "prefix = 8: expected an integer 0..5"),
        ("usd3", ["--out", "full"], "out = full: expected a folder that is new, empty"),
        ("usd3", ["--training.minutes", "0"], "training.minutes"),
        ("usd3", ["--resume", "full"], "--resume"),
    ],
)
def test_wrong_commands_end_in_one_line_before_any_work(done, tmp_path, monkeypatch, capsys, methods, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.yaml").write_text("data: {seed: 3}\n")
    (tmp_path / "given.yaml").write_text("training: {given: prefix, prefix: 5}\n")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").touch()
    before = sorted(tmp_path.rglob("*"))
    assert main(command(done[0], *options, methods=methods)) != 0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert message in lines[0]
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_that_was_begun_keeps_its_budget(done, capsys):
    folder, _ = done
    for options, message in (
        (["--training.steps", "9"], "training.steps of usd3+discrete = 9: expected 8, as in"),
        (["--model.dim", "32"], "model.dim of usd3+discrete = 32: expected 16, as in"),
        (["--seed", "1"], "seed of usd3+discrete = 1: expected that of"),
    ):
        assert main(command(folder, "--out", str(folder / "out"), *options)) == 1
        assert message in capsys.readouterr().err


def test_several_trainings_of_each_method(tmp_path, monkeypatch, capsys):
    trained = []

    def here(title, todo, at_once):
        trained.extend(job.label for job in todo if title == "training")
        return {job.label: "failed" for job in todo if main(job.arguments) != 0}

    monkeypatch.setattr(compare_jobs, "run_jobs", here)
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(asdict(tiny_recipe(tmp_path, steps=4))))
    out = tmp_path / "out"
    for repeats, expected in ((1, ["usd3", "ce"]), (2, ["usd3-2", "ce-2"]), (3, ["usd3-3", "ce-3"])):
        trained.clear()
        words = command(tmp_path, "--out", str(out), "--repeats", str(repeats), methods="usd3 ce:usd3+ce")
        assert main(words) == 0, capsys.readouterr().err
        assert trained == expected
        done = 2 * repeats - 2
        assert (f"{done} of {2 * repeats} are trained already" in capsys.readouterr().err) == (done > 0)
    seeds = [yaml.safe_load((out / name / "recipe.yaml").read_text())["seed"] for name in ("ce", "ce-2", "ce-3")]
    assert seeds == [0, 1, 2]
    with open(out / "table.csv") as file:
        table = {row["label"]: row for row in csv.DictReader(file) if row["kind"] == "method"}
    assert list(table) == ["usd3", "ce"]
    found = [json.loads((out / name / "comparison.json").read_text()) for name in ("ce", "ce-2", "ce-3")]
    for key, values in {
        "bits_per_element": [one["bits_per_element"]["model (upper bound)"] for one in found],
        "3g_hellinger": [one["rows"]["model"]["3g_hellinger"]["mean"] for one in found],
    }.items():
        assert float(table["ce"][f"{key}_mean"]) == pytest.approx(np.mean(values), rel=1e-6)
        assert float(table["ce"][f"{key}_std"]) == pytest.approx(np.std(values, ddof=1), rel=1e-5)
    assert float(table["ce"]["steps"]) == 4
    text = (out / "table.txt").read_text()
    assert "; trainings: usd3 3, ce 3; ± is over these where there are several" in text
    assert "resampled are the 10 objects, and trainings" in text
    with open(out / "differences.csv") as file:
        (bits,) = (row for row in csv.DictReader(file) if row["metric"] == "bits_per_element")
    means = [float(table[bits[name]]["bits_per_element_mean"]) for name in ("first", "second")]
    assert float(bits["difference"]) == pytest.approx(means[0] - means[1], abs=1e-6)
    assert (bits["first_trainings"], bits["second_trainings"], bits["over_trainings"]) == ("3", "3", "1")
    about = json.loads((out / "comparison.json").read_text())
    assert about["trainings"] == {name: [name, f"{name}-2", f"{name}-3"] for name in ("usd3", "ce")}
    capsys.readouterr()
    assert main(command(tmp_path, "--repeats", "2", methods="usd3 usd3-2:usd3+ce")) == 1
    assert "methods = usd3-2: expected names that differ" in capsys.readouterr().err


def test_the_references_are_kept_for_the_same_data_and_settings(done, monkeypatch):
    folder, _ = done
    kept = json.loads((folder / "out" / "references.json").read_text())
    assert np.isclose(kept["rows"]["the truth itself"]["3g_hellinger"]["mean"], 0)
    assert kept["data"]["path"] == str(folder / "data.npz")
    assert "model" not in kept["rows"]


def test_a_folder_in_which_another_comparison_is_at_work_is_refused(done, capsys):
    folder, _ = done
    with locked(folder / "out", "comparison", "out"):
        assert main(command(folder, "--out", str(folder / "out"))) == 1
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert f"out = {folder / 'out'}: expected a folder that no other process uses, but process {os.getpid()}" in line
    assert not (folder / "out" / ".comparison.lock").exists()
