"""The Triton loss where numbers are at the limits of what float32 holds."""

import pytest
import torch

import usd3
from support.problems import NEEDS_TRITON, device_of
from usd3.kernels.loss import VLB, NoiseTables, Problem, loss_rows

pytestmark = list(NEEDS_TRITON)
triton_loss = pytest.importorskip("usd3.kernels.triton_loss")
DEVICE = device_of("triton")


def step_vlb(K, logits, x_t, x_0, t, s):
    """The vlb of one element with uniform noise: of the eager code in float64, of the kernel in float32."""
    x_t, x_0 = (torch.tensor([[v]]) for v in (x_t, x_0))
    logits, found = torch.tensor(logits).reshape(1, 1, K), []
    for impl, dtype, device in (("eager", torch.float64, "cpu"), ("triton", torch.float32, DEVICE)):
        d = usd3.Diffusion(usd3.Uniform(K), usd3.Linear(), impl=impl)
        terms = d.loss_terms(logits.to(device, dtype), x_t.to(device), x_0.to(device), t, s)
        found.append(float(terms.vlb))
    return found


def test_where_the_truth_lets_nothing_leave_a_cell_is_what_the_model_lets_go():
    """x = x_0 and q = 0, so k = 0 and h_z = A f_z + N (1 - f_x) m_z for z != x; their sum is the vlb."""
    A, N, x, m = 0.3, 0.5, 1, torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    leaf = torch.tensor([[0.5, 1.0, -1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    leaves = 1 - leaf.softmax(1)[0, x]
    expected = A * leaves + N * leaves * (1 - m[x])
    expected.backward()

    at = torch.tensor([x], device=DEVICE)
    coefficients = torch.tensor([A, N, 0.0, 1.0, 0.0], dtype=torch.float64, device=DEVICE)[:, None]
    p = Problem(at, at, coefficients, is_step=False, noise=NoiseTables(4, m=m[None].to(DEVICE)))
    weights = torch.tensor([[1.0], [0.0], [0.0]], dtype=torch.float64, device=DEVICE)
    gradient = torch.empty(1, 4, dtype=torch.float64, device=DEVICE)
    terms = loss_rows(leaf.detach().to(DEVICE), p, weights, False, gradient, "triton")
    assert float(terms[VLB]) == pytest.approx(expected.item(), rel=1e-12)
    torch.testing.assert_close(gradient.cpu(), leaf.grad, rtol=1e-12, atol=1e-15)


def test_noise_that_is_almost_impossible_does_not_hide_what_the_model_says():
    """The noise at s has a weight of 1e-30: A f / k would need numbers above 1e30, where it is cut off."""
    eager, kernel = step_vlb(7, [5.0] + [0.0] * 6, x_t=1, x_0=2, t=0.5, s=1e-30)
    assert kernel == pytest.approx(eager, rel=1e-5)


def test_the_last_step_of_a_model_that_excludes_the_truth_costs_the_whole_logarithm():
    """f_x = exp(-200) is 0 in float32, and the step to s = 0 has nothing else at x = x_0."""
    eager, kernel = step_vlb(3, [0.0, 200.0, 0.0], x_t=0, x_0=0, t=0.5, s=0)
    assert eager == pytest.approx(200, rel=1e-6)
    assert kernel == pytest.approx(eager, rel=1e-6)


def test_every_number_of_a_long_gradient_is_scaled_once():
    gradient, factor = torch.ones(2 * 32768 + 5, device=DEVICE), torch.tensor(3.0, device=DEVICE)
    assert (triton_loss.scale_(gradient, factor) == 3).all()
    assert (triton_loss.scale_(gradient, torch.ones_like(factor)) == 3).all()


@pytest.mark.parametrize("K", [2, 129, 4096, 4097, 16384, 50257])
def test_blocks_hold_a_row_or_are_looped_over_with_as_many_warps_as_a_gpu_has(K):
    tile = triton_loss.tile(K)
    assert tile["LOOP"] or tile["BLOCK"] >= K
    for number, most in ((tile["BLOCK"], 8192), (tile["num_warps"], 32)):
        assert number in [2**power for power in range(most.bit_length())]
