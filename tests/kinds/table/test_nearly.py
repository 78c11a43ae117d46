"""Columns that some cells keep from being numbers or dates: the warning names the first and says what to do."""

import re

import numpy as np
import pandas as pd
import pytest

from support.tables import read_text
from usd3.kinds.table import summary

DAYS = [str(day.date()) for day in pd.date_range("2020-01-01", periods=200)]


def read(folder, cells, warns, **options):
    """The column x of these cells, or None if it is left out, with this warning about it."""
    lines = [f'"{cell}",{"ab"[i % 2]}' for i, cell in enumerate(cells)]
    with pytest.warns(UserWarning, match=warns):
        kind = read_text(folder, "x,other\n" + "\n".join(lines) + "\n", **options).kind
    return kind.schema[0] if "x" in kind.names else None


@pytest.mark.parametrize(
    ("write", "first", "plain"),
    [
        ("{:,.2f}", "1,000.50", "1000.50"),
        ("${:.2f}", "$1000.50", "1000.50"),
        ("{:.2f} €", "1000.50 €", "1000.50"),
        ("USD {:,.2f}", "USD 1,000.50", "1000.50"),
        ("{:.1f}%", "1000.5%", "1000.5"),
        ("{:.1f}", "1000,5", "1000.5"),
        ("{:,.2f}.", "1.000,50", "1000.50"),
        ("{:,.1f}_", "1 000.5", "1000.5"),
    ],
)
def test_numbers_with_signs_and_separators_are_named(write, first, plain, tmp_path):
    numbers = [1000.5 + 3.25 * i for i in range(100)]
    cells = [write.format(number) for number in numbers]
    if "." not in first:  # a decimal comma
        cells = [cell.replace(".", ",") for cell in cells]
    if write.endswith("."):
        cells = [cell[:-1].translate(str.maketrans(",.", ".,")) for cell in cells]
    if write.endswith("_"):
        cells = [cell[:-1].replace(",", " ") for cell in cells]
    assert cells[0] == first
    expected = (
        f'column x is left out: it has 100 cells that are no numbers, such as "{first}" in row 1; write them without '
        f"currency signs, thousands separators or decimal commas: {plain} (--data.table.columns "
    )
    assert read(tmp_path, cells, re.escape(expected)) is None


def test_different_numbers_with_some_words_are_left_out_with_the_first_word(tmp_path):
    cells = [f"{1.5 * i}" for i in range(200)]
    cells[7] = cells[20] = cells[33] = cells[64] = cells[99] = "n/k"
    expected = (
        r'column x is left out: it has 5 cells that are no numbers, such as "n/k" in row 8; if that means "no value", '
        r"--data.table.missing '\[.*\"n/k\"\]' makes it numbers \(--data.table.columns '\{\"x\": \"category\"\}'"
    )
    assert read(tmp_path, cells, expected) is None


def test_a_date_that_does_not_exist_is_named(tmp_path):
    cells = DAYS.copy()
    cells[44] = "2020-02-30"
    expected = (
        r'column x has no date in the format %Y-%m-%d: "2020-02-30" in row 45, so it becomes categories; if that means '
        r"\"no value\", --data.table.missing '\[.*\"2020-02-30\"\]' makes it dates"
    )
    assert read(tmp_path, cells, expected).type == "category"
    kind = read_text(tmp_path, "x\n" + "\n".join(cells), missing=["", "2020-02-30"]).kind
    assert kind.schema[0].type == "date"


def test_several_dates_that_do_not_exist_are_named(tmp_path):
    cells = DAYS.copy()
    cells[10:20] = [f"2020-13-{i + 1:02d}" for i in range(10)]
    expected = (
        'left out: it has 10 cells that are no dates in the format %Y-%m-%d, such as "2020-13-01" in row 11; if that'
    )
    assert read(tmp_path, cells, expected) is None


def test_dates_in_several_formats_are_named(tmp_path):
    cells = [day if i % 3 else pd.Timestamp(day).strftime("%d/%m/%Y") for i, day in enumerate(DAYS)]
    expected = (
        r"column x is left out: it has 67 cells that are no dates in the format %Y-%m-%d, such as "
        r'"01/01/2020" in row 1; write all dates in one format \('
    )
    assert read(tmp_path, cells, expected) is None


@pytest.mark.parametrize("cells", [[f"person {i}" for i in range(100)], [f"A{i}-{i * i}" for i in range(100)]])
def test_names_are_left_out_as_names(cells, tmp_path):
    assert read(tmp_path, cells, "100 of 100 texts differ, so it cannot be learnt, and may expose persons") is None


def test_in_a_large_table_the_first_cell_is_named_without_its_row(tmp_path, monkeypatch):
    monkeypatch.setattr(summary, "_MOST_COUNTED", 2**12)
    monkeypatch.setattr(summary, "_SAMPLED_ROWS", 2**12)
    times = pd.date_range("2020-01-01", periods=9000, freq="min").strftime("%Y-%m-%d %H:%M").to_numpy(dtype=object)
    wrong = times.copy()
    wrong[::20] = [f"day {i}" for i in range(450)]
    expected = r'it has \d+ cells that are no dates in the format %Y-%m-%d %H:%M, such as "day \d+"; if that'
    assert read(tmp_path, wrong, expected) is None
    times[np.argmax(np.random.default_rng(0).random(9000))] = "2020-02-30 00:00"  # the sample has the smallest of these
    rare = "column x has rare cells that are no dates in the format %Y-%m-%d %H:%M, so it becomes categories"
    with pytest.warns(UserWarning, match="share one category"):
        column = read(tmp_path, times, rare)
    assert column.type == "category"
