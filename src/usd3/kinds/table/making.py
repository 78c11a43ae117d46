"""Columns made from what is known of their cells: categories, numbers in bins, dates."""

import json
import warnings
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usd3._internal.checks import require
from usd3.kinds.table.bins import number_of_bins, quantile_bins, single_values
from usd3.kinds.table.categories import Categories
from usd3.kinds.table.cells import as_texts, decimals_of, numeric_decimals, parse_numbers
from usd3.kinds.table.columns import Cells, Column, Scalar
from usd3.kinds.table.dates import (
    Dates,
    default_format,
    is_date_format,
    parse_dates,
    ticks_of,
    unit_of_format,
    write_dates,
    zone_of,
)
from usd3.kinds.table.dtypes import normalised
from usd3.kinds.table.durations import Durations, ticks_of_durations
from usd3.kinds.table.grid import grid_of
from usd3.kinds.table.numbers import Numbers
from usd3.kinds.table.options import TableOptions
from usd3.kinds.table.summary import ColumnSummary, TableSummary

__all__ = ["ColumnMaker"]

_FEW_VALUES = 200  # numbers with at most so many different values are ordered categories,
_ROWS_OF_VALUE = 5  # if each has so many rows on average,
_ALWAYS_FEW = 10  # or if there are no more than these
_BOOLEANS = ({"True", "False"}, {"true", "false"}, {"TRUE", "FALSE"})


class ColumnMaker:
    """Makes a column of any type.

    Args:
        summary: what is known of the column.
        table: what is known of the table.
        options: what the user says.
        is_file: whether the table is a file of text, so that numbers have no dtype.
    """

    def __init__(self, summary: ColumnSummary, table: TableSummary, options: TableOptions, is_file: bool):
        self.summary, self.table, self.options, self.is_file = summary, table, options, is_file
        self.name = summary.name

    def warn(self, text: str) -> None:
        """Warn about the column."""
        warnings.warn(f"column {self.name} {text}", stacklevel=5)

    def _shared(self, dtype: str, is_text: bool = False) -> dict[str, Any]:
        """The fields that all columns have. `dtype` is what cells of a file of text become in a DataFrame."""
        summary = self.summary
        markers = summary.markers.most_common(1)
        return {
            "name": self.name,
            "dtype": dtype if self.is_file else summary.dtype,
            "has_missing": summary.num_missing > 0,
            "marker": markers[0][0] if markers else "",
            "is_text": is_text and not self.is_file,
        }

    # ---- categories ---------------------------------------------------------------------------------------------

    @property
    def is_boolean(self) -> bool:
        """Whether the values are true and false."""
        summary = self.summary
        if summary.kind == "bool":
            return True
        is_text = summary.kind == "text" and self.is_file and bool(summary.counts)
        return is_text and any(set(summary.counts) <= pair for pair in _BOOLEANS)

    def categories(self) -> Column:
        """A category for each value; the rarest of very many values share one, with a warning."""
        summary = self.summary
        counts = {_as_key(value, summary): count for value, count in summary.counts.items()}
        ordered = sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))
        most = self.options.categories
        if len(ordered) > most or summary.pruned:
            own = min(most, len(ordered)) - 1  # values that were not counted need the category of the rare ones
            common, rare = ordered[:own], ordered[own:]
            share = 1 - sum(count for _, count in common) / summary.present
            what = f"has {summary.distinct:,} different values; the rarest, {share:.1%} of the rows, share one category"
            why = f"--data.table.categories {most} is the most" if len(ordered) >= most else "so many cannot be counted"
            self.warn(f"{what} ({why})")
        else:
            common, rare = ordered, []
        dtype = "boolean" if summary.num_missing else "bool"
        levels, is_ranked = summary.levels or ((), False)
        return Categories(
            type="category",
            common=tuple(value for value, _ in common),
            rare=tuple(value for value, _ in rare),
            counts=tuple(count for _, count in rare),
            levels=levels,
            is_ranked=is_ranked,
            **self._shared("object" if not summary.counts else dtype if self.is_boolean else "str"),
        )

    # ---- numbers ------------------------------------------------------------------------------------------------

    def texts_and_counts(self) -> tuple[Any, NDArray[Any]]:
        """The different texts of the column, a Series, and how often each occurs; of many values those of a sample."""
        counts = self.summary.counts
        if not self.summary.pruned:
            return as_texts(list(counts)), np.fromiter(counts.values(), dtype=np.int64)
        codes, values = Cells(self.table.sample[self.name], self.summary.missing).factors
        used, sizes = np.unique(codes[codes >= 0], return_counts=True)
        return as_texts([values[i] for i in used]), sizes

    def values_and_counts(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The different numbers, sorted, and how often each occurs; of very many values those of a sample."""
        summary = self.summary
        if summary.kind == "text":
            texts, counts = self.texts_and_counts()
            return _summed(parse_numbers(texts, summary.comma), counts)
        if not summary.pruned:
            return _summed(np.array(list(summary.counts)), np.fromiter(summary.counts.values(), dtype=np.int64))
        codes, values = Cells(normalised(self.table.sample[self.name])[1]).factors
        used, sizes = np.unique(codes[codes >= 0], return_counts=True)
        return _summed(np.array([values[i] for i in used]), sizes)

    @cached_property
    def _decimals_of_texts(self) -> tuple[int, int] | None:
        """The least and the most decimals of a file; None: there is an exponent, or there are no texts."""
        return decimals_of(self.texts_and_counts()[0], self.summary.comma) if self.summary.kind == "text" else None

    def _decimals(self, values: NDArray[Any]) -> tuple[int, int | None]:
        """The least and the most decimals; None: more than float64 can say."""
        if self._decimals_of_texts is not None:
            return self._decimals_of_texts
        if values.dtype.kind in "iu":
            return 0, 0
        small = values.astype(np.float32) if self.summary.dtype.lower() == "float32" else values
        decimals = numeric_decimals(small)
        return 1, None if decimals is None else max(1, decimals)

    def numbers(self, word: str | None = None) -> Column:
        """Ordered categories or bins; `word` is the choice of the user."""
        infinite = self.summary.num_infinite
        if infinite:
            self.warn(f"has {infinite:,} infinite {'number' if infinite == 1 else 'numbers'}, which count as missing")
        values, counts = self.values_and_counts()
        least, most = self._decimals(values)
        grid = grid_of(values, most)
        is_whole = most == 0 and values.dtype.kind == "i"
        integers = "Int64" if self.summary.num_missing else "int64"
        fields = self._distribution(grid.raw(values), counts, word)
        return Numbers(
            grid=grid,
            least_decimals=least,
            comma=self.summary.comma,
            is_plain=self._decimals_of_texts is not None,
            **fields,
            **self._shared(integers if is_whole else "float64", is_text=self.summary.kind == "text"),
        )

    def _distribution(self, raw: NDArray[Any], counts: NDArray[Any], word: str | None) -> dict[str, Any]:
        """The type, and how the raw numbers are distributed over categories."""
        raw, counts = _summed(raw, counts)
        few = len(raw) <= min(_FEW_VALUES, max(_ALWAYS_FEW, counts.sum() / _ROWS_OF_VALUE)) and not self.summary.pruned
        if word == "ordered":
            most = self.options.categories
            seen = f"{self.summary.distinct:,} different values"
            fits = not self.summary.pruned and len(raw) <= most
            expected = f"at most {most} for the type ordered (--data.table.categories)"
            require(fits, f"column {self.name}", seen, expected)
        if word == "ordered" or (word is None and few):
            return {"type": "ordered", **Numbers.fields_of(single_values(raw, counts))}
        bins = self.options.bins or number_of_bins(self.summary.present)
        return {"type": "number", **Numbers.fields_of(quantile_bins(raw, counts, bins))}

    # ---- dates --------------------------------------------------------------------------------------------------

    def dates(self, form: str | None = None) -> Column:
        """A column of dates; `form` is the format that the user chose."""
        summary = self.summary
        if summary.kind == "date":
            values, counts = self._ticks()
            details: dict[str, Any] = {"unit": summary.unit}
            times = values.astype(f"datetime64[{summary.unit}]")
            details["format"] = form or default_format(times, zone_of(summary.dtype) is not None)
        else:
            require(summary.kind == "text", f"column {self.name}", f"dtype {summary.dtype}", "dates, or texts of dates")
            form = self._format(form)
            texts, counts = self.texts_and_counts()
            times = parse_dates(texts, form)
            padded = bool((write_dates(times[:1000], form) == texts[:1000].to_numpy()).all())
            digits = texts.str.extract(r"\.(\d+)Z?$")[0].str.len().max() if "%f" in form else 6
            padded = padded or "%d" not in form or bool(texts.str.contains(r"(?:^|\D)0[1-9]\D", regex=True).any())
            unit = unit_of_format(form)
            unit = unit if unit in ("Y", "M") else "us"  # months and years have no fixed length
            details = {"format": form, "padded": padded, "fraction": int(digits), "unit": unit}
            values, counts = _summed(times.astype(f"datetime64[{unit}]").astype(np.int64), counts)
        grid = grid_of(values, 0)
        fields = self._distribution(grid.raw(values), counts, None) | {"type": "date"}
        shared = self._shared("datetime64[us]", is_text=summary.kind == "text")
        return Dates(grid=grid, **details, **fields, **shared)

    def durations(self, word: str | None = None) -> Column:
        """A column of durations; `word` is the choice of the user, "ordered" or "number"."""
        values, counts = self._ticks()
        grid = grid_of(values, 0)
        fields = self._distribution(grid.raw(values), counts, word) | {"type": "duration"}
        return Durations(grid=grid, unit=self.summary.unit, **fields, **self._shared(self.summary.dtype))

    def _ticks(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The different times in units since 1970, or durations in units, and how often each occurs."""
        counts = self.summary.counts
        if not self.summary.pruned:
            return _summed(np.array(list(counts), dtype=np.int64), np.fromiter(counts.values(), dtype=np.int64))
        kind, series = normalised(self.table.sample[self.name])
        ticks, known = (ticks_of if kind == "date" else ticks_of_durations)(series, self.summary.unit)
        return _summed(ticks[known], np.ones(int(known.sum()), dtype=np.int64))

    def _format(self, chosen: str | None) -> str:
        """The format of the dates: that of the user, or the only one that fits, or the first one, with a warning."""
        formats = self.summary.formats or ()
        if chosen is not None:
            require(is_date_format(chosen), f"data.table.columns.{self.name}", chosen, "a format such as %d/%m/%Y")
            texts = self.texts_and_counts()[0]
            wrong = texts[np.isnat(parse_dates(texts, chosen))].tolist()
            require(not wrong, f"column {self.name}", (wrong or [""])[0], f"dates in the format {chosen}")
            return chosen
        text = next(iter(self.summary.counts), "")
        known = 'dates such as 2020-12-31 or 31/12/2020, or a format: "date:%d.%m.%y"'
        require(len(formats) > 0, f"column {self.name}", text, known)
        swapped = formats[0].replace("%d", "%x").replace("%m", "%d").replace("%x", "%m")
        if swapped in formats[1:]:
            option = json.dumps({self.name: f"date:{swapped}"})
            which = "day or month first: no date of the column tells"
            self.warn(f"is read as {formats[0]}, {which} (--data.table.columns '{option}' reads it as the other)")
        return formats[0]


def _summed(values: NDArray[Any], counts: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """The different values, sorted, and the sum of the counts of each."""
    different, place = np.unique(values, return_inverse=True)
    return different, np.bincount(place, counts, len(different)).astype(np.int64)


def _as_key(value: Any, summary: ColumnSummary) -> Scalar:
    """A value of the data as JSON can hold it."""
    if summary.kind == "bool":
        return bool(value)
    return value if isinstance(value, str | int | float | bool) else str(value)
