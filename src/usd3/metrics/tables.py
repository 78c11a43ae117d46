"""How alike two tables are: column by column and pair by pair. Shape and Trend are those of sdmetrics 0.24.0.

Tables are pandas DataFrames with the same columns. Those named as `numbers` hold numbers or dates, which have an order;
all others hold categories.
"""

import itertools
import math
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usd3._internal.checks import require
from usd3.metrics._arrays import Floats

__all__ = [
    "contingency_similarity",
    "correlation_similarity",
    "kolmogorov_smirnov_complement",
    "pair_similarities",
    "pair_trends",
    "shapes",
    "total_variation_complement",
]

_DIGITS = 14  # numbers are compared up to so many decimals
_BINS = 10  # of numbers beside categories


def kolmogorov_smirnov_complement(real: Floats, generated: Floats) -> float:
    """1 - the largest difference of the two distribution functions; nan is a missing cell and does not count.

    nan if a table has no number.
    """
    a, b = (np.sort(np.round(x[~np.isnan(x)], _DIGITS)) for x in (real, generated))
    if not len(a) or not len(b):
        return math.nan
    every = np.concatenate([a, b])
    below = [np.searchsorted(part, every, side="right") / len(part) for part in (a, b)]
    return 1 - float(np.abs(below[0] - below[1]).max())


def total_variation_complement(real: NDArray[np.int64], generated: NDArray[np.int64]) -> float:
    """1 - half the sum of the differences of all frequencies of categories; -1 is a missing cell and does not count.

    nan if a table has no category.
    """
    a, b = real[real >= 0], generated[generated >= 0]
    return math.nan if not len(a) or not len(b) else contingency_similarity(a, b)


def contingency_similarity(real: NDArray[np.int64], generated: NDArray[np.int64]) -> float:
    """1 - half the sum of the differences of all frequencies of integers, such as the numbers of pairs."""
    values, place = np.unique(np.concatenate([real, generated]), return_inverse=True)
    counts = [np.bincount(part, minlength=len(values)) for part in np.split(place, [len(real)])]
    return 1 - float(np.abs(counts[0] / len(real) - counts[1] / len(generated)).sum()) / 2


def correlation_similarity(real: tuple[Floats, Floats], generated: tuple[Floats, Floats]) -> float:
    """1 - half the difference of the correlations of two columns; rows with a missing cell do not count.

    nan if a column of a table is constant.
    """
    correlations = [_correlation(*pair) for pair in (real, generated)]
    return 1 - abs(correlations[0] - correlations[1]) / 2


def _correlation(x: Floats, y: Floats) -> float:
    """Pearson's correlation; nan if it is not defined."""
    known = ~(np.isnan(x) | np.isnan(y))
    x, y = x[known], y[known]
    if len(x) < 2 or (x == x[0]).all() or (y == y[0]).all():
        return math.nan
    x, y = x - x.mean(), y - y.mean()
    size = float(np.sqrt((x @ x) * (y @ y)))
    return float(np.clip(x @ y / size, -1, 1)) if size > 0 else math.nan


def shapes(real: Any, generated: Any, numbers: Collection[str]) -> dict[str, float]:
    """How alike each column is, 1 if its distribution is the same: Shape is the mean.

    Args:
        real: a DataFrame.
        generated: a DataFrame with the same columns.
        numbers: the columns of numbers and dates; all others are categories.
    """
    _require_same_columns(real, generated)
    found = {}
    for name in real.columns:
        if name in numbers:
            found[name] = kolmogorov_smirnov_complement(_floats(real[name]), _floats(generated[name]))
        else:
            found[name] = total_variation_complement(*_codes(real[name], generated[name]))
    return found


def pair_trends(real: Any, generated: Any, numbers: Collection[str]) -> dict[tuple[str, str], float]:
    """How alike each pair of columns is: Trend is the mean of those that are not nan.

    Two columns of numbers are compared by their correlation, others by the frequencies of their pairs; numbers then are
    in 10 bins of equal width between the smallest and the largest of each table.

    Args:
        real: a DataFrame.
        generated: a DataFrame with the same columns.
        numbers: the columns of numbers and dates; all others are categories.
    """
    return _pair_scores(real, generated, numbers, lambda x, y: (_own_bins(x), _own_bins(y)))


def pair_similarities(real: Any, generated: Any, numbers: Collection[str]) -> dict[tuple[str, str], float]:
    """As `pair_trends`, with both tables in the same bins: 10 of equal width over the real numbers.

    Trend compares the first bin of a table with the first bin of the other, wherever they lie: one number that is
    larger than all others moves every bin of its table.
    """
    return _pair_scores(real, generated, numbers, _common_bins)


def _pair_scores(
    real: Any,
    generated: Any,
    numbers: Collection[str],
    binned: Callable[[Floats, Floats], tuple[NDArray[np.int64], NDArray[np.int64]]],
) -> dict[tuple[str, str], float]:
    """The similarity of each pair of columns; `binned` puts the numbers of both tables into bins."""
    _require_same_columns(real, generated)
    floats = {name: (_floats(real[name]), _floats(generated[name])) for name in real.columns if name in numbers}
    codes = {
        name: binned(*floats[name]) if name in floats else _codes(real[name], generated[name]) for name in real.columns
    }
    found = {}
    for a, b in itertools.combinations(real.columns, 2):
        if a in floats and b in floats:
            found[a, b] = correlation_similarity((floats[a][0], floats[b][0]), (floats[a][1], floats[b][1]))
        else:
            size = 1 + max(int(part.max()) for part in codes[b])
            pairs = [(codes[a][i] + 1) * (size + 1) + codes[b][i] + 1 for i in (0, 1)]
            found[a, b] = contingency_similarity(*pairs)
    return found


def _require_same_columns(real: Any, generated: Any) -> None:
    names = [list(map(str, table.columns)) for table in (real, generated)]
    require(names[0] == names[1], "columns of generated", ", ".join(names[1]), f"those of real: {', '.join(names[0])}")
    for name, table in (("real", real), ("generated", generated)):
        require(len(table) > 0, name, "no rows", "at least one row")


def _floats(series: Any) -> Floats:
    """Numbers or dates as float64; a missing cell is nan."""
    if series.dtype.kind == "M":
        times = series.to_numpy(dtype="datetime64[ns]")
        return np.where(np.isnat(times), np.nan, times.astype(np.int64).astype(np.float64))
    return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan))


def _codes(real: Any, generated: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The categories of both tables as the same numbers; a missing cell is -1."""
    import pandas as pd

    codes, _ = pd.factorize(pd.concat([real.astype(object), generated.astype(object)], ignore_index=True))
    first, second = np.split(np.asarray(codes, dtype=np.int64), [len(real)])
    return first, second


def _common_bins(real: Floats, generated: Floats) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The bins 0..9 of the numbers of both tables; the outermost are open. A missing cell is -1."""
    known = real[~np.isnan(real)]
    edges = np.histogram_bin_edges(known, _BINS)[1:-1] if len(known) else np.zeros(0)
    first, second = (np.where(np.isnan(x), -1, np.digitize(x, edges)).astype(np.int64) for x in (real, generated))
    return first, second


def _own_bins(x: Floats) -> NDArray[np.int64]:
    """The bin of each number, 1..11: the largest has one of its own, which missing cells share, as in sdmetrics."""
    known = x[~np.isnan(x)]
    if not len(known):
        return np.full(len(x), _BINS + 1, dtype=np.int64)
    return np.digitize(x, np.histogram_bin_edges(known, _BINS)).astype(np.int64)
