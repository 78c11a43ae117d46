"""The quality report of a table: pictures and tables of generated rows beside held-out rows."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from usd3._internal.files import write_whole
from usd3._internal.tables import Table as TextTable
from usd3._internal.tables import exact
from usd3.kinds.table.columns import Column
from usd3.kinds.table.dates import Dates
from usd3.kinds.table.durations import Durations
from usd3.kinds.table.measuring import Measured
from usd3.kinds.table.numbers import Numbers
from usd3.metrics.tables import pair_similarities, pair_trends, shapes
from usd3.pictures.tables import Bars, PairMap, Steps, marginals_sheet, pair_maps, trend_map

if TYPE_CHECKING:
    from usd3.kinds.table.kind import Table

__all__ = ["write_report"]

_MOST_BARS, _MOST_SIDE = 12, 16  # categories in a picture
_STEPS = 40
_WORST = 4  # pairs in a picture
_OTHERS = "(others)"


def write_report(table: "Table", real: Measured, generated: Measured, folder: Path) -> list[str]:
    """Write marginals.png, trends.png, pairs.png, columns.csv and pairs.csv; returns their names.

    Pictures have the similarity of pairs in common bins, and pairs are in its order; pairs.csv also has the trends.

    Args:
        table: the kind of the rows.
        real: held-out rows.
        generated: rows of a model.
        folder: the folder to write them to.
    """
    shape = shapes(real.frame, generated.frame, real.numbers)
    trends = pair_trends(real.frame, generated.frame, real.numbers)
    similarities = pair_similarities(real.frame, generated.frame, real.numbers)
    panels = [_panel(column, i, real, generated, shape[column.name]) for i, column in enumerate(table.schema)]
    marginals_sheet(panels, folder / "marginals.png")
    columns = [[name, _cell(score)] for name, score in _worst_first(shape)]
    write_whole(folder / "columns.csv", TextTable(["column", "shape"], [columns]).csv())
    if not trends:  # a single column
        return ["marginals.png", "columns.csv"]
    names, place = table.names, {name: i for i, name in enumerate(table.names)}
    scores = np.full((len(names), len(names)), np.nan)
    for (a, b), score in similarities.items():
        scores[place[a], place[b]] = scores[place[b], place[a]] = score
    trend_map(names, scores, folder / "trends.png")
    worst = _worst_first(similarities)
    maps = [_pair_map(table, a, b, score, real, generated) for (a, b), score in worst[:_WORST]]
    pair_maps(maps, folder / "pairs.png")
    pairs = [[*pair, _cell(score), _cell(trends[pair])] for pair, score in worst]
    header = ["column", "other column", "similarity", "trend"]
    write_whole(folder / "pairs.csv", TextTable(header, [pairs], names=2).csv())
    return ["marginals.png", "trends.png", "pairs.png", "columns.csv", "pairs.csv"]


def _cell(score: float) -> str:
    return "" if np.isnan(score) else exact(score)


def _worst_first(scores: dict[Any, float]) -> list[tuple[Any, float]]:
    """The scores from the lowest on; nan at the end."""
    return sorted(scores.items(), key=lambda item: (np.isnan(item[1]), item[1]))


# ---- one column ---------------------------------------------------------------------------------------------------


def _panel(column: Column, i: int, real: Measured, generated: Measured, score: float) -> Bars | Steps:
    """The distribution of a column: bars for categories and few numbers, else histograms."""
    title = column.name if np.isnan(score) else f"{column.name}  {score:.3f}"
    if isinstance(column, Numbers) and column.num_values > _MOST_BARS:
        return _steps(column, title, real, generated)
    shares = [np.bincount(rows.tokens[:, i], minlength=column.size) / len(rows) for rows in (real, generated)]
    chosen = np.arange(column.size)
    labels = column.labels
    if column.size > _MOST_BARS:
        chosen = np.argsort(-shares[0], kind="stable")[: _MOST_BARS - 1]
        labels = [labels[k] for k in chosen] + [_OTHERS]
        shares = [np.append(share[chosen], 1 - share[chosen].sum()) for share in shares]
    return Bars(title, labels, shares[0], shares[1])


def _steps(column: Numbers, title: str, real: Measured, generated: Measured) -> Steps:
    """Histograms between the outermost hundredths of the real numbers; those outside count at the ends."""
    values = [rows.frame[column.name].to_numpy(dtype=float) for rows in (real, generated)]
    known = values[0][~np.isnan(values[0])]
    low, high = np.quantile(known, [0.005, 0.995]) if len(known) else (0.0, 1.0)
    low, high = (low, high) if low < high else (low - 0.5, low + 0.5)
    edges = np.linspace(low, high, _STEPS + 1)
    is_time = isinstance(column, Dates | Durations)
    if not column.grid.is_real and not is_time:  # no bin between two numbers of the grid
        step = column.grid.step / 10.0**column.grid.decimals
        width = max(1, round((high - low) / step / _STEPS)) * step
        edges = np.arange(low - step / 2, high + width, width)
    shares = [np.histogram(np.clip(x[~np.isnan(x)], edges[0], edges[-1]), edges)[0] / max(1, len(x)) for x in values]
    ticks, places = None, np.linspace(edges[0], edges[-1], 3)
    if isinstance(column, Dates):
        days = places.astype(np.int64).astype(f"datetime64[{column.unit}]").astype("datetime64[D]").astype(str)
        ticks = places.tolist(), days.tolist()
    elif isinstance(column, Durations):
        ticks = places.tolist(), column.texts(column.grid.raw(places)).tolist()
    elif column.scale != 1:
        ticks = places.tolist(), [f"{place / column.scale:.1e}" for place in places]
    return Steps(title, edges, shares[0], shares[1], ticks)


# ---- two columns --------------------------------------------------------------------------------------------------


def _pair_map(table: "Table", a: str, b: str, score: float, real: Measured, generated: Measured) -> PairMap:
    """The joint frequencies of two columns, of the most frequent categories or of joined bins."""
    groups = [_groups(table.schema[table.column(name)], table.column(name), real) for name in (a, b)]
    shares = []
    for rows in (real, generated):
        codes = [group[rows.tokens[:, table.column(name)].numpy()] for name, (group, _) in zip((a, b), groups)]
        size = len(groups[1][1])
        counts = np.bincount(codes[0] * size + codes[1], minlength=len(groups[0][1]) * size)
        shares.append(counts.reshape(-1, size) / len(rows))
    return PairMap(f"{a}, {b}  {score:.3f}", groups[0][1], groups[1][1], shares[0], shares[1])


def _groups(column: Column, i: int, real: Measured) -> tuple[NDArray[np.int64], Sequence[str]]:
    """The group of each category, at most 16 of them, and their labels."""
    labels = column.labels
    if column.size <= _MOST_SIDE:
        return np.arange(column.size), labels
    counts = np.bincount(real.tokens[:, i], minlength=column.size)
    if not isinstance(column, Numbers):
        group = np.full(column.size, _MOST_SIDE - 1)
        frequent = np.argsort(-counts, kind="stable")[: _MOST_SIDE - 1]
        group[frequent] = np.arange(len(frequent))
        return group, [labels[k] for k in frequent] + [_OTHERS]
    middle = (np.cumsum(counts) - counts / 2) / max(1, counts.sum())
    joined = np.minimum((middle * _MOST_SIDE).astype(np.int64), _MOST_SIDE - 1)
    joined[-1] = joined[-1] + column.has_missing
    different, group = np.unique(joined, return_inverse=True)
    firsts = [labels[int(np.argmax(group == k))].partition("..")[0] for k in range(len(different))]
    return group, firsts
