"""Several methods side by side: the results of each, and which is best."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from usd3._internal.checks import require
from usd3._internal.graphs import SETTLED
from usd3._internal.tables import not_worse, ranks
from usd3.evaluation.per_object import PerObject
from usd3.kinds.options import DataConfig
from usd3.kinds.registry import KINDS
from usd3.metrics.summary import COLUMNS, RATIOS, Metric, Summary, summarise

__all__ = [
    "COSTS",
    "COUNTS",
    "METRICS",
    "Row",
    "combined",
    "digits",
    "heading",
    "marks",
    "metrics_of",
    "read_references",
    "read_row",
    "require_comparable",
    "trainings_note",
]


_OF_SEQUENCES = {key: Metric(title, None if key == "edit_diversity" else "lower") for key, title in COLUMNS.items()}
_OF_KINDS = {key: metric for kind in KINDS.values() for key, metric in kind.columns.items()}
_OF_ALL = {
    **{key: Metric(title, None) for key, title in RATIOS.items()},
    "bits_per_element": Metric("bits/element"),
}
METRICS = _OF_SEQUENCES | _OF_KINDS | _OF_ALL
"""All metrics of the package by key, in the order of the columns."""
COSTS = {
    "parameters": "parameters",
    "steps": "training steps",
    "minutes": "training minutes",
    "ms_per_step": "ms per step",
    "sampling_steps": "sampling steps",
    "seconds_per_object": "sampling s per object",
}
COUNTS = {
    "calls_per_object": "network calls per object",
    "changed_per_object": "elements changed per object",
}
"""What `usd3 evaluate --sweep` counts: `usd3.evaluation.counting`."""
_UNKNOWN: Mapping[str, Mapping[str, Sequence[str]]] = MappingProxyType({})
_AUGMENTATION = ("transpose", "scramble")  # they do not change which objects are held out


@dataclass(frozen=True)
class Row:
    """The results of a method, or a reference row. An unknown value is nan, or its key is missing."""

    label: str
    metrics: dict[str, Summary]
    costs: dict[str, float] = field(default_factory=dict)
    columns: dict[str, Metric] = field(default_factory=dict)  # the metrics that only the kind of the data has
    per_object: PerObject | None = None  # None: only the means are known

    def mean(self, metric: str) -> float:
        """The mean of a metric; nan if it is unknown."""
        return self.metrics.get(metric, Summary(math.nan, math.nan)).mean


# ---- reading ------------------------------------------------------------------------------------------------------


def read_row(label: str, results: Mapping[str, Any]) -> Row:
    """The row of a model, from the results that `usd3 evaluate` wrote."""
    settings, trained = results["settings"], results["trained"]
    objects = results["objects"] + results.get("ratio_objects", 0) + results.get("free_objects", 0)
    drawn, seconds = objects * settings["runs"], _number(results["sampling_seconds"])
    minutes, counted = _number(trained["minutes"]), trained["steps"] - SETTLED
    costs = {
        "parameters": _number(trained["parameters"]),
        "steps": _number(trained["steps"]),
        "minutes": minutes,
        "ms_per_step": minutes * 60_000 / counted if counted > 0 else math.nan,
        "sampling_steps": _number(settings["steps"]),
        "seconds_per_object": seconds / drawn,
        **{key: float(results[key]) for key in COUNTS if key in results},
    }
    bits = results["bits_per_element"].get("model (upper bound)")
    metrics = _metrics(results["rows"]["model"], bits)
    return Row(label, metrics, costs, _columns(results), PerObject.of(results))


def combined(trainings: Sequence[Row]) -> Row:
    """One row for several trainings of a method: means, and standard deviations over the trainings."""
    first, *others = trainings
    if not others:
        return first
    metrics = {key: summarise(np.array([row.mean(key) for row in trainings])) for key in first.metrics}
    costs = {key: float(np.mean([row.costs[key] for row in trainings])) for key in first.costs}
    return Row(first.label, metrics, costs, first.columns, PerObject.joined([row.per_object for row in trainings]))


def read_references(results: Mapping[str, Any]) -> list[Row]:
    """The reference rows of the results: a Markov chain, other objects and the truth; for images, real images."""
    bits, columns = results["bits_per_element"], _columns(results)
    rows = {name: row for name, row in results["rows"].items() if name != "model"}
    return [Row(name, _metrics(row, bits.get(name)), columns=columns) for name, row in rows.items()]


def _columns(results: Mapping[str, Any]) -> dict[str, Metric]:
    """The metrics that only the kind of the data has; older results name none, and are of a packaged kind."""
    return {key: Metric(*metric) for key, metric in results.get("columns", {}).items()}


def metrics_of(rows: Sequence[Row]) -> dict[str, Metric]:
    """All metrics that rows can have, by key, in the order of the columns."""
    own = {key: metric for row in rows for key, metric in row.columns.items()}
    others = {key: metric for key, metric in (_OF_SEQUENCES | _OF_KINDS).items() if key not in own}
    return others | own | _OF_ALL


def _metrics(row: Mapping[str, Any], bits: float | None) -> dict[str, Summary]:
    metrics = {key: Summary(*(_number(cell[part]) for part in Summary._fields)) for key, cell in row.items()}
    return metrics | {"bits_per_element": Summary(_number(bits), 0.0)}


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def heading(results: Mapping[str, Any]) -> str:
    """The line above a table, from the results of `usd3 evaluate`: what was drawn, and what it is compared with."""
    settings, compared_with = results["settings"], results.get("compared_with")
    if compared_with is not None:
        title = results.get("title")
        if title is None:  # results of an older version, when one kind was judged
            title = next(kind for kind in KINDS.values() if kind.is_judged).describe_sets(settings, compared_with)
        return f"{results['data']}: {title}"
    line = f"{results['data']}: {results['objects']} held-out objects, first {settings['prefix']} elements given, "
    line += f"{settings['runs']} continuations of each in {settings['steps']} steps, seed {settings['seed']}"
    ratio_objects = results.get("ratio_objects")
    return f"{line}; ratios on {ratio_objects} objects of {settings['ratios']}" if ratio_objects else line


def trainings_note(counts: Mapping[str, int]) -> str:
    """How often each method was trained, for the line above a table; empty if each was trained once."""
    if max(counts.values()) == 1:
        return ""
    listed = ", ".join(f"{label} {count}" for label, count in counts.items())
    return f"; trainings: {listed}; ± is over these where there are several"


def require_comparable(runs: Mapping[str, tuple[DataConfig, int]]) -> None:
    """Raise an error if the data, the split or the prefix of a run differ from those of the first run.

    The path of the data may be missing: an exported model does not know it.

    Args:
        runs: the data and the prefix of each run, by its label.
    """
    (first, (first_data, first_prefix)), *others = runs.items()
    expected = _described(first_data)
    for label, (data, prefix) in others:
        for name, value in _described(data).items():
            path_missing = name == "path" and None in (value, expected[name])
            same = name in _AUGMENTATION or value == expected[name] or path_missing
            require(same, f"data.{name} of {label}", value, f"{expected[name]}, as {first} has")
        require(prefix == first_prefix, f"prefix of {label}", prefix, f"{first_prefix}, as {first} has")


def _described(data: DataConfig) -> dict[str, Any]:
    """The options of data, with the name of the kind however they say it."""
    return asdict(data) | {"kind": data.kind_class.path(), "music": None}


# ---- ranking ------------------------------------------------------------------------------------------------------


def marks(rows: Sequence[Row], metric: str, worse: Mapping[str, Mapping[str, Sequence[str]]] = _UNKNOWN) -> list[int]:
    """For each row 1 if it is not shown to be worse than the best of a metric, else 0.

    Where nothing is known but the means, it is 1 for the best, 2 for the second best, otherwise 0. Values that print
    the same are equal then. All are 0 if all values are equal. Of two values only the best is marked. A metric without
    a better direction has no marks.

    Args:
        rows: the methods.
        metric: its key.
        worse: `Intervals.worse` of the methods.
    """
    if metric in worse:
        labels, means = [row.label for row in rows], [row.mean(metric) for row in rows]
        return not_worse(labels, means, metrics_of(rows)[metric].better == "higher", worse[metric])
    means = [row.mean(metric) for row in rows]
    printed = [float(digits(mean)) if math.isfinite(mean) else math.nan for mean in means]
    num_values = sum(not math.isnan(value) for value in printed)
    better = metrics_of(rows)[metric].better
    if better is None:
        return [0] * len(rows)
    return ranks(printed, better == "higher", most=1 if num_values == 2 else 2)


def digits(value: float) -> str:
    """A metric as the tables print it."""
    return f"{value:.3f}"
