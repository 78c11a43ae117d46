"""A Gaussian copula: a simple model of tables, as a reference row. Each column keeps its own distribution.

Categories of a column are taken in their order. The category k of a cell stands for the normal score of the middle of
its part of the distribution function, z = Phi^-1(F(k-1) + p(k) / 2); all scores together have a normal distribution.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

__all__ = ["GaussianCopula"]

_JITTER = 1e-6


@dataclass(frozen=True, eq=False)
class GaussianCopula:
    """A fitted copula.

    Args:
        cdf: (D, K) float64 the distribution function of each column.
        root: (D, D) float64 a square root of the correlation matrix of the scores.
    """

    cdf: Tensor
    root: Tensor

    @classmethod
    def fitted(cls, tokens: Tensor, num_classes: int) -> Self:
        """The copula of rows (N, D) of categories."""
        tokens = tokens.long()
        counts = torch.stack([torch.bincount(column, minlength=num_classes) for column in tokens.T]).double()
        cdf = counts.cumsum(1) / len(tokens)
        middle = (cdf - counts / (2 * len(tokens))).clamp(1e-9, 1 - 1e-9)
        scores = torch.special.ndtri(middle)[torch.arange(tokens.shape[1]), tokens]
        scores = scores - scores.mean(0)
        std = scores.std(0, correction=0)
        scores = torch.where(std > 0, scores / std.where(std > 0, 1), 0)  # a constant column has no correlations
        correlation = scores.T @ scores / len(scores)
        correlation.diagonal().fill_(1 + _JITTER)
        values, vectors = torch.linalg.eigh(correlation)
        return cls(cdf, vectors * values.clamp(min=_JITTER).sqrt())

    def draw(self, num: int, seed: int = 0) -> Tensor:
        """New rows (num, D) of categories."""
        normal = torch.randn(num, len(self.root), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        scores = normal @ self.root.T / self.root.square().sum(1).sqrt()
        u = torch.special.ndtr(scores).clamp(max=1 - 2.0**-53)
        drawn = torch.searchsorted(self.cdf, u.T.contiguous(), right=True).T
        most = (self.cdf < self.cdf[:, -1:]).sum(1)  # rounding: the last category that occurs
        return torch.minimum(drawn, most)
