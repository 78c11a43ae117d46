"""How good are the continuations of held-out sequences, beside a Markov chain and beside other true sequences?

For models of images see `usd3.image_evaluation`.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from usd3._checks import as_count, as_number, require
from usd3._random import seed_of
from usd3.conditioning import prefix_given
from usd3.data import Dataset, MarkovChain
from usd3.metrics import (
    Summary,
    distances_to_matches,
    evaluate_continuations,
    format_table,
    matching_rows,
    ngram_hellinger,
    ngram_outliers,
    train_to_test_ratio,
)
from usd3.pipeline import Pipeline
from usd3.samplers import Corrector, Step

__all__ = [
    "Continuations",
    "Evaluation",
    "EvaluationSettings",
    "HeldOut",
    "ImageSettings",
    "Task",
    "continue_held_out",
    "draw_runs",
    "evaluate",
    "evaluate_baselines",
    "require_no_images",
    "require_same_shape",
]

_LARGEST_N = 3  # of the n-grams
_FEW = 10  # objects; a ratio of fewer is in the results, but not shown


@dataclass
class ImageSettings:
    """How images are measured; only for a model of image tokens.

    Args:
        num: images of a run, drawn from nothing.
        classifier: folder that `usd3 classifier` made, whose features the metrics use. It is needed.
        inception: file of the weights of the Inception network, for IS and FID; null: without these.
        reference: compare with at most so many training images; null: all.
        path: where the images are, if not where they were when they were encoded.
        vqgan: folder of the VQGAN, if not where it was then.
    """

    num: int = 5000
    classifier: str | None = None
    inception: str | None = None
    reference: int | None = None
    path: str | None = None
    vqgan: str | None = None

    def __post_init__(self) -> None:
        as_count(self.num, "images.num", 4)
        as_count(4 if self.reference is None else self.reference, "images.reference", 4)


@dataclass
class EvaluationSettings:
    """What to measure.

    Args:
        prefix: elements of each held-out object that are given; null: as in training. Images are drawn from nothing.
        runs: continuations of each object, or sets of images; the table shows their mean and standard deviation.
        steps: sampling steps.
        limit: use only the first so many held-out objects; null: all. Of images, for the bound alone.
        include_prefix: whether the given elements count in the n-grams and edit distances, as in the paper.
        baselines: compare with a Markov chain and with other held-out objects; images with real ones.
        bound_samples: times at which the likelihood bound is estimated; 0: no bound.
        temperature: divide the logits by this.
        sampler: one of the method's; null: its own.
        seed: seed of all draws.
        batch_size: objects at once; null: chosen by memory.
        images: for a model of image tokens.
    """

    prefix: int | None = None
    runs: int = 3
    steps: int = 100
    limit: int | None = None
    include_prefix: bool = True
    baselines: bool = True
    bound_samples: int = 64
    temperature: float = 1.0
    sampler: str | None = None
    seed: int = 0
    batch_size: int | None = None
    images: ImageSettings = field(default_factory=ImageSettings)

    def __post_init__(self) -> None:
        for name in ("runs", "steps"):
            as_count(getattr(self, name), name, 1)
        for name in ("limit", "batch_size"):
            as_count(1 if getattr(self, name) is None else getattr(self, name), name, 1)
        as_count(self.bound_samples, "bound_samples", 0)
        as_number(self.temperature, "temperature", 0)


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
    """The rows of the table, the likelihood in bits per element, and how much of it repeats the training data."""

    settings: dict[str, Any]
    objects: int
    skipped: int
    rows: dict[str, dict[str, Summary]]
    bits_per_element: dict[str, float] = field(default_factory=dict)
    parroting: dict[str, dict[str, float]] = field(default_factory=dict)

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
        lines = [format_table(self.rows)]
        if self.bits_per_element:
            lines += ["", "bits per element of the held-out continuations (nats in brackets):"]
            lines += [f"  {name}: {b:.3f} ({b * math.log(2):.3f})" for name, b in self.bits_per_element.items()]
        objects = next(iter(self.parroting.values()))["objects"] if self.parroting else 0
        if 0 < objects < _FEW:
            lines += [
                "",
                f"{objects:.0f} prefixes occur in the training data: too few for a train-to-test ratio",
            ]
        elif objects:
            lines += ["", f"train-to-test ratio, on the {objects:.0f} objects whose prefix is in the training data:"]
            for name, values in self.parroting.items():
                parts = (f"{key} {values[key]:.3f}" for key in ("to_test", "to_train", "literal", "swapped"))
                lines.append(f"  {name}: {', '.join(parts)}")
        return "\n".join(lines)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Task(Protocol):
    """What a model is asked to draw, and how that is measured."""

    @property
    def num(self) -> int:
        """Objects of a run."""

    def draw(self, corrector: Corrector | None = None, callback: Callable[[Step], None] | None = None) -> Tensor:
        """Draw all runs: (R, N, ...) in the categories of the data."""

    def measure(self, generated: Tensor, settings: EvaluationSettings) -> Evaluation:
        """Measure objects (R, N, ...)."""


@dataclass(frozen=True)
class Continuations:
    """The task on sequences: continue held-out objects."""

    pipeline: Pipeline
    dataset: Dataset
    held_out: HeldOut
    settings: EvaluationSettings

    @classmethod
    def of(cls, pipeline: Pipeline, dataset: Dataset, settings: EvaluationSettings) -> "Continuations":
        """On the held-out objects of the data."""
        require_no_images(settings)
        return cls(pipeline, dataset, HeldOut.of(pipeline, dataset, settings), settings)

    @property
    def num(self) -> int:
        """Objects of a run."""
        return len(self.held_out.truth)

    def draw(self, corrector: Corrector | None = None, callback: Callable[[Step], None] | None = None) -> Tensor:
        """Continue each object `runs` times."""
        return continue_held_out(self.pipeline, self.held_out, self.settings, corrector, callback)

    def measure(self, generated: Tensor, settings: EvaluationSettings) -> Evaluation:
        """Compare with what is true."""
        return evaluate(self.pipeline, self.dataset, self.held_out, settings, generated)


def require_same_shape(pipeline: Pipeline, dataset: Dataset) -> None:
    """Refuse data of other objects than the model's."""
    shape, own = tuple(dataset.shape), tuple(pipeline.config.shape)
    require(shape == own, "shape of the data", shape, f"{own}")


def require_no_images(settings: EvaluationSettings) -> None:
    """Refuse settings for images where the data are none."""
    for name, value in asdict(settings.images).items():
        unset = value == getattr(ImageSettings(), name)
        require(unset, f"images.{name}", value, "no such option, as the data are no image tokens")


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


def evaluate(
    pipeline: Pipeline, dataset: Dataset, held_out: HeldOut, settings: EvaluationSettings, generated: Tensor
) -> Evaluation:
    """Compare continuations (R, N, ...) of the held-out objects with what is true."""
    shape, prefix = held_out.truth.shape, held_out.prefix
    fits = generated.shape[1:] == shape
    require(fits, "shape of the samples", tuple(generated.shape), f"(runs, {', '.join(map(str, shape))})")
    truth, generated = held_out.truth.flatten(1), generated.flatten(2)
    pad = None if held_out.pad is None else held_out.pad.flatten(1)
    skip = 0 if settings.include_prefix else prefix
    row = evaluate_continuations(generated, truth=truth, skip=skip, pad=pad)
    used = asdict(settings) | {"prefix": prefix}
    found = Evaluation(used, len(truth), held_out.skipped, {"model": row})
    if settings.bound_samples:
        given = held_out.given.flatten()
        free = ~given.expand(truth.shape) if pad is None else ~(given | pad)
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
        scale = evaluate_baselines(dataset, held_out, replace(settings, runs=len(generated)))
        found.rows |= scale.rows
        found.bits_per_element |= scale.bits_per_element
    if prefix:
        found.parroting = _parroting(generated, truth, pad, dataset, prefix, skip)
    return found


def evaluate_baselines(dataset: Dataset, held_out: HeldOut, settings: EvaluationSettings) -> Evaluation:
    """What shows the scale: a Markov chain, the continuations of other held-out objects, and the truth."""
    truth, prefix, runs = held_out.truth.flatten(1), held_out.prefix, settings.runs
    pad = None if held_out.pad is None else held_out.pad.flatten(1)
    skip = 0 if settings.include_prefix else prefix
    measure = partial(evaluate_continuations, truth=truth, skip=skip, pad=pad)
    chains = _chain_runs(_chain(dataset, 0), truth, prefix, pad, runs, settings.seed)
    rows = {"Markov chain": measure(chains)}
    if len(truth) > runs:
        rows["another held-out object"] = measure(_other_objects(truth, prefix, pad, runs))
    rows["the truth itself"] = measure(truth[None])
    bits = {"Markov chain": _chain_bits(_chain(dataset, 0.01), truth, prefix, pad)}
    return Evaluation(asdict(settings) | {"prefix": prefix}, len(truth), held_out.skipped, rows, bits)


def _chain(dataset: Dataset, smoothing: float) -> MarkovChain:
    train = dataset.train
    pad = None if train.pad is None else train.pad.flatten(1)
    return MarkovChain(dataset.num_classes).fit(dataset.decoded(train.tokens.long()).flatten(1), pad, smoothing)


def _chain_runs(chain: MarkovChain, truth: Tensor, prefix: int, pad: Tensor | None, runs: int, seed: int) -> Tensor:
    """Continuations by the chain; padding as in the truth."""
    generator = torch.Generator().manual_seed(seed)
    drawn = [chain.extend(truth[:, :prefix], truth.shape[1], generator) for _ in range(runs)]
    return torch.stack([x if pad is None else torch.where(pad, truth, x) for x in drawn])


def _chain_bits(chain: MarkovChain, truth: Tensor, prefix: int, pad: Tensor | None) -> float:
    """-log2 probability of each free element under the chain, on average."""
    bits = -chain.log_prob(truth)[:, prefix:] / math.log(2)
    return float(bits.mean() if pad is None else bits[~pad[:, prefix:]].mean())


def _other_objects(truth: Tensor, prefix: int, pad: Tensor | None, runs: int) -> Tensor:
    """The prefix of each object with what follows in another; a short one is repeated."""
    whole = truth.clone()
    if pad is not None:
        for row, padded in zip(whole, pad):
            real = row[~padded]
            row.copy_(real.repeat(-(-len(row) // len(real)))[: len(row)])
    shifts = [(run + 1) * len(truth) // (runs + 1) for run in range(runs)]  # far apart: neighbours are of one piece
    mixed = [torch.cat([truth[:, :prefix], whole.roll(shift, 0)[:, prefix:]], 1) for shift in shifts]
    return torch.stack([x if pad is None else torch.where(pad, truth, x) for x in mixed])


def _parroting(
    generated: Tensor, truth: Tensor, pad: Tensor | None, dataset: Dataset, prefix: int, skip: int
) -> dict[str, dict[str, float]]:
    """Distances to the truth and to the training objects with the same prefix, and both readings of their ratio.

    Objects with padding are left out.
    """
    train = dataset.decoded(dataset.train.tokens.long()).flatten(1)
    if dataset.train.pad is not None:
        train = train[~dataset.train.pad.flatten(1).any(1)]
    matches = matching_rows(truth, train, prefix) if len(train) else []
    whole = [True] * len(truth) if pad is None else (~pad.any(1)).tolist()
    rows = [i for i, match in enumerate(matches) if len(match) and whole[i]]
    if not rows:
        return {}
    own, truth, train = [matches[i] for i in rows], truth[rows, skip:], train[:, skip:]
    found = {}
    for n in range(1, _LARGEST_N + 1):
        for name, distance in (("Hellinger", ngram_hellinger), ("outliers", ngram_outliers)):
            of_n = partial(distance, n=n)
            made = [x[rows, skip:] for x in generated]
            a = sum(of_n(x, truth).mean() for x in made) / len(made)
            b = sum(distances_to_matches(of_n, x, train, own).mean() for x in made) / len(made)
            ratio = train_to_test_ratio(a, b)
            values = {"to_test": a, "to_train": b, "literal": ratio.literal, "swapped": ratio.swapped}
            found[f"{n}g {name}"] = {key: float(value) for key, value in values.items()} | {"objects": len(rows)}
    return found
