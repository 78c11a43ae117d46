"""How good are the continuations of held-out sequences, beside a Markov chain and beside other true sequences?"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from usd3._checks import as_count, require
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

__all__ = ["Evaluation", "EvaluationSettings", "continue_held_out", "evaluate", "held_out"]


@dataclass
class EvaluationSettings:
    """What to measure.

    Args:
        prefix: elements of each held-out object that are given; null: as in training.
        runs: continuations of each object; the table shows their mean and standard deviation.
        steps: sampling steps.
        limit: use only the first so many held-out objects; null: all.
        include_prefix: whether the given elements count in the n-grams and edit distances, as in the paper.
        baselines: compare with a Markov chain and with other held-out objects.
        bound_samples: times at which the likelihood bound is estimated; 0: no bound.
        temperature: divide the logits by this.
        seed: seed of all draws.
        batch_size: objects at once; null: chosen by memory.
    """

    prefix: int | None = None
    runs: int = 3
    steps: int = 100
    limit: int | None = None
    include_prefix: bool = True
    baselines: bool = True
    bound_samples: int = 64
    temperature: float = 1.0
    seed: int = 0
    batch_size: int | None = None


@dataclass
class Evaluation:
    """The rows of the table, the likelihood in bits per element, and how much of it repeats the training data."""

    settings: dict[str, Any]
    objects: int
    rows: dict[str, dict[str, Summary]]
    bits_per_element: dict[str, float] = field(default_factory=dict)
    parroting: dict[str, dict[str, float]] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        rows = {name: {key: s._asdict() for key, s in row.items()} for name, row in self.rows.items()}
        return asdict(self) | {"rows": rows}

    def as_text(self) -> str:
        """Tables to read."""
        lines = [format_table(self.rows)]
        if self.bits_per_element:
            lines += ["", "bits per element of the held-out continuations (nats in brackets):"]
            lines += [f"  {name}: {b:.3f} ({b * math.log(2):.3f})" for name, b in self.bits_per_element.items()]
        if self.parroting:
            first = next(iter(self.parroting.values()))
            lines += [
                "",
                f"train-to-test ratio, on the {first['objects']:.0f} objects whose prefix is in the training data:",
            ]
            for name, values in self.parroting.items():
                parts = (f"{key} {values[key]:.3f}" for key in ("to_test", "to_train", "literal", "swapped"))
                lines.append(f"  {name}: {', '.join(parts)}")
        return "\n".join(lines)


def held_out(dataset: Dataset, limit: int | None) -> tuple[Tensor, Tensor | None]:
    """The first `limit` held-out objects in the categories of the data, and their padding."""
    count = as_count(len(dataset.test) if limit is None else limit, "limit", 1)
    test = dataset.test
    return dataset.decoded(test.tokens[:count].long()), None if test.pad is None else test.pad[:count]


def continue_held_out(
    pipeline: Pipeline,
    dataset: Dataset,
    settings: EvaluationSettings,
    corrector: Corrector | None = None,
    callback: Callable[[Step], None] | None = None,
) -> Tensor:
    """Continue held-out objects from their prefix, `runs` times each: (R, N, ...) in the categories of the data."""
    shape = tuple(dataset.shape)
    require(shape == tuple(pipeline.config.shape), "shape of the data", shape, f"{tuple(pipeline.config.shape)}")
    truth, pad = held_out(dataset, settings.limit)
    draws = [
        pipeline.sample(
            num_steps=settings.steps,
            tokens=truth,
            given=prefix_given(truth[0].numel(), _prefix(pipeline, settings)).reshape(shape),
            pad=pad,
            corrector=corrector,
            temperature=settings.temperature,
            seed=settings.seed + run,
            batch_size=settings.batch_size,
            callback=callback,
        )
        for run in range(as_count(settings.runs, "runs", 1))
    ]
    return torch.stack(draws)


def _prefix(pipeline: Pipeline, settings: EvaluationSettings) -> int:
    return pipeline.config.prefix if settings.prefix is None else settings.prefix


def evaluate(pipeline: Pipeline, dataset: Dataset, settings: EvaluationSettings, generated: Tensor) -> Evaluation:
    """Compare continuations (R, N, ...) of the held-out objects with what is true."""
    (truth, pad), prefix = held_out(dataset, settings.limit), _prefix(pipeline, settings)
    fits = generated.shape[1:] == truth.shape
    require(fits, "shape of the samples", tuple(generated.shape), f"(runs, {', '.join(map(str, truth.shape))})")
    shape, truth, generated = truth.shape, truth.flatten(1), generated.flatten(2)
    flat_pad = None if pad is None else pad.flatten(1)
    skip = 0 if settings.include_prefix else prefix
    measure = partial(evaluate_continuations, truth=truth, skip=skip, pad=flat_pad)
    found = Evaluation(asdict(settings) | {"prefix": prefix}, len(truth), {"model": measure(generated)})
    if settings.bound_samples:
        given = prefix_given(truth.shape[1], prefix)
        free = ~given.expand(truth.shape) if flat_pad is None else ~(given | flat_pad)
        nats = pipeline.bound(truth.reshape(shape), given.reshape(shape[1:]), pad, settings.bound_samples)
        found.bits_per_element["model (upper bound)"] = float(nats.sum() / free.sum() / math.log(2))
    if settings.baselines:
        runs = len(generated)
        chains = _chain_runs(_chain(dataset, 0), truth, prefix, flat_pad, runs, settings.seed)
        found.rows["Markov chain"] = measure(chains)
        if len(truth) > runs:
            found.rows["another held-out object"] = measure(_other_objects(truth, prefix, flat_pad, runs))
        found.rows["the truth itself"] = measure(truth[None])
        found.bits_per_element["Markov chain"] = _chain_bits(_chain(dataset, 0.01), truth, prefix, flat_pad)
    if prefix:
        found.parroting = _parroting(generated, truth, dataset, prefix, settings.include_prefix)
    return found


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
    generated: Tensor, truth: Tensor, dataset: Dataset, prefix: int, include_prefix: bool
) -> dict[str, dict[str, float]]:
    """Distances to the truth and to the training objects with the same prefix, and both readings of their ratio."""
    train = dataset.decoded(dataset.train.tokens.long()).flatten(1)
    matches = matching_rows(truth, train, prefix)
    rows = [i for i, match in enumerate(matches) if len(match)]
    if not rows or dataset.train.pad is not None:
        return {}
    start = 0 if include_prefix else prefix
    own, truth, train = [matches[i] for i in rows], truth[rows, start:], train[:, start:]
    found = {}
    for n in (1, 2, 3):
        for name, distance in (("Hellinger", ngram_hellinger), ("outliers", ngram_outliers)):
            of_n = partial(distance, n=n)
            a = sum(of_n(x[rows, start:], truth).mean() for x in generated) / len(generated)
            b = sum(distances_to_matches(of_n, x[rows, start:], train, own).mean() for x in generated) / len(generated)
            ratio = train_to_test_ratio(a, b)
            values = {"to_test": a, "to_train": b, "literal": ratio.literal, "swapped": ratio.swapped}
            found[f"{n}g {name}"] = {key: float(value) for key, value in values.items()} | {"objects": len(rows)}
    return found
