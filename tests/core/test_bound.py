"""The bound on -log p(x_0) and its parts, against support/oracle.py and enumeration."""

import itertools

import numpy as np
import pytest
import torch

import usd3
from support import oracle
from support.problems import all_pairs, data_categories, of_first_element
from support.toys import ALPHA, enumerated_bound, exact_model, known_joint, rows_of


def test_prior_is_the_kl_of_the_last_forward_marginal(noise):
    noise, ms = noise
    d = usd3.Diffusion(noise, usd3.Constant(5.0))
    x_0, _ = all_pairs(noise, ms)
    if noise.has_zeros:
        with pytest.raises(
            ValueError,
            match=r"alpha_bar at the last time contains 0\.0067.*: expected 0, as the prior is infinite",
        ):
            d.prior(x_0)
        d = usd3.Diffusion(noise, usd3.Cosine())
        assert (d.prior(x_0) < 1e-15).all()
        return
    for t in (1.0, 0.3):
        expected = rows_of(lambda i, e, t=t: oracle.kl(oracle.transition(np.exp(-5 * t), ms[e])[x_0[i, e]], ms[e]), x_0)
        np.testing.assert_allclose(d.prior(x_0, t), expected, rtol=1e-9, atol=1e-14)


# ---- a known joint distribution ------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 3, 20])
def test_discrete_bound_with_the_exact_denoiser_is_the_log_likelihood_of_one_element(noise, steps):
    """For one element the sum of all L_t equals -log w(x_0), for any number of steps."""
    noise, ms = noise
    noise, ms = of_first_element(noise), ms[:1]
    d = usd3.Diffusion(noise, usd3.Cosine(), steps)
    joint = known_joint(noise, ms, D=1)
    for x in data_categories(noise):
        total = 0.0
        for t in range(1, steps + 1):
            q = d.q_probs(torch.tensor([[x]]), t)[0, 0]
            possible = torch.nonzero(q > 0)
            logits = torch.from_numpy(np.log(np.maximum(joint.denoiser(ALPHA(t / steps)), 1e-300)))[possible[:, 0]]
            terms = d.loss_terms(logits, possible, torch.full_like(possible, x), t)
            total += float((q[possible[:, 0]] * terms.vlb[:, 0]).sum())
        assert total == pytest.approx(-np.log(joint.w[x]), abs=1e-9)


def test_continuous_bound_with_the_exact_denoiser_is_the_log_likelihood_of_one_element(noise):
    """The same for the integral over [t_min, 1] plus the decoder term at t_min, by Gauss-Legendre in log t."""
    noise, ms = noise
    noise, ms = of_first_element(noise), ms[:1]
    d = usd3.Diffusion(noise, usd3.Cosine(), t_min=1e-3)
    joint = known_joint(noise, ms, D=1)
    nodes, weights = np.polynomial.legendre.leggauss(200)
    log_t = np.log(1e-3) * (1 - nodes) / 2
    times = np.append(np.exp(log_t), 1e-3)
    weights = torch.from_numpy(-np.log(1e-3) / 2 * weights * np.exp(log_t))
    logits = torch.from_numpy(np.log(np.maximum([joint.denoiser(ALPHA(t)) for t in times], 1e-300)))
    times = torch.from_numpy(times)
    for x in data_categories(noise):
        q = d.q_probs(torch.full((len(times), 1), x), times)[:, 0]
        at, x_t = torch.nonzero(q > 0, as_tuple=True)
        terms = d.loss_terms(logits[at, x_t], x_t[:, None], torch.full_like(x_t[:, None], x), times[at])
        vlb, ce = (torch.zeros_like(q).index_put((at, x_t), q[at, x_t] * v[:, 0]).sum(1) for v in (terms.vlb, terms.ce))
        assert float((weights * vlb[:-1]).sum() + ce[-1]) == pytest.approx(-np.log(joint.w[x]), abs=1e-6)


@pytest.fixture(scope="module")
def small():
    """Three elements of three categories, noise per element, and the denoiser that knows their joint distribution."""
    ms = np.random.default_rng(5).dirichlet(np.full(3, 3.0), size=3)
    noise = usd3.Marginal(ms)
    joint = known_joint(noise, ms, K=3)
    return usd3.Diffusion(noise, usd3.Cosine()), joint, exact_model(joint, usd3.Cosine())


def test_the_bound_of_a_joint_distribution_falls_to_its_entropy_and_discrete_time_meets_continuous_time(small):
    d, joint, model = small
    w = joint.w[joint.w > 0]
    entropy = -(w * np.log(w)).sum()
    bounds = [enumerated_bound(d, joint, model, np.linspace(1, 0, n + 1).tolist()) for n in (1, 4, 16, 64)]
    assert all(a > b for a, b in itertools.pairwise(bounds))
    assert bounds[-1] > entropy
    assert bounds[-1] - entropy < 0.05 * (bounds[0] - entropy)
    # first order in the step size: the error falls about as fast as the number of steps rises
    assert 3 < (bounds[1] - entropy) / (bounds[2] - entropy) < 5


def test_bound_estimates_the_enumerated_bound(small):
    d, joint, model = small
    states, w = torch.tensor(joint.states), torch.from_numpy(joint.w.reshape(-1))
    times = np.linspace(1, 0, 9).tolist()
    g = torch.Generator().manual_seed(0)
    draws = torch.stack([(w * d.bound(model, states, times=times, generator=g)).sum() for _ in range(100)])
    exact = enumerated_bound(d, joint, model, times)
    assert abs(float(draws.mean()) - exact) < 5 * float(draws.std()) / 10  # false alarm below 1e-6


def test_continuous_bound_is_calibrated_and_discrete_bound_with_many_steps_agrees(small):
    d, joint, model = small
    w = joint.w.reshape(-1)
    entropy = -(w[w > 0] * np.log(w[w > 0])).sum()
    states, weights = torch.tensor(joint.states), torch.from_numpy(w)
    g = torch.Generator().manual_seed(0)
    continuous = torch.stack([(weights * d.bound(model, states, num_samples=32, generator=g)).sum() for _ in range(12)])
    # with the exact denoiser the continuous bound is the entropy, but for the decoder term at t_min
    assert abs(float(continuous.mean()) - entropy) < 5 * float(continuous.std()) / 12**0.5 + 0.01
    discrete = usd3.Diffusion(d.noise, d.schedule, 128)
    stacked = torch.stack([(weights * discrete.bound(model, states, generator=g)).sum() for _ in range(8)])
    assert abs(float(stacked.mean()) - entropy) < 5 * float(stacked.std()) / 8**0.5 + 0.02
    few = torch.stack([(weights * discrete.bound(model, states, num_samples=16, generator=g)).sum() for _ in range(64)])
    assert abs(float(few.mean()) - float(stacked.mean())) < 5 * (float(few.std()) / 8 + float(stacked.std()) / 8**0.5)


def test_given_and_pad_elements_leave_the_bound(small):
    d, joint, model = small
    x_0 = torch.tensor([[0, 1, 2], [1, 1, 0]])
    everything = torch.ones(3, dtype=torch.bool)
    assert (d.bound(model, x_0, num_samples=3, given=everything) == 0).all()
    accepts = lambda x, t, pad: model(x, t)
    assert (d.bound(accepts, x_0, num_samples=3, pad=everything.expand(2, 3)) == 0).all()
    one_free = torch.tensor([True, True, False])
    conditional = joint.w[0, 1] / joint.w[0, 1].sum()
    g = torch.Generator().manual_seed(0)
    # exact conditionals of the third element given clean first two

    def conditional_model(x, t):
        alpha = float(d.schedule.alpha_bar(t[0].item()))
        q = oracle.transition(alpha, joint.ms[2])
        logits = torch.zeros(*x.shape, 3, dtype=torch.float64)
        for i in range(len(x)):
            post = joint.w[x[i, 0], x[i, 1]] * q[:, x[i, 2]]
            logits[i, 2] = torch.from_numpy(np.log(post / post.sum()))
        return logits

    nll = torch.stack(
        [
            d.bound(conditional_model, x_0[:1], times=np.linspace(1, 0, 5).tolist(), given=one_free, generator=g)
            for _ in range(500)
        ]
    )
    assert abs(float(nll.mean()) + np.log(conditional[2])) < 5 * float(nll.std()) / 500**0.5


# ---- networks that ignore the time ---------------------------------------------------------------------------------


class Timeless:
    """Logits (B, 3, 4) that depend on the object alone, from a random table; the last of 4 categories is the mask."""

    ignores_time = True

    def __init__(self):
        self.table = torch.randn(4**3, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def __call__(self, x_t, t):
        return self.table[(x_t * torch.tensor([16, 4, 1])).sum(1)]


def nats_over_orders(model, x, given):
    """The mean over all orders of the nats of the elements that are not given, drawn one after the other."""
    found = []
    for order in itertools.permutations([e for e in range(3) if e not in given]):
        x_t, nats = torch.tensor([[z if e in given else 3 for e, z in enumerate(x)]]), 0.0
        for e in order:
            nats -= float(model(x_t, None)[0, e, :3].log_softmax(-1)[x[e]])
            x_t[0, e] = x[e]
        found.append(nats)
    return np.mean(found)


@pytest.mark.parametrize("given", [(), (1,)])
@pytest.mark.parametrize("num_samples", [3, 5])
def test_a_network_that_ignores_the_time_has_the_bound_of_all_orders(given, num_samples):
    """5 standard errors; strata that do not divide the elements count right, too."""
    model, d = Timeless(), usd3.Diffusion(usd3.Absorbing(4), usd3.Linear())
    x = torch.tensor([[0, 2, 1]]).expand(20_000, 3)
    mask = torch.tensor([e in given for e in range(3)]).expand(x.shape)
    nats = d.bound(model, x, num_samples, given=mask, generator=torch.Generator().manual_seed(0))
    error = float(nats.std()) / len(x) ** 0.5
    assert float(nats.mean()) == pytest.approx(nats_over_orders(model, (0, 2, 1), given), abs=5 * error)
    timed = d.bound(lambda x_t, t: model(x_t, t), x, num_samples, given=mask, generator=torch.Generator())
    assert nats.std() < timed.std() / 2
    assert float(timed.mean()) == pytest.approx(float(nats.mean()), abs=5 * float(timed.std()) / len(x) ** 0.5)


def test_an_object_with_nothing_to_draw_costs_nothing():
    x = torch.zeros(2, 3, dtype=torch.long)
    given = torch.tensor([[True] * 3, [True, True, False]])
    nats = usd3.Diffusion(usd3.Absorbing(4), usd3.Linear()).bound(Timeless(), x, 4, given=given)
    assert nats[0] == 0
    assert nats[1] > 0
