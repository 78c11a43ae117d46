"""Several methods beside each other: what was found about each, which is best, and tables of it."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from usd3._checks import require
from usd3.config import DataConfig
from usd3.metrics.summary import COLUMNS, Summary
from usd3.step import SETTLED

__all__ = [
    "COSTS",
    "METRICS",
    "Metric",
    "Row",
    "csv_table",
    "latex_table",
    "marks",
    "read_references",
    "read_row",
    "require_comparable",
    "text_table",
]


class Metric(NamedTuple):
    """A column. Not every one says what is better: samples without any sense are the most diverse."""

    title: str
    lower_is_better: bool = True


METRICS = {
    **{key: Metric(title, key != "edit_diversity") for key, title in COLUMNS.items()},
    "bits_per_element": Metric("bits/element"),
}
COSTS = {
    "parameters": "parameters",
    "steps": "training steps",
    "minutes": "training minutes",
    "ms_per_step": "ms per step",
    "sampling_steps": "sampling steps",
    "seconds_per_object": "sampling s per object",
}
_AUGMENTATION = ("transpose", "scramble")  # how a run trains; what is held out does not depend on it


@dataclass(frozen=True)
class Row:
    """One method, or something that shows the scale. What is not known is nan, or not there."""

    label: str
    metrics: dict[str, Summary]
    costs: dict[str, float] = field(default_factory=dict)

    def mean(self, metric: str) -> float:
        """The mean of a metric, or nan."""
        return self.metrics.get(metric, Summary(math.nan, math.nan)).mean


# ---- reading ------------------------------------------------------------------------------------------------------


def read_row(label: str, found: Mapping[str, Any]) -> Row:
    """What `usd3 evaluate` wrote about a model."""
    settings, trained = found["settings"], found["trained"]
    drawn, seconds = found["objects"] * settings["runs"], _number(found["sampling_seconds"])
    minutes, counted = _number(trained["minutes"]), trained["steps"] - SETTLED
    costs = {
        "parameters": _number(trained["parameters"]),
        "steps": _number(trained["steps"]),
        "minutes": minutes,
        "ms_per_step": minutes * 60_000 / counted if counted > 0 else math.nan,
        "sampling_steps": _number(settings["steps"]),
        "seconds_per_object": seconds / drawn,
    }
    return Row(label, _metrics(found["rows"]["model"], found["bits_per_element"].get("model (upper bound)")), costs)


def read_references(found: Mapping[str, Any]) -> list[Row]:
    """The rows that show the scale: a Markov chain, other objects, the truth."""
    bits = found["bits_per_element"]
    return [Row(name, _metrics(row, bits.get(name))) for name, row in found["rows"].items() if name != "model"]


def _metrics(row: Mapping[str, Any], bits: float | None) -> dict[str, Summary]:
    found = {key: Summary(*(_number(cell[part]) for part in Summary._fields)) for key, cell in row.items()}
    return found | {"bits_per_element": Summary(_number(bits), 0.0)}


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def require_comparable(runs: Mapping[str, tuple[DataConfig, int]]) -> None:
    """Refuse runs with other data, another split or another prefix than the first; by label, data and prefix."""
    (first, (data, prefix)), *others = runs.items()
    wanted = asdict(data)
    for label, (own, own_prefix) in others:
        for name, value in asdict(own).items():
            same = name in _AUGMENTATION or value == wanted[name]
            require(same, f"data.{name} of {label}", value, f"{wanted[name]}, as {first} has")
        require(own_prefix == prefix, f"prefix of {label}", own_prefix, f"{prefix}, as {first} has")


# ---- ranking ------------------------------------------------------------------------------------------------------


def marks(rows: Sequence[Row], metric: str) -> list[int]:
    """1 for the best, 2 for the second best, 0 for the others; equal as printed is equal.

    Nothing is marked where less is not better, or where only one row has a value; of two, the second is just the other.
    """
    values = [row.mean(metric) for row in rows]
    shown = [float(_digits(value)) if math.isfinite(value) else math.nan for value in values]
    known = [value for value in shown if not math.isnan(value)]
    if not METRICS[metric].lower_is_better or len(known) < 2:
        return [0] * len(rows)
    places = {value: place for place, value in enumerate(sorted(set(known))[: 1 if len(known) == 2 else 2], start=1)}
    return [places.get(value, 0) for value in shown]


def _digits(value: float) -> str:
    return f"{value:.3f}"


# ---- tables -------------------------------------------------------------------------------------------------------


def text_table(rows: Sequence[Row], references: Sequence[Row] = ()) -> str:
    """The metrics, with ** at the best and * at the second best, and below them what each method cost."""
    marked = {key: marks(rows, key) for key in METRICS}
    head = ["", *(f"{metric.title} ↓" if metric.lower_is_better else metric.title for metric in METRICS.values())]
    body = [
        [row.label, *(_cell(row, key, " ± ") + ("", "**", "*")[marked[key][i]] for key in METRICS)]
        for i, row in enumerate(rows)
    ]
    body += [[row.label, *(_cell(row, key, " ± ") for key in METRICS)] for row in references]
    costs = [["", *COSTS.values()]]
    costs += [[row.label, *(_cost(row, key) for key in COSTS)] for row in rows]
    notes = "** best, * second best; ↓ less is better. edit: more is more diverse, which alone is no merit."
    return "\n".join([*_aligned([head, *body]), "", notes, "", *_aligned(costs)]) + "\n"


def csv_table(rows: Sequence[Row], references: Sequence[Row] = ()) -> str:
    """One line for each row: mean and standard deviation of every metric, and the costs; unknown is empty."""
    parts = [f"{key}_{part}" for key in METRICS for part in Summary._fields]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["label", "kind", *parts, *COSTS])
    for kind, several in (("method", rows), ("reference", references)):
        for row in several:
            cells = [value for key in METRICS for value in row.metrics.get(key, Summary(math.nan, math.nan))]
            cells += [row.costs.get(key, math.nan) for key in COSTS]
            writer.writerow([row.label, kind, *(f"{cell:.9g}" if math.isfinite(cell) else "" for cell in cells)])
    return out.getvalue()


def latex_table(rows: Sequence[Row], references: Sequence[Row] = ()) -> str:
    """A tabular of the metrics, the best bold and the second best underlined. It needs the package booktabs."""
    marked = {key: marks(rows, key) for key in METRICS}
    arrow = r" $\downarrow$"
    titles = [_escaped(metric.title) + (arrow if metric.lower_is_better else "") for metric in METRICS.values()]
    best = ("{}", r"\textbf{{{}}}", r"\underline{{{}}}")
    body = [
        [_escaped(row.label), *(best[marked[key][i]].format(_cell(row, key, r"$\pm$")) for key in METRICS)]
        for i, row in enumerate(rows)
    ]
    below = [[_escaped(row.label), *(_cell(row, key, r"$\pm$") for key in METRICS)] for row in references]
    lines = [
        r"\begin{tabular}{l" + "c" * len(METRICS) + "}",
        r"\toprule",
        _latex_line(["Method", *titles]),
        r"\midrule",
    ]
    lines += map(_latex_line, body)
    lines += [r"\midrule", *map(_latex_line, below)] if below else []
    return "\n".join(["% needs \\usepackage{booktabs}", *lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def _cell(row: Row, metric: str, between: str) -> str:
    """Mean and spread, the mean alone where there is no spread, "-" where it is not known."""
    mean, std = row.metrics.get(metric, Summary(math.nan, math.nan))
    if not math.isfinite(mean):
        return "-"
    return f"{_digits(mean)}{between}{_digits(std)}" if math.isfinite(std) and std > 1e-9 else _digits(mean)


def _cost(row: Row, key: str) -> str:
    value = row.costs.get(key, math.nan)
    if not math.isfinite(value):
        return "-"
    return f"{value:,.0f}" if value == round(value) and abs(value) >= 1 else f"{value:.3g}"


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*lines)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines]


def _latex_line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


_SPECIAL = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


def _escaped(text: str) -> str:
    return "".join(_SPECIAL.get(character, character) for character in text)
