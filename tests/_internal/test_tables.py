"""One small table in every format, and the numbers in its cells."""

import csv
import io
import math

import pytest

from usd3._internal.tables import BOLD, RANKS, Cell, Table, exact, not_worse, ranks, short, with_spread

TABLE = Table(
    ["", "loss ↓", "a_b"],
    [[["mine", Cell("0.1 ± 0.2", 1), "x, y"], ["yours", Cell("0.25", 2), ""]], [["truth", Cell("0"), "-"]]],
    [f"{RANKS}; less is better.", "", "Look twice."],
)


def test_text_has_aligned_columns_marks_and_notes():
    assert TABLE.text().split("\n") == [
        "       loss ↓       a_b",
        "mine   0.1 ± 0.2**  x, y",
        "yours  0.25*",
        "truth  0            -",
        "",
        "** best, * second best; less is better.",
        "",
        "Look twice.",
    ]


def test_markdown_is_bold_and_italic():
    assert TABLE.markdown().split("\n") == [
        "|  | loss ↓ | a_b |",
        "| --- | --- | --- |",
        "| mine | **0.1 ± 0.2** | x, y |",
        "| yours | *0.25* |  |",
        "| truth | 0 | - |",
        "",
        "Bold is best, italic second best; less is better.",
        "",
        "Look twice.",
    ]


def test_notes_say_what_the_format_marks():
    table = Table(["", "a"], [[["b", "c"]]], [f"{BOLD}: 5 % more", RANKS])
    assert table.text().split("\n")[2:] == ["", "**: 5 % more", "", "** best, * second best"]
    assert table.markdown().split("\n")[3:] == ["", "Bold: 5 % more", "", "Bold is best, italic second best"]
    assert table.latex_notes() == [r"Bold: 5 \% more", "Bold is best, underlined second best"]


def test_what_is_not_shown_to_be_worse_than_the_best_is_marked():
    worse = {"a": ["b"], "b": [], "c": ["a"]}
    assert not_worse("abc", [2.0, 1.0, 3.0], False, worse) == [0, 1, 1]  # nobody compared c with b, or nothing showed
    assert not_worse("abc", [2.0, 1.0, 1.0], True, worse) == [1, 1, 0]
    assert not_worse("abc", [2.0, math.nan, 3.0], False, worse) == [1, 0, 0]
    assert not_worse("abc", [math.nan, 1.0, math.nan], False, worse) == [0, 0, 0]


def test_latex_is_escaped_and_has_a_line_between_sections():
    expected = r"""% needs \usepackage{booktabs}
\begin{tabular}{lcc}
\toprule
Method & loss $\downarrow$ & a\_b \\
\midrule
mine & \textbf{0.1 $\pm$ 0.2} & x, y \\
yours & \underline{0.25} &  \\
\midrule
truth & 0 & - \\
\bottomrule
\end{tabular}
"""
    assert TABLE.latex() == expected
    assert Table(["", ""], [[["a", "b"]], []], names=2).latex().count("midrule") == 1  # an empty section has no line
    assert "{ll}" in Table(["", ""], [[["a", "b"]]], names=2).latex()


def test_csv_has_the_cells_alone():
    rows = list(csv.reader(io.StringIO(TABLE.csv())))
    assert rows == [["", "loss ↓", "a_b"], ["mine", "0.1 ± 0.2", "x, y"], ["yours", "0.25", ""], ["truth", "0", "-"]]


@pytest.mark.parametrize(
    ("values", "higher", "expected"),
    [
        ([3, 1, 2, 4], False, [0, 1, 2, 0]),
        ([3, 1, 2, 4], True, [2, 0, 0, 1]),
        ([1, 1, 2, math.nan], False, [1, 1, 2, 0]),
        ([1, 1, math.nan], True, [0, 0, 0]),
        ([], True, []),
    ],
)
def test_equal_values_share_a_rank_and_unknown_ones_have_none(values, higher, expected):
    assert ranks(values, higher) == expected
    assert ranks(values, higher, most=1) == [rank if rank == 1 else 0 for rank in expected]


@pytest.mark.parametrize(
    ("mean", "std", "expected"),
    [
        (0.5, 0.25, "0.5 ± 0.2"),
        (0.5, 0.0, "0.5"),
        (0.5, 1e-17, "0.5"),  # a rounding error
        (1e-8, 1e-9, "0.0 ± 0.0"),
        (0.5, None, "0.5"),
        (0.5, math.nan, "0.5"),
        (None, None, "-"),
        (math.nan, 1.0, "-"),
        (math.inf, math.nan, "-"),
    ],
)
def test_a_standard_deviation_is_shown_where_there_is_one(mean, std, expected):
    assert with_spread(mean, std, "{:.1f}".format) == expected
    assert with_spread(mean, std, "{:.1f}".format, "±") == expected.replace(" ", "")


def test_numbers_in_few_digits_for_people():
    shown = [short(value) for value in (0.0123456, 71.26, 999.4, 1380.4, -1380.4, 605217.0, math.nan, math.inf)]
    assert shown == ["0.0123", "71.3", "999", "1,380", "-1,380", "605,217", "-", "-"]


def test_numbers_in_nine_digits_for_programs():
    assert [exact(value) for value in (1 / 3, 5, None, math.nan, math.inf)] == ["0.333333333", "5", "", "", ""]
