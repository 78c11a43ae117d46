"""Tables of methods and reference rows, on numbers whose order is known."""

import csv
import io
import math
import re
from dataclasses import replace

import pytest

from support.results import evaluation_results, method_rows
from usd3.evaluation.comparison import COSTS, METRICS, Row, read_references, read_row
from usd3.evaluation.differences import Intervals
from usd3.evaluation.tables import csv_table, latex_table, shown_metrics, text_table
from usd3.metrics.summary import COLUMNS, Summary


def test_the_text_marks_the_best_and_its_columns_stand_below_each_other():
    several = method_rows(0.3, 0.1, 0.2)
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
    several = [read_row("a,b", evaluation_results()), *method_rows(1 / 3)]
    table = list(csv.DictReader(io.StringIO(csv_table(several, read_references(evaluation_results())))))
    assert [row["label"] for row in table] == ["a,b", "m0", "Markov chain"]
    assert [row["kind"] for row in table] == ["method", "method", "reference"]
    assert float(table[1]["1g_hellinger_mean"]) == pytest.approx(1 / 3, abs=1e-9)
    assert (table[0]["1g_hellinger_std"], table[0]["bits_per_element_mean"], table[1]["minutes"]) == ("0.25", "", "")
    assert set(COSTS) <= set(table[0])


def images(**means: float) -> dict:
    """What `usd3 evaluate` writes about images."""
    cells = {key: {"mean": mean, "std": 0.0} for key, mean in means.items()}
    return evaluation_results() | {"rows": {"model": cells, "VQGAN reconstruction": cells}, "bits_per_element": {}}


def test_tables_of_images_have_their_metrics_alone_and_say_which_way_is_better():
    several = [read_row(f"m{i}", images(classifier_frechet=i, recall=i / 10)) for i in range(3)]
    scale = read_references(images(classifier_frechet=0.5, fid=9.0))
    lines = text_table(several, scale).splitlines()
    assert re.split(r"\s{2,}", lines[0])[1:] == ["classifier Fréchet ↓", "recall ↑", "FID ↓", "bits/element ↓"]
    assert re.split(r"\s{2,}", lines[1]) == ["m0", "0.000**", "0.000", "-", "-"]
    assert re.split(r"\s{2,}", lines[3]) == ["m2", "2.000", "0.200**", "-", "-"]
    assert lines[4].split("  ")[0] == "VQGAN reconstruction"
    means = "** best, * second best by the means alone, which may be chance"
    assert f"{means}; ↓ less is better; ↑ more is better." in lines
    table = next(csv.reader(io.StringIO(csv_table(several, scale))))
    assert [name for name in table if name.endswith("_mean")] == [
        f"{key}_mean" for key in ("classifier_frechet", "recall", "fid", "bits_per_element")
    ]
    latex = latex_table(several, scale)
    assert r"Method & classifier Fr\'echet $\downarrow$ & recall $\uparrow$ & FID" in latex
    assert latex.isascii()
    assert "↑" not in text_table([Row("a", {"1g_hellinger": Summary(1, 0)})])


def test_the_columns_of_sequences_come_together():
    single = Row(
        "a", {"1g_hellinger": Summary(0.1, 0), "bits_per_element": Summary(math.nan, 0)}
    )  # one run has no edit
    assert shown_metrics([single]) == [*COLUMNS, "bits_per_element"]


INTERVALS = Intervals({"1g_hellinger": {"m0": ["m1"], "m1": [], "m2": []}}, 40, 8, "all")


def test_with_intervals_every_row_is_marked_that_is_not_shown_to_be_worse_than_the_best():
    several = method_rows(0.3, 0.1, 0.2)
    for row, mean in zip(several, (1.0, 3.0, 2.0)):
        row.metrics["fid"] = Summary(mean, 0.0)
    lines = text_table(several, intervals=INTERVALS).splitlines()
    cells = [re.split(r"\s{2,}", line) for line in lines[1:4]]
    assert [row[1] for row in cells] == ["0.300 ± 0.010", "0.100 ± 0.010**", "0.200 ± 0.010**"]
    assert [row[8] for row in cells] == ["1.000**", "3.000", "2.000*"]
    (note,) = (line for line in lines if "not shown" in line)
    assert note.startswith("**: not shown to be worse than the best (the 95 % interval of the paired difference ")
    assert "resampled are 8 groups of the 40 objects, and trainings); in " in note
    assert "FID: ** best, * second best by the means alone, which may be chance; ↓ less is better." in note
    table = list(csv.DictReader(io.StringIO(csv_table(several, several[:1], INTERVALS))))
    assert [row["1g_hellinger_mark"] for row in table] == ["0", "1", "1", ""]
    assert "fid_mark" not in table[0]
    latex = latex_table(several, intervals=INTERVALS)
    assert latex.startswith("% Bold: not shown to be worse than the best (the 95 \\% interval")
    assert latex.count("textbf") == 3
    assert latex.isascii()


def test_the_note_says_over_what_the_intervals_are():
    alone = Intervals(objects=40, groups=40).note()
    assert alone.endswith("resampled are the 40 objects, not trainings, though another may differ by more)")
    some = Intervals(objects=40, groups=8, over_trainings="some").note()
    assert some.endswith("8 groups of the 40 objects, and trainings where both methods have several)")


def test_latex_is_bold_underlined_escaped_and_rectangular():
    several = [
        replace(row, label=label) for row, label in zip(method_rows(0.3, 0.1, 0.2), ("a_b&c", "50%", r"x\y^~{}#$<>"))
    ]
    text = latex_table(several, read_references(evaluation_results()))
    lines = text.splitlines()
    assert lines[0].startswith("% Bold is best, underlined second best by the means alone, which may be chance; ")
    assert lines[2:4] == [r"\begin{tabular}{l" + "c" * len(METRICS) + "}", r"\toprule"]
    assert lines[-2:] == [r"\bottomrule", r"\end{tabular}"]
    body = [line for line in lines if line.endswith(r"\\")]
    assert {len(re.findall(r"(?<!\\)&", line)) for line in body} == {len(METRICS)}
    first = [re.split(r"(?<!\\) & ", line)[:2] for line in body[1:4]]
    assert first[0] == [r"a\_b\&c", r"0.300$\pm$0.010"]
    assert first[1] == [r"50\%", r"\textbf{0.100$\pm$0.010}"]
    escaped = r"x\textbackslash{}y\textasciicircum{}\textasciitilde{}\{\}\#\$\textless{}\textgreater{}"
    assert first[2] == [escaped, r"\underline{0.200$\pm$0.010}"]
    assert text.isascii()
