"""What must be known of each column before its cells become categories, gathered in one pass and bounded memory."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usd3._internal.progress import say
from usd3.kinds.table.cells import as_texts, is_number
from usd3.kinds.table.columns import Cells, Scalar
from usd3.kinds.table.dates import FORMATS, date_formats, ticks_of
from usd3.kinds.table.dtypes import holds_texts, is_plain, normalised
from usd3.kinds.table.durations import ticks_of_durations
from usd3.kinds.table.files import Source
from usd3.kinds.table.frames import require_pandas

__all__ = ["ColumnSummary", "TableSummary", "summarised"]

_MOST_COUNTED = 2**16  # different values of a column, while there are few columns
_COUNTED_IN_ALL = 2**20
_SAMPLED_ROWS, _SAMPLED_CELLS = 2**16, 2**23
_HASHES = 2**10
_SECONDS_ROWS = 2**20  # rows between two lines about the progress


@dataclass
class ColumnSummary:
    """What is known of a column.

    Args:
        name: its name.
        missing: texts that mean "no value".
        may_have_commas: whether a comma may stand before decimals.
        most: most values to count.
        dtype: the dtype of pandas; "date" for dates of Python.
        kind: what `normalised` calls it; "": nothing was seen yet but missing cells.
        rows: number of rows.
        num_missing: number of missing cells.
        markers: how often each text stands for a missing cell.
        counts: how often each value occurs. Of dates, units since 1970 are counted.
        pruned: whether there were too many values to count, so that rare ones are not in `counts`.
        words: of texts, how many cells are no numbers, with a point and with a comma before decimals.
        word: the first of them, in each of the two ways, as (row, text).
        formats: the formats of dates that all texts have; None: there was no text.
        levels: of dtype category, all categories, and whether they have an order.
        unit: of dates, the unit of time.
        is_beyond: whether some integers are beyond int64.
        num_infinite: number of infinite cells, which count as missing.
    """

    name: str
    missing: frozenset[str]
    may_have_commas: bool = False
    most: int = _MOST_COUNTED
    dtype: str = "object"
    kind: str = ""
    rows: int = 0
    num_missing: int = 0
    markers: Counter[str] = field(default_factory=Counter)
    counts: dict[Scalar, int] = field(default_factory=dict)
    pruned: bool = False
    words: list[int] = field(default_factory=lambda: [0, 0])
    word: list[tuple[int, str] | None] = field(default_factory=lambda: [None, None])
    formats: tuple[str, ...] | None = None
    levels: tuple[tuple[Scalar, ...], bool] | None = None
    unit: str = "us"
    is_beyond: bool = False
    num_infinite: int = 0
    _hashes: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))

    @property
    def present(self) -> int:
        """Number of cells with a value."""
        return self.rows - self.num_missing

    @property
    def distinct(self) -> int:
        """Number of different values; an estimate if there are very many."""
        if not self.pruned:
            return len(self.counts)
        return min(self.present, int((len(self._hashes) - 1) / (float(self._hashes[-1]) / 2.0**64)))

    @property
    def comma(self) -> bool:
        """Whether commas stand before decimals: fewer cells are no numbers then."""
        return self.may_have_commas and self.words[1] < self.words[0]

    @property
    def num_words(self) -> int:
        """Number of texts that are no numbers."""
        return self.words[self.comma]

    @property
    def first_word(self) -> tuple[int, str]:
        """The first text that is no number, and its row, counted from 1."""
        return self.word[self.comma] or (0, "")

    def add(self, series: Any) -> None:
        """Count the cells of some more rows."""
        kind, cells = normalised(series)
        self._add_kind(kind, series, cells)
        before = self.rows
        self.rows += len(series)
        codes, values, counts = self._counted(kind, cells)
        gone = np.array([isinstance(value, str) and value.strip() in self.missing for value in values], dtype=bool)
        for i in np.flatnonzero(gone):
            self.markers[str(values[i])] += int(counts[i])
        self.num_missing += int((codes < 0).sum()) + int(counts[gone].sum())
        kept = np.flatnonzero(~gone)
        values, counts = [values[i] for i in kept], counts[kept]
        if kind == "text" and values:
            self._add_texts(values, counts, kept, codes, before)
        if kind == "number":
            self.num_infinite += int((cells.isna().to_numpy() & series.notna().to_numpy()).sum())
            self.is_beyond |= any(isinstance(value, int) and not -(2**63) <= value < 2**63 for value in values)
        for value, count in zip(values, counts.tolist()):
            self.counts[value] = self.counts.get(value, 0) + count
        self._prune(values)

    def _add_kind(self, kind: str, series: Any, cells: Any) -> None:
        pd = require_pandas()
        if kind == "text" and not series.notna().any() and self.kind:
            return
        if self.kind in ("", kind):
            self.dtype = str(series.dtype)
            if kind == "date" and self.dtype == "object":
                is_day = pd.api.types.infer_dtype(series, skipna=True) == "date"
                self.dtype = "date" if is_day else str(cells.dtype)
            if kind == "duration" and self.dtype == "object":
                self.dtype = str(cells.dtype)
            if kind == "text" and not holds_texts(series.dtype, cells):
                self.dtype = "str"
            if kind == "category":
                self._add_levels(series.cat)
            self.unit = _unit(self.dtype)
        self.kind = kind if self.kind in ("", kind) else "object"

    def _add_levels(self, cat: Any) -> None:
        """Add the categories that were not seen yet: in a Parquet file, groups of rows may have different ones."""
        plain = [value.item() if isinstance(value, np.generic) else value for value in cat.categories]
        levels, is_ranked = self.levels or ((), bool(cat.ordered))
        new = tuple(v if is_plain(v) else str(v) for v in plain)
        self.levels = tuple(dict.fromkeys(levels + new)), is_ranked and bool(cat.ordered)

    def _counted(self, kind: str, cells: Any) -> tuple[NDArray[np.int64], list[Any], NDArray[np.int64]]:
        """The number of each cell's value, the values, and how often each occurs."""
        if kind in ("date", "duration"):
            ticks, known = (ticks_of if kind == "date" else ticks_of_durations)(cells, self.unit)
            different, codes = np.unique(ticks[known], return_inverse=True)
            every = np.full(len(ticks), -1, dtype=np.int64)
            every[known] = codes
            return every, different.tolist(), np.bincount(codes, minlength=len(different))
        codes, values = Cells(cells).factors
        if kind == "category":
            values = [value if is_plain(value) else str(value) for value in values]
        return codes, values, np.bincount(codes[codes >= 0], minlength=len(values))

    def _add_texts(
        self, values: list[str], counts: NDArray[np.int64], kept: NDArray[np.int64], codes: NDArray[Any], before: int
    ) -> None:
        """Count numbers, and see which formats of dates all texts have."""
        texts = as_texts(values)
        for comma in (0, 1) if self.may_have_commas else (0,):
            words = ~is_number(texts, bool(comma))
            self.words[comma] += int(counts[words].sum())
            if words.any() and self.word[comma] is None:
                first = int(np.argmax(words))
                self.word[comma] = before + int(np.argmax(codes == kept[first])) + 1, values[first]
        if self.formats != ():
            self.formats = date_formats(texts, FORMATS if self.formats is None else self.formats)

    def _prune(self, values: Sequence[Any]) -> None:
        """Forget the rarest values if there are too many, and remember some hashes, to estimate how many there are."""
        pd = require_pandas()
        if len(values):
            array = np.array(values, dtype=None if not isinstance(values[0], str) else object)
            array = array.astype(object) if array.dtype.kind not in "iuf" else array.astype(float)
            hashes = pd.util.hash_array(array)
            self._hashes = np.unique(np.concatenate([self._hashes, hashes]))[:_HASHES]
        if len(self.counts) > self.most:
            frequent = sorted(self.counts.items(), key=lambda item: -item[1])[: self.most // 2]
            self.counts, self.pruned = dict(frequent), True


def _unit(dtype: str) -> str:
    """The unit of time of a dtype such as datetime64[ns, UTC]."""
    found = re.match(r"(?:datetime64|timestamp|timedelta64|duration)\[(s|ms|us|ns)\b", dtype)
    return "us" if found is None else found[1]


@dataclass(frozen=True, eq=False)
class TableSummary:
    """What is known of a table.

    Args:
        columns: the summary of each column.
        rows: number of rows.
        sample: a DataFrame of rows that were chosen at random, or of all.
    """

    columns: list[ColumnSummary]
    rows: int
    sample: Any


def summarised(source: Source) -> TableSummary:
    """Read all rows of a table once."""
    names = source.form.names
    most = max(2**12, min(_MOST_COUNTED, _COUNTED_IN_ALL // len(names)))
    commas = source.is_text and source.form.delimiter != ","
    missing = frozenset(source.form.missing)
    columns = [ColumnSummary(name, missing, commas, most) for name in names]
    sample, rows, said = _Sample(max(2**12, min(_SAMPLED_ROWS, _SAMPLED_CELLS // len(names)))), 0, 0
    for chunk in source.chunks():
        for summary in columns:
            summary.add(chunk[summary.name])
        sample.add(chunk)
        rows += len(chunk)
        if rows - said >= _SECONDS_ROWS:
            said = rows
            say(f"{source.name}: {rows:,} rows counted")
    return TableSummary(columns, rows, sample.frame())


class _Sample:
    """At most `size` rows, each with the same chance."""

    def __init__(self, size: int):
        self.size, self.limit = size, 1.0
        self.rng = np.random.default_rng(0)
        self.parts: list[Any] = []
        self.keys: list[NDArray[np.float64]] = []

    def add(self, chunk: Any) -> None:
        """Consider some more rows."""
        keys = self.rng.random(len(chunk))
        chosen = keys < self.limit
        self.parts.append(chunk[chosen])
        self.keys.append(keys[chosen])
        if sum(map(len, self.keys)) > 2 * self.size:
            self._shrink()

    def _shrink(self) -> None:
        """Keep the rows with the smallest keys."""
        pd = require_pandas()
        keys = np.concatenate(self.keys)
        if len(keys) > self.size:
            self.limit = float(np.partition(keys, self.size)[self.size])
        chosen = keys < self.limit
        self.parts, self.keys = [pd.concat(self.parts, ignore_index=True)[chosen]], [keys[chosen]]

    def frame(self) -> Any:
        """The rows."""
        self._shrink()
        return self.parts[0].reset_index(drop=True)
