"""The train-to-test ratios: against counting by hand, and as a user of `usd3 evaluate` and `usd3 compare` sees them."""

import csv
import json
import math
from collections import Counter
from dataclasses import asdict

import numpy as np
import pytest
import torch

from support.runs import tiny_recipe
from usd3.cli import compare_jobs, compare_results
from usd3.cli.main import main
from usd3.evaluation.comparison import METRICS, Row, marks
from usd3.evaluation.ratios import SharedPrefixes, as_columns, as_numbers, named_objects
from usd3.evaluation.settings import EvaluationSettings
from usd3.evaluation.tables import text_table
from usd3.kinds.dataset import Dataset, Sequences
from usd3.kinds.options import DataConfig
from usd3.metrics.summary import COLUMNS, RATIOS, Summary
from usd3.training.run import pipeline_for

K, L, P, RUNS = 9, 12, 2, 3
SMALL = ["--steps", "3", "--runs", "2", "--limit", "4", "--bound_samples", "0", "--device", "cpu"]
MEASURED = ["--evaluation.steps", "3", "--evaluation.runs", "2", "--evaluation.bound_samples", "0"]


# ---- the numbers --------------------------------------------------------------------------------------------------


def grams(row, n):
    return Counter(tuple(row[i : i + n]) for i in range(len(row) - n + 1))


def hellinger(made, true, n):
    p, q = grams(made, n), grams(true, n)
    squares = [(math.sqrt(p[g] / p.total()) - math.sqrt(q[g] / q.total())) ** 2 for g in p | q]
    return math.sqrt(sum(squares) / 2)


def outliers(made, true, n):
    p, q = grams(made, n), grams(true, n)
    return sum(count for g, count in p.items() if g not in q) / p.total()


def by_hand(distance, n, runs, objects, train, skip):
    """Means and standard deviations of both distances and both ratios."""
    values = []
    for run in runs:
        a, b = [], []
        for made, true in zip(run, objects, strict=True):
            same = [other for other in train if list(other[:P]) == list(true[:P])]
            a.append(distance(made[skip:], true[skip:], n))
            b.append(sum(distance(made[skip:], other[skip:], n) for other in same) / len(same))
        a, b = sum(a) / len(a), sum(b) / len(b)
        values.append((a, b, 1 / (a + b) * a / b, 1 / (a + b) * b / a))
    means = [sum(column) / RUNS for column in zip(*values)]
    spread = [sum((x - m) ** 2 for x in column) / (RUNS - 1) for column, m in zip(zip(*values), means)]
    return means + [math.sqrt(variance) for variance in spread]


@pytest.mark.parametrize("scramble", [None, 3])
@pytest.mark.parametrize("include_prefix", [True, False])
def test_six_ratios_and_their_spread_against_counting(tmp_path, scramble, include_prefix):
    rng = np.random.default_rng(0)
    train, parrot = rng.integers(0, K, (12, L)), rng.integers(0, K, (6, L))
    train[:, 0] = parrot[:, 0] = 0
    train[:, 1], parrot[:, 1] = np.arange(12) % 5, (8, 1, 4, 0, 8, 2)  # two or three begin so; none with 8
    np.savez(tmp_path / "x.npz", train=train, test=rng.integers(0, K, (2, L)), parrot=parrot)
    data = DataConfig("array", str(tmp_path / "x.npz"), scramble=scramble)
    shared = named_objects("parrot", data, data.load(), P, limit=3)
    assert shared.truth.tolist() == parrot[[1, 2, 3]].tolist()
    made = rng.integers(0, K, (RUNS, 3, L))
    found = shared.measured(torch.from_numpy(made), include_prefix)
    numbers, columns = as_numbers(found, len(shared)), as_columns(found)
    keys = ["to_test", "to_train", "literal", "swapped"]
    for n in (1, 2, 3):
        for name, distance in (("Hellinger", hellinger), ("outliers", outliers)):
            expected = by_hand(distance, n, made, shared.truth.tolist(), train, 0 if include_prefix else P)
            seen = numbers[f"{n}g {name}"]
            assert [seen[key] for key in [*keys, *(f"{key}_std" for key in keys)]] == pytest.approx(expected)
            assert seen["objects"] == 3
            assert columns[f"ratio_{n}g_{name.lower()}"] == pytest.approx((expected[2], expected[6]))
    assert set(columns) == set(RATIOS) <= set(METRICS)


def test_the_truth_has_ratio_0_and_a_copy_an_infinite_one(tmp_path):
    train, parrot = np.array([[0, 1, 2, 3, 2, 1], [1, 1, 2, 2, 3, 3]]), np.array([[0, 1, 0, 0, 0, 0]])
    np.savez(tmp_path / "x.npz", train=train, test=train, parrot=parrot)
    data = DataConfig("array", str(tmp_path / "x.npz"))
    shared = named_objects("parrot", data, data.load(), P)
    truth, copy = (shared.measured(torch.tensor(x).repeat(2, 1, 1))["2g outliers"] for x in (parrot, train[:1]))
    assert truth["literal"] == (0, 0)
    assert (copy["to_train"], copy["literal"].mean) == ((0, 0), math.inf)
    assert math.isnan(copy["literal"].std)


# ---- the commands -------------------------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path, monkeypatch):
    """An untrained model in mine/, and data of which "parrot" begins like training objects."""
    monkeypatch.chdir(tmp_path)
    recipe = tiny_recipe(tmp_path)
    arrays = dict(np.load(tmp_path / "data.npz"))
    parrot = arrays["train"][:6].copy()
    parrot[:, 2:] = 4 - parrot[:, 2:]
    other = np.zeros_like(parrot)
    np.savez(tmp_path / "data.npz", **arrays, parrot=parrot, other=other, short=parrot[:, :5], names=np.arange(6))
    pipeline_for(recipe, recipe.data.load()).save_pretrained("mine")
    np.save("plain.npy", arrays["train"])
    recipe.data.path = str(tmp_path / "plain.npy")
    pipeline_for(recipe, recipe.data.load()).save_pretrained("plain")
    return tmp_path


def test_evaluate_continues_the_array_too_and_measures_kept_samples_alike(model, capsys):
    def evaluated(*options: str) -> dict:
        assert main(["evaluate", "mine", *SMALL, *options, "--out", f"{len(options)}.json"]) == 0
        return json.loads((model / f"{len(options)}.json").read_text())

    without = evaluated()
    found = evaluated("--ratios", "parrot", "--save_samples", "kept.npz")
    kept, arrays = np.load("kept.npz"), np.load("data.npz")
    assert kept["ratio_tokens"].shape == (2, 4, 8)
    assert (kept["ratio_tokens"][:, :, :2] == arrays["parrot"][:4, :2]).all()
    assert found["ratio_objects"] == found["parroting"]["3g outliers"]["objects"] == 4
    for name, row in without["rows"].items():  # what was there is as it was
        assert {key: found["rows"][name][key] for key in row} == row
        assert set(found["rows"][name]) - set(row) == set(RATIOS)
    text = capsys.readouterr().out
    assert "train-to-test ratio, on 4 objects of parrot:" in text
    assert "3g outliers ratio" in text
    again = evaluated("--ratios", "parrot", "--samples", "kept.npz", "--sampler", "euler")
    assert (again["rows"], again["parroting"]) == (found["rows"], found["parroting"])


def test_a_comparison_has_the_columns_and_is_not_made_twice(model, monkeypatch):
    def here(title, todo, at_once):
        return {job.label: "failed" for job in todo if main(job.arguments) != 0}

    monkeypatch.setattr(compare_jobs, "run_jobs", here)
    command = ["compare", "--methods", "mine", *MEASURED, "--evaluation.ratios", "parrot", "--out", "out"]
    assert main(command) == 0
    with open("out/table.csv") as file:
        table = {row["label"]: row for row in csv.DictReader(file)}
    for key in ("ratio_2g_hellinger", "ratio_3g_outliers"):
        assert float(table["mine"][f"{key}_mean"]) > 0
        assert float(table["mine"][f"{key}_std"]) > 0
        assert float(table["another held-out object"][f"{key}_mean"]) > 0
        assert float(table["the truth itself"][f"{key}_mean"]) == 0
    assert {f"{key}_{part}" for key in RATIOS for part in ("mean", "std")} <= set(table["mine"])
    text = (model / "out/table.txt").read_text()
    assert "; ratios on 6 objects of parrot" in text
    assert "3g outliers ratio" in text
    found = json.loads((model / "out/mine/comparison.json").read_text())
    seconds = found["sampling_seconds"] / (2 * (10 + 6))
    assert float(table["mine"]["seconds_per_object"]) == pytest.approx(seconds, rel=1e-6)
    monkeypatch.setattr(compare_jobs, "run_jobs", lambda title, todo, at_once: {job.label: title for job in todo})
    monkeypatch.setattr(compare_results, "evaluate_references", None)
    assert main(command) == 0


def test_results_from_before_there_were_ratios_are_those_without():
    settings = EvaluationSettings(runs=5)
    old = {"settings": {key: value for key, value in asdict(settings).items() if key not in ("ratios", "images")}}
    assert compare_jobs.has_settings(old, settings)
    assert not compare_jobs.has_settings(old, EvaluationSettings(runs=5, ratios="parrot"))
    assert not compare_jobs.has_settings(old, EvaluationSettings(runs=4))


@pytest.mark.parametrize(
    ("trained", "options", "message"),
    [
        ("mine", ["ratios=typo"], "ratios = typo: expected an array of"),
        ("mine", ["ratios=typo"], ": names, other, parrot, short, test, train"),
        ("mine", ["ratios=train"], "ratios = train: expected another array than that of training"),
        ("mine", ["ratios=other"], "ratios = other: expected an array with objects, without padding, whose first 2"),
        ("mine", ["ratios=short"], "ratios = short: shape of an object of test = (5,): expected"),
        ("mine", ["ratios=names"], "[names].shape = (6,): expected (N, ...)"),
        ("mine", ["ratios=parrot", "prefix=0"], "prefix = 0: expected 1 or more for"),
        ("plain", ["ratios=parrot"], "ratios = parrot: expected null, as the data are no .npz file"),
    ],
)
def test_wrong_arrays_are_refused_before_any_work(model, capsys, trained, options, message):
    before = sorted(model.rglob("*"))
    commands = (["evaluate", trained, *(f"--{word}" for word in options)],)
    commands += (["compare", "--methods", trained, *(f"--evaluation.{word}" for word in options)],)
    for command in commands:
        assert main(command) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert message in line
    assert sorted(model.rglob("*")) == before


def test_kept_samples_without_the_array_are_refused(model, capsys):
    np.savez("drawn.npz", tokens=np.load("data.npz")["test"])
    assert main(["evaluate", "mine", "--ratios", "parrot", "--samples", "drawn.npz"]) == 1
    assert capsys.readouterr().err.endswith('samples = drawn.npz: expected an .npz with "ratio_tokens"\n')


def test_no_ratio_is_the_best_and_tables_without_any_do_not_name_them():
    key = "ratio_3g_outliers"
    rows = [Row(name, {key: Summary(mean, 0.1)}) for name, mean in (("a", 1.0), ("b", 3.0))]
    assert marks(rows, key) == [0, 0]
    lines = text_table(rows).splitlines()
    assert lines[0].split() == ["3g", "outliers", "ratio"]
    assert "ratio: grows where training data are repeated" in lines[4]
    assert "ratio" not in text_table([Row("a", {key: Summary(1, 0) for key in COLUMNS})])


def test_an_object_is_compared_with_a_bounded_number_of_others(monkeypatch):
    """Where all training objects begin alike, and are more than memory holds."""
    monkeypatch.setattr("usd3.evaluation.ratios._MOST_MATCHES", 5)
    monkeypatch.setattr("usd3.evaluation.ratios._MOST_ELEMENTS", 60)
    rows = Sequences(torch.arange(1000)[:, None] * torch.tensor([0, 1, 1]))
    dataset = Dataset("d", 1000, rows, rows)
    shared = SharedPrefixes.among(torch.tensor([[0, 7, 7], [1, 7, 7]]), None, dataset, 1)
    assert shared.train[:, 1].tolist() == list(range(0, 1000, 50))
    assert (shared.rows, [match.tolist() for match in shared.matches]) == ([0], [[0, 4, 8, 12, 16]])
