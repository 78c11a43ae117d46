"""Ranking and tables, on numbers whose order is known."""

import csv
import io
import math
import re
from dataclasses import replace

import pytest

from usd3._internal.graphs import SETTLED
from usd3._internal.tables import short
from usd3.evaluation.comparison import (
    COSTS,
    METRICS,
    Row,
    csv_table,
    latex_table,
    marks,
    read_references,
    read_row,
    require_comparable,
    shown_metrics,
    text_table,
)
from usd3.kinds.options import DataConfig
from usd3.metrics.summary import COLUMNS, Summary

NAN = math.nan


def rows(*means: float, metric: str = "1g_hellinger", std: float = 0.01) -> list[Row]:
    return [Row(f"m{i}", {metric: Summary(mean, std)}) for i, mean in enumerate(means)]


def found() -> dict:
    """What `usd3 evaluate` writes."""
    cells = {key: {"mean": 0.5, "std": 0.25} for key in METRICS if key != "bits_per_element"}
    return {
        "settings": {"runs": 4, "steps": 100},
        "objects": 5,
        "trained": {"parameters": 1234, "steps": 600 + SETTLED, "minutes": 2.0},
        "sampling_seconds": 10.0,
        "rows": {"model": cells, "Markov chain": cells | {"edit_diversity": {"mean": None, "std": None}}},
        "bits_per_element": {"model (upper bound)": None, "Markov chain": 2.5},
    }


@pytest.mark.parametrize(
    ("means", "expected"),
    [
        ((0.3, 0.1, 0.2, 0.4), [0, 1, 2, 0]),
        ((0.1004, 0.0996, 0.2, 0.2001, 0.3), [1, 1, 2, 2, 0]),  # equal as printed
        ((0.1004, 0.1006, 0.2), [1, 2, 0]),
        ((NAN, 0.2, 0.1, math.inf), [0, 0, 1, 0]),
        ((0.1, 0.1, 0.1), [0, 0, 0]),  # none is better
        ((0.1, 0.1, 0.2), [1, 1, 2]),
        ((0.1, NAN), [0, 0]),
        ((NAN, NAN), [0, 0]),
        ((0.1,), [0]),
    ],
)
def test_the_best_two(means, expected):
    assert marks(rows(*means), "1g_hellinger") == expected


def test_only_clear_directions_are_ranked():
    assert marks(rows(0.1, 0.2, metric="bits_per_element"), "bits_per_element") == [1, 0]
    assert marks(rows(0.1, 0.2, metric="edit_diversity"), "edit_diversity") == [0, 0]
    assert marks(rows(0.1, 0.2), "2g_hellinger") == [0, 0]  # nobody has it
    assert marks(rows(0.1, 0.3, 0.2, metric="recall"), "recall") == [0, 1, 2]
    assert marks(rows(3, 1, 2, metric="fid"), "fid") == [0, 1, 2]


def test_results_are_read_with_what_they_cost():
    row = read_row("mine", found())
    assert row.metrics["3g_outliers"] == Summary(0.5, 0.25)
    assert math.isnan(row.mean("bits_per_element"))
    expected = {"parameters": 1234, "steps": 604, "minutes": 2, "ms_per_step": 200, "sampling_steps": 100}
    assert row.costs == pytest.approx(expected | {"seconds_per_object": 0.5})
    (chain,) = read_references(found())
    assert (chain.label, chain.mean("bits_per_element")) == ("Markov chain", 2.5)
    assert math.isnan(chain.mean("edit_diversity"))


def test_costs_that_are_not_known_are_left_open():
    old = found() | {"sampling_seconds": None, "trained": {"parameters": 5, "steps": 2, "minutes": None}}
    row = read_row("old", old)
    assert all(math.isnan(row.costs[key]) for key in ("minutes", "ms_per_step", "seconds_per_object"))
    last = text_table([row]).splitlines()[-1]
    assert last.split() == ["old", "5", "2", "-", "-", "100", "-"]


def test_the_text_marks_the_best_and_its_columns_stand_below_each_other():
    several = rows(0.3, 0.1, 0.2)
    several[1].metrics["2g_hellinger"] = Summary(0.7, 0.0)
    lines = text_table(several, [Row("Markov chain", {"1g_hellinger": Summary(0.05, 0.0)})]).splitlines()
    cells = {line.split("  ")[0]: re.split(r"\s{2,}", line) for line in lines[1:5]}
    assert [cells[name][1] for name in ("m0", "m1", "m2")] == ["0.300 ± 0.010", "0.100 ± 0.010**", "0.200 ± 0.010*"]
    assert cells["Markov chain"][1] == "0.050"  # not ranked, though it is the lowest
    assert [cells[name][2] for name in ("m0", "m1")] == ["-", "0.700"]
    assert "1g Hellinger ↓" in lines[0]
    assert "edit ↓" not in lines[0]
    starts = {line.index(cell) for line, cell in ((lines[1], "0.300"), (lines[2], "0.100"), (lines[4], "0.050"))}
    assert starts == {lines[0].index("1g Hellinger")}


def test_the_csv_has_every_digit_and_leaves_unknown_cells_empty():
    several = [read_row("a,b", found()), *rows(1 / 3)]
    table = list(csv.DictReader(io.StringIO(csv_table(several, read_references(found())))))
    assert [row["label"] for row in table] == ["a,b", "m0", "Markov chain"]
    assert [row["kind"] for row in table] == ["method", "method", "reference"]
    assert float(table[1]["1g_hellinger_mean"]) == pytest.approx(1 / 3, abs=1e-9)
    assert (table[0]["1g_hellinger_std"], table[0]["bits_per_element_mean"], table[1]["minutes"]) == ("0.25", "", "")
    assert set(COSTS) <= set(table[0])


def images(**means: float) -> dict:
    """What `usd3 evaluate` writes about images."""
    cells = {key: {"mean": mean, "std": 0.0} for key, mean in means.items()}
    return found() | {"rows": {"model": cells, "VQGAN reconstruction": cells}, "bits_per_element": {}}


def test_tables_of_images_have_their_metrics_alone_and_say_which_way_is_better():
    several = [read_row(f"m{i}", images(classifier_frechet=i, recall=i / 10)) for i in range(3)]
    scale = read_references(images(classifier_frechet=0.5, fid=9.0))
    lines = text_table(several, scale).splitlines()
    assert re.split(r"\s{2,}", lines[0])[1:] == ["classifier Fréchet ↓", "recall ↑", "FID ↓", "bits/element ↓"]
    assert re.split(r"\s{2,}", lines[1]) == ["m0", "0.000**", "0.000", "-", "-"]
    assert re.split(r"\s{2,}", lines[3]) == ["m2", "2.000", "0.200**", "-", "-"]
    assert lines[4].split("  ")[0] == "VQGAN reconstruction"
    assert "** best, * second best; ↓ less is better; ↑ more is better." in lines
    table = next(csv.reader(io.StringIO(csv_table(several, scale))))
    assert [name for name in table if name.endswith("_mean")] == [
        f"{key}_mean" for key in ("classifier_frechet", "recall", "fid", "bits_per_element")
    ]
    latex = latex_table(several, scale)
    assert r"Method & classifier Fr\'echet $\downarrow$ & recall $\uparrow$ & FID" in latex
    assert latex.isascii()
    assert "↑" not in text_table([Row("a", {"1g_hellinger": Summary(1, 0)})])


def test_the_columns_of_sequences_come_together():
    single = Row("a", {"1g_hellinger": Summary(0.1, 0), "bits_per_element": Summary(NAN, 0)})  # one run has no edit
    assert shown_metrics([single]) == [*COLUMNS, "bits_per_element"]


def test_latex_is_bold_underlined_escaped_and_rectangular():
    several = [replace(row, label=label) for row, label in zip(rows(0.3, 0.1, 0.2), ("a_b&c", "50%", r"x\y^~{}#$<>"))]
    text = latex_table(several, read_references(found()))
    lines = text.splitlines()
    assert lines[1:3] == [r"\begin{tabular}{l" + "c" * len(METRICS) + "}", r"\toprule"]
    assert lines[-2:] == [r"\bottomrule", r"\end{tabular}"]
    body = [line for line in lines if line.endswith(r"\\")]
    assert {len(re.findall(r"(?<!\\)&", line)) for line in body} == {len(METRICS)}
    first = [re.split(r"(?<!\\) & ", line)[:2] for line in body[1:4]]
    assert first[0] == [r"a\_b\&c", r"0.300$\pm$0.010"]
    assert first[1] == [r"50\%", r"\textbf{0.100$\pm$0.010}"]
    escaped = r"x\textbackslash{}y\textasciicircum{}\textasciitilde{}\{\}\#\$\textless{}\textgreater{}"
    assert first[2] == [escaped, r"\underline{0.200$\pm$0.010}"]
    assert text.isascii()


def test_runs_with_other_data_are_refused():
    data = DataConfig(source="array", path="/a.npz")
    same = replace(data, transpose=3, scramble=1)
    require_comparable({"a": (data, 8), "b": (same, 8)})
    other = {"path": "/b.npz", "seed": 1, "test_fraction": 0.2, "length": 9}
    for name, value in other.items():
        message = rf"data\.{name} of b = {value}: expected {getattr(data, name)}, as a has"
        with pytest.raises(ValueError, match=message):
            require_comparable({"a": (data, 8), "b": (replace(data, **{name: value}), 8)})
    with pytest.raises(ValueError, match="prefix of c = 4: expected 8, as a has"):
        require_comparable({"a": (data, 8), "b": (data, 8), "c": (data, 4)})


def test_numbers_in_few_digits_for_people():
    told = [short(value) for value in (0.0123456, 71.26, 999.4, 1380.4, -1380.4, 605217.0, math.nan, math.inf)]
    assert told == ["0.0123", "71.3", "999", "1,380", "-1,380", "605,217", "-", "-"]
