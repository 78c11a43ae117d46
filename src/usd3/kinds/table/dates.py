"""Columns of dates and times: numbers of seconds, or of a shorter unit, written in the format of the data."""

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usd3._internal.checks import require
from usd3.kinds.table.bins import Interval
from usd3.kinds.table.cells import as_texts
from usd3.kinds.table.columns import Bools, Cells, Raw
from usd3.kinds.table.conditions import Condition
from usd3.kinds.table.frames import require_pandas, typed_series
from usd3.kinds.table.numbers import Numbers

__all__ = ["Dates", "date_formats", "is_date_format", "parse_dates", "unit_of_format", "write_dates"]

_MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_DAYS = ("%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d")
_OTHERS = (
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%d.%m.%Y",
    "%d-%m-%Y",
    "%m-%d-%Y",
    "%d/%m/%y",
    "%m/%d/%y",
    "%d.%m.%y",
    "%d %b %Y",
    "%d-%b-%Y",
    "%d-%b-%y",
    "%d %B %Y",
    "%b %d, %Y",
    "%B %d, %Y",
)
_TIMES = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p")
_ISO_TIMES = ("T%H:%M", "T%H:%M:%S", "T%H:%M:%S.%f", "T%H:%M:%SZ", "T%H:%M:%S.%fZ")
_PATTERNS = {
    "Y": "[12][0-9]{3}",
    "y": "[0-9]{2}",
    "m": "[0-9]{1,2}",
    "d": "[0-9]{1,2}",
    "H": "[0-9]{1,2}",
    "I": "[0-9]{1,2}",
    "M": "[0-9]{2}",
    "S": "[0-9]{2}",
    "f": "[0-9]{1,6}",
    "p": "[AaPp][Mm]",
    "b": "[A-Za-z]{3}",
    "B": "[A-Za-z]{3,9}",
}
FORMATS = (
    *(day + time for day in _DAYS for time in (*_TIMES, *_ISO_TIMES)),
    *(day + time for day in _OTHERS for time in _TIMES),
    "%Y%m%d",
    "%Y-%m",
)
"""The formats that are recognised. One with the day first stands before the same one with the month first."""
UNITS = ("Y", "M", "s", "ms", "us", "ns")
_PARTS = (("f", "us"), ("S", "s"), ("M", "m"), ("HI", "h"), ("d", "D"), ("mbB", "M"))  # of formats, the shortest first


def is_date_format(text: str) -> bool:
    """Whether a text is a format that can be read and written, such as "%d/%m/%Y"."""
    found = re.findall("%(.)", text)
    return bool(found) and set(found) <= set(_PATTERNS)


def unit_of_format(form: str) -> str:
    """The time that a text of this format stands for, as a unit of NumPy: "D" for %d/%m/%Y, "M" for %Y-%m."""
    return next((unit for letters, unit in _PARTS if re.search(f"%[{letters}]", form)), "Y")


def date_formats(texts: Any, formats: tuple[str, ...] = FORMATS) -> tuple[str, ...]:
    """The formats that all texts, a Series, are written in."""
    if not bool(texts.head(20).str.contains("[0-9]").all()):
        return ()
    found = tuple(form for form in formats if bool(texts.head(20).str.fullmatch(_pattern(form)).all()))
    return tuple(form for form in found if not np.isnat(parse_dates(texts, form)).any())


def _pattern(form: str) -> str:
    return re.sub("%(.)", lambda part: _PATTERNS[part[1]], re.escape(form))


def parse_dates(texts: Any, form: str, unit: str = "us") -> NDArray[Any]:
    """The times of texts, a Series, as datetime64 of this unit; NaT where a text has another format."""
    pd = require_pandas()
    fits = texts.str.fullmatch(_pattern(form)).to_numpy(dtype=bool)
    times = pd.to_datetime(texts.where(fits), format=form, errors="coerce")
    return np.asarray(times.to_numpy(), dtype=f"datetime64[{unit}]")


def write_dates(times: NDArray[Any], form: str, padded: bool = True, fraction: int = 6) -> NDArray[Any]:
    """Times, datetime64 (n,), as texts in a format. Without `padded`, days and months have no zero before them."""
    pd = require_pandas()
    series = pd.Series(times).dt
    texts = pd.Series([""] * len(times), dtype="object")
    for literal, part in re.findall("([^%]*)(?:%(.))?", form):
        texts = texts + literal
        if part:
            texts = texts + _part(series, part, padded, fraction)
    return np.asarray(texts.to_numpy(), dtype=object)


def _part(series: Any, part: str, padded: bool, fraction: int) -> Any:
    """One part of all times as texts."""
    if part in "bB":
        return series.month.map(lambda month: _MONTHS[int(month) - 1][: 3 if part == "b" else None])
    if part == "p":
        return series.hour.map(lambda hour: "AM" if hour < 12 else "PM")
    if part == "f":
        return series.microsecond.map(lambda micro: f"{int(micro):06d}"[:fraction])
    numbers = {
        "Y": lambda: series.year,
        "y": lambda: series.year % 100,
        "m": lambda: series.month,
        "d": lambda: series.day,
        "H": lambda: series.hour,
        "I": lambda: (series.hour - 1) % 12 + 1,
        "M": lambda: series.minute,
        "S": lambda: series.second,
    }[part]()
    width = 4 if part == "Y" else 2 if padded or part in "yMS" else 1
    return numbers.map(lambda number: f"{int(number):0{width}d}")


@dataclass(frozen=True)
class Dates(Numbers):
    """A column of dates or times. Raw numbers are places on the grid of units since 1970.

    Args:
        format: how a time is written in a file, as Python's strftime has it.
        padded: whether days and months below 10 have a zero before them.
        fraction: digits after the point of seconds.
        unit: the unit of time of the grid: "s", "ms", "us" or "ns"; of texts without days "M" or "Y".
    """

    format: str = "%Y-%m-%d"
    padded: bool = True
    fraction: int = 6
    unit: str = "us"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(is_date_format(self.format), f"format of column {self.name}", self.format, "one such as %Y-%m-%d")
        require(self.unit in UNITS, f"unit of column {self.name}", self.unit, f"one of {', '.join(UNITS)}")

    @property
    def zone(self) -> str | None:
        """The time zone of the data; None: they have none."""
        return zone_of(self.dtype)

    @property
    def _zone_of_texts(self) -> str | None:
        """The time zone of texts in the format of the column; None: UTC, or the data have none."""
        return None if self.format.endswith("Z") else self.zone

    def numbers_of(self, values: Sequence[Any]) -> tuple[NDArray[Any], Bools]:
        """The times in units since 1970, and which of the values are times in the format of the column."""
        if all(isinstance(value, str) for value in values):
            texts = parse_dates(as_texts(values), self.format, self.unit)
            times = _in_utc(texts, self._zone_of_texts).astype(f"datetime64[{self.unit}]")
        else:
            times = np.array([_as_time(value, self.zone) for value in values], dtype=f"datetime64[{self.unit}]")
        return np.where(np.isnat(times), 0, times.astype(np.int64)), ~np.isnat(times)

    def example(self) -> str:
        """What a cell should be, for error messages."""
        day = np.array(["2020-12-31"], dtype="datetime64[us]")
        return f"a date such as {write_dates(day, self.format, self.padded, self.fraction)[0]}"

    def parsed(self, cells: Cells) -> tuple[NDArray[Any], Bools]:
        """The time of each cell in units since 1970, and where it has one."""
        pd = require_pandas()
        if pd.api.types.is_datetime64_any_dtype(cells.series.dtype):
            return ticks_of(cells.series, self.unit, self.zone)
        return super().parsed(cells)

    def _times(self, raw: Raw) -> NDArray[Any]:
        return self.grid.values(raw).astype(f"datetime64[{self.unit}]")

    def values(self, raw: Raw) -> NDArray[Any]:
        """The times as datetime64, dates of Python, or texts."""
        if self.is_text:
            return self.texts(raw)
        if self.dtype == "date":
            return self._times(raw).astype("datetime64[D]").astype(object)
        return self._times(raw)

    def series(self, raw: Raw, known: Bools) -> Any:
        """The times as a Series, in the time zone of the data."""
        pd = require_pandas()
        if self.is_text or self.dtype == "date":
            return typed_series(self.values(raw), ~known, "object" if self.dtype == "date" else self.dtype)
        times = pd.Series(np.where(known, self._times(raw), np.datetime64("NaT")))
        return (times.dt.tz_localize("UTC") if "," in self.dtype else times).astype(self.dtype)

    def texts(self, raw: Raw) -> NDArray[Any]:
        """The times in the format of the data, in its time zone; in UTC if the format ends with Z."""
        different, place = np.unique(self._times(raw), return_inverse=True)
        if self._zone_of_texts is not None:
            utc = require_pandas().Series(different).dt.tz_localize("UTC")
            different = utc.dt.tz_convert(self._zone_of_texts).dt.tz_localize(None).to_numpy()
        return write_dates(different, self.format, self.padded, self.fraction)[place]

    def _bounds(self, value: Any, condition: Condition) -> Interval:
        """The first and the last unit of a date, month or year in a condition, or of a time."""
        try:
            times, zone = self._ends(value)
        except ValueError:
            times, zone = np.full(2, np.datetime64("NaT", "us")), None
        require(not np.isnat(times[0]), "where", condition, f"dates, as {self.has()}")
        first, after = _in_utc(times, zone).astype(f"datetime64[{self.unit}]").astype(np.int64).tolist()
        return first, max(first, after - 1)

    def _ends(self, value: Any) -> tuple[NDArray[Any], str | None]:
        """When a value begins and when the next one does, and its time zone: that of the column unless it says one."""
        pd = require_pandas()
        if isinstance(value, str):
            start = parse_dates(as_texts([value]), self.format, "us")[0]
            if not np.isnat(start):
                after = start.astype(f"datetime64[{unit_of_format(self.format)}]") + 1
                return np.array([start, after]), self._zone_of_texts
        is_day = isinstance(value, datetime.date) and not isinstance(value, datetime.datetime)
        if not (is_day or isinstance(value, str)):
            time = _as_time(value, self.zone)
            return np.array([time, time]), None
        period = pd.Period(str(value))
        has_zone = isinstance(value, str) and re.search(r":\d\d.*(Z|[+-]\d\d:?\d\d)$", value.strip()) is not None
        ends = np.array([period.start_time.to_datetime64(), (period + 1).start_time.to_datetime64()])
        return ends, str(pd.Timestamp(value).tz) if has_zone else self.zone


def zone_of(dtype: str) -> str | None:
    """The time zone of a dtype such as datetime64[us, Europe/Paris]; None: it has none."""
    found = re.search(r"^(?:datetime64|timestamp)\[\w+, (?:tz=)?(.+?)\]", dtype)
    return None if found is None else found[1]


def _in_utc(times: NDArray[Any], zone: str | None) -> NDArray[Any]:
    """Times (n,) of a time zone in UTC. When clocks change, one that occurs twice is the first, one that never does
    the next."""
    if zone is None:
        return times
    series = require_pandas().Series(times).dt
    local = series.tz_localize(zone, ambiguous=np.ones(len(times), dtype=bool), nonexistent="shift_forward")
    return np.asarray(local.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy())


def _as_time(value: Any, zone: str | None = None) -> np.datetime64:
    """A time of Python, NumPy or pandas, or a text, in UTC; without a time zone it is in `zone`. NaT: it is none."""
    pd = require_pandas()
    try:
        time = pd.Timestamp(value)
    except (ValueError, TypeError):
        return np.datetime64("NaT")
    if time is pd.NaT or time.tz is None:
        return np.datetime64(_in_utc(np.array([time.to_datetime64()]), zone)[0])
    return np.datetime64(time.tz_convert("UTC").tz_localize(None).to_datetime64())


def ticks_of(series: Any, unit: str, zone: str | None = None) -> tuple[NDArray[np.int64], Bools]:
    """The times of a Series of datetimes in units since 1970, in UTC, and where it has one.

    Times without a time zone are in `zone`.
    """
    has_zone = series.dt.tz is not None
    plain = series.dt.tz_convert("UTC").dt.tz_localize(None) if has_zone else series
    times = _in_utc(plain.to_numpy(), None if has_zone else zone).astype(f"datetime64[{unit}]")
    known = ~np.isnat(times)
    return np.where(known, times.astype(np.int64), 0), known


def default_format(times: NDArray[Any], has_zone: bool) -> str:
    """The ISO format for times that come without one: a date, or one with as much of the time as they have.

    Times in a time zone are written in UTC, which the Z at the end says.
    """
    ticks = times.astype("datetime64[us]").astype(np.int64)
    second = "%H:%M:%S" if not (ticks % 10**6).any() else "%H:%M:%S.%f"
    if has_zone:
        return f"%Y-%m-%dT{second}Z"
    return "%Y-%m-%d" if not (ticks % (86400 * 10**6)).any() else f"%Y-%m-%d {second}"
