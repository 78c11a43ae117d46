"""Two sets of feature rows told apart by a classifier."""

import numpy as np
import pytest
import torch

from usd3.metrics import told_apart
from usd3.metrics.two_sample import _area, _minimum


def normal(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("features", [1, 10, 600])
def test_sets_of_one_distribution_are_not_told_apart(features):
    """The mean of 20 pairs of sets. A value has the standard deviation 0.045 (0.05 with 600 features), so the mean
    leaves 0.5 by more than 0.05 in fewer than one of 10^5 choices of the seeds."""
    values = [told_apart(normal(150, features, seed=2 * i), normal(150, features, seed=2 * i + 1)) for i in range(20)]
    assert abs(np.mean(values) - 0.5) < 0.05
    assert min(values) > 0.3
    assert max(values) < 0.7


def test_a_shift_is_found():
    """A shift by one standard deviation of one of 10 features: the best classifier has Phi(1 / sqrt(2)) = 0.760."""
    real, generated = normal(2000, 10, seed=0), normal(2000, 10, seed=1)
    generated[:, 3] += 1
    assert told_apart(real, generated) == pytest.approx(0.760, abs=0.02)  # the standard deviation is 0.008


def test_more_features_than_rows_are_told_apart():
    real, generated = normal(60, 300, seed=0), normal(60, 300, seed=1)
    generated[:, :100] += 0.5
    assert told_apart(real, generated) > 0.9


@pytest.mark.parametrize("generated", [[2.0, 3.0, 4.0, 5.0], [0.5] * 5, [2.0, 2.0]])
def test_separable_sets_are_told_apart_exactly(generated):
    real = torch.tensor([0.0, 0.1, -0.2, 0.3, 0.05, -1.0])[:, None]
    assert told_apart(real, torch.tensor(generated)[:, None]) == 1.0


def test_equal_rows_count_as_half():
    rows = torch.tensor([[1.0, 2.0]]).expand(10, 2)
    assert told_apart(rows, rows) == 0.5
    assert _area(torch.tensor([0.0, 1.0, 1.0]), torch.tensor([1.0, 2.0])) == pytest.approx((1 + 0.5 + 0.5 + 3) / 6)


def test_the_order_of_the_rows_does_not_matter_and_the_seed_chooses_the_folds():
    real, generated = normal(80, 5, seed=0), normal(70, 5, seed=1) + 0.3
    value = told_apart(real, generated, seed=3)
    mixed = torch.randperm(80, generator=torch.Generator().manual_seed(0))
    assert told_apart(real[mixed], generated.flip(0), seed=3) == value
    assert told_apart(real, generated, seed=3) == value
    assert told_apart(real, generated, seed=4) != value


def test_neither_scale_nor_size_of_a_set_matters():
    real, generated = normal(400, 4, seed=0), normal(100, 4, seed=1) + 0.5
    value = told_apart(real, generated)
    assert told_apart(1e6 * real - 1e7, 1e6 * generated - 1e7) == pytest.approx(value, abs=0.03)
    assert told_apart(generated, real) == pytest.approx(value, abs=0.03)
    constant = torch.cat([real, torch.full((400, 1), 0.1)], 1), torch.cat([generated, torch.full((100, 1), 0.1)], 1)
    assert told_apart(*constant) == pytest.approx(value, abs=0.03)


def test_the_regression_is_at_its_minimum():
    """The gradient vanishes there; a little step in any direction makes the loss larger."""
    z = torch.cat([normal(50, 3, seed=0), torch.ones(50, 1)], 1)
    y, weight = (normal(50, seed=1) > 0).double(), torch.rand(50, generator=torch.Generator().manual_seed(2)).double()
    weight = weight / weight.sum()
    w = _minimum(z, y, weight, 0.1).requires_grad_()
    loss = weight @ torch.nn.functional.binary_cross_entropy_with_logits(z @ w, y, reduction="none")
    (loss + 0.05 * (w[:-1] ** 2).sum()).backward()
    assert float(w.grad.abs().max()) < 1e-6


@pytest.mark.parametrize(
    ("real", "generated", "message"),
    [
        (torch.zeros(1, 2), torch.zeros(3, 2), r"real.shape = \(1, 2\): expected \(N, F\) with N >= 2"),
        (torch.zeros(3, 2), torch.zeros(3, 4), "features of generated = 4: expected 2, as real has"),
        (torch.full((3, 2), torch.nan), torch.zeros(3, 2), "real = infinite or nan somewhere"),
    ],
)
def test_what_cannot_be_compared_is_refused(real, generated, message):
    with pytest.raises(ValueError, match=message):
        told_apart(real, generated)
