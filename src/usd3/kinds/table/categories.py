"""Columns of categories: each value is a category; the rarest of very many values share one."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from usd3.kinds.table.columns import Bools, Cells, Column, Limits, Raw, Scalar, unknown_value
from usd3.kinds.table.conditions import Choice, Condition
from usd3.kinds.table.frames import require_pandas

__all__ = ["Categories"]

_TRUE = {"true", "yes", "1"}


@dataclass(frozen=True)
class Categories(Column):
    """A column of categories. Raw numbers are indices of `values` and, after them, of `rare`.

    Args:
        common: the values with a category of their own, the most frequent first.
        rare: the values that share one category, the last of those of values.
        counts: how often each of `rare` occurs in the data.
        levels: all categories of a pandas column of dtype category, in their order.
        is_ranked: whether these have an order.
    """

    common: tuple[Scalar, ...] = ()
    rare: tuple[Scalar, ...] = ()
    counts: tuple[int, ...] = ()
    levels: tuple[Scalar, ...] = ()
    is_ranked: bool = False

    lists: ClassVar[tuple[str, ...]] = ("common", "rare", "counts", "levels")

    @property
    def num_values(self) -> int:
        """The common values, and the rare ones together."""
        return len(self.common) + bool(self.rare)

    @property
    def value_labels(self) -> list[str]:
        """The common values, and "(rare)"."""
        return [str(value) for value in self.common] + ["(rare)"] * bool(self.rare)

    @cached_property
    def members(self) -> tuple[Scalar, ...]:
        """All values."""
        return self.common + self.rare

    @cached_property
    def _index(self) -> dict[Any, int]:
        """The index of each value, also by its text."""
        return {str(value): i for i, value in enumerate(self.members)} | {v: i for i, v in enumerate(self.members)}

    def _find(self, value: Any) -> int:
        """The index of a value; -1: unknown."""
        found = self._index.get(value, -1) if value.__hash__ is not None else -1
        if found < 0:
            whole = isinstance(value, float) and value.is_integer()
            found = self._index.get(str(int(value)) if whole else str(value), -1)
        if found < 0 and isinstance(value, str):
            found = self._index.get(value.strip(), -1)
            if found < 0 and self.dtype.startswith("bool"):
                found = {text.lower(): i for i, text in enumerate(map(str, self.members))}.get(value.lower(), -1)
        if found < 0 and isinstance(value, bool) and self.dtype.startswith("bool"):
            found = next((i for i, member in enumerate(self.members) if _as_bool(member) == value), -1)
        return found

    def raw(self, cells: Cells) -> tuple[Raw, Bools]:
        """The index of the value of each cell; an unknown value raises an error that says which there are."""
        codes, values = cells.factors
        found = np.array([self._find(value) for value in values] + [-1], dtype=np.int64)
        for code in np.unique(codes[(codes >= 0) & (found[codes] < 0)]):
            place = f"row {cells.row_of(code)} of {cells.name}"
            raise unknown_value(self, values[code], place, [str(member) for member in self.members])
        return found[codes], codes >= 0

    def can_have(self, values: Sequence[Any]) -> Bools:
        """Those that are listed."""
        return np.array([self._find(value) >= 0 for value in values], dtype=bool)

    def raw_of_data(self, cells: Cells) -> tuple[Raw, Bools]:
        """The index of the value of each cell. One of very many values that is not listed counts as a rare one."""
        codes, values = cells.factors
        found = np.array([self._find(value) for value in values] + [0], dtype=np.int64)
        return np.where(found < 0, len(self.common), found)[codes], codes >= 0

    def categories(self, raw: Raw) -> NDArray[np.int64]:
        """The index itself; that of a rare value is the one of all rare values."""
        return np.minimum(raw, len(self.common))

    def at(self, categories: NDArray[np.int64], u: NDArray[np.float64], limits: Limits | None) -> Raw:
        """The index itself; among the rare values, in the order of their frequencies, the one at the quantile u."""
        raw = np.array(categories, dtype=np.int64)
        is_rare = raw == len(self.common)
        if self.rare and is_rare.any():
            share = np.array(self.counts, dtype=float)
            if limits is not None and limits.members is not None:
                share = share * limits.members[len(self.common) :]
            cdf = np.cumsum(share)
            raw[is_rare] += np.searchsorted(cdf, u[is_rare] * cdf[-1], side="right")
        return raw

    def values(self, raw: Raw) -> NDArray[Any]:
        """The values themselves; those of a column of booleans as booleans, of one of numbers as numbers."""
        listed: list[Any] = list(self.members) or [""]
        if self.dtype.startswith("bool"):
            listed = [_as_bool(value) for value in listed]
            return np.array(listed, dtype=bool)[raw]
        texts = np.empty(len(listed), dtype=object)
        texts[:] = listed
        return texts[raw]

    def series(self, raw: Raw, known: Bools) -> Any:
        """The values as a Series; one of dtype category has all its levels."""
        pd = require_pandas()
        if self.dtype != "category":
            return super().series(raw, known)
        levels = pd.Index(list(self.levels))
        codes = levels.get_indexer(list(self.members) or [0])
        return pd.Series(pd.Categorical.from_codes(np.where(known, codes[raw], -1), levels, ordered=self.is_ranked))

    def texts(self, raw: Raw) -> NDArray[Any]:
        """The values as text."""
        texts = np.empty(max(1, len(self.members)), dtype=object)
        texts[:] = [str(value) for value in self.members] or [""]
        return texts[raw]

    # ---- conditions ---------------------------------------------------------------------------------------------

    def limits(self, conditions: Sequence[Condition]) -> Limits:
        """The values that all conditions leave."""
        members, missing = np.ones(len(self.members), dtype=bool), self.has_missing
        for condition in conditions:
            chosen = np.zeros(len(self.members), dtype=bool)
            for choice in condition.choices:
                if not choice.is_missing:
                    chosen[self._chosen(choice, condition)] = True
            with_missing = any(choice.is_missing for choice in condition.choices)
            members &= chosen ^ condition.excluded
            missing &= with_missing ^ condition.excluded
        return Limits(missing, members=members)

    def _chosen(self, choice: Choice, condition: Condition) -> int:
        """The index of the value of an alternative; a text with dots may be a value too."""
        found = -1 if choice.value is None else self._find(choice.value)
        if found < 0 and choice.is_range:
            raise ValueError(f"where = {condition}: expected a value, as {self.name} has categories and no ranges")
        if found < 0:
            raise unknown_value(self, choice.value, "where", [str(member) for member in self.members])
        return found

    def value_weights(self, limits: Limits) -> NDArray[np.float64]:
        """1 for the values that are left; of the rare ones the share of those that are left."""
        members = np.asarray(limits.members)
        weights = members[: len(self.common)].astype(float)
        if not self.rare:
            return weights
        counts = np.array(self.counts, dtype=float)
        return np.append(weights, (counts * members[len(self.common) :]).sum() / counts.sum())


def _as_bool(value: Scalar) -> bool:
    return str(value).lower() in _TRUE
