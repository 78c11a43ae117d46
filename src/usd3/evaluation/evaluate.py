"""How good are the continuations of held-out sequences, beside a Markov chain and beside other true sequences?

Kinds that are measured in sets drawn from nothing, such as images, are in `usd3.evaluation.free`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from usd3._internal.checks import as_count, require
from usd3._internal.progress import say
from usd3._internal.random import seed_of
from usd3._internal.tables import aligned
from usd3._internal.threads import waiting_asleep
from usd3.core.given import prefix_given
from usd3.core.samplers import Corrector, Step
from usd3.evaluation.ratios import SharedPrefixes, as_columns, as_numbers, named_objects
from usd3.evaluation.references import chain_bits, reference_runs
from usd3.evaluation.settings import EvaluationSettings
from usd3.kinds.dataset import Dataset
from usd3.kinds.options import DataConfig
from usd3.kinds.registry import KINDS
from usd3.metrics import Summary, format_table
from usd3.metrics.summary import COLUMNS, RATIOS, format_cell
from usd3.pipeline.pipeline import Pipeline

__all__ = [
    "Continuations",
    "Draws",
    "Evaluation",
    "HeldOut",
    "Task",
    "continue_held_out",
    "draw_runs",
    "evaluate",
    "evaluate_baselines",
    "require_same_shape",
    "shared_prefixes",
]

_LARGEST_N = 3  # of the n-grams
_OF_RATIOS = {
    "to_test": "a, to the held-out object",
    "to_train": "b, to the training objects",
    "literal": "a / (b (a + b))",
    "swapped": "b / (a (a + b))",
}
_FEW = 10  # objects; a ratio of fewer is in the results, but not shown


@dataclass(frozen=True)
class HeldOut:
    """The objects to continue: in the categories of the data, each with something to measure after the prefix."""

    truth: Tensor
    pad: Tensor | None
    prefix: int
    skipped: int

    @classmethod
    def of(cls, pipeline: Pipeline, dataset: Dataset, settings: EvaluationSettings) -> "HeldOut":
        """The first `limit` held-out objects that have 3 elements or more after the prefix."""
        require_same_shape(pipeline, dataset)
        prefix = pipeline.config.prefix if settings.prefix is None else settings.prefix
        return cls.after(prefix, dataset, settings.limit)

    @classmethod
    def after(cls, prefix: int, dataset: Dataset, limit: int | None = None) -> "HeldOut":
        """The same, without a model."""
        test, length = dataset.test, torch.Size(dataset.shape).numel()
        as_count(prefix, "prefix", 0, max(0, length - _LARGEST_N))
        real = torch.ones(len(test), length, dtype=torch.bool) if test.pad is None else ~test.pad.flatten(1)
        rows = (real[:, prefix:].sum(1) >= _LARGEST_N).nonzero().squeeze(1)
        enough = f"held-out objects with {_LARGEST_N} elements or more after the prefix of {prefix}"
        require(len(rows) > 0, "test", f"{len(test)} objects", enough)
        skipped, rows = len(test) - len(rows), rows[:limit]
        pad = None if test.pad is None else test.pad[rows]
        return cls(dataset.decoded(test.tokens[rows].long()), pad, prefix, skipped)

    @property
    def given(self) -> Tensor:
        """Which elements of an object are given."""
        return prefix_given(self.truth[0].numel(), self.prefix).reshape(self.truth.shape[1:])


@dataclass
class Evaluation:
    """The rows of the table, the likelihood in bits per element, and how much of it repeats the training data.

    `ratio_objects` were continued besides the held-out `objects`, for the train-to-test ratios; `free_objects` were
    drawn from nothing.
    """

    settings: dict[str, Any]
    objects: int
    skipped: int
    rows: dict[str, dict[str, Summary]]
    bits_per_element: dict[str, float] = field(default_factory=dict)
    parroting: dict[str, dict[str, float]] = field(default_factory=dict)
    ratio_objects: int = 0
    free_objects: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON, which knows finite numbers alone: None stands for the others."""
        rows = {name: {key: s._asdict() for key, s in row.items()} for name, row in self.rows.items()}
        finite: dict[str, Any] = _finite(asdict(self) | {"rows": rows})
        return finite

    def heading(self) -> str:
        """What was measured, in one line."""
        skipped = f"; {self.skipped} left out, as they end too soon after that" if self.skipped else ""
        return f"{self.objects} held-out objects, first {self.settings['prefix']} elements given{skipped}"

    def as_text(self) -> str:
        """Tables to read."""
        lines = [format_table(_part(self.rows, COLUMNS))]
        for kind in KINDS.values():
            titles = {key: metric.title for key, metric in kind.columns.items()}
            if structure := _part(self.rows, titles):
                lines += ["", format_table(structure, titles)]
        if self.bits_per_element:
            lines += ["", "bits per element of the held-out continuations (nats in brackets):"]
            lines += [f"  {name}: {b:.3f} ({b * math.log(2):.3f})" for name, b in self.bits_per_element.items()]
        return "\n".join(lines + self._ratio_lines())

    def _ratio_lines(self) -> list[str]:
        """The train-to-test ratios, with the distances they are made of."""
        objects = next(iter(self.parroting.values()))["objects"] if self.parroting else 0
        if self.ratio_objects:
            lines = ["", f"train-to-test ratio, on {objects} objects of {self.settings['ratios']}:"]
            lines += [format_table(_part(self.rows, RATIOS), RATIOS), "", "of the model:"]
        elif objects >= _FEW:
            lines = ["", f"train-to-test ratio, on the {objects} objects whose prefix is in the training data:"]
        elif objects:
            return ["", f"{objects} prefixes occur in the training data: too few for a train-to-test ratio"]
        else:
            return []
        cells = [
            [name, *(format_cell(Summary(values[key], values[f"{key}_std"])) for key in _OF_RATIOS)]
            for name, values in self.parroting.items()
        ]
        lines += aligned([["distance", *_OF_RATIOS.values()], *cells])
        note = f"{_OF_RATIOS['literal']} is the paper's ratio: it grows with copying and with quality; look at a and b"
        return [*lines, note]


def _part(rows: Mapping[str, dict[str, Summary]], columns: Mapping[str, str]) -> dict[str, dict[str, Summary]]:
    """These columns of the rows that have some of them."""
    parts = {name: {key: row[key] for key in columns if key in row} for name, row in rows.items()}
    return {name: part for name, part in parts.items() if part}


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


Draws = dict[str, Tensor]
"""Objects (R, N, ...) in the categories of the data, as they are kept in a file: "tokens", for the train-to-test
ratios "ratio_tokens", and "free_tokens", objects drawn from nothing."""


class Task(Protocol):
    """What a model is asked to draw, and how that is measured."""

    @property
    def sizes(self) -> dict[str, int]:
        """Objects of a run, by the name of what they are."""

    def draw(self, corrector: Corrector | None = None, callback: Callable[[Step], None] | None = None) -> Draws:
        """Draw all runs."""

    def measure(self, generated: Draws, settings: EvaluationSettings) -> Evaluation:
        """Measure what was drawn."""


@dataclass(frozen=True)
class Continuations:
    """The task on sequences: continue held-out objects, and for the train-to-test ratios those of `shared`.

    Of kinds with a structure of their own, such as melodies, also draw some from nothing.
    """

    pipeline: Pipeline
    dataset: Dataset
    held_out: HeldOut
    settings: EvaluationSettings
    shared: SharedPrefixes | None = None

    @classmethod
    def of(
        cls, pipeline: Pipeline, data: DataConfig, dataset: Dataset, settings: EvaluationSettings
    ) -> "Continuations":
        """On the held-out objects of the data."""
        held_out = HeldOut.of(pipeline, dataset, settings)
        return cls(pipeline, dataset, held_out, settings, shared_prefixes(data, dataset, settings, held_out.prefix))

    @property
    def sizes(self) -> dict[str, int]:
        """Objects of a run."""
        besides = {} if self.shared is None else {"ratio_tokens": len(self.shared)}
        free = {"free_tokens": len(self.held_out.truth)} if self._draws_free else {}
        return {"tokens": len(self.held_out.truth)} | besides | free

    @property
    def _draws_free(self) -> bool:
        return self.settings.from_nothing and bool(self.dataset.kind.columns)

    def draw(self, corrector: Corrector | None = None, callback: Callable[[Step], None] | None = None) -> Draws:
        """Continue each object `runs` times."""
        drawn = {"tokens": continue_held_out(self.pipeline, self.held_out, self.settings, corrector, callback)}
        if self.shared is not None:
            what = {"tokens": self.shared.truth, "given": self.held_out.given}
            drawn["ratio_tokens"] = draw_runs(self.pipeline, self.settings, corrector, callback, **what)
        if self._draws_free:
            num = len(self.held_out.truth)
            drawn["free_tokens"] = draw_runs(self.pipeline, self.settings, corrector, callback, num=num)
        return drawn

    def measure(self, generated: Draws, settings: EvaluationSettings) -> Evaluation:
        """Compare with what is true."""
        tokens, besides = generated["tokens"], generated.get("ratio_tokens")
        found = evaluate(self.pipeline, self.dataset, self.held_out, settings, tokens, self.shared, besides)
        if "free_tokens" in generated:
            free = generated["free_tokens"]
            structure = self.dataset.kind.structure(free)
            found.rows = _after_first(found.rows, "model, from nothing", structure)
            found.free_objects = free.shape[1]
        return found


def shared_prefixes(
    data: DataConfig, dataset: Dataset, settings: EvaluationSettings, prefix: int, option: str = "ratios"
) -> SharedPrefixes | None:
    """The objects of the array that `settings.ratios` names; `option` is how errors call that setting."""
    if settings.ratios is None:
        return None
    return named_objects(settings.ratios, data, dataset, prefix, settings.limit, option)


def require_same_shape(pipeline: Pipeline, dataset: Dataset) -> None:
    """Refuse data of other objects than the model's."""
    shape, own = tuple(dataset.shape), tuple(pipeline.config.shape)
    require(shape == own, "shape of the data", shape, f"{own}")


def continue_held_out(
    pipeline: Pipeline,
    held_out: HeldOut,
    settings: EvaluationSettings,
    corrector: Corrector | None = None,
    callback: Callable[[Step], None] | None = None,
) -> Tensor:
    """Continue each object from its prefix, `runs` times: (R, N, ...) in the categories of the data."""
    what = {"tokens": held_out.truth, "given": held_out.given, "pad": held_out.pad}
    return draw_runs(pipeline, settings, corrector, callback, **what)


def draw_runs(
    pipeline: Pipeline,
    settings: EvaluationSettings,
    corrector: Corrector | None = None,
    callback: Callable[[Step], None] | None = None,
    **what: Any,
) -> Tensor:
    """Draw `runs` times with the settings, (R, N, ...); `what` is said to `Pipeline.sample`."""
    draws = [
        pipeline.sample(
            num_steps=settings.steps,
            corrector=corrector,
            temperature=settings.temperature,
            sampler=settings.sampler,
            seed=seed_of(settings.seed, run),
            batch_size=settings.batch_size,
            callback=callback,
            **what,
        )
        for run in range(settings.runs)
    ]
    return torch.stack(draws)


@waiting_asleep()
def evaluate(
    pipeline: Pipeline,
    dataset: Dataset,
    held_out: HeldOut,
    settings: EvaluationSettings,
    generated: Tensor,
    shared: SharedPrefixes | None = None,
    besides: Tensor | None = None,
) -> Evaluation:
    """Compare continuations (R, N, ...) of the held-out objects with what is true.

    The train-to-test ratios are those of the continuations `besides` of objects `shared`; without these, those of the
    held-out objects whose prefix occurs in the training data.
    """
    shape, prefix = held_out.truth.shape, held_out.prefix
    fits = generated.shape[1:] == shape
    require(fits, "shape of the samples", tuple(generated.shape), f"(runs, {', '.join(map(str, shape))})")
    truth, generated = held_out.truth.flatten(1), generated.flatten(2)
    pad = None if held_out.pad is None else held_out.pad.flatten(1)
    generated = generated if pad is None else torch.where(pad, truth, generated)
    known = bool(((generated >= 0) & (generated < dataset.num_classes)).all())
    require(known, "samples", "padding where held-out objects have none", f"categories 0..{dataset.num_classes - 1}")
    skip = 0 if settings.include_prefix else prefix
    row = dataset.kind.metrics(generated, truth, skip, pad)
    used = asdict(settings.known_for(pipeline)) | {"prefix": prefix}
    found = Evaluation(used, len(truth), held_out.skipped, {"model": row})
    if settings.bound_samples:
        given = held_out.given.flatten()
        free = ~given.expand(truth.shape) if pad is None else ~(given | pad)
        say(f"measuring bits per element, at {settings.bound_samples} times for each object")
        nats = pipeline.bound(
            held_out.truth,
            held_out.given,
            held_out.pad,
            settings.bound_samples,
            seed=settings.seed,
            batch_size=settings.batch_size,
        )
        found.bits_per_element["model (upper bound)"] = float(nats.sum() / free.sum() / math.log(2))
    if settings.baselines:
        say("measuring a Markov chain and other held-out objects")
        scale = evaluate_baselines(dataset, held_out, replace(settings, runs=len(generated)), shared)
        found.rows |= scale.rows
        found.bits_per_element |= scale.bits_per_element
    if shared is not None and besides is not None:
        ratios = shared.measured(besides, settings.include_prefix)
        found.parroting, found.ratio_objects = as_numbers(ratios, len(shared)), len(shared)
        row |= as_columns(ratios)
    elif len(own := SharedPrefixes.among(held_out.truth, held_out.pad, dataset, prefix)):
        ratios = own.measured(generated[:, own.rows].unflatten(2, shape[1:]), settings.include_prefix)
        found.parroting = as_numbers(ratios, len(own))
    return found


def _after_first(rows: dict[str, Any], name: str, row: Any) -> dict[str, Any]:
    """The rows with one more in the second place."""
    (first, *others) = rows.items()
    return dict([first, (name, row), *others])


def evaluate_baselines(
    dataset: Dataset, held_out: HeldOut, settings: EvaluationSettings, shared: SharedPrefixes | None = None
) -> Evaluation:
    """What shows the scale: a Markov chain, the continuations of other held-out objects, and the truth.

    With objects `shared` also what train-to-test ratios these have there. A copy of a training object has no row: its
    ratio is infinite.
    """
    truth, prefix = held_out.truth.flatten(1), held_out.prefix
    pad = None if held_out.pad is None else held_out.pad.flatten(1)
    skip = 0 if settings.include_prefix else prefix
    drawn = reference_runs(dataset, truth, prefix, pad, settings.runs, settings.seed)
    rows = {name: dataset.kind.metrics(x, truth, skip, pad) for name, x in drawn.items()}
    bits = {"Markov chain": chain_bits(dataset, truth, prefix, pad)}
    if shared is not None:
        drawn = reference_runs(dataset, shared.truth.flatten(1), prefix, None, settings.runs, settings.seed)
        for name, x in drawn.items():
            ratios = shared.measured(x.unflatten(2, held_out.truth.shape[1:]), settings.include_prefix)
            rows[name] = rows.get(name, {}) | as_columns(ratios)
    return Evaluation(asdict(settings) | {"prefix": prefix}, len(truth), held_out.skipped, rows, bits)
