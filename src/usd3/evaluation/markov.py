"""A first-order Markov chain: the simplest baseline for sequences."""

import torch
from torch import Tensor

from usd3._internal.checks import Checks, as_bool_mask, as_categories, as_count, as_number, require
from usd3._internal.random import invert_cdf, uniform

__all__ = ["MarkovChain"]


class MarkovChain:
    """A chain in which each token depends on the previous token alone.

    Args:
        num_classes: number of categories, K.
    """

    def __init__(self, num_classes: int):
        self.num_classes = as_count(num_classes, "num_classes", 2)
        self.marginal: Tensor | None = None  # (K,) float64
        self.transition: Tensor | None = None  # (K, K) float64, a row for each previous category

    def fit(self, tokens: Tensor, pad: Tensor | None = None, smoothing: float = 0.0) -> "MarkovChain":
        """Estimate the chain from tokens (N, L); returns the chain.

        Args:
            tokens: the sequences.
            pad: (N, L) True where an element is padding, which does not count.
            smoothing: added to every count. A category that is followed by nothing gets the marginal as its row.
        """
        smoothing = as_number(smoothing, "smoothing", 0, closed=True)
        tokens = self._categories(tokens, "tokens")
        pad = as_bool_mask(pad, tokens.shape, "pad", tokens.device)
        real = torch.ones_like(tokens, dtype=torch.bool) if pad is None else ~pad
        require(bool(real.any()), "tokens", f"{int(real.sum())} elements that are no padding", "at least one")
        K = self.num_classes
        marginal = torch.bincount(tokens[real], minlength=K).double() + smoothing
        pairs = (tokens[:, :-1] * K + tokens[:, 1:])[real[:, :-1] & real[:, 1:]]
        counts = torch.bincount(pairs, minlength=K * K).reshape(K, K).double() + smoothing
        self.marginal = marginal / marginal.sum()
        total = counts.sum(-1, keepdim=True)
        self.transition = torch.where(total > 0, counts / total, self.marginal)
        return self

    def extend(self, prefix: Tensor, length: int, generator: torch.Generator | None = None) -> Tensor:
        """(N, length) int64: the prefix (N, P), then tokens drawn one after the other.

        With P = 0 the first token is drawn from the marginal.
        """
        if self.marginal is None or self.transition is None:
            raise RuntimeError("extend: the chain knows no transitions yet, call fit first")
        prefix = self._categories(prefix, "prefix")
        given = prefix.shape[1]
        length = as_count(length, "length", given)
        tokens = prefix.new_empty(len(prefix), length)
        tokens[:, :given] = prefix
        first, rows = (_cdf(probs.to(prefix.device)) for probs in (self.marginal, self.transition))
        u = uniform((length - given, len(prefix)), prefix.device, generator)
        for step, position in enumerate(range(given, length)):
            cdf = rows[tokens[:, position - 1]] if position else first
            tokens[:, position] = invert_cdf(cdf, u[step])
        return tokens

    def log_prob(self, tokens: Tensor) -> Tensor:
        """log p of each token given the one before it, (N, L); of the first, under the marginal."""
        if self.marginal is None or self.transition is None:
            raise RuntimeError("log_prob: the chain knows no transitions yet, call fit first")
        tokens = self._categories(tokens, "tokens")
        start = self.marginal.to(tokens.device)[tokens[:, :1]]
        return torch.cat([start, self.transition.to(tokens.device)[tokens[:, :-1], tokens[:, 1:]]], 1).log()

    def _categories(self, x: Tensor, name: str) -> Tensor:
        checks = Checks(enabled=True)
        x = as_categories(x, self.num_classes, name, checks)
        require(x.dim() == 2, f"{name}.shape", tuple(x.shape), "(N, L)")
        checks.raise_first()
        return x


def _cdf(probs: Tensor) -> Tensor:
    cdf = probs.cumsum(-1)
    return cdf / cdf[..., -1:]
