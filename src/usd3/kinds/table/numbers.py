"""Columns of numbers: few of them as categories in their order, others in bins."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from usd3._internal.checks import require
from usd3.kinds.table.bins import Interval, Pieces
from usd3.kinds.table.cells import as_texts, is_number, number_of, parse_numbers, written
from usd3.kinds.table.columns import Bools, Cells, Column, Limits, Raw
from usd3.kinds.table.conditions import Choice, Condition
from usd3.kinds.table.grid import Grid

__all__ = ["Grid", "Numbers"]


@dataclass(frozen=True)
class Numbers(Column):
    """A column of numbers in bins. Raw numbers are places on the grid, or real numbers themselves.

    Args:
        grid: the numbers that can occur.
        least_decimals: zeros at the end of a number are written up to so many decimals.
        comma: whether a comma stands before the decimals in a file.
        is_plain: whether a file has no exponents: 1700000000000000000, not 1.7e+18.
        pieces: number of pieces of each bin, as in `Pieces`; (): one each.
        low: the smallest raw number of each piece.
        high: the largest; (): each piece is one number.
        weight: number of rows in each piece.
    """

    grid: Grid = Grid()  # noqa: RUF009  # frozen
    least_decimals: int = 0
    comma: bool = False
    is_plain: bool = False
    pieces: tuple[int, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    weight: tuple[float, ...] = ()

    is_ordered: ClassVar[bool] = True
    middle: ClassVar[float] = 0.5
    lists: ClassVar[tuple[str, ...]] = ("pieces", "low", "high", "weight")

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.grid, dict):  # from JSON
            object.__setattr__(self, "grid", Grid(**self.grid))
        count = len(self.low)
        fits = len(self.weight) == count > 0 and len(self.high) in (0, count)
        fits = fits and sum(self.pieces) in (0, count) and min(self.pieces, default=1) > 0
        require(fits, f"column {self.name}", f"{count} pieces", "as many ends, weights and bins as pieces")

    @cached_property
    def distribution(self) -> Pieces:
        """How the raw numbers are distributed over the bins and within them."""
        kind = np.float64 if self.grid.is_real else np.int64
        low, sizes = np.array(self.low, dtype=kind), self.pieces or (1,) * len(self.low)
        high = np.array(self.high or self.low, dtype=kind)
        bins = np.repeat(np.arange(len(sizes)), sizes)
        return Pieces(low, high, np.array(self.weight, dtype=float), bins, len(sizes))

    @staticmethod
    def fields_of(pieces: Pieces) -> dict[str, Any]:
        """A distribution as the fields of a column."""
        single = bool((pieces.low == pieces.high).all())
        sizes = np.bincount(pieces.bin, minlength=pieces.num_bins).tolist()
        return {
            "pieces": () if len(sizes) == len(pieces.low) else tuple(sizes),
            "low": tuple(pieces.low.tolist()),
            "high": () if single else tuple(pieces.high.tolist()),
            "weight": tuple(pieces.weight.tolist()),
        }

    @property
    def num_values(self) -> int:
        """Number of bins."""
        return len(self.pieces) or len(self.low)

    @property
    def scale(self) -> float:
        """The factor by which numbers are measured: less than 1 where their squares would be infinite."""
        largest = float(np.abs(np.concatenate(self.distribution.ends)).max()) if self.grid.is_real else 0.0
        return 2.0**-600 if largest > 2.0**500 else 1.0

    @property
    def value_labels(self) -> list[str]:
        """The number, or the smallest and the largest number of each bin: "30..34"."""
        low, high = (self.texts(ends) for ends in self.distribution.ends)
        return [a if a == b else f"{a}..{b}" for a, b in zip(low, high)]

    def has(self) -> str:
        """The range, for error messages."""
        low, high = self.distribution.ends
        ends = [str(self.texts(end)[0]) for end in (low[:1], high[-1:])]
        return f"{self.name} has: {'..'.join(ends)}{' or a missing cell' if self.has_missing else ''}"

    # ---- cells --------------------------------------------------------------------------------------------------

    def numbers_of(self, values: Sequence[Any]) -> tuple[NDArray[Any], Bools]:
        """The numbers that cells stand for, and which of them are numbers at all."""
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            return np.array(values or [0])[: len(values)], np.ones(len(values), dtype=bool)
        texts = as_texts(values)
        fits = is_number(texts)
        if self.comma:
            fits = fits | is_number(texts, comma=True)
            texts = texts.str.replace(",", ".", regex=False)
        return parse_numbers(texts.where(fits, "0")), fits

    def can_have(self, values: Sequence[Any]) -> Bools:
        """All numbers: one outside of the range belongs to the outermost bin."""
        return self.numbers_of(values)[1]

    def example(self) -> str:
        """What a cell should be, for error messages."""
        return "a number"

    def parsed(self, cells: Cells) -> tuple[NDArray[Any], Bools]:
        """The number of each cell, and where it has one; a cell that is no number raises an error."""
        codes, values = cells.factors
        numbers, fits = self.numbers_of(values)
        for code in np.flatnonzero(~fits).tolist():
            if (codes == code).any():
                row = f"{self.name} in row {cells.row_of(code)} of {cells.name}"
                raise ValueError(f"{row} = {values[code]}: expected {self.example()}")
        finite = np.isfinite(numbers)
        return np.append(np.where(finite, numbers, 0), 0)[codes], (codes >= 0) & np.append(finite, False)[codes]

    def raw(self, cells: Cells) -> tuple[Raw, Bools]:
        """The place of each number. Warns of numbers outside of the range of the data."""
        raw, known = self.raw_of_data(cells)
        low, high = self.distribution.ends
        outside = known & ((raw < low[0]) | (raw > high[-1]))
        if outside.any():
            first = int(np.argmax(outside))
            text = f"{self.name} in row {first + 1} of {cells.name} = {cells.series.iloc[first]}"
            more = f" ({int(outside.sum())} such cells)" if outside.sum() > 1 else ""
            warnings.warn(f"{text}: treated as the nearest that training had; {self.has()}{more}", stacklevel=2)
        return raw, known

    def raw_of_data(self, cells: Cells) -> tuple[Raw, Bools]:
        """The place of each number, without a warning."""
        values, known = self.parsed(cells)
        return self.grid.raw(values), known

    def categories(self, raw: Raw) -> NDArray[np.int64]:
        """The bin of each raw number; the nearest one for a number that the data have not."""
        return self.distribution.bins(raw)

    def at(self, categories: NDArray[np.int64], u: NDArray[np.float64], limits: Limits | None) -> Raw:
        """The raw number at the quantile u of each bin, within the limits, as the data lie there."""
        pieces = self.distribution if limits is None else self.distribution.within(limits.intervals or ())
        left = pieces.mass[categories] > 0
        require(bool(left.all()), "tokens", f"{self.name} outside of the condition", "rows that meet it")
        return pieces.at(categories, u)

    def values(self, raw: Raw) -> NDArray[Any]:
        """The numbers, int64 where they have no decimals, in a column of text as text."""
        if self.is_text:
            return self.texts(raw)
        return self._numbers(raw)

    def _numbers(self, raw: Raw) -> NDArray[Any]:
        """The numbers; integers that are too far apart for the grid are rounded."""
        if self.grid.is_real and self.dtype.lower() == "int64":
            return np.clip(raw, -(2.0**63), np.nextafter(2.0**63, 0)).astype(np.int64)
        return self.grid.values(raw)

    def texts(self, raw: Raw) -> NDArray[Any]:
        """The numbers with the decimals of the data."""
        different, place = np.unique(self._numbers(raw), return_inverse=True)
        texts = np.array([self._written(value) for value in different.tolist()] or [""], dtype=object)
        return texts[place]

    def _written(self, value: float) -> str:
        if isinstance(value, int):
            return str(value)
        if not self.grid.is_real:
            text = written(value, self.grid.decimals, self.least_decimals)
        elif self.is_plain:
            text = np.format_float_positional(value, trim="k", min_digits=self.least_decimals).rstrip(".")
        else:
            text = repr(value)
        return text.replace(".", ",") if self.comma else text

    # ---- conditions ---------------------------------------------------------------------------------------------

    def limits(self, conditions: Sequence[Condition]) -> Limits:
        """The intervals of raw numbers that all conditions leave."""
        left: list[Interval] = [(-math.inf, math.inf)]
        missing = self.has_missing
        for condition in conditions:
            chosen = [self._interval(choice, condition) for choice in condition.choices if not choice.is_missing]
            with_missing = any(choice.is_missing for choice in condition.choices)
            step = 0 if self.grid.is_real else 1
            parts = _complement(chosen, step) if condition.excluded else _union(chosen)
            left = [_common(a, b) for a in left for b in parts]
            left = [part for part in left if part[0] <= part[1]]
            missing &= with_missing ^ condition.excluded
        return Limits(missing, intervals=tuple(left))

    def _interval(self, choice: Choice, condition: Condition) -> Interval:
        """The raw numbers of a value or a range."""
        if not choice.is_range:
            return self.grid.interval(*self._bounds(choice.value, condition))
        low = -math.inf if choice.low is None else self._bounds(choice.low, condition)[0]
        high = math.inf if choice.high is None else self._bounds(choice.high, condition)[1]
        require(low <= high, "where", condition, "a range with the smaller number first")
        return self.grid.interval(low, high)

    def _bounds(self, value: Any, condition: Condition) -> Interval:
        """The smallest and the largest number that a value in a condition stands for, before scaling."""
        number = None if isinstance(value, bool) else number_of(str(value), self.comma)
        if number is None:
            raise ValueError(f"where = {condition}: expected numbers, as {self.has()}")
        return number, number

    def value_weights(self, limits: Limits) -> NDArray[np.float64]:
        """The share of each bin inside the limits."""
        share: NDArray[np.float64] = self.distribution.within(limits.intervals or ()).mass / self.distribution.mass
        return np.minimum(share, 1.0)


def _common(a: Interval, b: Interval) -> Interval:
    return max(a[0], b[0]), min(a[1], b[1])


def _union(intervals: Sequence[Interval]) -> list[Interval]:
    """Intervals that do not overlap, with the same numbers."""
    merged: list[Interval] = []
    for low, high in sorted(part for part in intervals if part[0] <= part[1]):
        if merged and low <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(high, merged[-1][1])
        else:
            merged.append((low, high))
    return merged


def _complement(intervals: Sequence[Interval], step: int) -> list[Interval]:
    """All numbers outside of intervals. `step` is 1 for integers and 0 for real numbers."""
    left, parts = -math.inf, []
    for low, high in _union(intervals):
        parts.append((left, low - 1 if step else math.nextafter(low, -math.inf)))
        left = high + 1 if step else math.nextafter(high, math.inf)
    return [(low, high) for low, high in [*parts, (left, math.inf)] if low <= high]
