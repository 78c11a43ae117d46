"""Continuations that no model made, to show the scale: by a Markov chain, of other objects, and the truth."""

import math

import torch
from torch import Tensor

from usd3.evaluation.markov import MarkovChain
from usd3.kinds.dataset import Dataset

__all__ = ["chain_bits", "reference_runs"]


def reference_runs(
    dataset: Dataset, truth: Tensor, prefix: int, pad: Tensor | None, runs: int, seed: int
) -> dict[str, Tensor]:
    """Continuations (R, N, L) of the objects (N, L); of other objects only where there are enough."""
    drawn = {"Markov chain": _chain_runs(_chain(dataset, 0), truth, prefix, pad, runs, seed)}
    if len(truth) > runs:
        drawn["another held-out object"] = _other_objects(truth, prefix, pad, runs)
    return drawn | {"the truth itself": truth[None]}


def chain_bits(dataset: Dataset, truth: Tensor, prefix: int, pad: Tensor | None) -> float:
    """-log2 probability of each free element under a Markov chain, on average."""
    bits = -_chain(dataset, 0.01).log_prob(truth)[:, prefix:] / math.log(2)
    return float(bits.mean() if pad is None else bits[~pad[:, prefix:]].mean())


def _chain(dataset: Dataset, smoothing: float) -> MarkovChain:
    train = dataset.train
    pad = None if train.pad is None else train.pad.flatten(1)
    return MarkovChain(dataset.num_classes).fit(dataset.decoded(train.tokens.long()).flatten(1), pad, smoothing)


def _chain_runs(chain: MarkovChain, truth: Tensor, prefix: int, pad: Tensor | None, runs: int, seed: int) -> Tensor:
    """Continuations by the chain; padding as in the truth."""
    generator = torch.Generator().manual_seed(seed)
    drawn = [chain.extend(truth[:, :prefix], truth.shape[1], generator) for _ in range(runs)]
    return torch.stack([x if pad is None else torch.where(pad, truth, x) for x in drawn])


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
