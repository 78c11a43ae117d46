"""The kernel of the coefficients: what the formulas of the core say, for every schedule of the package."""

import pytest
import torch

import usd3
from support.problems import NEEDS_TRITON, device_of
from support.schedules import Square
from usd3.core import schedules
from usd3.core.closed_forms import closed_form

pytestmark = list(NEEDS_TRITON)

EDGES = [1e-300, 1e-12, 1e-6, 1e-3, 0.25, 0.5, 1 - 1e-3, 1 - 2.0**-24, 1 - 1e-12, 1.0]
SCHEDULES = {
    "cosine": usd3.Cosine(),
    "cosine from 0": usd3.Cosine(0.0),
    "linear": usd3.Linear(),
    "log linear": usd3.LogLinear(0.01),
    "power": usd3.Power(3.0),
    "low power": usd3.Power(1.25),
    "constant": usd3.Constant(5.0),
    "exponential": usd3.Exponential(),
    "geometric": usd3.Geometric(1e-5, 20.0),
    "geometric with an offset": usd3.Geometric(1e-2, 20.0, offset=True),
}


def pair(schedule, num_steps=None, t_min=1e-3):
    """The diffusion whose coefficients are those of the kernel, and that of the formulas."""
    return [usd3.Diffusion(usd3.Uniform(4), schedule, num_steps, t_min, impl=impl) for impl in ("triton", "eager")]


def assert_same(kernel, reference):
    """To 2e-14 of each number, also of the tiniest: exp(-20) has that from the rounding of 20."""
    torch.testing.assert_close(kernel.cpu(), reference.cpu(), rtol=2e-14, atol=0)


def times(values):
    return torch.tensor(values, dtype=torch.float64, device=device_of("triton"))


# ---- the same as the formulas -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCHEDULES)
def test_rates_are_those_of_the_formulas_at_any_time(name):
    """alpha_bar near 1 and near 0, and t = 1, where beta may be infinite."""
    fused, reference = pair(SCHEDULES[name])
    t = times([*EDGES, *torch.linspace(1e-3, 1, 20).tolist()])
    assert fused.kernel_schedule(t) is not None
    assert_same(fused.coefficients(t), reference.coefficients(t))


@pytest.mark.parametrize("name", SCHEDULES)
def test_steps_are_those_of_the_formulas_however_short(name):
    """To clean data, by half of the time, and by a part in 1e3 and 1e9 of it."""
    fused, reference = pair(SCHEDULES[name])
    t = times([t for t in EDGES for _ in range(4)])
    s = t * times([0, 0.5, 1 - 1e-3, 1 - 1e-9]).repeat(len(EDGES))
    assert_same(fused.coefficients(t, s), reference.coefficients(t, s))


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("T", [1, 7, 1000])
def test_steps_of_discrete_time_go_to_the_time_before(name, T):
    fused, reference = pair(SCHEDULES[name], T)
    t = times(sorted({1, 2, T // 3, T // 2, T - 1, T} & {*range(1, T + 1)})) / T
    assert_same(fused.coefficients(t), reference.coefficients(t))
    assert_same(fused.training_coefficients(t), reference.coefficients(t))


@pytest.mark.parametrize("num_steps", [None, 1000])
def test_drawn_times_are_those_of_the_formulas(num_steps):
    """To the last bit, but where torch divides by T on a GPU: there it multiplies by 1/T.

    The last bit of the time before would be 1e-13 of the difference of both: the formulas get it as the kernel has it.
    """
    fused, reference = pair(usd3.Cosine(), num_steps, t_min=0.01)
    ends = times([0.0, 2.0**-53, 1 - 2.0**-53, 0.5])
    u = torch.cat([ends, torch.rand(200, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(ends)])
    time, coefficients = fused.drawn_coefficients(u)
    expected = reference.unit_time(reference.times_from_uniform(u))
    torch.testing.assert_close(time, expected, rtol=2.0**-52 if time.is_cuda else 0.0, atol=0)
    before = None if num_steps is None else ((time.cpu() * num_steps - 1).round() / num_steps).to(time)
    assert_same(coefficients, reference.coefficients(time, before))
    assert reference.drawn_coefficients(u)[1] is None  # the eager code has its own


def test_a_draw_of_times_follows_another_default_dtype():
    """A network of float64 sees times that were never rounded."""
    fused, _ = pair(usd3.Linear())
    u = times([0.123456789])
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        time, _ = fused.drawn_coefficients(u)
        assert torch.equal(time, fused.times_from_uniform(u))
    finally:
        torch.set_default_dtype(before)
    assert not torch.equal(fused.drawn_coefficients(u)[0], time)


# ---- any batch --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("B", [0, 1, 128, 129, 300])
def test_a_batch_of_any_size_and_layout(B):
    fused, reference = pair(usd3.Cosine())
    t = torch.linspace(1, 0.1, 2 * B, dtype=torch.float64, device=device_of("triton"))[::2]  # with gaps
    for s in (0.5 * t, times([0.05]).expand(B)):
        assert_same(fused.coefficients(t, s), reference.coefficients(t, s))
    assert_same(fused.drawn_coefficients(t / 2)[1], reference.coefficients(fused.drawn_coefficients(t / 2)[0]))


# ---- who takes the kernel ---------------------------------------------------------------------------------------


def test_every_schedule_of_the_package_has_a_closed_form():
    kinds = {vars(schedules)[name] for name in schedules.__all__} - {schedules.Schedule, schedules.Time}
    assert kinds == {type(schedule) for schedule in SCHEDULES.values()}
    assert all(closed_form(schedule) is not None for schedule in SCHEDULES.values())


class SquareOfLinear(Square, usd3.Linear):
    """It inherits from a packaged schedule, and has other formulas."""


@pytest.mark.parametrize("make", [Square, SquareOfLinear])
def test_a_schedule_of_your_own_runs_its_own_formulas(make):
    fused, reference = pair(make())
    t = times([0.2, 0.7, 1.0])
    assert fused.kernel_schedule(t) is None
    assert torch.equal(fused.coefficients(t), reference.coefficients(t))
    u = times([0.3])
    time, coefficients = fused.drawn_coefficients(u)
    assert torch.equal(time, fused.times_from_uniform(u).double())
    assert torch.equal(coefficients, reference.coefficients(time))


def test_times_with_a_gradient_keep_it():
    """The kernel has none, so the formulas run."""
    fused, _ = pair(usd3.Linear())
    t, s = times([0.5]).requires_grad_(), times([0.25])
    (slope,) = torch.autograd.grad(fused.coefficients(t)[4].sum(), t)
    assert float(slope) == pytest.approx(1)  # of 1 - alpha_bar = t
    (slope,) = torch.autograd.grad(fused.coefficients(t.detach(), s.requires_grad_())[1].sum(), s)
    assert float(slope) == pytest.approx(2 / 9)  # of mu (1 - a_ts) = (s / t) (t - s) / (1 - s)


@pytest.mark.parametrize("num_steps", [None, 50])
def test_a_loss_draws_and_computes_as_without_the_kernel(num_steps):
    """The same times and noise for one seed, so the same loss, by the kernels and by the code in chunks.

    A GPU's logarithm is off by up to 9e-6 of a cell, see `bregman` of the Triton kernels.
    """
    x_0, losses = torch.arange(12).reshape(3, 4) % 4, []
    for impl in ("triton", "chunked"):
        d, device = usd3.Diffusion(usd3.Uniform(4), usd3.Cosine(), num_steps, impl=impl), device_of(impl)
        seen = []
        model = lambda x, t, seen=seen: seen.append((x.cpu(), t.cpu())) or torch.nn.functional.one_hot(x, 4).float()
        out = d.loss(model, x_0.to(device), generator=torch.Generator().manual_seed(5))
        losses.append((*seen[0], out.loss.cpu()))
    for by_kernel, in_chunks in zip(*losses):
        torch.testing.assert_close(by_kernel, in_chunks, rtol=1e-5 if torch.cuda.is_available() else 1e-6, atol=0)
