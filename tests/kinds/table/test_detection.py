"""Which type a column gets, from its cells or from the user."""

import datetime
import re
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
import torch

from support.tables import adult_text, all_rows, mushroom_text, read_frame, read_text
from usd3.kinds.table.options import TableOptions


def column_of(folder, cells, name="x", warns=None, **options):
    """The column of these cells beside one of two categories; None: it is left out."""
    lines = [f"{name};other", *(f"{cell};{'ab'[i % 2]}" for i, cell in enumerate(cells))]
    with nullcontext() if warns is None else pytest.warns(UserWarning, match=warns):
        kind = read_text(folder, "\n".join(lines) + "\n", delimiter=";", **options).kind
    return kind.schema[kind.column(name)] if name in kind.names else None


def texts_of(column, seed=0):
    """A cell of each category, as written into a file."""
    rng = np.random.default_rng(seed)
    return column.cells(*column.decode(np.arange(column.size), rng)).tolist()


# ---- categories ---------------------------------------------------------------------------------------------------


def test_texts_are_categories_by_frequency(tmp_path):
    column = column_of(tmp_path, ["b", "a", "a", "c", "a", "c"] * 5)
    assert (column.type, column.dtype, column.common) == ("category", "str", ("a", "c", "b"))
    assert not column.has_missing


def test_missing_cells_are_a_category_with_the_marker_of_the_column(tmp_path):
    column = column_of(tmp_path, ["a", "?", "b", "?", "NA"] * 5)
    assert column.common == ("a", "b")
    assert (column.has_missing, column.size, column.marker) == (True, 3, "?")
    assert column.labels == ["a", "b", "(missing)"]
    assert texts_of(column) == ["a", "b", "?"]


def test_the_user_says_what_means_missing(tmp_path):
    cells = ["1", "2", "-99", "3"] * 10
    assert column_of(tmp_path, cells, missing=["", "-99"]).value_labels == ["1", "2", "3"]
    assert column_of(tmp_path, ["a", "?"] * 10, missing=[""]).common == ("?", "a")


def test_the_text_of_categories_is_kept(tmp_path):
    cells = [" padded ", "Ünïcode", 'with "quotes"', "007", "<=50K"]
    quoted = ['"' + cell.replace('"', '""') + '"' for cell in cells] * 5
    assert set(column_of(tmp_path, quoted).common) == set(cells)


def test_numbers_with_zeros_in_front_are_names(tmp_path):
    column = column_of(tmp_path, ["01234", "12345", "99999"] * 10)
    assert (column.type, set(column.common)) == ("category", {"01234", "12345", "99999"})


@pytest.mark.parametrize("pair", [("True", "False"), ("true", "false"), ("TRUE", "FALSE")])
def test_booleans_come_back(pair, tmp_path):
    column = column_of(tmp_path, list(pair) * 10)
    assert (column.dtype, set(texts_of(column))) == ("bool", set(pair))
    raw, known = column.decode(np.arange(2), None)
    assert column.series(raw, known).tolist() == [text.lower() == "true" for text in column.common]
    assert column_of(tmp_path, [*pair, ""] * 10).dtype == "boolean"


@pytest.mark.parametrize(("cell", "dtype"), [("same", "str"), ("5.00", "float64"), ("7", "int64"), ("True", "bool")])
def test_a_column_of_one_value_stays_as_it_is(cell, dtype, tmp_path):
    column = column_of(tmp_path, [cell] * 20)
    assert (column.size, column.dtype, texts_of(column)) == (1, dtype, [cell])


def test_an_empty_column_is_always_missing(tmp_path):
    column = column_of(tmp_path, ["", "?"] * 10, warns="column x has no values; it stays empty")
    assert (column.size, column.num_values, texts_of(column)) == (1, 0, [""])
    frame = pd.DataFrame({"x": [np.nan] * 20, "y": [0, 1] * 10})
    with pytest.warns(UserWarning, match="column x has no values"):
        kind = read_frame(frame).kind
    back = kind.objects(torch.zeros(3, 2, dtype=torch.long))
    assert back["x"].isna().all()
    assert back["x"].dtype == frame["x"].dtype


def test_very_many_categories_share_one_and_stay_possible(tmp_path):
    cells = [f"v{i}" for i in range(40) for _ in range(1 + (i < 5) * 20 + (i == 39))]
    expected = "column x has 40 different values; the rarest, 25.5% of the rows, share one category .*categories 6"
    column = column_of(tmp_path, cells, warns=expected, categories=6)
    assert (len(column.common), len(column.rare), column.size) == (5, 35, 6)
    assert sum(column.counts) == 36
    drawn = column.texts(column.decode(np.full(20_000, 5), np.random.default_rng(0))[0])
    assert set(drawn) == {f"v{i}" for i in range(5, 40)}
    assert abs((drawn == "v39").mean() - 2 / 36) < 0.008  # five standard deviations


def test_the_middle_of_rare_values_is_the_most_frequent_one(tmp_path):
    cells = [f"v{i}" for i in range(30) for _ in range(2 + (i == 7))]
    column = column_of(tmp_path, cells, warns="share one category", categories=2)
    assert column.texts(column.decode(np.array([1]), None)[0])[0] in column.rare


# ---- numbers ------------------------------------------------------------------------------------------------------


def test_few_numbers_are_ordered_categories(tmp_path):
    column = column_of(tmp_path, [10, 9, 100, 9, 10] * 10)
    assert (column.type, column.dtype, column.value_labels) == ("ordered", "int64", ["9", "10", "100"])


@pytest.mark.parametrize(
    ("rows", "values", "type"), [(50, 9, "ordered"), (50, 30, "number"), (1000, 73, "ordered"), (1000, 300, "number")]
)
def test_how_many_numbers_are_few_depends_on_the_rows(rows, values, type, tmp_path):
    cells = [(7 * i) % values + (i % values == 3) * 5000 for i in range(rows)]
    assert column_of(tmp_path, cells).type == type


def test_many_numbers_are_in_bins_by_rows_or_by_choice(tmp_path):
    cells = np.random.default_rng(0).integers(0, 10**6, size=900).tolist()
    column = column_of(tmp_path, cells)
    assert (column.type, column.num_values) == ("number", 30)
    assert column_of(tmp_path, cells, bins=5).num_values == 5


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1.50", "2.25", "3.00"], {"1.50", "2.25", "3.00"}),
        (["1.5", "2", "3.25"], {"1.5", "2", "3.25"}),
        (["1.0", "2.0"], {"1.0", "2.0"}),
        (["-3", "+4", "0"], {"-3", "4", "0"}),
        ([".5", "1.5"], {"0.5", "1.5"}),
        (["1e3", "2.5"], {"1000.0", "2.5"}),
    ],
)
def test_numbers_are_written_with_their_decimals(cells, expected, tmp_path):
    assert set(texts_of(column_of(tmp_path, cells * 10))) == expected


def test_numbers_that_are_too_large_are_words_and_very_large_ones_are_real(tmp_path):
    assert column_of(tmp_path, ["1e400", "2"] * 20).type == "category"
    column = column_of(tmp_path, ["99999999999999999999.5", "", "5"] * 10)
    assert (column.type, column.dtype, column.grid.is_real) == ("ordered", "float64", True)
    assert column.series(*column.decode(np.arange(3), None)).tolist()[:2] == [5.0, 1e20]


def test_a_comma_before_decimals_is_kept(tmp_path):
    column = column_of(tmp_path, ["1,5", "2,25", "1000"] * 10)
    assert (column.type, column.comma, set(texts_of(column))) == ("ordered", True, {"1,5", "2,25", "1000"})
    raw, known = column.decode(np.arange(3), None)
    assert column.series(raw, known).tolist() == [1.5, 2.25, 1000.0]


def test_integers_with_missing_cells_are_nullable(tmp_path):
    column = column_of(tmp_path, ["1", "2", ""] * 10)
    assert column.dtype == "Int64"
    assert column.series(*column.decode(np.arange(3), None)).tolist() == [1, 2, pd.NA]


def test_integers_beyond_int64_are_categories():
    whole = np.array([2**64 - 3, 1, 2, 2**63] * 25, dtype="uint64")
    frame = pd.DataFrame({"whole": whole, "object": pd.Series([2**70, 1, None, 3] * 25, dtype="object")})
    dataset = read_frame(frame)
    assert [column.type for column in dataset.kind.schema] == ["category", "category"]
    back = dataset.kind.objects(torch.from_numpy(all_rows(dataset)))
    assert (back["whole"].dtype, set(back["whole"])) == ("uint64", set(whole))
    assert set(back["object"].dropna()) == {2**70, 1, 3}
    with pytest.raises(ValueError, match=r"columns.whole = number: expected category or ignore, as some integers"):
        read_frame(frame, columns={"whole": "number"})
    rows = pd.DataFrame({"x": np.arange(2**63, 2**63 + 100, dtype="uint64"), "y": [1, 2] * 50})
    with pytest.warns(UserWarning, match="column x is left out: 100 of 100 integers differ"):
        assert read_frame(rows).kind.names == ["y"]


def test_integers_of_python_stay_integers():
    dataset = read_frame(pd.DataFrame({"x": pd.Series([2**60 + 1, None, 2**60 + 3, 7] * 25, dtype="object")}))
    back = dataset.kind.objects(torch.from_numpy(all_rows(dataset)))["x"]
    assert set(back.dropna()) == {2**60 + 1, 2**60 + 3, 7}


def test_infinite_numbers_count_as_missing():
    for dtype in ("float64", "object"):
        frame = pd.DataFrame({"x": pd.Series([1.5, np.inf, -np.inf, 2.5] * 10, dtype=dtype)})
        with pytest.warns(UserWarning, match="column x has 20 infinite numbers, which count as missing"):
            kind = read_frame(frame).kind
        assert kind.schema[0].has_missing
        assert kind.schema[0].value_labels == ["1.5", "2.5"]


def test_the_real_numbers_of_a_data_frame_are_drawn_between_those_of_the_data():
    values = np.random.default_rng(0).normal(size=500)
    dataset = read_frame(pd.DataFrame({"x": values}))
    drawn = dataset.kind.objects(torch.from_numpy(all_rows(dataset)), seed=1)["x"]
    assert values.min() <= drawn.min() <= drawn.max() <= values.max()
    assert len(set(drawn) & set(values)) == 0  # none is copied


# ---- words among numbers ------------------------------------------------------------------------------------------


def test_a_few_words_among_numbers_are_named(tmp_path):
    cells = [str(i % 50) for i in range(300)]
    cells[41] = "unknown"
    expected = (
        r'column x has no number: "unknown" in row 42, so it becomes categories; if that means '
        r'"no value", --data.table.missing \'\["", .*"unknown"\]\' makes it numbers'
    )
    column = column_of(tmp_path, cells, warns=expected)
    assert column.type == "category"
    assert "unknown" in column.common
    assert column_of(tmp_path, cells, missing=["", "unknown"]).type == "ordered"
    cells[99] = "?!"
    column_of(tmp_path, cells, warns='column x has 2 cells that are no numbers, such as "unknown" in row 42')


def test_a_type_that_does_not_fit_is_refused(tmp_path):
    expected = 'column x = "a" in row 1: expected numbers, as data.table.columns says; if that means "no value"'
    with pytest.raises(ValueError, match=expected):
        column_of(tmp_path, ["a", "1"] * 10, columns={"x": "number"})
    with pytest.raises(ValueError, match="column x = 1,000 different values: expected at most 100 for the"):
        column_of(tmp_path, range(1000), columns={"x": "ordered"}, categories=100)
    with pytest.raises(ValueError, match="column x = soon: expected dates such as 2020-12-31"):
        column_of(tmp_path, ["soon", "later"] * 10, columns={"x": "date"})
    with pytest.raises(ValueError, match=r"data\.table\.columns\.time = category: expected date or ignore"):
        read_frame(pd.DataFrame({"time": pd.date_range("2020", periods=20)}), columns={"time": "category"})


# ---- names and numbers of rows ------------------------------------------------------------------------------------


def test_texts_that_all_differ_are_left_out_with_a_warning(tmp_path):
    expected = (
        r"column e-mail is left out: 100 of 100 texts differ, so it cannot be learnt, and may expose persons "
        r"\(--data.table.columns '\{\"e-mail\": \"category\"\}' keeps it\)"
    )
    cells = [f"p{i}@x.org" for i in range(100)]
    assert column_of(tmp_path, cells, "e-mail", warns=expected) is None
    assert column_of(tmp_path, cells, "e-mail", columns={"e-mail": "category"}).size == 100


@pytest.mark.parametrize(
    ("name", "cells", "left_out"),
    [
        ("row", range(1, 101), True),  # they follow each other
        ("customer_id", [7 * i * i + 3 for i in range(100)], True),
        ("PassengerId", [7 * i * i + 3 for i in range(100)], True),
        ("income", [7 * i * i + 3 for i in range(100)], False),
        ("paid", [7 * i * i + 3 for i in range(100)], False),  # ends with "id", but as a part of a word
        ("customer_id", [i % 40 for i in range(100)], False),  # not all different
        ("height", [1.5 + 0.001 * i for i in range(100)], False),  # not integers
        ("id", [3, 9, 4, 6], False),  # too few to tell
    ],
)
def test_integers_that_number_the_rows_are_left_out(name, cells, left_out, tmp_path):
    column = column_of(tmp_path, cells, name, warns="left out: its numbers" if left_out else None)
    assert (column is None) is left_out


@pytest.mark.filterwarnings("ignore:column name is left out")
def test_a_table_of_nothing_but_names_is_refused(tmp_path):
    with pytest.raises(ValueError, match="columns = name: expected a column that is not left out; if cells are cut"):
        read_text(tmp_path, "name\n" + "\n".join(f"person {i}" for i in range(50)))


# ---- dates --------------------------------------------------------------------------------------------------------

DAY = datetime.date(2019, 12, 20)


@pytest.mark.parametrize(
    "form",
    [
        "%Y-%m-%d",
        "%Y/%m/%d",
        "%d/%m/%Y",
        "%m/%d/%Y",
        "%d.%m.%Y",
        "%d.%m.%y",
        "%d-%b-%Y",
        "%B %d, %Y",
        "%Y%m%d",
        "%Y-%m-%d %H:%M",
        "%Y-%m-%dT%H:%M:%S",
        "%Y-%m-%dT%H:%M:%SZ",
        "%m/%d/%Y %I:%M %p",
    ],
)
def test_dates_are_recognised_and_written_in_their_format(form, tmp_path):
    days = [datetime.datetime.combine(DAY + datetime.timedelta(days=i), datetime.time(i % 24, 5)) for i in range(300)]
    texts = [day.strftime(form) for day in days]
    column = column_of(tmp_path, [f'"{text}"' for text in texts])
    assert (column.type, column.dtype, column.format) == ("date", "datetime64[us]", form)
    written = texts_of(column)
    for text in written:
        assert datetime.datetime.strptime(text, form).strftime(form) == text
    assert min(days) <= column.series(*column.decode(np.arange(column.size), None)).min() + pd.Timedelta("1D")


def test_dates_without_zeros_stay_so(tmp_path):
    days = [DAY + datetime.timedelta(days=i) for i in range(200)]
    column = column_of(tmp_path, [f"{day.month}/{day.day}/{day.year}" for day in days])
    assert not column.padded
    assert not any(re.search(r"\b0", text) for text in texts_of(column))
    assert any(re.match(r"\d/", text) for text in texts_of(column))


def test_the_day_is_told_from_the_month_by_the_column(tmp_path):
    assert column_of(tmp_path, ["01/02/2020", "31/12/2020"] * 10).format == "%d/%m/%Y"
    assert column_of(tmp_path, ["01/02/2020", "12/31/2020"] * 10).format == "%m/%d/%Y"


def test_a_date_that_does_not_tell_the_day_warns(tmp_path):
    expected = r"column x is read as %d/%m/%Y, day or month first: no date of the column tells .*\"date:%m/%d/%Y\""
    column = column_of(tmp_path, ["01/02/2020", "03/04/2020"] * 10, warns=expected)
    assert texts_of(column) == ["01/02/2020", "03/04/2020"]
    column = column_of(tmp_path, ["01/02/2020", "03/04/2020"] * 10, columns={"x": "date:%m/%d/%Y"})
    assert column.series(*column.decode(np.arange(2), None)).dt.month.tolist() == [1, 3]


def test_the_user_can_name_a_format(tmp_path):
    column = column_of(tmp_path, ["2020 12 31", "2020 11 30"] * 10, columns={"x": "date:%Y %m %d"})
    assert texts_of(column) == ["2020 11 30", "2020 12 31"]
    with pytest.raises(ValueError, match="column x = 2020 12 31: expected dates in the format %Y-%m-%d"):
        column_of(tmp_path, ["2020 12 31"] * 10, columns={"x": "date:%Y-%m-%d"})


def test_fractions_of_seconds_keep_their_digits(tmp_path):
    cells = [f"2020-01-01 10:00:{i % 60:02d}.{i % 1000:03d}" for i in range(0, 3000, 7)]
    column = column_of(tmp_path, cells)
    assert all(re.fullmatch(r"2020-01-01 10:00:\d\d\.\d{3}", text) for text in texts_of(column))


def test_days_stay_days_and_weeks_stay_weeks(tmp_path):
    days = [DAY + datetime.timedelta(days=7 * (i % 300)) for i in range(900)]
    column = column_of(tmp_path, days)
    drawn = column.series(*column.decode(np.tile(np.arange(column.size), 20), np.random.default_rng(0)))
    assert set(drawn.dt.day_of_week) == {DAY.weekday()}


def test_missing_dates_are_a_category(tmp_path):
    column = column_of(tmp_path, ["2020-01-01", "", "2021-06-30"] * 10)
    assert (column.has_missing, column.size) == (True, 3)
    assert pd.isna(column.series(*column.decode(np.array([2]), None))[0])


def test_what_is_no_date_is_none(tmp_path):
    assert column_of(tmp_path, ["2020-13-01", "2020-01-02"] * 10).type == "category"
    assert column_of(tmp_path, ["2020-01-01", "31/12/2020"] * 10).type == "category"


# ---- the choice of the user ---------------------------------------------------------------------------------------


def test_the_user_chooses_types(tmp_path):
    cells = [str(10_000 + i % 300) for i in range(900)]
    assert column_of(tmp_path, cells).type == "number"
    chosen = column_of(tmp_path, cells, columns={"x": "category"})
    assert (chosen.type, chosen.size, chosen.dtype) == ("category", 300, "str")
    assert column_of(tmp_path, cells, columns={"x": "ordered"}).size == 300
    assert column_of(tmp_path, [1, 2] * 20, columns={"x": "number"}).type == "number"
    assert column_of(tmp_path, cells, columns={"x": "ignore"}) is None
    frame = pd.DataFrame({"zip": np.arange(100) % 30 + 10_000, "y": [0, 1] * 50})
    kind = read_frame(frame, columns={"zip": "category"}).kind
    assert kind.objects(torch.zeros(2, 2, dtype=torch.long)).dtypes.tolist() == frame.dtypes.tolist()
    assert kind.tokens(frame)[1].all()


def test_unknown_names_and_types_are_refused(tmp_path):
    expected = r"column in data.table.columns = othr: expected one of x, other \(is other meant\?\)"
    with pytest.raises(ValueError, match=expected):
        column_of(tmp_path, [1, 2] * 10, columns={"othr": "number"})
    with pytest.raises(ValueError, match=r"data.table.columns.x = categry: expected one of .*\(is category meant\?\)"):
        TableOptions(columns={"x": "categry"})
    with pytest.raises(ValueError, match=r"data\.table\.columns\.x = %Q: expected a format such as"):
        column_of(tmp_path, [1, 2] * 10, columns={"x": "date:%Q"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bins": 1}, r"data.table.bins = 1: expected an integer >= 2"),
        ({"categories": 1}, "data.table.categories = 1"),
        ({"delimiter": ";;"}, "data.table.delimiter = ';;': expected one character"),
        ({"encoding": "klingon"}, "data.table.encoding = klingon: expected a name such as utf-8"),
        ({"names": ["a", "a"]}, "data.table.names = .*: expected different names"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        TableOptions(**options)


# ---- whole files --------------------------------------------------------------------------------------------------


def test_a_table_in_the_form_of_adult_is_read_as_it_is(tmp_path):
    kind = read_text(tmp_path, adult_text(), "adult.data").kind
    assert kind.names == [f"column_{i}" for i in range(1, 10)]
    assert [column.type for column in kind.schema] == [
        "number",
        "category",
        "number",
        "category",
        "ordered",
        "category",
        "ordered",
        "ordered",
        "category",
    ]
    work = kind.schema[1]
    assert (work.has_missing, work.marker, set(work.common)) == (True, "?", {"State-gov", "Self-emp", "Private"})
    assert set(kind.schema[8].common) == {"<=50K", ">50K"}


def test_a_table_in_the_form_of_mushroom_is_read_as_it_is(tmp_path):
    kind = read_text(tmp_path, mushroom_text(), "agaricus-lepiota.data").kind
    assert kind.names == ["edibility", "cap-shape", "odor", "stalk-root", "veil-type"]
    assert {column.type for column in kind.schema} == {"category"}
    assert [column.size for column in kind.schema] == [2, 4, 4, 4, 1]
    assert kind.schema[3].has_missing


def test_mixed_objects_of_a_data_frame_are_categories():
    frame = pd.DataFrame({"x": [1, "a", 2.5, True, (1, 2)] * 10, "y": [0, 1] * 25})
    dataset = read_frame(frame)
    column = dataset.kind.schema[0]
    assert column.type == "category"
    assert "(1, 2)" in column.common
    assert dataset.kind.tokens(frame)[1].all()
