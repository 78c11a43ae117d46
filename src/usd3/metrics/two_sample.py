"""How well a classifier tells two sets apart: the classifier two-sample test."""

import hashlib

import torch
from torch import Tensor
from torch.nn import functional as F

from usd3._internal.checks import as_count, require
from usd3.metrics.feature_sets import as_rows

__all__ = ["told_apart"]

_FOLDS = 5
_MOST_STEPS = 50  # of Newton's method, which needs about 6
_CLOSE = 1e-10  # it ends where a step lowers the loss by no more than this


def told_apart(real: Tensor, generated: Tensor, seed: int = 0) -> float:
    """How well a classifier tells rows of features (N, F) from rows (M, F): 0.5 if it cannot, 1 if it always can.

    The area under the ROC curve of a logistic regression, on rows that it did not see: the mean over 5 folds, or fewer
    if a set has fewer than 5 rows. Features are standardised, the two sets weigh the same, and the weights have the
    prior N(0, 1/F), an L2 penalty with which logits are of the order of 1 before any data are seen. For two sets of the
    same distribution the value is 0.5 with a standard deviation of about 1.5 ((N + M + 1) / (12 N M))^(1/2), so it may
    be below 0.5. It does not depend on the order of the rows.

    Args:
        real: (N, F) floating point, N >= 2.
        generated: (M, F), M >= 2.
        seed: seed of the folds.
    """
    a, b = as_rows(real, "real", least=2).cpu(), as_rows(generated, "generated", least=2).cpu()
    require(a.shape[1] == b.shape[1], "features of generated", b.shape[1], f"{a.shape[1]}, as real has")
    seed = as_count(seed, "seed", 0)
    folds = min(_FOLDS, len(a), len(b))
    a, b = _in_order(a, seed), _in_order(b, seed)
    fold_a, fold_b = torch.arange(len(a)) % folds, torch.arange(len(b)) % folds
    areas = []
    for fold in range(folds):
        score = _Classifier(a[fold_a != fold], b[fold_b != fold])
        areas.append(_area(score(a[fold_a == fold]), score(b[fold_b == fold])))
    return sum(areas) / folds


def _in_order(rows: Tensor, seed: int) -> Tensor:
    """The rows in a random order that depends on the seed and on what the rows are, but not on their order."""
    key = hashlib.blake2b(str(seed).encode()).digest()
    content = (rows + 0.0).numpy()  # there is one zero alone
    hashes = [hashlib.blake2b(row.tobytes(), digest_size=16, key=key).digest() for row in content]
    return rows[torch.tensor(sorted(range(len(rows)), key=hashes.__getitem__))]


class _Classifier:
    """A logistic regression that was fitted to two sets (N, F) and (M, F): gives high scores to the second."""

    def __init__(self, a: Tensor, b: Tensor):
        x = torch.cat([a, b])
        self.mean, std = x.mean(0), x.std(0, correction=0)
        usable = std > 1e-12 * x.abs().amax(0)
        self.scale = torch.where(usable, 1 / torch.where(usable, std, 1), 0)
        y = torch.cat([torch.zeros(len(a)), torch.ones(len(b))]).double()
        weight = torch.cat([torch.full((len(a),), 0.5 / len(a)), torch.full((len(b),), 0.5 / len(b))]).double()
        z = (x - self.mean) * self.scale
        rotation = None
        if z.shape[1] > len(z):  # the penalty is the same in rotated features, of which only as many as rows matter
            z, rotation = _rotated(z)
        penalty = max(1, int(usable.sum())) / len(z)
        solution = _minimum(F.pad(z, (0, 1), value=1.0), y, weight, penalty)
        self.weights = solution[:-1] if rotation is None else rotation @ solution[:-1]

    def __call__(self, rows: Tensor) -> Tensor:
        return (rows - self.mean) * self.scale @ self.weights  # the intercept does not change the order


def _rotated(z: Tensor) -> tuple[Tensor, Tensor]:
    """(N, N) the rows of z (N, F) in an orthonormal basis of the space that they span, and that basis (F, N)."""
    basis = torch.linalg.qr(z.T).Q
    return z @ basis, basis


def _minimum(z: Tensor, y: Tensor, weight: Tensor, penalty: float) -> Tensor:
    """The minimum of the mean logistic loss plus penalty / 2 |w|^2, by Newton's method; the last of w is not penalised.

    Args:
        z: (N, F) features, the last of them 1.
        y: (N,) 0 or 1.
        weight: (N,) weights of the rows, which sum to 1.
        penalty: strength of the L2 penalty.
    """
    penalties = torch.full((z.shape[1],), penalty, dtype=z.dtype)
    penalties[-1] = 0
    w = torch.zeros_like(penalties)

    def loss_at(w: Tensor) -> Tensor:
        logits = z @ w
        return weight @ (F.softplus(logits) - y * logits) + 0.5 * (penalties * w * w).sum()

    loss = loss_at(w)
    for _ in range(_MOST_STEPS):
        p = torch.sigmoid(z @ w)
        gradient = z.T @ (weight * (p - y)) + penalties * w
        curvature = (z.T * (weight * p * (1 - p))) @ z + penalties.diag()
        curvature.diagonal().add_(1e-12)  # all rows may be certain, and the intercept has no penalty
        step = torch.linalg.solve(curvature, gradient)
        size = 1.0
        while (new := loss_at(w - size * step)) > loss and size > 1e-6:
            size /= 2
        gained = loss - new
        if gained > 0:
            w, loss = w - size * step, new
        if gained <= _CLOSE:
            break
    return w


def _area(low: Tensor, high: Tensor) -> float:
    """P(a score of `high` is above one of `low`), where equal scores count as half: the area under the ROC curve."""
    ordered = low.sort().values
    below = torch.searchsorted(ordered, high, right=False) + torch.searchsorted(ordered, high, right=True)
    return float(below.double().mean() / (2 * len(low)))
