"""Tables of several methods: their metrics with the best two marked, the reference rows, and what each method cost."""

import math
from collections.abc import Iterable, Mapping, Sequence

from usd3._internal.tables import RANKS, Cell, Table, exact, short, with_spread
from usd3._internal.tables import Row as Cells
from usd3.evaluation.comparison import COSTS, COUNTS, Row, digits, marks, metrics_of
from usd3.metrics.summary import COLUMNS, RATIOS, Metric, Summary

__all__ = ["csv_table", "latex_table", "markdown_table", "shown_metrics", "text_table"]

_UNKNOWN = Summary(math.nan, math.nan)


def shown_metrics(rows: Sequence[Row]) -> list[str]:
    """The metrics that at least one row has. If a row has one of the metrics of sequences, all of these are shown."""
    measured = {key for row in rows for key in row.metrics}
    measured |= set(COLUMNS) if measured & set(COLUMNS) else set()
    return [key for key in metrics_of(rows) if key in measured]


def text_table(rows: Sequence[Row], references: Sequence[Row] = ()) -> str:
    """Two tables of text: the metrics of the methods and of the reference rows, and what each method cost."""
    shown = _shown_costs(rows)
    costs = Table(["", *shown.values()], [[[row.label, *(_cost(row, key) for key in shown)] for row in rows]])
    return f"{_metrics_table(rows, references).text()}\n\n{costs.text()}\n"


def markdown_table(rows: Sequence[Row]) -> str:
    """The metrics of each row for a page in Markdown, without marks."""
    return _metrics_table((), rows).markdown()


def latex_table(rows: Sequence[Row], references: Sequence[Row] = ()) -> str:
    """A tabular of the metrics, the best bold and the second best underlined. It needs the package booktabs."""
    return _metrics_table(rows, references, between="±").latex()


def csv_table(rows: Sequence[Row], references: Sequence[Row] = ()) -> str:
    """A line for each row: mean and standard deviation of each metric, and the costs; an unknown value is empty."""
    keys, costs = shown_metrics([*rows, *references]), _shown_costs(rows)
    head = ["label", "kind", *(f"{key}_{part}" for key in keys for part in Summary._fields), *costs]
    sections = [
        [[row.label, section, *map(exact, _numbers(row, keys, costs))] for row in section_rows]
        for section, section_rows in (("method", rows), ("reference", references))
    ]
    return Table(head, sections).csv()


def _metrics_table(rows: Sequence[Row], references: Sequence[Row], between: str = " ± ") -> Table:
    """A column for each metric; only methods are ranked. `between` stands between mean and standard deviation."""
    keys = shown_metrics([*rows, *references])
    ranked = [marks(rows, key) for key in keys]

    def cells(row: Row, ranks: Sequence[int]) -> Cells:
        metrics = [row.metrics.get(key, _UNKNOWN) for key in keys]
        return [row.label, *(Cell(with_spread(*metric, digits, between), rank) for metric, rank in zip(metrics, ranks))]

    methods = [cells(row, [column[i] for column in ranked]) for i, row in enumerate(rows)]
    unranked = [cells(row, [0] * len(keys)) for row in references]
    shown = {key: metrics_of([*rows, *references])[key] for key in keys}
    head = ["", *(metric.titled for metric in shown.values())]
    return Table(head, [methods, unranked], [_notes(shown)] if rows else [])


def _notes(shown: Mapping[str, Metric]) -> str:
    """What the marks and arrows of a table mean."""
    directions = {"lower": "↓ less is better", "higher": "↑ more is better"}
    used = {metric.better for metric in shown.values()}
    notes = "; ".join([RANKS, *(text for name, text in directions.items() if name in used)])
    edit = " edit: more is more diverse, which alone is no merit." if "edit_diversity" in shown else ""
    grows = " ratio: grows where training data are repeated, and also where samples are better."
    ratio = grows if set(shown) & set(RATIOS) else ""
    return f"{notes}.{edit}{ratio}"


def _shown_costs(rows: Sequence[Row]) -> dict[str, str]:
    """The titles of the costs by key, with the counts that some row has."""
    return COSTS | {key: title for key, title in COUNTS.items() if any(key in row.costs for row in rows)}


def _numbers(row: Row, keys: Sequence[str], costs: Iterable[str]) -> list[float]:
    """Mean and standard deviation of each metric, and the costs."""
    metrics = [value for key in keys for value in row.metrics.get(key, _UNKNOWN)]
    return metrics + [row.costs.get(key, math.nan) for key in costs]


def _cost(row: Row, key: str) -> str:
    return short(row.costs.get(key, math.nan))
