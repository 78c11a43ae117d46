"""Means with their standard deviations, and a table of them."""

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

from usd3._internal.checks import require
from usd3._internal.tables import Table, with_spread
from usd3.metrics._arrays import Floats

__all__ = ["COLUMNS", "RATIOS", "STRUCTURE", "Metric", "Summary", "format_cell", "format_table", "summarise"]

COLUMNS = {
    **{f"{n}g_hellinger": f"{n}g Hellinger" for n in (1, 2, 3)},
    **{f"{n}g_outliers": f"{n}g outliers" for n in (1, 2, 3)},
    "edit_diversity": "edit",
}
RATIOS = {
    f"ratio_{n}g_{key}": f"{n}g {title} ratio"
    for key, title in (("hellinger", "Hellinger"), ("outliers", "outliers"))
    for n in (1, 2, 3)
}
STRUCTURE = {
    "on_beat": "notes on the beat",
    "onsets": "notes a bar",
    "rests": "rests",
    "repeated_bars": "bars repeated",
    "in_key": "notes in key",
    "pitch_range": "range",
}


_ARROWS = {"lower": "↓", "higher": "↑"}


class Metric(NamedTuple):
    """A column of a table and which values are better.

    Not every column has a better direction. Samples without any sense are the most diverse, and melodies should have as
    many notes on the beat as true ones. Train-to-test ratios grow with copying and with quality.
    """

    title: str
    better: Literal["lower", "higher"] | None = "lower"

    @property
    def titled(self) -> str:
        """The title with an arrow towards better values."""
        return self.title if self.better is None else f"{self.title} {_ARROWS[self.better]}"


class Summary(NamedTuple):
    """A mean and a standard deviation."""

    mean: float
    std: float


def summarise(means: Floats) -> Summary:
    """Mean of the runs' means, and their sample standard deviation (ddof = 1); 0 for a single run."""
    return Summary(float(means.mean()), float(means.std(ddof=1)) if len(means) > 1 else 0.0)


def format_table(rows: Mapping[str, Mapping[str, Summary]], columns: Mapping[str, str] = COLUMNS) -> str:
    """The results as a table of plain text, one line for each row's name.

    A cell is "mean ± std", "mean" alone if std is 0, and "-" if the row has no such value.

    Args:
        rows: the summaries of each row, by the name of the row and the key of the column.
        columns: the title of each column, by its key.
    """
    require(len(rows) > 0, "rows", rows, "at least one row")
    unknown = sorted({key for cells in rows.values() for key in cells} - set(columns))
    require(not unknown, "rows", unknown, f"only the columns {', '.join(columns)}")
    body = [[name, *(format_cell(cells.get(key)) for key in columns)] for name, cells in rows.items()]
    return Table(["", *columns.values()], [body]).text()


def format_cell(summary: Summary | None) -> str:
    """ "mean ± std" with three decimals; "mean" alone if there is no std, "-" if there is no mean."""
    if summary is None:
        return "-"
    digits = "{:.3f}".format
    return digits(summary.mean) if math.isinf(summary.mean) else with_spread(*summary, digits)
