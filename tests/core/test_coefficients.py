"""Times and coefficients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import usd3

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
