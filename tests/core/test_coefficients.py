"""Times and coefficients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import usd3
from usd3._internal.checks import Checks
from usd3.core.coefficients import column, total

SCHEDULES = [
    usd3.Cosine(),
    usd3.Linear(),
    usd3.Exponential(),
    usd3.Constant(5.0),
    usd3.Geometric(1e-4, 20.0, offset=True),
]
X = torch.zeros(1, 2, dtype=torch.long)


@given(st.floats(0, 1), st.floats(0, 1), st.sampled_from(SCHEDULES))
def test_the_weights_of_a_step_are_a_distribution(a, b, schedule):
    s, t = sorted((a, b))
    if not s < t:
        return
    d = usd3.Diffusion(usd3.Uniform(4), schedule)
    to = d.step(torch.tensor([t], dtype=torch.float64), torch.tensor([s], dtype=torch.float64), X)
    weights = torch.stack([to.to_data, to.to_noise, to.stay])
    assert (weights >= 0).all()
    assert float(weights.sum()) == pytest.approx(1, abs=1e-12)


@given(st.floats(1e-3, 0.999), st.sampled_from(SCHEDULES))
def test_the_rate_is_the_derivative_of_the_step(t, schedule):
    d, h = usd3.Diffusion(usd3.Uniform(4), schedule), 1e-7
    time = torch.tensor([t], dtype=torch.float64)
    step, rate = d.step(time, time - h, X), d.rate_weights(time, X)
    assert float(step.to_data) / h == pytest.approx(float(rate.to_data), rel=1e-3)
    assert float(step.to_noise) / h == pytest.approx(float(rate.to_noise), rel=1e-3)


def test_grids_of_discrete_time_have_distinct_steps_for_any_number():
    d = usd3.Diffusion(usd3.Uniform(4), usd3.Cosine(), 37)
    for n in range(1, 38):
        steps = [round(37 * t) for t in d.grid(n)]
        assert steps[0] == 37
        assert steps[-1] == 0
        assert len(set(steps)) == n + 1
        assert steps == sorted(steps, reverse=True)


def test_training_times_cover_their_range():
    d = usd3.Diffusion(usd3.Uniform(4), usd3.Cosine(), t_min=0.2)
    u = torch.tensor([0.0, 1 - 2.0**-53], dtype=torch.float64)
    torch.testing.assert_close(d.times_from_uniform(u), torch.tensor([0.2, 1.0]))
    assert usd3.Diffusion(usd3.Uniform(4), usd3.Cosine(), 10).times_from_uniform(
        torch.cat([u, torch.ones(1)])
    ).tolist() == [
        1,
        10,
        10,
    ]


def test_one_term_stands_for_all_times_of_the_bound():
    assert usd3.Diffusion(usd3.Uniform(4), usd3.Cosine(), t_min=0.2).vlb_scale == pytest.approx(0.8)
    assert usd3.Diffusion(usd3.Uniform(4), usd3.Cosine(), 10).vlb_scale == 10


@pytest.mark.parametrize("s", [0, 1e-9, 0.5, 1])
def test_every_time_of_the_unit_interval_is_allowed(s):
    checks = Checks(True)
    time = usd3.Diffusion(usd3.Uniform(4), usd3.Cosine()).time(s, X, "s", checks)
    checks.raise_first()
    assert time.tolist() == [s]


@pytest.mark.parametrize(("s", "positive"), [(-1e-9, False), (1.001, False), (0.0, True)])
def test_times_outside_their_interval_are_refused(s, positive):
    checks = Checks(True)
    usd3.Diffusion(usd3.Uniform(4), usd3.Cosine()).time(s, X, "s", checks, positive)
    with pytest.raises(ValueError, match="s contains"):
        checks.raise_first()


def test_a_step_of_length_zero_at_time_zero_stays():
    now = torch.zeros(1, dtype=torch.float64)
    to = usd3.Diffusion(usd3.Uniform(4), usd3.Cosine()).step(now, now, X)
    assert [float(weight) for weight in (to.to_data, to.to_noise, to.stay)] == [0, 0, 1]


@pytest.mark.parametrize(("num_steps", "s"), [(None, 0.25), (None, None), (4, None)])
def test_a_transition_comes_with_the_level_it_starts_from(num_steps, s):
    """The step t -> s, the rate at t, and the step t -> t - 1."""
    t = torch.tensor([0.5], dtype=torch.float64)
    before = None if s is None else torch.tensor([s], dtype=torch.float64)
    level, _ = usd3.Diffusion(usd3.Uniform(4), usd3.Linear(), num_steps).transition(t, before, X)
    assert float(level.alpha_bar) == float(level.lost) == 0.5


def test_the_mask_is_refused_only_where_it_is_read():
    d = usd3.Diffusion(usd3.Absorbing(4), usd3.Cosine())
    x_0, checks = torch.tensor([[0, 3], [1, 2]]), Checks(True)
    assert torch.equal(d.data(x_0, checks, except_at=x_0 == 3), x_0)
    checks.raise_first()
    for except_at in (None, x_0 != 3):
        d.data(x_0, checks, except_at=except_at)
        with pytest.raises(ValueError, match="x_0 contains 3"):
            checks.raise_first()


def test_a_total_counts_the_free_elements_of_each_object():
    terms = torch.arange(12.0).reshape(2, 3, 2)
    assert total(terms, None).tolist() == [15, 51]
    free = torch.zeros(2, 3, 2, dtype=torch.bool)
    free[0, 1, 0] = free[1, 2] = True
    assert total(terms, free).tolist() == [2, 21]


def test_a_column_broadcasts_one_number_of_each_object():
    assert column(torch.arange(2.0), torch.zeros(2, 3, 5)).shape == (2, 1, 1)
    assert column(torch.arange(2.0), torch.zeros(2)).shape == (2,)
