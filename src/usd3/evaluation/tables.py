"""Tables of several methods: their metrics with the best marked, the reference rows, and what each method cost."""

import math
from collections.abc import Iterable, Mapping, Sequence

from usd3._internal.tables import RANKS, Cell, Table, exact, short, with_spread
from usd3._internal.tables import Row as Cells
from usd3.evaluation.comparison import COSTS, COUNTS, Row, digits, marks, metrics_of
from usd3.evaluation.differences import Intervals
from usd3.metrics.summary import COLUMNS, RATIOS, Metric, Summary

__all__ = ["csv_table", "latex_table", "markdown_table", "shown_metrics", "text_table"]

_UNKNOWN = Summary(math.nan, math.nan)
_NO_INTERVALS = Intervals()


def shown_metrics(rows: Sequence[Row]) -> list[str]:
    """The metrics that at least one row has. If a row has one of the metrics of sequences, all of these are shown."""
    measured = {key for row in rows for key in row.metrics}
    measured |= set(COLUMNS) if measured & set(COLUMNS) else set()
    return [key for key in metrics_of(rows) if key in measured]


def text_table(rows: Sequence[Row], references: Sequence[Row] = (), intervals: Intervals = _NO_INTERVALS) -> str:
    """Two tables of text: the metrics of the methods and of the reference rows, and what each method cost.

    The `intervals` say what is marked. Metrics without intervals have the best two marked.
    """
    shown = _shown_costs(rows)
    costs = Table(["", *shown.values()], [[[row.label, *(_cost(row, key) for key in shown)] for row in rows]])
    return f"{_metrics_table(rows, references, intervals).text()}\n\n{costs.text()}\n"


def markdown_table(rows: Sequence[Row]) -> str:
    """The metrics of each row for a page in Markdown, without marks."""
    return _metrics_table((), rows, _NO_INTERVALS).markdown()


def latex_table(rows: Sequence[Row], references: Sequence[Row] = (), intervals: Intervals = _NO_INTERVALS) -> str:
    """A tabular of the metrics, which needs the package booktabs. A comment says what is bold and underlined."""
    table = _metrics_table(rows, references, intervals, between="±")
    return "".join(f"% {note}\n" for note in table.latex_notes()) + table.latex()


def csv_table(rows: Sequence[Row], references: Sequence[Row] = (), intervals: Intervals = _NO_INTERVALS) -> str:
    """A line for each row: mean and standard deviation of each metric, and the costs; an unknown value is empty.

    For metrics with intervals also whether the row is marked, as 1 or 0.
    """
    keys, costs = shown_metrics([*rows, *references]), _shown_costs(rows)
    marked = [key for key in keys if key in intervals.worse]
    names = [*(f"{key}_{part}" for key in keys for part in Summary._fields), *(f"{key}_mark" for key in marked)]
    of_metric = [marks(rows, key, intervals.worse) for key in marked]
    methods = [[str(column[i]) for column in of_metric] for i in range(len(rows))]
    sections = [
        [
            [row.label, section, *map(exact, _means(row, keys)), *own, *map(exact, _costs(row, costs))]
            for row, own in lines
        ]
        for section, lines in (
            ("method", zip(rows, methods)),
            ("reference", ((row, [""] * len(marked)) for row in references)),
        )
    ]
    return Table(["label", "kind", *names, *costs], sections).csv()


def _metrics_table(rows: Sequence[Row], references: Sequence[Row], intervals: Intervals, between: str = " ± ") -> Table:
    """A column for each metric; only methods are marked. `between` stands between mean and standard deviation."""
    keys = shown_metrics([*rows, *references])
    ranked = [marks(rows, key, intervals.worse) for key in keys]

    def cells(row: Row, ranks: Sequence[int]) -> Cells:
        metrics = [row.metrics.get(key, _UNKNOWN) for key in keys]
        return [row.label, *(Cell(with_spread(*metric, digits, between), rank) for metric, rank in zip(metrics, ranks))]

    methods = [cells(row, [column[i] for column in ranked]) for i, row in enumerate(rows)]
    unranked = [cells(row, [0] * len(keys)) for row in references]
    shown = {key: metrics_of([*rows, *references])[key] for key in keys}
    head = ["", *(metric.titled for metric in shown.values())]
    return Table(head, [methods, unranked], [_notes(shown, intervals)] if rows else [])


def _notes(shown: Mapping[str, Metric], intervals: Intervals) -> str:
    """What the marks and arrows of a table mean."""
    directions = {"lower": "↓ less is better", "higher": "↑ more is better"}
    used = {metric.better for metric in shown.values()}
    notes = "; ".join([*_marks_note(shown, intervals), *(text for name, text in directions.items() if name in used)])
    edit = " edit: more is more diverse, which alone is no merit." if "edit_diversity" in shown else ""
    grows = " ratio: grows where training data are repeated, and also where samples are better."
    ratio = grows if set(shown) & set(RATIOS) else ""
    return f"{notes}.{edit}{ratio}"


def _marks_note(shown: Mapping[str, Metric], intervals: Intervals) -> list[str]:
    """What the marks of the columns with intervals mean, and those of the others."""
    by_mean = [metric.title for key, metric in shown.items() if metric.better and key not in intervals.worse]
    ranked = f"{RANKS} by the means alone, which may be chance"
    if not set(shown) & set(intervals.worse):
        return [ranked]
    return [intervals.note(), *([f"in {', '.join(by_mean)}: {ranked}"] if by_mean else [])]


def _means(row: Row, keys: Sequence[str]) -> list[float]:
    """Mean and standard deviation of each metric."""
    return [value for key in keys for value in row.metrics.get(key, _UNKNOWN)]


def _shown_costs(rows: Sequence[Row]) -> dict[str, str]:
    """The titles of the costs by key, with the counts that some row has."""
    return COSTS | {key: title for key, title in COUNTS.items() if any(key in row.costs for row in rows)}


def _costs(row: Row, keys: Iterable[str]) -> list[float]:
    return [row.costs.get(key, math.nan) for key in keys]


def _cost(row: Row, key: str) -> str:
    return short(row.costs.get(key, math.nan))
