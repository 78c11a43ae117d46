"""The tables of the project: each fits its study, and its files are what its results say."""

import json

import numpy as np
import pytest
import torch

from support.places import ROOT
from usd3.evaluation.comparison import METRICS
from usd3.evaluation.differences import Intervals
from usd3.evaluation.ratios import SharedPrefixes, as_numbers
from usd3_paper import PaperTable, Study, results
from usd3_paper.command import published_pictures
from usd3_paper.recipes import methods_of, recipes_table
from usd3_paper.results import _distances
from usd3_paper.study import Settings

PAPER = ROOT / "paper"
TABLES = {table.name: table for table in PaperTable.all(PAPER)}
NAMES = list(TABLES)


def test_every_table_of_the_paper_is_there():
    places = [TABLES[name].place for name in NAMES]
    beside = ["beside Table 1", "beside Table 6", "beside Table 9"]  # ours alone
    assert places == ["Figure 2", *(f"Table {number}" for number in range(1, 11)), *beside]


@pytest.mark.parametrize("name", NAMES)
def test_a_table_and_its_study_fit_together(name, tmp_path):
    table = TABLES[name]
    study = Study.read(PAPER, table.study)
    data = str(tmp_path) if study.data else None
    commands = study.commands(PAPER, tmp_path, Settings(data, 1, None, 1))
    assert "{" not in " ".join(word for command in commands for word in command)
    labels = set(table.rows) | {"VQGAN reconstruction"}
    assert set(table.published) <= labels
    for row in table.published.values():
        assert set(row) <= set(table.columns)
    if "compare" in study.results.values() or "cost" in study.results.values():
        several = [command for command in commands if command[0] in ("compare", "cost")]
        assert set(table.rows) <= {method.label for command in several for method in methods_of(command)}
    assert set(table.apart) <= set(table.rows)
    assert all(set(columns) <= set(table.columns) for columns in table.apart.values())


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
    both = Intervals(worse | {"fid": worse["loss"]}, 30, 10, "all")
    assert table._legend(lines, both).endswith(
        "of ours. Of the paper's numbers: {ranks} by the means alone, which may be chance."
    )
    assert table._legend([line for line in lines if line.source == "ours"], both).endswith("trainings), of ours.")


def test_columns_are_results_that_exist():
    known = {*METRICS, "parameters", "train_mib", "train_ms", "train_hours", "sample_hours", "sample_hours_corrected"}
    known |= {"calls_per_object", "changed_per_object"}
    known |= {"steps", "alpha_bar", "alpha_bar_ts", "beta", "3g_hellinger_to_test", "3g_hellinger_to_train"}
    for name in NAMES:
        assert set(TABLES[name].columns) <= known


def test_the_papers_numbers_are_ranked_as_printed():
    table = TABLES["music-full"]
    lines = table.lines({"rows": {}, "references": {}})
    marks = {line.label: row[0] for line, row in zip(lines, table.ranks(lines), strict=True) if row[0]}
    assert marks == {"usd3-ce-continuous": 1, "usd3-continuous": 2}  # 0.3734 and 0.3735


def published(name):
    return json.loads((PAPER / "studies" / name / "results.json").read_text())


def test_a_number_that_does_not_compare_has_a_dagger_its_reason_and_no_rank():
    """RDM's bound, even where it would be the best of all."""
    table, found = TABLES["music-full"], published("music")
    found["rows"]["rdm"]["bits_per_element"]["mean"] = 0.001
    page = table.as_markdown(found)
    assert "| 0.001 † |" in page
    assert "† RDM's bound does not compare" in page
    assert "| **1.303** |" in page  # the best of the others
    del found["rows"]["rdm"]
    assert "†" not in table.as_markdown(found)


def test_a_page_tells_noise_schedule_output_and_loss_of_each_row():
    page = TABLES["music"].as_markdown(published("music"))
    (tauldr,) = [line for line in page.splitlines() if line.startswith("| tauLDR-0 | uniform")]
    assert "constant rate, beta = 3.87 | continuous" in tauldr
    assert "one_pass_biased" in tauldr
    (d3pm,) = [line for line in page.splitlines() if line.startswith("| D3PM (discrete time) | uniform")]
    assert "cosine, a = 0.008 | 1 to 1,000" in d3pm
    assert "marginal posterior" in d3pm
    joint = {"commands": ["usd3 compare pop909 --methods 'd3pm-joint:d3pm+paper/recipes/joint.yaml a:runs/a'"]}
    (line,) = recipes_table(joint, {"d3pm-joint": "D3PM", "a": "A"}).splitlines()[2:]
    assert "p(x_0 given the other elements), joint posterior |" in line
    images = {"commands": ["usd3 train vqcifar10 sddm --run runs/a --x 1", "usd3 compare --methods sddm:runs/a"]}
    (line,) = recipes_table(images, {"sddm": "SDDM"}).splitlines()[2:]
    assert "ratio matching" in line


def test_a_page_says_that_its_numbers_are_of_an_earlier_protocol_until_the_study_is_run_again():
    table, found = TABLES["music"], published("music")
    assert "the trainings of these numbers had 4 minutes each; the study now asks for 12,000 steps" in table.as_text(
        found
    )
    found |= {"budget_minutes": None, "budget_steps": 50}
    assert "the trainings of these numbers had 50 steps each" in table.as_text(found)
    assert "protocol" not in table.as_text(found | {"budget_steps": 12_000})
    assert "remark" not in table.as_text(found)


def test_several_trainings_of_a_method_are_one_row_with_the_spread_over_them(tmp_path):
    summary = {
        "methods": {"a": "usd3", "a-2": "usd3", "a-3": "usd3", "b": "rdm"},
        "trainings": {"a": ["a", "a-2", "a-3"], "b": ["b"]},
    }
    (tmp_path / "comparison.json").write_text(json.dumps(summary))
    for label, bits in (("a", 1.0), ("a-2", 2.0), ("b", 4.0)):  # the third training is not measured yet
        cell = {"3g_hellinger": {"mean": bits / 10, "std": 0.5}}
        found = {"rows": {"model": cell}, "bits_per_element": {"model (upper bound)": bits}, "objects": 2, "data": "d"}
        found |= {"settings": {"runs": 3, "steps": 5, "prefix": 1, "seed": 0}, "sampling_seconds": 1.0}
        found |= {"trained": {"parameters": 3, "steps": 50, "minutes": 1.0}}
        (tmp_path / label).mkdir()
        (tmp_path / label / "comparison.json").write_text(json.dumps(found))
    part = results._compare(tmp_path)
    assert list(part["rows"]) == list(part["recipes"]) == ["a", "b"]
    assert part["about"].endswith("; trainings: a 2, b 1; ± is over these where there are several")
    assert part["rows"]["a"]["bits_per_element"] == pytest.approx({"mean": 1.5, "std": 0.5**0.5})
    assert part["rows"]["a"]["3g_hellinger"] == pytest.approx({"mean": 0.15, "std": 0.005**0.5})
    assert part["rows"]["b"]["3g_hellinger"] == {"mean": 0.4, "std": 0.5}  # over the draws of the only one
