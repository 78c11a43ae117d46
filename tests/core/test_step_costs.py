"""Best grids against brute force over all grids, and what steps lose against the enumerated bound."""

import itertools

import numpy as np
import pytest
import torch

import usd3
from support.toys import enumerated_bound, exact_model, known_joint
from usd3.core.step_costs import StepCosts


def costs_of(size, seed=0):
    """Random costs of the steps between `size` + 1 times."""
    return StepCosts(
        tuple(np.linspace(1, 0, size + 1).tolist()),
        torch.from_numpy(np.random.default_rng(seed).random((size + 1,) * 2)),
    )


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 7])
def test_the_best_grid_is_the_best_of_all_grids(steps):
    costs = costs_of(7, seed=steps)
    inside = costs.times[1:-1]
    every = [(1.0, *chosen, 0.0) for chosen in itertools.combinations(inside, steps - 1)]
    best = min(every, key=costs.loss_of)
    assert costs.best_grid(steps) == list(best)
    assert len(best) == steps + 1


def test_a_step_that_skips_times_is_not_taken_where_it_loses_more():
    """The cost of a step is the square of its length: the even grid is the best."""
    times = torch.linspace(1, 0, 13, dtype=torch.float64)
    costs = StepCosts(tuple(times.tolist()), (times[:, None] - times) ** 2)
    for steps in (2, 3, 4, 6):
        np.testing.assert_allclose(costs.best_grid(steps), np.linspace(1, 0, steps + 1), atol=1e-12)


@pytest.fixture(scope="module")
def small():
    ms = np.random.default_rng(5).dirichlet(np.full(3, 3.0), size=3)
    noise = usd3.Marginal(ms)
    joint = known_joint(noise, ms, K=3)
    return usd3.Diffusion(noise, usd3.Cosine()), joint, exact_model(joint, usd3.Cosine())


def drawn(joint, number):
    chosen = np.random.default_rng(0).choice(len(joint.states), size=number, p=joint.w.reshape(-1))
    return torch.tensor(joint.states)[chosen]


def test_the_costs_of_the_steps_of_a_grid_sum_up_to_its_bound(small):
    """Both are means over 20,000 objects with their own draws of x_t: the false alarm is below 1e-6."""
    d, joint, model = small
    x_0 = drawn(joint, 20_000)
    costs = d.step_costs(model, x_0, times=6, generator=torch.Generator().manual_seed(1))
    for grid in (costs.times, costs.best_grid(2), costs.best_grid(4)):
        nats = d.bound(model, x_0, times=grid, generator=torch.Generator().manual_seed(2))
        expected = float(nats.mean() - d.prior(x_0).sum(1).mean())
        assert abs(costs.loss_of(grid) - expected) < 7 * float(nats.std()) / len(x_0) ** 0.5


def test_the_best_grid_has_a_lower_bound_than_the_even_one(small):
    """Both bounds by enumeration; the grids are chosen from 4,000 objects."""
    _, joint, _ = small
    d = usd3.Diffusion(usd3.Marginal(joint.ms), usd3.Exponential(0.5, 10.0))
    model = exact_model(joint, d.schedule)
    costs = d.step_costs(model, drawn(joint, 4000), times=24, generator=torch.Generator().manual_seed(1))
    for steps in (2, 3, 4):
        best, even = (
            enumerated_bound(d, joint, model, times)
            for times in (costs.best_grid(steps), np.linspace(1, 0, steps + 1).tolist())
        )
        assert best < even - 0.01


def test_what_is_given_or_padding_costs_nothing():
    d = usd3.Diffusion(usd3.Absorbing(4), usd3.Linear())
    x_0, seen = torch.zeros(5, 3, dtype=torch.long), []

    def model(x_t, t, pad=None, given=None):
        seen.append((given, pad))
        return torch.zeros(*x_t.shape, 4)

    whole = d.step_costs(model, x_0, times=[1.0, 0.0])
    assert whole.loss_of([1, 0]) == pytest.approx(3 * np.log(3))  # f is uniform over three categories
    given, pad = torch.tensor([True, False, False]), torch.tensor([False, False, True])
    part = d.step_costs(model, x_0, times=[1.0, 0.0], given=given, pad=pad)
    assert part.loss_of([1, 0]) == pytest.approx(np.log(3))
    assert not seen[0][0].any()
    assert torch.equal(torch.stack(seen[1]), torch.stack([given, pad])[:, None].expand(2, 5, 3))


def test_discrete_times_are_integers_and_the_best_grid_can_be_drawn_with():
    d = usd3.Diffusion(usd3.Uniform(4), usd3.Cosine(), num_steps=10)

    def model(x_t, t):
        return torch.zeros(*x_t.shape, 4)

    costs = d.step_costs(model, torch.zeros(4, 2, dtype=torch.long))
    assert costs.times == tuple(float(t) for t in range(10, -1, -1))
    assert costs.most_steps == 10
    grid = costs.best_grid(3)
    assert d.sample(model, (2, 2), grid).shape == (2, 2)
    assert d.step_costs(model, torch.zeros(4, 2, dtype=torch.long), times=5).times == (10.0, 8.0, 6.0, 4.0, 2.0, 0.0)


def test_wrong_arguments():
    costs = costs_of(4)
    for steps in (0, 5, 2.5):
        with pytest.raises((ValueError, TypeError), match="num_steps"):
            costs.best_grid(steps)
    with pytest.raises(ValueError, match=r"time = 0\.3: expected times of the fine grid"):
        costs.loss_of([1.0, 0.3, 0.0])
    with pytest.raises(ValueError, match=r"nats\.shape = \(2, 2\): expected \(3, 3\)"):
        StepCosts((1.0, 0.5, 0.0), torch.zeros(2, 2))
    d = usd3.Diffusion(usd3.Uniform(4), usd3.Cosine())
    with pytest.raises(ValueError, match="at least one object"):
        d.step_costs(lambda x_t, t: torch.zeros(*x_t.shape, 4), torch.zeros(0, 2, dtype=torch.long))


@pytest.mark.parametrize("generator", [None, torch.Generator().manual_seed(3)])
def test_all_times_get_the_same_uniforms(generator):
    """So an element that is masked at some time is masked at every later one."""
    d, masked = usd3.Diffusion(usd3.Absorbing(4), usd3.Linear()), []

    def model(x_t, t):
        masked.append(x_t == 3)
        return torch.zeros(*x_t.shape, 4)

    d.step_costs(model, torch.zeros(20, 10, dtype=torch.long), 6, generator=generator)
    assert len(masked) == 6
    assert masked[0].all()
    assert all((earlier <= later).all() for later, earlier in itertools.pairwise(masked))
    assert 20 < masked[3].sum() < 180
