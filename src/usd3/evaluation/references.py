"""Reference continuations without a model: by a Markov chain, from other objects, and the truth itself."""

import math

import torch
from torch import Tensor

from usd3.evaluation.markov import MarkovChain
from usd3.kinds.dataset import Dataset

__all__ = ["TRUTH", "chain_bits", "reference_runs"]

TRUTH = "the truth itself"
"""The row of the held-out objects as they are."""


def reference_runs(
    dataset: Dataset, truth: Tensor, prefix: int, pad: Tensor | None, runs: int, seed: int
) -> dict[str, Tensor]:
    """Continuations (R, N, L) of objects, by the name of their row.

    The row of other objects exists only if there are more objects than runs. The row of the truth has one run.

    Args:
        dataset: the training data of the Markov chain.
        truth: (N, L) the objects, in the categories of the data.
        prefix: number of given elements.
        pad: (N, L) True where an element is padding.
        runs: number of runs, R.
        seed: seed of the draws.
    """
    continuations = {"Markov chain": _chain_runs(_chain(dataset, 0), truth, prefix, pad, runs, seed)}
    if len(truth) > runs:
        continuations["another held-out object"] = _other_objects(truth, prefix, pad, runs)
    return continuations | {TRUTH: truth[None]}


def chain_bits(dataset: Dataset, truth: Tensor, prefix: int, pad: Tensor | None) -> float:
    """Mean of -log2 p of the elements after the prefix, under a Markov chain fitted to the training data."""
    bits = -_chain(dataset, 0.01).log_prob(truth)[:, prefix:] / math.log(2)
    return float(bits.mean() if pad is None else bits[~pad[:, prefix:]].mean())


def _chain(dataset: Dataset, smoothing: float) -> MarkovChain:
    train = dataset.train
    pad = None if train.pad is None else train.pad.flatten(1)
    return MarkovChain(dataset.num_classes).fit(dataset.decoded(train.tokens.long()).flatten(1), pad, smoothing)


def _chain_runs(chain: MarkovChain, truth: Tensor, prefix: int, pad: Tensor | None, runs: int, seed: int) -> Tensor:
    """Continuations (R, N, L) by the chain, with the padding of the truth."""
    generator = torch.Generator().manual_seed(seed)
    continuations = [chain.extend(truth[:, :prefix], truth.shape[1], generator) for _ in range(runs)]
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
