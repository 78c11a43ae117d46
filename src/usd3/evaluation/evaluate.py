"""How good are a model's continuations of held-out sequences? Compared with a Markov chain and with other sequences.

Kinds that are measured in sets drawn from nothing, such as images, are in `usd3.evaluation.free`.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from usd3._internal.checks import require
from usd3._internal.progress import say
from usd3._internal.threads import waiting_asleep
from usd3.core.samplers import CorrectorMoves, Step
from usd3.evaluation.held_out import HeldOut
from usd3.evaluation.ratios import SharedPrefixes, as_columns, as_numbers, shared_prefixes
from usd3.evaluation.references import fitted_models, model_bits, reference_runs
from usd3.evaluation.results import Evaluation, Rows
from usd3.evaluation.settings import EvaluationSettings
from usd3.evaluation.tasks import Draws, draw_runs
from usd3.kinds.dataset import Dataset
from usd3.kinds.options import DataConfig
from usd3.metrics._arrays import Floats
from usd3.metrics.summary import Summary
from usd3.pipeline.pipeline import Pipeline

__all__ = ["Continuations", "continue_held_out", "evaluate", "evaluate_references"]


@dataclass(frozen=True)
class Continuations:
    """The task for sequences: continue held-out objects.

    For kinds with metrics of their own, such as melodies, it also draws objects from nothing if the settings say so.

    Args:
        pipeline: the model.
        dataset: the data.
        held_out: the objects to continue.
        settings: what to measure and how.
        shared: further objects to continue, for the train-to-test ratios.
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
        """The task for a model; `data` are the options that `dataset` was read with."""
        held_out = HeldOut.of(pipeline, dataset, settings)
        return cls(pipeline, dataset, held_out, settings, shared_prefixes(data, dataset, settings, held_out.prefix))

    @property
    def sizes(self) -> dict[str, int]:
        """Number of objects in a run, by the names of `Draws`."""
        num = len(self.held_out.truth)
        ratio = {} if self.shared is None else {"ratio_tokens": len(self.shared)}
        free = {"free_tokens": num} if self._draws_from_nothing else {}
        return {"tokens": num} | ratio | free

    @property
    def _draws_from_nothing(self) -> bool:
        return self.settings.from_nothing and bool(self.dataset.kind.columns)

    def draw(self, corrector: CorrectorMoves | None = None, callback: Callable[[Step], None] | None = None) -> Draws:
        """Continue each object in every run."""
        draws = {"tokens": continue_held_out(self.pipeline, self.held_out, self.settings, corrector, callback)}
        if self.shared is not None:
            prompt = {"tokens": self.shared.truth, "given": self.held_out.given}
            draws["ratio_tokens"] = draw_runs(self.pipeline, self.settings, corrector, callback, **prompt)
        if self._draws_from_nothing:
            num = len(self.held_out.truth)
            draws["free_tokens"] = draw_runs(self.pipeline, self.settings, corrector, callback, num=num)
        return draws

    def measure(self, generated: Draws, settings: EvaluationSettings) -> Evaluation:
        """Compare the draws with the true objects."""
        tokens, ratio_tokens = generated["tokens"], generated.get("ratio_tokens")
        results = evaluate(self.pipeline, self.dataset, self.held_out, settings, tokens, self.shared, ratio_tokens)
        if "free_tokens" in generated:
            free = generated["free_tokens"]
            structure = self.dataset.kind.informed_by(self.dataset).structure(free)
            results.rows = _with_second_row(results.rows, "model, from nothing", structure)
            results.free_objects = free.shape[1]
        return results

    def report(self, generated: Draws, folder: Path) -> list[str]:
        """No files: continuations have tables alone."""
        return []


def continue_held_out(
    pipeline: Pipeline,
    held_out: HeldOut,
    settings: EvaluationSettings,
    corrector: CorrectorMoves | None = None,
    callback: Callable[[Step], None] | None = None,
) -> Tensor:
    """Continuations (R, N, ...) of each object after its prefix, in `settings.runs` runs."""
    prompt = {"tokens": held_out.truth, "given": held_out.given, "pad": held_out.pad}
    return draw_runs(pipeline, settings, corrector, callback, **prompt)


@waiting_asleep()
def evaluate(
    pipeline: Pipeline,
    dataset: Dataset,
    held_out: HeldOut,
    settings: EvaluationSettings,
    generated: Tensor,
    shared: SharedPrefixes | None = None,
    ratio_tokens: Tensor | None = None,
) -> Evaluation:
    """Compare continuations of held-out objects with the true ones.

    Args:
        pipeline: the model, for the likelihood bound.
        dataset: the data, for the reference rows and the train-to-test ratios.
        held_out: the true objects.
        settings: what to measure.
        generated: (R, N, ...) the continuations.
        shared: further objects that begin like training objects, for the train-to-test ratios.
        ratio_tokens: (R, M, ...) continuations of `shared`; None: the ratios use the held-out objects whose prefix
            occurs in the training data.
    """
    shape = held_out.truth.shape
    fits = generated.shape[1:] == shape
    require(fits, "shape of the samples", tuple(generated.shape), f"(runs, {', '.join(map(str, shape))})")
    truth, pad = _flat(held_out)
    generated = generated.flatten(2)
    generated = generated if pad is None else torch.where(pad, truth, generated)
    valid = bool(((generated >= 0) & (generated < dataset.num_classes)).all())
    require(valid, "samples", "padding where held-out objects have none", f"categories 0..{dataset.num_classes - 1}")
    skip = 0 if settings.include_prefix else held_out.prefix
    kind = dataset.kind.informed_by(dataset)
    row = kind.metrics(generated, truth, skip, pad)
    distances = kind.distances(generated, truth, skip, pad)
    used = asdict(settings.known_for(pipeline)) | {"prefix": held_out.prefix}
    columns = dict(dataset.kind.columns)
    results = Evaluation(used, len(truth), held_out.skipped, {"model": row}, columns=columns)
    results.per_object = {key: _in_nine_digits(values.mean(0)) for key, values in distances.items() if key in row}
    if held_out.groups is not None:
        results.per_object["group"] = held_out.groups.tolist()
    if settings.bound_samples:
        nats, elements = _bound(pipeline, held_out, settings)
        results.per_object |= {"nats": _in_nine_digits(nats), "elements": elements.tolist()}
        bits = float(nats.sum() / elements.sum() / math.log(2))
        results.bits_per_element["model (upper bound)"] = bits
        row |= kind.likelihoods(bits, truth)
    if settings.baselines:
        say("measuring the reference rows")
        references = evaluate_references(dataset, held_out, replace(settings, runs=len(generated)), shared)
        results.rows |= references.rows
        results.bits_per_element |= references.bits_per_element
    if shared is not None and ratio_tokens is not None:
        ratios = shared.measured(ratio_tokens, settings.include_prefix)
        results.parroting, results.ratio_objects = as_numbers(ratios, len(shared)), len(shared)
        row |= as_columns(ratios)
    elif len(common := SharedPrefixes.among(held_out.truth, held_out.pad, dataset, held_out.prefix)):
        ratios = common.measured(generated[:, common.rows].unflatten(2, shape[1:]), settings.include_prefix)
        results.parroting = as_numbers(ratios, len(common))
    return results


def _in_nine_digits(values: Floats | Tensor) -> list[float]:
    """Values for a file, each as short as nine digits allow."""
    return [float(f"{value:.9g}") for value in values.tolist()]


def _flat(held_out: HeldOut) -> tuple[Tensor, Tensor | None]:
    """The true objects and their padding, (N, L)."""
    return held_out.truth.flatten(1), None if held_out.pad is None else held_out.pad.flatten(1)


def _bound(pipeline: Pipeline, held_out: HeldOut, settings: EvaluationSettings) -> tuple[Tensor, Tensor]:
    """Upper bound on -log p(continuation | prefix) of each object in nats, (N,), and the number of its elements.

    Elements that are given or padding do not count.
    """
    truth, pad = _flat(held_out)
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
    return nats, free.sum(1)


def _with_second_row(rows: Rows, name: str, row: dict[str, Summary]) -> Rows:
    """The rows with one more in the second place."""
    (first, *others) = rows.items()
    return dict([first, (name, row), *others])


def evaluate_references(
    dataset: Dataset, held_out: HeldOut, settings: EvaluationSettings, shared: SharedPrefixes | None = None
) -> Evaluation:
    """Reference rows: a Markov chain, the continuations of other held-out objects, and the truth itself.

    With `shared`, also their train-to-test ratios on these objects. There is no row for copies of training objects:
    their ratio is infinite.
    """
    truth, pad = _flat(held_out)
    prefix, kind = held_out.prefix, dataset.kind.informed_by(dataset)
    skip = 0 if settings.include_prefix else prefix
    models = fitted_models(dataset)
    continuations = reference_runs(models.drawn, truth, prefix, pad, settings.runs, settings.seed)
    rows = {name: kind.metrics(runs, truth, skip, pad) for name, runs in continuations.items()}
    bits = {name: model_bits(model, truth, prefix, pad) for name, model in models.measured.items()}
    for name, value in bits.items():
        rows[name] |= kind.likelihoods(value, truth)
    if shared is not None:
        flat = shared.truth.flatten(1)
        continuations = reference_runs(models.drawn, flat, prefix, None, settings.runs, settings.seed)
        for name, runs in continuations.items():
            ratios = shared.measured(runs.unflatten(2, held_out.truth.shape[1:]), settings.include_prefix)
            rows[name] = rows.get(name, {}) | as_columns(ratios)
    columns = dict(dataset.kind.columns)
    used = asdict(settings) | {"prefix": prefix}
    return Evaluation(used, len(truth), held_out.skipped, rows, bits, columns=columns)
