"""The trapezoidal rule by its exact law over all objects: the error falls with the square of the step."""

import itertools

import numpy as np
import pytest
import torch

import usd3
from support import oracle
from support.statistics import chi_square_p_value
from support.toys import exact_model
from usd3._internal.checks import Checks
from usd3.core.coefficients import constant
from usd3.core.mixture import jump_mixture
from usd3.core.samplers import SAMPLERS, euler_jumps
from usd3.core.samplers.trapezoidal import combined_logits, expected_belief, middle_times

K, D = 3, 3
FALSE_ALARM = 1e-6
SCHEDULE = usd3.Cosine()
M = {"uniform": np.full(K, 1 / K), "marginal": np.array([0.5, 0.3, 0.2]), "absorbing": np.eye(K)[2]}


def make(kind, strength=0.1):
    """A diffusion and a distribution; with correlations as weak as these no combined f is negative."""
    noise = {"uniform": usd3.Uniform(K), "marginal": usd3.Marginal(M["marginal"]), "absorbing": usd3.Absorbing(K)}[kind]
    w = np.exp(strength * np.random.default_rng(4).normal(size=(K,) * D))
    if kind == "absorbing":
        w[2], w[:, 2], w[:, :, 2] = 0, 0, 0
    joint = oracle.Joint(w / w.sum(), np.tile(M[kind], (D, 1)))
    return usd3.Diffusion(noise, SCHEDULE), joint, exact_model(joint, SCHEDULE)


def start(joint):
    p = np.ones(1)
    for m in joint.ms:
        p = np.kron(p, m)
    return p


def exact_matrix(d, joint, model, t, s):
    x = torch.tensor(joint.states)
    return oracle.product_step(d.backward(model(x, torch.full((len(x),), t)), x, t, s).probs().numpy())


def euler_matrix(d, joint, model, t, s):
    x = torch.tensor(joint.states)
    time = constant(t, x)
    belief = d.belief(model(x, torch.full((len(x),), t)), x, time, Checks(True))
    mixture = jump_mixture(belief, euler_jumps(d, time, constant(s, x), x))
    mixture = mixture.scaled(1 / mixture.jump_mass().clamp(min=1))
    probs = mixture.probs().numpy()
    return oracle.product_step(probs)


def trapezoidal_matrix(d, joint, model, t, s, theta=0.5):
    """p(x_s | x_t): all intermediate objects, with the library's own f at each of them."""
    states = torch.tensor(joint.states)
    n = len(states)
    t, s = (torch.tensor([v], dtype=torch.float64) for v in (t, s))
    rho, alpha_1 = middle_times(d, t, s, theta)
    first = exact_matrix(d, joint, model, float(t), float(rho))  # (n, n)
    x, middle = states.repeat_interleave(n, 0), states.repeat(n, 1)
    logits, later = model(x, torch.full((n * n,), float(t))), model(middle, torch.full((n * n,), float(rho)))
    expected = expected_belief(logits, x, middle, d.noise, d.level(t, x), d.step(t, rho, x))
    combined = combined_logits(later, expected, d.noise, alpha_1.reshape(1, 1))
    second = oracle.product_step(d.backward(combined, middle, float(rho), float(s)).probs().numpy())
    return np.einsum("xm,xmz->xz", first, second.reshape(n, n, n))


def law(matrix, setting, steps):
    d, joint, model = setting
    times = d.grid(steps)
    p = start(joint)
    for t, s in itertools.pairwise(times):
        p = p @ (exact_matrix if s == 0 else matrix)(d, joint, model, t, s)
    return p


def slope(errors, steps):
    return float(np.polyfit(np.log(steps), np.log(errors), 1)[0])


def errors_of(matrix, setting, steps):
    w = setting[1].w.reshape(-1)
    return [oracle.total_variation(law(matrix, setting, n), w) for n in steps]


@pytest.mark.parametrize("kind", M)
def test_the_error_falls_with_the_square_of_the_step(kind):
    """Where that of exact steps and of Euler's falls linearly."""
    setting, steps = make(kind), [8, 16, 32, 64]
    slopes = [slope(errors_of(m, setting, steps), steps) for m in (trapezoidal_matrix, exact_matrix, euler_matrix)]
    assert slopes[0] < -1.9
    assert -1.3 < slopes[1] < -0.8
    assert -1.3 < slopes[2] < -0.8


def test_any_theta_has_second_order():
    setting, steps = make("absorbing"), [8, 16, 32]
    for theta in (0.3, 0.7):
        matrix = lambda *args, theta=theta: trapezoidal_matrix(*args, theta=theta)
        assert slope(errors_of(matrix, setting, steps), steps) < -1.7


@pytest.mark.parametrize("kind", M)
def test_at_equal_calls_it_is_better_than_exact_steps_also_where_correlations_are_strong(kind):
    setting = make(kind, strength=1.0)
    for steps in (4, 8, 16):
        (twice,), (once,) = (
            errors_of(trapezoidal_matrix, setting, [steps]),
            errors_of(exact_matrix, setting, [2 * steps]),
        )
        assert twice < 0.8 * once


@pytest.mark.parametrize("kind", M)
def test_one_element_has_no_error(kind):
    """What the first call expects of the second is what the second says."""
    d = make(kind)[0]
    w = np.array([0.2, 0.8, 0.0]) if kind == "absorbing" else np.array([0.2, 0.5, 0.3])
    joint = oracle.Joint(w, M[kind][None])
    model, t, s = exact_model(joint, SCHEDULE), 0.75, 0.25
    found, exact = (m(d, joint, model, t, s) for m in (trapezoidal_matrix, exact_matrix))
    possible = joint.marginal(float(SCHEDULE.alpha_bar(t))) > 0
    np.testing.assert_allclose(found[possible], exact[possible], atol=1e-12)


@pytest.mark.parametrize("kind", M)
@pytest.mark.parametrize("impl", ["eager", "chunked"])
def test_draws_are_from_this_law(kind, impl, generator):
    setting = make(kind, strength=1.0)
    n, d = 30_000, usd3.Diffusion(setting[0].noise, SCHEDULE, impl=impl)
    x = d.sample(setting[2], (n, D), 4, sampler="trapezoidal", generator=generator)
    counts = torch.bincount((x * torch.tensor([9, 3, 1])).sum(1), minlength=K**D)
    assert chi_square_p_value(counts, n * law(trapezoidal_matrix, setting, 4)) > FALSE_ALARM


def test_a_step_calls_twice_and_the_last_one_once():
    times = []

    def model(x, t):
        times.append(round(float(t[0]), 6))
        return torch.zeros(*x.shape, K)

    usd3.Diffusion(usd3.Uniform(K), SCHEDULE).sample(model, (2, D), 4, sampler="trapezoidal")
    assert times == [1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25]


def test_discrete_times_are_whole_steps():
    """A step of one has no time between: it is exact."""
    times = []

    def model(x, t):
        times.append(round(float(t[0]) * 12))
        return torch.zeros(*x.shape, K)

    d = usd3.Diffusion(usd3.Uniform(K), SCHEDULE, 12)
    d.sample(model, (2, D), [12, 8, 5, 4, 2, 0], sampler="trapezoidal")
    assert times == [12, 10, 8, 6, 5, 4, 3, 2]


def test_a_network_may_overwrite_what_it_returned(generator):
    """A network that ignores the time is remembered in one tensor."""
    _, _, exact = make("absorbing", 1.0)
    found = []
    for remembered in (False, True):
        model = lambda x, t: exact(x, torch.full_like(t, 0.5))
        model.ignores_time = remembered
        d = make("absorbing")[0]
        found.append(d.sample(model, (50, D), 5, sampler="trapezoidal", generator=torch.Generator().manual_seed(0)))
    assert torch.equal(*found)


def test_theta_is_a_number_between_0_and_1():
    assert SAMPLERS["trapezoidal"] == usd3.Trapezoidal(theta=0.5)
    with pytest.raises(ValueError, match=r"theta = 1: expected a number in \(0, 1\)"):
        usd3.Trapezoidal(theta=1)
