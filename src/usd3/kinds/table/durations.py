"""Columns of durations, the timedeltas of pandas: numbers of a unit of time."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usd3._internal.checks import require
from usd3.kinds.table.bins import Interval
from usd3.kinds.table.columns import Bools, Cells, Raw
from usd3.kinds.table.conditions import Condition
from usd3.kinds.table.frames import require_pandas
from usd3.kinds.table.numbers import Numbers

__all__ = ["Durations", "ticks_of_durations"]

_UNITS = ("s", "ms", "us", "ns")


@dataclass(frozen=True)
class Durations(Numbers):
    """A column of durations. Raw numbers are places on the grid of units of time.

    Args:
        unit: the unit of time of the grid: "s", "ms", "us" or "ns".
    """

    unit: str = "us"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.unit in _UNITS, f"unit of column {self.name}", self.unit, f"one of {', '.join(_UNITS)}")

    def numbers_of(self, values: Sequence[Any]) -> tuple[NDArray[Any], Bools]:
        """The durations in units, and which of the values are durations."""
        times = np.array([_as_duration(value) for value in values], dtype=f"timedelta64[{self.unit}]")
        return np.where(np.isnat(times), 0, times.astype(np.int64)), ~np.isnat(times)

    def example(self) -> str:
        """What a cell should be, for error messages."""
        return "a duration such as 1 days 02:30:00"

    def parsed(self, cells: Cells) -> tuple[NDArray[Any], Bools]:
        """The duration of each cell in units, and where it has one."""
        if cells.series.dtype.kind == "m":
            return ticks_of_durations(cells.series, self.unit)
        return super().parsed(cells)

    def values(self, raw: Raw) -> NDArray[Any]:
        """The durations as timedelta64."""
        return self.grid.values(raw).astype(f"timedelta64[{self.unit}]")

    def series(self, raw: Raw, known: Bools) -> Any:
        """The durations as a Series."""
        pd = require_pandas()
        return pd.Series(np.where(known, self.values(raw), np.timedelta64("NaT"))).astype(self.dtype)

    def texts(self, raw: Raw) -> NDArray[Any]:
        """The durations as pandas writes them: 1 days 02:30:00."""
        pd = require_pandas()
        different, place = np.unique(self.values(raw), return_inverse=True)
        return np.array([str(pd.Timedelta(value)) for value in different] or [""], dtype=object)[place]

    def _bounds(self, value: Any, condition: Condition) -> Interval:
        """The duration that a value in a condition stands for, as its first and last unit."""
        time = _as_duration(value)
        require(not np.isnat(time), "where", condition, f"durations, as {self.has()}")
        ticks = int(time.astype(f"timedelta64[{self.unit}]").astype(np.int64))
        return ticks, ticks


def _as_duration(value: Any) -> np.timedelta64:
    """A duration of Python, NumPy or pandas, or a text with its unit; NaT: it is none."""
    pd = require_pandas()
    is_named = isinstance(value, str) and not value.strip().lstrip("+-").replace(".", "", 1).isdigit()
    if not (is_named or isinstance(value, datetime.timedelta | np.timedelta64)):
        return np.timedelta64("NaT", "us")  # a number does not say of what
    try:
        return np.timedelta64(pd.Timedelta(value).to_timedelta64())
    except ValueError:
        return np.timedelta64("NaT", "us")


def ticks_of_durations(series: Any, unit: str) -> tuple[NDArray[np.int64], Bools]:
    """The durations of a Series of timedeltas in units, and where it has one."""
    times = series.astype(f"timedelta64[{unit}]").to_numpy()
    known = ~np.isnat(times)
    return np.where(known, times.astype(np.int64), 0), known
