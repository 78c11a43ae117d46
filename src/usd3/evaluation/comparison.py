"""Several methods beside each other: what was found about each, which is best, and tables of it."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

from usd3._internal.checks import require
from usd3._internal.graphs import SETTLED
from usd3._internal.tables import aligned, escaped, markdown, places, short, tabular
from usd3.kinds.options import DataConfig
from usd3.metrics.summary import COLUMNS, RATIOS, STRUCTURE, Summary, summarise

__all__ = [
    "COSTS",
    "IMAGE_METRICS",
    "METRICS",
    "Metric",
    "Row",
    "combined",
    "csv_table",
    "describe_images",
    "heading",
    "latex_table",
    "markdown_table",
    "marks",
    "read_references",
    "read_row",
    "require_comparable",
    "shown_metrics",
    "text_table",
]


class Metric(NamedTuple):
    """A column. Not every one says what is better: samples without any sense are the most diverse, and melodies
    should have as many notes on the beat, rests and repeated bars as true ones.

    Nor do the train-to-test ratios: as printed they grow with copying and with quality.
    """

    title: str
    better: Literal["lower", "higher"] | None = "lower"

    @property
    def titled(self) -> str:
        """The title with an arrow towards what is better."""
        return self.title if self.better is None else f"{self.title} {_ARROWS[self.better]}"


_ARROWS = {"lower": "↓", "higher": "↑"}
IMAGE_METRICS = {
    "classifier_score": Metric("classifier score", "higher"),
    "classifier_frechet": Metric("classifier Fréchet"),
    "precision": Metric("precision", "higher"),
    "recall": Metric("recall", "higher"),
    "inception_score": Metric("IS", "higher"),
    "fid": Metric("FID"),
}
METRICS = {
    **{key: Metric(title, None if key == "edit_diversity" else "lower") for key, title in COLUMNS.items()},
    **{key: Metric(title, None) for key, title in STRUCTURE.items()},
    **{key: Metric(title, None) for key, title in RATIOS.items()},
    **IMAGE_METRICS,
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
    objects = found["objects"] + found.get("ratio_objects", 0) + found.get("free_objects", 0)
    drawn, seconds = objects * settings["runs"], _number(found["sampling_seconds"])
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


def combined(trainings: Sequence[Row]) -> Row:
    """Several trainings of one method: the mean of each metric and cost, and standard deviations over the trainings."""
    first, *others = trainings
    if not others:
        return first
    metrics = {key: summarise(np.array([row.mean(key) for row in trainings])) for key in first.metrics}
    costs = {key: float(np.mean([row.costs[key] for row in trainings])) for key in first.costs}
    return Row(first.label, metrics, costs)


def read_references(found: Mapping[str, Any]) -> list[Row]:
    """The rows that show the scale: a Markov chain, other objects, the truth; of images, real ones."""
    bits = found["bits_per_element"]
    return [Row(name, _metrics(row, bits.get(name))) for name, row in found["rows"].items() if name != "model"]


def _metrics(row: Mapping[str, Any], bits: float | None) -> dict[str, Summary]:
    found = {key: Summary(*(_number(cell[part]) for part in Summary._fields)) for key, cell in row.items()}
    return found | {"bits_per_element": Summary(_number(bits), 0.0)}


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def heading(found: Mapping[str, Any]) -> str:
    """What a table is about, from what `usd3 evaluate` wrote: how much was drawn, and what it is compared with."""
    used, images = found["settings"], found.get("compared_with")
    if images is None:
        line = f"{found['data']}: {found['objects']} held-out objects, first {used['prefix']} elements given, "
        line += f"{used['runs']} continuations of each in {used['steps']} steps, seed {used['seed']}"
        besides = found.get("ratio_objects")
        return f"{line}; ratios on {besides} objects of {used['ratios']}" if besides else line
    return f"{found['data']}: {describe_images(used, images)}"


def describe_images(settings: Mapping[str, Any], compared_with: Mapping[str, Any]) -> str:
    """How many images were drawn, and which they are compared with."""
    drawn = f"{settings['images']['num']} images in {settings['steps']} steps, seed {settings['seed']}"
    line = drawn if settings["runs"] == 1 else f"{settings['runs']} sets of {drawn}"
    line += f", against {compared_with['training_images']} training images"
    accuracy = compared_with["classifier_accuracy"]
    known = "" if accuracy is None else f" (accuracy {accuracy:.3f})"
    return f"{line}, by the classifier {compared_with['classifier']}{known}"


def require_comparable(runs: Mapping[str, tuple[DataConfig, int]]) -> None:
    """Refuse runs with other data, another split or another prefix than the first; by label, data and prefix.

    A model that was exported has no path of its data: the others say where they are.
    """
    (first, (data, prefix)), *others = runs.items()
    wanted = asdict(data)
    for label, (own, own_prefix) in others:
        for name, value in asdict(own).items():
            same = name in _AUGMENTATION or value == wanted[name] or (name == "path" and None in (value, wanted[name]))
            require(same, f"data.{name} of {label}", value, f"{wanted[name]}, as {first} has")
        require(own_prefix == prefix, f"prefix of {label}", own_prefix, f"{prefix}, as {first} has")


# ---- ranking ------------------------------------------------------------------------------------------------------


def marks(rows: Sequence[Row], metric: str) -> list[int]:
    """1 for the best, 2 for the second best, 0 for the others; equal as printed is equal.

    Nothing is marked where no direction is better, or where all known values are equal; of two, the second is just
    the other.
    """
    values = [row.mean(metric) for row in rows]
    shown = [float(_digits(value)) if math.isfinite(value) else math.nan for value in values]
    known = [value for value in shown if not math.isnan(value)]
    better = METRICS[metric].better
    if better is None:
        return [0] * len(rows)
    return places(shown, better == "higher", most=1 if len(known) == 2 else 2)


def _digits(value: float) -> str:
    return f"{value:.3f}"


# ---- tables -------------------------------------------------------------------------------------------------------


def shown_metrics(rows: Sequence[Row]) -> list[str]:
    """The metrics that some row has; those of sequences come all together."""
    known = {key for row in rows for key in row.metrics}
    known |= set(COLUMNS) if known & set(COLUMNS) else set()
    return [key for key in METRICS if key in known]


def text_table(rows: Sequence[Row], references: Sequence[Row] = ()) -> str:
    """The metrics, with ** at the best and * at the second best, and below them what each method cost."""
    keys = shown_metrics([*rows, *references])
    marked = {key: marks(rows, key) for key in keys}
    head = ["", *(METRICS[key].titled for key in keys)]
    body = [
        [row.label, *(_cell(row, key, " ± ") + ("", "**", "*")[marked[key][i]] for key in keys)]
        for i, row in enumerate(rows)
    ]
    body += [[row.label, *(_cell(row, key, " ± ") for key in keys)] for row in references]
    costs = [["", *COSTS.values()]]
    costs += [[row.label, *(_cost(row, key) for key in COSTS)] for row in rows]
    return "\n".join([*aligned([head, *body]), "", _notes(keys), "", *aligned(costs)]) + "\n"


def _notes(keys: Sequence[str]) -> str:
    """What the marks and arrows of a table mean."""
    directions = {"lower": "↓ less is better", "higher": "↑ more is better"}
    used = {METRICS[key].better for key in keys}
    notes = "; ".join(["** best, * second best", *(text for name, text in directions.items() if name in used)])
    edit = " edit: more is more diverse, which alone is no merit." if "edit_diversity" in keys else ""
    grows = " ratio: grows where training data are repeated, and also where samples are better."
    ratio = grows if set(keys) & set(RATIOS) else ""
    return f"{notes}.{edit}{ratio}"


def csv_table(rows: Sequence[Row], references: Sequence[Row] = ()) -> str:
    """One line for each row: mean and standard deviation of every metric, and the costs; unknown is empty."""
    keys = shown_metrics([*rows, *references])
    parts = [f"{key}_{part}" for key in keys for part in Summary._fields]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["label", "kind", *parts, *COSTS])
    for kind, several in (("method", rows), ("reference", references)):
        for row in several:
            cells = [value for key in keys for value in row.metrics.get(key, Summary(math.nan, math.nan))]
            cells += [row.costs.get(key, math.nan) for key in COSTS]
            writer.writerow([row.label, kind, *(f"{cell:.9g}" if math.isfinite(cell) else "" for cell in cells)])
    return out.getvalue()


def markdown_table(rows: Sequence[Row]) -> str:
    """The metrics of each row, for a page in Markdown."""
    keys = shown_metrics(rows)
    body = [[row.label, *(_cell(row, key, " ± ") for key in keys)] for row in rows]
    return markdown(["", *(METRICS[key].titled for key in keys)], body)


def latex_table(rows: Sequence[Row], references: Sequence[Row] = ()) -> str:
    """A tabular of the metrics, the best bold and the second best underlined. It needs the package booktabs."""
    keys = shown_metrics([*rows, *references])
    marked = {key: marks(rows, key) for key in keys}
    titles = [escaped(METRICS[key].titled) for key in keys]
    best = ("{}", r"\textbf{{{}}}", r"\underline{{{}}}")
    body = [
        [escaped(row.label), *(best[marked[key][i]].format(_cell(row, key, r"$\pm$")) for key in keys)]
        for i, row in enumerate(rows)
    ]
    below = [[escaped(row.label), *(_cell(row, key, r"$\pm$") for key in keys)] for row in references]
    return tabular(["Method", *titles], body, below)


def _cell(row: Row, metric: str, between: str) -> str:
    """Mean and spread, the mean alone where there is no spread, "-" where it is not known."""
    mean, std = row.metrics.get(metric, Summary(math.nan, math.nan))
    if not math.isfinite(mean):
        return "-"
    return f"{_digits(mean)}{between}{_digits(std)}" if math.isfinite(std) and std > 1e-9 else _digits(mean)


def _cost(row: Row, key: str) -> str:
    return short(row.costs.get(key, math.nan))
