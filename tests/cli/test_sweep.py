"""`usd3 evaluate --sweep` as a user calls it, on an untrained model."""

import csv
import itertools
import json

import pytest

from support.runs import tiny_recipe
from usd3.cli.evaluate import Subject
from usd3.cli.main import main
from usd3.training.run import pipeline_for

SMALL = ["--steps", "4", "--runs", "2", "--limit", "4", "--bound_samples", "2", "--device", "cpu"]


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = tiny_recipe(tmp_path)
    pipeline_for(recipe, recipe.data.load()).save_pretrained("mine")
    recipe.method.name, recipe.model.hollow = "d3pm", True
    pipeline_for(recipe, recipe.data.load()).save_pretrained("d3pm")
    return tmp_path


def test_an_interrupted_sweep_goes_on_with_the_same_draws(model, monkeypatch, capsys):
    words = "0 2,0.5,2 5,0.5,2"
    command = ["evaluate", "mine", *SMALL, "--sweep", words]
    assert main([*command, "--out", "whole"]) == 0
    whole = json.loads((model / "whole/sweep.json").read_text())
    errors = capsys.readouterr().err
    assert "sampling 2/3 (N = 2, Δn = 0.5, last 2)" in errors
    draw, done = Subject.drawn, []

    def stopping(self, own, title):
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(title)
        return draw(self, own, title)

    monkeypatch.setattr(Subject, "drawn", stopping)
    assert main([*command, "--out", "part"]) == 130
    assert len(json.loads((model / "part/sweep.json").read_text())) == 2
    assert not (model / "part/sweep.txt").exists()
    done.clear()
    assert main([*command, "--out", "part"]) == 0
    assert len(done) == 1
    assert done[0].startswith("sampling 3/3 (N = 5")
    part = json.loads((model / "part/sweep.json").read_text())
    assert [found | {"sampling_seconds": 0} for found in part] == [found | {"sampling_seconds": 0} for found in whole]
    assert part[0]["rows"]["model"] != part[1]["rows"]["model"] != part[2]["rows"]["model"]

    plain = ["evaluate", "mine", *SMALL, "--corrector.num_steps", "2", "--corrector.step_size", "0.5"]
    monkeypatch.undo()
    monkeypatch.chdir(model)
    assert main([*plain, "--corrector.last", "2", "--out", "plain.json"]) == 0
    alone = json.loads((model / "plain.json").read_text())
    for key in ("rows", "bits_per_element", "settings", "parroting", "objects"):
        assert alone[key] == part[1][key], key


def test_tables_have_a_row_for_each_corrector_and_the_scale_once(model, capsys):
    command = ["evaluate", "mine", *SMALL, "--out", "out", "--sweep"]
    assert main([*command, "2,0.001,1"]) == 0
    assert main([*command, "0 5,0.5,all"]) == 0
    labels = ["no corrector", "N = 5, Δn = 0.5, all steps", "N = 2, Δn = 0.001, last 1"]
    with open(model / "out/sweep.csv") as file:
        kinds = {row["label"]: row["kind"] for row in csv.DictReader(file)}
    assert [name for name, kind in kinds.items() if kind == "method"] == labels
    assert next(name for name, kind in kinds.items() if kind == "reference") == "Markov chain"
    text = (model / "out/sweep.txt").read_text()
    assert text in capsys.readouterr().out
    assert text.startswith("data: 4 held-out objects, first 2 elements given, 2 continuations of each in 4 steps")
    with open(model / "out/differences.csv") as file:
        pairs = {(row["first"], row["second"]) for row in csv.DictReader(file) if row["metric"] == "1g_hellinger"}
    assert pairs == set(itertools.combinations(labels, 2))
    latex = (model / "out/sweep.tex").read_text()
    assert r"N = 2, $\Delta$n = 0.001, last 1 &" in latex
    assert latex.isascii()


def test_network_calls_and_changed_elements_are_counted(model):
    command = ["evaluate", "mine", *SMALL, "--from_nothing", "false", "--out", "out", "--sweep"]
    assert main([*command, "0 0@6 2,1,2 2,1e-9,2 3,1,all@6 gibbs:1,3,all gibbs:2,50%,1@6"]) == 0
    parts = json.loads((model / "out/sweep.json").read_text())
    assert [part["calls_per_object"] for part in parts] == [4, 6, 4 + 2 * 2, 4 + 2 * 2, 6 + 3 * 5, 4 + 3, 6 + 2]
    none, none_6, moved, hardly, often, gibbs, half = (part["changed_per_object"] for part in parts)
    assert none == none_6 == hardly == 0
    assert 0 < moved < often
    assert 0 < gibbs <= 3 * 3
    assert 0 < half <= 2 * 3  # of the 6 elements after the prefix
    with open(model / "out/sweep.csv") as file:
        rows = {row["label"]: row for row in csv.DictReader(file) if row["kind"] == "method"}
    assert float(rows["6 steps, N = 3, Δn = 1.0, all steps"]["calls_per_object"]) == 21
    assert float(rows["Gibbs, N = 1, 3 of all elements, all steps"]["changed_per_object"]) == gibbs
    assert [float(row["sampling_steps"]) for row in rows.values()] == [4, 6, 4, 4, 6, 4, 6]
    text = (model / "out/sweep.txt").read_text()
    assert "2 continuations of each in 4 to 6 steps" in text
    assert "elements changed per object" in text


def test_a_number_of_steps_of_its_own_is_that_of_the_command(model):
    command = ["evaluate", "mine", *SMALL, "--sweep"]
    assert main([*command, "2,0.5,2@6", "--out", "own"]) == 0
    assert main([*command, "2,0.5,2", "--steps", "6", "--out", "same"]) == 0
    own, same = (json.loads((model / name / "sweep.json").read_text())[0] for name in ("own", "same"))
    for key in ("rows", "bits_per_element", "calls_per_object", "changed_per_object"):
        assert own[key] == same[key], key


def test_a_sweep_of_an_older_version_goes_on(model):
    command = ["evaluate", "mine", *SMALL, "--out", "out", "--sweep"]
    assert main([*command, "0"]) == 0
    (part,) = json.loads((model / "out/sweep.json").read_text())
    for name in ("steps", "calls_per_object", "changed_per_object"):
        del part[name]
    (model / "out/sweep.json").write_text(json.dumps([part]))
    assert main([*command, "0 1,1,2"]) == 0
    first, second = json.loads((model / "out/sweep.json").read_text())
    assert first == part
    assert second["changed_per_object"] > 0
    with open(model / "out/sweep.csv") as file:
        assert next(csv.DictReader(file))["calls_per_object"] == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sweep", ""], "sweep = : expected words"),
        (["--sweep", "2,0.1"], "sweep = 2,0.1: expected NUM_STEPS,STEP_SIZE,LAST, as in 2,0.001,10"),
        (["--sweep", "0 0@21"], "steps = 21: expected an integer 1..20"),
        (["--sweep", "2,-1,3"], "sweep = 2,-1,3: expected"),
        (["--sweep", "0,1,3"], "sweep = 0,1,3: expected"),
        (["--sweep", "0 0"], "sweep = no corrector: expected correctors that differ"),
        (["--sweep", "0", "--samples", "x.npz"], "samples = x.npz: expected null with --sweep"),
        (["--sweep", "0", "--corrector.num_steps", "1"], "expected none besides --sweep"),
        (["--sweep", "0", "--out", "."], "out = .: expected a folder that is new, empty"),
        (["--sweep", "0", "--out", "kept", "--seed", "1"], "seed = 1: expected 0, as in kept/sweep.json"),
        (["--sweep", "0", "--out", "kept", "--model", "d3pm"], "model = d3pm: expected mine, as in kept/sweep.json"),
        (["--sweep", "paper", "--model", "d3pm"], "sweep = paper: expected 0 for D3PM, which has no place"),
        (["--images.num", "9"], "images.num = 9: expected no such option"),
    ],
)
def test_wrong_sweeps_end_in_one_line(model, capsys, options, message):
    if "kept" in options:
        assert main(["evaluate", "mine", *SMALL, "--sweep", "0", "--out", "kept"]) == 0
    before = sorted(model.rglob("*"))
    capsys.readouterr()
    assert main(["evaluate", "mine", *SMALL, *options]) != 0
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert sorted(model.rglob("*")) == before
