"""Columns of dates: what a condition means by a date, months, time zones, and other dtypes of dates."""

import datetime

import numpy as np
import pandas as pd
import pytest
import torch

from support.tables import all_rows, read_frame, read_text


def drawn(kind, where):
    """The different texts of 500 cells for each category of the first column that the condition leaves."""
    tokens = kind.weights(where)[0].nonzero()
    rows = torch.zeros(len(tokens) * 500, len(kind.schema), dtype=torch.long)
    rows[:, :1] = tokens.repeat(500, 1)
    return set(kind.texts(rows, where=where)[kind.names[0]])


def test_a_fraction_of_a_second_is_not_the_whole_second(tmp_path):
    cells = [f"2020-01-01 00:00:{i / 1000:06.3f}" for i in range(3000)]
    kind = read_text(tmp_path, "\n".join(["t", *cells]), bins=10).kind
    assert drawn(kind, "t=2020-01-01 00:00:01.250") == {"2020-01-01 00:00:01.250"}
    assert drawn(kind, "t=2020-01-01 00:00:01.250..2020-01-01 00:00:01.251") == set(cells[1250:1252])


def test_an_hour_is_not_the_whole_day(tmp_path):
    cells = [f"2020-01-{1 + i // 24:02d} {i % 24:02d}h" for i in range(480)]
    kind = read_text(tmp_path, "\n".join(["t", *cells]), columns={"t": "date:%Y-%m-%d %Hh"}, bins=10).kind
    assert drawn(kind, "t=2020-01-03 05h") == {"2020-01-03 05h"}


def test_months_of_a_bin_are_equally_likely_however_long_they_are(tmp_path):
    cells = [f"{1900 + i // 12}-{i % 12 + 1:02d}" for i in range(1200)]
    kind = read_text(tmp_path, "\n".join(["m", *cells]), bins=10).kind
    column = kind.schema[0]
    assert (column.type, column.size, column.unit, column.grid.step) == ("date", 10, "M", 1)
    assert drawn(kind, "m=1950-02") == {"1950-02"}
    assert drawn(kind, "m=1950") == set(cells[600:612])
    months = kind.weights("m=1950-02").sum(), kind.weights("m=1950-01").sum()
    assert [float(month) for month in months] == pytest.approx([1 / 120, 1 / 120])
    back = kind.objects(torch.arange(10)[:, None])["m"]
    assert str(back.dtype) == "datetime64[us]"
    assert (back.dt.day == 1).all()


def test_years_are_numbered_too(tmp_path):
    cells = [str(1800 + i) for i in range(200)] * 2
    kind = read_text(tmp_path, "\n".join(["y", *cells]), columns={"y": "date:%Y"}, bins=10).kind
    assert drawn(kind, "y=1850..1851") == {"1850", "1851"}


@pytest.fixture
def paris():
    """Hours around the end of summer time in Paris, in its time zone."""
    times = pd.date_range("2020-10-20", periods=400, freq="h", tz="Europe/Paris").as_unit("us")
    return read_frame(pd.DataFrame({"t": times}), bins=10, columns={"t": "date"})


@pytest.mark.parametrize(
    "value",
    [
        "2020-10-21 12:00:00",
        "2020-10-21T12:00:00+02:00",
        "2020-10-21T10:00:00Z",
        datetime.datetime(2020, 10, 21, 12),
        datetime.datetime(2020, 10, 21, 10, tzinfo=datetime.UTC),
        pd.Timestamp("2020-10-21 12:00", tz="Europe/Paris"),
    ],
)
def test_a_time_without_a_zone_is_in_that_of_the_column(value, paris):
    assert drawn(paris.kind, {"t": value}) == {"2020-10-21T10:00:00Z"}


def test_a_day_is_one_of_the_zone_of_the_column(paris):
    for day in ("2020-10-25", datetime.date(2020, 10, 25)):  # it has 25 hours
        hours = drawn(paris.kind, {"t": day})
        assert len(hours) == 25
        assert (min(hours), max(hours)) == ("2020-10-24T22:00:00Z", "2020-10-25T22:00:00Z")


def test_texts_of_a_column_with_a_time_zone_say_it(paris):
    tokens = torch.from_numpy(all_rows(paris))
    frame, texts = paris.kind.objects(tokens), paris.kind.texts(tokens)["t"]
    assert str(frame["t"].dtype) == "datetime64[us, Europe/Paris]"
    assert (pd.to_datetime(pd.Series(texts)) == frame["t"]).all()
    assert torch.equal(paris.kind.tokens(pd.DataFrame({"t": texts}))[0], tokens)
    assert torch.equal(paris.kind.tokens(pd.DataFrame({"t": frame["t"].dt.tz_convert("Asia/Tokyo")}))[0], tokens)


def test_a_chosen_format_is_in_the_time_zone_of_the_column():
    times = pd.date_range("2020-01-01", periods=40, freq="h", tz="Asia/Tokyo").as_unit("us")
    kind = read_frame(pd.DataFrame({"t": times}), columns={"t": "date:%d.%m.%Y %H:%M"}).kind
    rows = torch.arange(kind.num_classes)[:, None]
    assert kind.texts(rows)["t"].tolist() == kind.objects(rows)["t"].dt.strftime("%d.%m.%Y %H:%M").tolist()
    assert drawn(kind, "t=01.01.2020 00:00") == {"01.01.2020 00:00"}
    naive = kind.tokens(pd.DataFrame({"t": times.tz_localize(None)}))[0]
    assert torch.equal(naive, kind.tokens(pd.DataFrame({"t": times}))[0])


def test_dates_of_pyarrow_come_back():
    days = pd.Series([datetime.date(2020, 1, 1), None, datetime.date(2021, 5, 6)] * 20).astype("date32[day][pyarrow]")
    dataset = read_frame(pd.DataFrame({"day": days}))
    back = dataset.kind.objects(torch.from_numpy(all_rows(dataset)))["day"]
    assert (dataset.kind.schema[0].type, back.dtype) == ("date", days.dtype)
    assert set(back.dropna()) == set(days.dropna())


def test_times_of_python_with_different_offsets_are_in_utc():
    zones = [datetime.timezone(datetime.timedelta(hours=hours)) for hours in (0, 2)]
    times = [datetime.datetime(2020, 1, 1 + i % 9, 12, tzinfo=zones[i % 2]) for i in range(90)]
    dataset = read_frame(pd.DataFrame({"t": pd.Series(times, dtype="object")}))
    back = dataset.kind.objects(torch.from_numpy(all_rows(dataset)))["t"]
    assert str(back.dtype) == "datetime64[us, UTC]"
    assert set(back) == set(times)


def test_intervals_become_texts():
    intervals = pd.Series(pd.arrays.IntervalArray.from_breaks(np.arange(5))).sample(80, replace=True, random_state=0)
    dataset = read_frame(pd.DataFrame({"x": intervals}))
    back = dataset.kind.objects(torch.from_numpy(all_rows(dataset)))["x"]
    assert set(back) == {"(0, 1]", "(1, 2]", "(2, 3]", "(3, 4]"}
    assert dataset.kind.tokens(pd.DataFrame({"x": intervals}))[1].all()
