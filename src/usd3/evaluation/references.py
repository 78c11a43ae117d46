"""Reference continuations: by a Markov chain or the simple models of a kind, from other objects, and the truth."""

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from usd3.evaluation.markov import MarkovChain
from usd3.kinds.base import ReferenceModel
from usd3.kinds.dataset import Dataset

__all__ = ["TRUTH", "References", "fitted_models", "model_bits", "reference_runs"]

_MOST_ELEMENTS = 2**24  # of the training objects that a model is fitted to
_MOST_STATES = 2**13  # of a Markov chain, which has a number for each pair of them
_CHAIN = "Markov chain"

TRUTH = "the truth itself"
"""The row of the held-out objects as they are."""


def reference_runs(
    models: Mapping[str, ReferenceModel], truth: Tensor, prefix: int, pad: Tensor | None, runs: int, seed: int
) -> dict[str, Tensor]:
    """Continuations (R, N, L) of objects, by the name of their row.

    The row of other objects exists only if there are more objects than runs. The row of the truth has one run.

    Args:
        models: those of `fitted_models`.
        truth: (N, L) the objects, in the categories of the data.
        prefix: number of given elements.
        pad: (N, L) True where an element is padding.
        runs: number of runs, R.
        seed: seed of the draws.
    """
    continuations = {name: _model_runs(model, truth, prefix, pad, runs, seed) for name, model in models.items()}
    if len(truth) > runs:
        continuations["another held-out object"] = _other_objects(truth, prefix, pad, runs)
    return continuations | {TRUTH: truth[None]}


class References(NamedTuple):
    """Simple models fitted to the training objects, by the names of their rows.

    Args:
        drawn: for continuations.
        measured: for bits per element; a Markov chain is smoothed for them.
    """

    drawn: Mapping[str, ReferenceModel]
    measured: Mapping[str, ReferenceModel]


def fitted_models(dataset: Dataset) -> References:
    """The models of the kind, or a Markov chain if it has none and there are not too many categories for one."""
    train = dataset.train.spread(_MOST_ELEMENTS)
    tokens = dataset.decoded(train.tokens.long()).flatten(1)
    models = dataset.kind.reference_models(tokens)
    if models or dataset.num_classes > _MOST_STATES:
        return References(models, models)
    pad = None if train.pad is None else train.pad.flatten(1)
    chains = [MarkovChain(dataset.num_classes).fit(tokens, pad, smoothing) for smoothing in (0.0, 0.01)]
    return References({_CHAIN: chains[0]}, {_CHAIN: chains[1]})


def model_bits(model: ReferenceModel, truth: Tensor, prefix: int, pad: Tensor | None) -> float:
    """Mean of -log2 p of the elements after the prefix, under a model of `fitted_models`."""
    bits = -model.log_prob(truth)[:, prefix:] / math.log(2)
    return float(bits.mean() if pad is None else bits[~pad[:, prefix:]].mean())


def _model_runs(model: ReferenceModel, truth: Tensor, prefix: int, pad: Tensor | None, runs: int, seed: int) -> Tensor:
    """Continuations (R, N, L) by a model, with the padding of the truth."""
    generator = torch.Generator().manual_seed(seed)
    continuations = [model.extend(truth[:, :prefix], truth.shape[1], generator) for _ in range(runs)]
    return torch.stack([x if pad is None else torch.where(pad, truth, x) for x in continuations])


def _other_objects(truth: Tensor, prefix: int, pad: Tensor | None, runs: int) -> Tensor:
    """Continuations (R, N, L): the prefix of each object, then the rest of another object, repeated if it is short."""
    others = truth.clone()
    if pad is not None:
        for row, padded in zip(others, pad):
            real = row[~padded]
            row.copy_(real.repeat(-(-len(row) // len(real)))[: len(row)])
    # the other object is far away in the list, as neighbours often belong to the same piece
    shifts = [(run + 1) * len(truth) // (runs + 1) for run in range(runs)]
    mixed = [torch.cat([truth[:, :prefix], others.roll(shift, 0)[:, prefix:]], 1) for shift in shifts]
    return torch.stack([x if pad is None else torch.where(pad, truth, x) for x in mixed])
