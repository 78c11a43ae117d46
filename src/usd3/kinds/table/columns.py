"""The columns of a table: what each stands for, as plain JSON that is saved with a model.

A column turns cells into categories 0..size-1 and back. In between are its raw numbers: the index of a value, or the
place of a number on its grid. A category may stand for several values; then one of them is drawn.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from usd3._internal.checks import require
from usd3._internal.fields import from_mapping
from usd3._internal.messages import suggestion
from usd3.kinds.table.bins import Interval
from usd3.kinds.table.conditions import Condition
from usd3.kinds.table.frames import require_pandas, typed_series

__all__ = ["Bools", "Cells", "Column", "Limits", "Raw", "Scalar", "column_from"]

Scalar: TypeAlias = str | int | float | bool
Raw: TypeAlias = NDArray[Any]
Bools: TypeAlias = NDArray[np.bool_]

_SHOWN = 8  # values in an error message


@dataclass(frozen=True)
class Cells:
    """The cells of a column.

    Args:
        series: a pandas Series of texts or of any dtype.
        missing: texts that mean "no value".
        name: what the table is called in error messages.
    """

    series: Any
    missing: Container[str] = ()
    name: str = "table"

    @cached_property
    def factors(self) -> tuple[NDArray[np.int64], list[Any]]:
        """The number (n,) of the value of each cell, -1 where there is none, and the different values."""
        pd = require_pandas()
        codes, uniques = pd.factorize(self.series)
        values = [value.item() if isinstance(value, np.generic) else value for value in list(uniques)]
        gone = np.array([isinstance(value, str) and value.strip() in self.missing for value in values], dtype=bool)
        codes = np.asarray(codes, dtype=np.int64)
        return (np.where((codes >= 0) & np.append(gone, False)[codes], -1, codes) if gone.any() else codes), values

    def row_of(self, code: int) -> int:
        """The first row, counted from 1, with the value of this number."""
        return int(np.argmax(self.factors[0] == code)) + 1


@dataclass(frozen=True, eq=False)
class Limits:
    """What conditions leave of a column.

    Args:
        missing: whether a cell may be missing.
        members: (number of values,) True where a value is left; None: the column has numbers.
        intervals: the raw numbers that are left; None: the column has values.
    """

    missing: bool
    members: Bools | None = None
    intervals: tuple[Interval, ...] | None = None


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Args:
        name: its name.
        type: "category", "ordered", "number", "date" or "duration".
        dtype: the dtype of pandas that it has in a DataFrame.
        has_missing: whether its last category is a missing cell.
        marker: how a missing cell is written in a file.
        is_text: whether the values are texts in a DataFrame, also where they are numbers or dates.
    """

    name: str
    type: str
    dtype: str
    has_missing: bool = False
    marker: str = ""
    is_text: bool = False

    is_ordered: ClassVar[bool] = False
    """Whether categories have an order: those of numbers and dates."""
    middle: ClassVar[float] = 0.0
    """The quantile that stands for all values of a category."""
    lists: ClassVar[tuple[str, ...]] = ()  # fields that are tuples; JSON has lists

    def __post_init__(self) -> None:
        for field in self.lists:
            object.__setattr__(self, field, tuple(getattr(self, field)))

    # ---- what subclasses define ---------------------------------------------------------------------------------

    @property
    def num_values(self) -> int:
        """Number of categories that stand for values."""
        raise NotImplementedError

    @property
    def value_labels(self) -> list[str]:
        """The categories of values in words."""
        raise NotImplementedError

    def raw(self, cells: Cells) -> tuple[Raw, Bools]:
        """The raw number of each cell, and where it has a value."""
        raise NotImplementedError

    def raw_of_data(self, cells: Cells) -> tuple[Raw, Bools]:
        """As `raw`, for the data that the column was made for: without warnings and errors."""
        raise NotImplementedError

    def can_have(self, values: Sequence[Any]) -> Bools:
        """Which of some different values are values of this column."""
        raise NotImplementedError

    def categories(self, raw: Raw) -> NDArray[np.int64]:
        """The category of each raw number."""
        raise NotImplementedError

    def at(self, categories: NDArray[np.int64], u: NDArray[np.float64], limits: Limits | None) -> Raw:
        """The raw number at the quantile u (n,) in [0, 1) of each category of values (n,)."""
        raise NotImplementedError

    def values(self, raw: Raw) -> NDArray[Any]:
        """The values of raw numbers, for a Series."""
        raise NotImplementedError

    def texts(self, raw: Raw) -> NDArray[Any]:
        """The values of raw numbers as a file has them."""
        raise NotImplementedError

    def limits(self, conditions: Sequence[Condition]) -> Limits:
        """What conditions on this column leave of it."""
        raise NotImplementedError

    def value_weights(self, limits: Limits) -> NDArray[np.float64]:
        """(num_values,) the share of each category that is left."""
        raise NotImplementedError

    # ---- what all columns share ---------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """Number of categories."""
        return self.num_values + self.has_missing

    @property
    def labels(self) -> list[str]:
        """The categories in words; a missing cell is "(missing)"."""
        return self.value_labels + ["(missing)"] * self.has_missing

    def encode(self, cells: Cells, keep_missing: bool = True) -> tuple[NDArray[np.int64], Bools]:
        """The category of each cell, and which cells are known.

        A missing cell has the category of missing cells if `keep_missing` and the column has one. Otherwise it is a
        hole: it is not known, and its category 0 means nothing.
        """
        raw, known = self.raw(cells)
        found = np.zeros(len(known), dtype=np.int64)
        found[known] = self.categories(raw[known])
        if keep_missing and self.has_missing:
            found[~known] = self.num_values
            known = np.ones_like(known)
        return found, known

    def encode_data(self, cells: Cells) -> NDArray[np.int64]:
        """The category of each cell of the data that the column was made for."""
        raw, known = self.raw_of_data(cells)
        return np.where(known, self.categories(raw), self.num_values)

    def impossible(self, cells: Cells) -> tuple[Bools, str]:
        """Which cells the data of training cannot have, and why the first cannot."""
        codes, values = cells.factors
        bad = ~np.append(self.can_have(values), self.has_missing)
        first = next((code for code in [*range(len(values)), -1] if bad[code] and (codes == code).any()), None)
        value = "missing" if first == -1 else "" if first is None else values[first]
        place = "" if first is None else f"{self.name} in row {cells.row_of(first)} of {cells.name} is {value}"
        return bad[codes], place

    def decode(
        self,
        categories: NDArray[np.int64],
        rng: np.random.Generator | None,
        limits: Limits | None = None,
        limited: Bools | None = None,
    ) -> tuple[Raw, Bools]:
        """A raw number for each category, and where a cell has a value.

        Args:
            categories: (n,) 0..size-1.
            rng: draws the number; None: the middle one, of categories the most frequent.
            limits: what conditions leave of the column.
            limited: (n,) where the conditions hold; None: everywhere.
        """
        u = np.full(len(categories), self.middle) if rng is None else rng.random(len(categories))
        known, raw = categories < self.num_values, np.zeros(len(categories), dtype=np.int64)
        inside = np.ones_like(known) if limited is None else limited
        for part, limit in ((known & inside, limits), (known & ~inside, None)):
            if part.any():
                found = self.at(categories[part], u[part], limit)
                raw = raw.astype(found.dtype)
                raw[part] = found
        return raw, known

    def series(self, raw: Raw, known: Bools) -> Any:
        """Raw numbers as a Series of the column's dtype."""
        return typed_series(self.values(raw), ~known, self.dtype)

    def cells(self, raw: Raw, known: Bools) -> NDArray[Any]:
        """Raw numbers as the texts of a file."""
        return np.where(known, self.texts(raw), self.marker)

    def weights(self, conditions: Sequence[Condition]) -> NDArray[np.float64]:
        """(size,) the share of each category that the conditions leave, which must be more than nothing."""
        limits = self.limits(conditions)
        found = np.append(self.value_weights(limits), [float(limits.missing)] * self.has_missing)
        if not (found > 0).any():
            raise self._nothing_left(conditions)
        return found

    def _nothing_left(self, conditions: Sequence[Condition]) -> ValueError:
        """The error for conditions that no cell meets: one that none can meet, or several that contradict."""
        for condition in conditions if len(conditions) > 1 else ():
            self.weights([condition])
        expected = f"something that {self.has()}"
        if len(conditions) > 1:
            choices = [str(choice) for condition in conditions for choice in condition.choices]
            either = f"; one or the other is {self.name}={'|'.join(choices)}"
            is_plain = not any(condition.excluded for condition in conditions)
            expected = f"conditions that hold together, as a cell meets all of them{either if is_plain else ''}"
        return ValueError(f"where = {','.join(map(str, conditions))}: expected {expected}")

    def has(self) -> str:
        """What the column has, for error messages: "age has: 17..90"."""
        values, more = self.value_labels[:_SHOWN], ", ..." if self.num_values > _SHOWN else ""
        missing = " or a missing cell" if self.has_missing else ""
        return f"{self.name} has: {', '.join(values)}{more}{missing}"


def unknown_value(column: Column, value: Any, place: str, known: Sequence[str]) -> ValueError:
    """The error for a value that the column has not; `place` says where it is."""
    listed = ", ".join(known[:_SHOWN]) + (f", ... ({len(known)} values)" if len(known) > _SHOWN else "")
    hint = suggestion(str(value), known)
    return ValueError(f"{column.name} in {place} = {value}: expected one of {listed}{hint}")


def column_from(values: Any) -> Column:
    """The column that plain JSON describes."""
    from usd3.kinds.table.categories import Categories
    from usd3.kinds.table.dates import Dates
    from usd3.kinds.table.durations import Durations
    from usd3.kinds.table.numbers import Numbers

    if isinstance(values, Column):
        return values
    classes: Mapping[Any, type[Column]] = {
        "category": Categories,
        "ordered": Numbers,
        "number": Numbers,
        "date": Dates,
        "duration": Durations,
    }
    word = values.get("type") if isinstance(values, dict) else None
    require(word in classes, "type of a column", word, f"one of {', '.join(classes)}")
    return from_mapping(classes[word], values, "column")
