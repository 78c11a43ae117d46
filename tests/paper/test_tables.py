"""The tables of the project: each fits its study, and its files are what its results say."""

import json

import numpy as np
import pytest
import torch

from support.places import ROOT
from usd3.evaluation.comparison import METRICS
from usd3.evaluation.differences import Intervals
from usd3.evaluation.ratios import SharedPrefixes, as_numbers
from usd3_paper import PaperTable, Study
from usd3_paper.command import published_pictures
from usd3_paper.results import _distances
from usd3_paper.study import Settings

PAPER = ROOT / "paper"
TABLES = {table.name: table for table in PaperTable.all(PAPER)}
NAMES = list(TABLES)


def test_every_table_of_the_paper_is_there():
    places = [TABLES[name].place for name in NAMES]
    assert places == ["Figure 2", *(f"Table {number}" for number in range(1, 11))]


@pytest.mark.parametrize("name", NAMES)
def test_a_table_and_its_study_fit_together(name, tmp_path):
    table = TABLES[name]
    study = Study.read(PAPER, table.study)
    data = str(tmp_path) if study.data else None
    text = " ".join(word for command in study.commands(PAPER, tmp_path, Settings(data, 1, None, 1)) for word in command)
    assert "{" not in text
    labels = set(table.rows) | {"VQGAN reconstruction"}
    assert set(table.published) <= labels
    for row in table.published.values():
        assert set(row) <= set(table.columns)
    if "compare" in study.results.values() or "cost" in study.results.values():
        for label in table.rows:
            assert f" {label}:" in f" {text}" or f" {label} " in f" {text} ", label


@pytest.mark.parametrize("name", NAMES)
def test_published_tables_are_what_their_results_say(name):
    """Nothing is typed into a table by hand."""
    table = TABLES[name]
    file = PAPER / "studies" / table.study / "results.json"
    if not file.is_file():
        assert not (PAPER / name / "table.md").exists()
        return
    results = json.loads(file.read_text())
    assert "+changes" not in results["machine"]["commit"]
    pictures = published_pictures(Study.read(PAPER, table.study))
    for ending, text in table.files(results, pictures).items():
        assert (PAPER / name / f"table{ending}").read_text() == text
    for picture in pictures:
        assert (PAPER / name / picture).is_file()


def test_rows_without_numbers_can_be_told_apart():
    """Their names have commas."""
    results = json.loads((PAPER / "studies" / "corrector-discrete" / "results.json").read_text())
    for label in ("N = 2, Δn = 0.001, last 10", "N = 5, Δn = 0.002, last 20"):
        del results["rows"][label]
    told = TABLES["corrector-discrete"].as_markdown(results)
    assert "Not measured: N = 2, Δn = 0.001, last 10; N = 5, Δn = 0.002, last 20.\n" in told


def test_what_a_ratio_is_made_of_is_told_too():
    truth = torch.tensor([[0, 1, 2, 3, 2, 1], [3, 1, 2, 0, 0, 1]])
    shared = SharedPrefixes([0, 1], truth, truth.flip(1), [np.array([0]), np.array([1])], 1)
    samples = torch.stack([truth.roll(1, 1), truth.roll(2, 1)])
    measured = as_numbers(shared.measured(samples), len(shared))
    found = _distances([{"parroting": measured}])
    for key, side in (("3g_hellinger_to_test", "to_test"), ("3g_hellinger_to_train", "to_train")):
        assert found[key] == {"mean": measured["3g Hellinger"][side], "std": measured["3g Hellinger"][f"{side}_std"]}
    assert set(found) >= set(TABLES["parroting"].columns) - set(METRICS)
    assert _distances([{}]) == {}
    trainings = [{"parroting": {"3g Hellinger": {"to_test": a, "to_train": b}}} for a, b in ((1.0, None), (3.0, 2.0))]
    assert _distances(trainings) == {
        "3g_hellinger_to_test": {"mean": 2.0, "std": pytest.approx(2**0.5)},
        "3g_hellinger_to_train": {"mean": None, "std": None},
    }


def test_with_intervals_ours_are_marked_by_them_and_the_papers_by_their_means():
    table = PaperTable(
        "x", "X", "Table 1", "s", {"loss": "loss ↓", "fid": "FID ↓"}, {name: name for name in "abc"},
        published={"a": {"loss": "0.3"}, "b": {"loss": "0.1"}, "c": {"loss": "0.2"}},
    )  # fmt: skip
    means = {"a": 0.2, "b": 0.1, "c": 0.11}
    rows = {name: {key: {"mean": mean, "std": 0.0} for key in table.columns} for name, mean in means.items()}
    results = {"rows": rows, "references": {}}
    lines = table.lines(results)
    worse = {"loss": {"a": ["b", "c"], "b": [], "c": []}}
    marked = [row[0] for row in table.ranks(lines, Intervals(worse, 30, 10, "all"))]
    assert marked == [0, 0, 1, 1, 1, 2]  # ours and the paper's of each row
    assert [row[0] for row in table.ranks(lines)] == [0, 0, 1, 1, 2, 2]
    missing = Intervals({"loss": {"a": ["b"], "b": []}}, 30, 10, "all")  # the third has its mean alone
    assert [row[0] for row in table.ranks(lines, missing)] == [0, 0, 1, 1, 2, 2]
    legend = table._legend(lines, Intervals(worse, 30, 10, "all"))
    assert "resampled are 10 groups of the 30 objects, and trainings), of ours." in legend
    assert legend.endswith(
        "Of the paper's numbers, and of ours in FID: {ranks} by the means alone, which may be chance."
    )


def test_columns_are_results_that_exist():
    known = {*METRICS, "parameters", "train_mib", "train_ms", "train_hours", "sample_hours", "sample_hours_corrected"}
    known |= {"steps", "alpha_bar", "alpha_bar_ts", "beta", "3g_hellinger_to_test", "3g_hellinger_to_train"}
    for name in NAMES:
        assert set(TABLES[name].columns) <= known


def test_the_papers_numbers_are_ranked_as_printed():
    table = TABLES["music-full"]
    lines = table.lines({"rows": {}, "references": {}})
    marks = {line.label: row[0] for line, row in zip(lines, table.ranks(lines), strict=True) if row[0]}
    assert marks == {"usd3-ce-continuous": 1, "usd3-continuous": 2}  # 0.3734 and 0.3735
