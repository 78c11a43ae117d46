"""Compare sets of feature vectors: Fréchet distance, precision and recall, nearest neighbours; and label scores."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from usd3._internal.checks import as_count, require, require_type

__all__ = ["Gaussian", "Manifold", "as_rows", "frechet_distance", "label_score", "nearest", "precision_recall"]

_CELLS = 2**24  # distances computed at once


def frechet_distance(a: Tensor, b: Tensor) -> float:
    """Squared Fréchet distance of the normal distributions fitted to two sets of features (N, F) and (M, F).

    ||m1 - m2||^2 + tr(C1 + C2 - 2 (C1 C2)^(1/2)) with means m and covariances C (divided by N - 1), in float64. With
    features of the Inception network this is FID.
    """
    return Gaussian.fitted(a, "a").distance(Gaussian.fitted(b, "b"))


class Gaussian(NamedTuple):
    """A normal distribution: its mean (F,) and the symmetric square root (F, F) of its covariance."""

    mean: Tensor
    root: Tensor

    @staticmethod
    def fitted(features: Tensor, name: str) -> "Gaussian":
        """The normal distribution with the mean and covariance of features (N, F); errors call them `name`."""
        rows = as_rows(features, name, least=2).cpu()
        values, vectors = torch.linalg.eigh(torch.cov(rows.T).reshape(rows.shape[1], rows.shape[1]))
        # with fewer rows than features most eigenvalues are 0; the roots of their rounding errors would add up
        rounding = values[-1] * len(values) * torch.finfo(values.dtype).eps
        return Gaussian(rows.mean(0), (vectors * values.where(values > rounding, 0).sqrt()) @ vectors.T)

    def distance(self, other: "Gaussian") -> float:
        """Squared Fréchet distance to another normal distribution."""
        _require_same_width(self.mean, other.mean)
        # tr (C1 C2)^(1/2) is the sum of the singular values of C1^(1/2) C2^(1/2), which needs no second root
        cross = torch.linalg.svdvals(self.root @ other.root).sum()
        traces = self.root.square().sum() + other.root.square().sum()  # tr C1 + tr C2
        return max(0.0, float((self.mean - other.mean).square().sum() + traces - 2 * cross))


def label_score(probabilities: Tensor) -> float:
    """exp of the mean KL(p(y | x) || p(y)) of class probabilities (N, C): 1 if all rows are equal, at most C.

    With probabilities of the Inception network this is the Inception score.
    """
    p = as_rows(probabilities, "probabilities")
    low, total = float(p.min()), p.sum(1)
    require(low >= 0, "probabilities.min()", low, "no negative probability")
    worst = float(total[(total - 1).abs().argmax()])
    require(abs(worst - 1) < 1e-3, "sum of a row of probabilities", worst, "1")
    marginal = p.mean(0)
    divergence = torch.xlogy(p, p).sum(1) - torch.xlogy(p, marginal).sum(1)
    return float(divergence.mean().exp())


def precision_recall(real: Tensor, generated: Tensor, k: int = 3) -> tuple[float, float]:
    """Improved precision and recall (Kynkäänniemi et al., 2019) of features (N, F) and (M, F).

    A point is within reach of a set if, for some point p of the set, it is no farther from p than the k-th nearest
    neighbour of p in the set. Precision is the share of generated points within reach of the real ones, recall the
    share of real points within reach of the generated ones. Both depend on the number of points, so the larger set is
    reduced to the size of the smaller one, by a fixed random choice.
    """
    count = min(len(real), len(generated))
    a, b = Manifold(as_rows(real, "real"), k, count), Manifold(as_rows(generated, "generated"), k, count)
    return a.precision_recall(b)


class Manifold:
    """The region within reach of `count` of the given points (N, F), see `precision_recall`."""

    def __init__(self, points: Tensor, k: int, count: int):
        k = as_count(k, "k", 1)
        require(count > k, "number of points", count, f"more than k = {k}")
        chosen = torch.randperm(len(points), generator=torch.Generator().manual_seed(0))[:count]
        self.points = points[chosen.sort().values.to(points.device)]
        nearest_first = [part.topk(k + 1, largest=False).values for part in _distances(self.points, self.points)]
        self.reach = torch.cat(nearest_first)[:, k]  # the nearest is the point itself
        # rounding: the computed distance of equal points is not exactly 0
        self.reach += 1e-6 * float(self.points.norm(dim=1).max())

    def precision_recall(self, generated: "Manifold") -> tuple[float, float]:
        """Precision and recall of generated points, where this object is the region of the real ones."""
        return self.share(generated.points), generated.share(self.points)

    def share(self, points: Tensor) -> float:
        """The share of points (M, F) within reach."""
        inside = [(part <= self.reach).any(1) for part in _distances(points, self.points)]
        return float(torch.cat(inside).double().mean())


def nearest(features: Tensor, train_features: Tensor, k: int = 1) -> Tensor:
    """For each of the features (N, F), the indices (N, k) of the k nearest training features (M, F), nearest first."""
    rows, train = as_rows(features, "features"), as_rows(train_features, "train_features")
    k = as_count(k, "k", 1, len(train))
    return torch.cat([part.topk(k, largest=False).indices for part in _distances(rows, train)])


def as_rows(x: Tensor, name: str, least: int = 1) -> Tensor:
    """`x` (N, F) in float64, checked: at least `least` rows, all numbers finite."""
    require_type(isinstance(x, Tensor) and x.is_floating_point(), name, x, "a floating-point tensor")
    fits = x.dim() == 2 and len(x) >= least and x.shape[1] > 0
    require(fits, f"{name}.shape", tuple(x.shape), f"(N, F) with N >= {least}")
    require(bool(x.isfinite().all()), name, "infinite or nan somewhere", "finite numbers")
    return x.detach().double()


def _distances(a: Tensor, b: Tensor) -> Iterator[Tensor]:
    """Distances (n, M) of n rows of a at a time to all rows of b."""
    _require_same_width(a, b)
    for rows in a.split(max(1, _CELLS // len(b))):
        yield torch.cdist(rows, b, compute_mode="use_mm_for_euclid_dist")


def _require_same_width(a: Tensor, b: Tensor) -> None:
    require(a.shape[-1] == b.shape[-1], "features of the second set", b.shape[-1], f"{a.shape[-1]}, as the first has")
