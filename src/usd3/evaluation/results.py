"""The results of an evaluation: for JSON, and as tables to read."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from usd3._internal.tables import aligned
from usd3.metrics.summary import COLUMNS, RATIOS, Metric, Summary, format_cell, format_table

__all__ = ["Evaluation", "Rows"]

Rows = dict[str, dict[str, Summary]]
"""The rows of a table: the summary of each metric, by the name of the row and the key of the metric."""

_RATIO_COLUMNS = {
    "to_test": "a, to the held-out object",
    "to_train": "b, to the training objects",
    "literal": "a / (b (a + b))",
    "swapped": "b / (a (a + b))",
}
_FEWEST_FOR_RATIO = 10  # objects; a ratio of fewer is in the results, but not in the tables


@dataclass
class Evaluation:
    """The results of an evaluation.

    Args:
        settings: what was measured and how.
        objects: number of held-out objects that were continued.
        skipped: number of held-out objects that are too short to be continued.
        rows: the metrics of the model and of the reference rows.
        bits_per_element: the likelihood of the held-out objects, in bits per element, by the name of the row.
        parroting: for each distance, the distances to the truth and to the training data, and their ratio.
        ratio_objects: number of further objects that were continued, for the train-to-test ratios.
        free_objects: number of objects that were drawn from nothing.
        columns: the metrics that only the kind of the data has, by their keys.
        per_object: values of the model for each object, the mean of its runs, by the key of the metric; "nats", the
            likelihood bound, and "elements", the number of elements that it is of; "group", equal for objects that
            belong together, if the data say it.
    """

    settings: dict[str, Any]
    objects: int
    skipped: int
    rows: Rows
    bits_per_element: dict[str, float] = field(default_factory=dict)
    parroting: dict[str, dict[str, float]] = field(default_factory=dict)
    ratio_objects: int = 0
    free_objects: int = 0
    columns: dict[str, Metric] = field(default_factory=dict)
    per_object: dict[str, list[float]] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """All results as plain data. JSON has finite numbers alone, so None stands for infinity and nan."""
        rows = {name: {key: summary._asdict() for key, summary in row.items()} for name, row in self.rows.items()}
        finite: dict[str, Any] = _finite(asdict(self) | {"rows": rows})
        return finite

    def heading(self) -> str:
        """A line that says what was measured."""
        skipped = f"; {self.skipped} left out, as they end too soon after that" if self.skipped else ""
        return f"{self.objects} held-out objects, first {self.settings['prefix']} elements given{skipped}"

    def as_text(self) -> str:
        """The tables as plain text."""
        lines = [format_table(_with_columns(self.rows, COLUMNS))]
        measured = {key for row in self.rows.values() for key in row}
        titles = {key: metric.title for key, metric in self.columns.items() if key in measured}
        if structure := _with_columns(self.rows, titles):
            lines += ["", format_table(structure, titles)]
        if self.bits_per_element:
            lines += ["", "bits per element of the held-out continuations (nats in brackets):"]
            lines += [f"  {name}: {b:.3f} ({b * math.log(2):.3f})" for name, b in self.bits_per_element.items()]
        return "\n".join(lines + self._ratio_lines())

    def _ratio_lines(self) -> list[str]:
        """The train-to-test ratios, and the distances that they consist of."""
        objects = next(iter(self.parroting.values()))["objects"] if self.parroting else 0
        if self.ratio_objects:
            lines = ["", f"train-to-test ratio, on {objects} objects of {self.settings['ratios']}:"]
            lines += [format_table(_with_columns(self.rows, RATIOS), RATIOS), "", "of the model:"]
        elif objects >= _FEWEST_FOR_RATIO:
            lines = ["", f"train-to-test ratio, on the {objects} objects whose prefix is in the training data:"]
        elif objects:
            return ["", f"{objects} prefixes occur in the training data: too few for a train-to-test ratio"]
        else:
            return []
        cells = [
            [name, *(format_cell(Summary(values[key], values[f"{key}_std"])) for key in _RATIO_COLUMNS)]
            for name, values in self.parroting.items()
        ]
        lines += aligned([["distance", *_RATIO_COLUMNS.values()], *cells])
        formula = _RATIO_COLUMNS["literal"]
        return [*lines, f"{formula} is the paper's ratio: it grows with copying and with quality; look at a and b"]


def _with_columns(rows: Mapping[str, dict[str, Summary]], columns: Mapping[str, str]) -> Rows:
    """The rows that have some of these columns, with these columns alone."""
    parts = {name: {key: row[key] for key in columns if key in row} for name, row in rows.items()}
    return {name: part for name, part in parts.items() if part}


def _finite(value: Any) -> Any:
    """The value with None in place of each infinity and nan inside it."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
