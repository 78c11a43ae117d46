"""Revision by the exact law of its steps: every kappa keeps the marginals, and ReMDM is a case."""

import numpy as np
import pytest
import torch

import usd3
from support import oracle
from support.problems import NOISES, WITH_SUPPORT, D, K, data_categories
from support.statistics import chi_square_p_value
from usd3._internal.checks import Checks
from usd3.core.mixture import jump_mixture
from usd3.core.samplers import SAMPLERS, largest_sigma, revision_jumps

FALSE_ALARM = 1e-6
ALL = NOISES | WITH_SUPPORT
TIMES = [(1.0, 0.8), (0.9, 0.5), (0.6, 0.55), (0.3, 0.05), (0.2, 0.0)]


def times(*values):
    return [torch.tensor([v], dtype=torch.float64) for v in values]


def step_of(d, f, t, s, sigma):
    """p(x_s | x_t) of every element and category, (K, D, K), for beliefs f (K, D, K) at x_t = 0..K-1."""
    x = torch.arange(K)[:, None].expand(K, D)
    t, s, sigma = times(t, s, sigma)
    logits = torch.from_numpy(np.log(np.maximum(f, 1e-300)))
    belief = d.belief(logits, x, t.expand(K), Checks(True))
    return jump_mixture(belief, revision_jumps(d, t, s, sigma, x)).probs().numpy()


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("t", "s"), TIMES)
def test_every_kappa_keeps_the_marginals_of_one_element(name, t, s):
    """With the exact denoiser q_t becomes q_s, from kappa = 1 to the most negative one; nothing is below 0."""
    make, rows = ALL[name]
    d = usd3.Diffusion(make(), usd3.Cosine())
    a_t, a_s = (float(d.schedule.alpha_bar(v)) for v in (t, s))
    most = float(largest_sigma(d, *times(t, s)))
    w = np.zeros((D, K))
    for e in range(D):
        data = data_categories(d.noise, e)
        w[e, data] = np.random.default_rng(e).dirichlet(np.ones(len(data)))
    joints = [oracle.Joint(w[e], rows[e : e + 1]) for e in range(D)]
    f = np.stack([joint.denoiser(a_t)[:, 0] for joint in joints], 1)  # (K, D, K)
    for share in (0.0, 0.3, 1.0):
        probs = step_of(d, f, t, s, share * most)
        for e, joint in enumerate(joints):
            q = joint.marginal(a_t)
            assert probs[q > 0, e].min() > -1e-9
            np.testing.assert_allclose(q @ probs[:, e], joint.marginal(a_s), atol=1e-7)


@pytest.mark.parametrize("name", ALL)
def test_the_largest_sigma_is_valid_for_any_belief_and_the_largest_of_that_kind(name):
    """f at the corners, where each probability is smallest; a bit more is below 0 for one of them, or sigma is 1."""
    make, rows = ALL[name]
    d = usd3.Diffusion(make(), usd3.Cosine())
    for t, s in TIMES[:-1]:
        most = float(largest_sigma(d, *times(t, s)))
        lowest = [1.0, 1.0]
        for e in range(D):
            for z in data_categories(d.noise, e):
                f = np.tile(np.eye(K)[z], (K, D, 1))
                for i, sigma in enumerate((most, most * 1.01)):
                    probs = step_of(d, f, t, s, sigma)[rows[e] > 0, e]
                    lowest[i] = min(lowest[i], probs.min())
        assert lowest[0] > -1e-9
        single = all(len(data_categories(d.noise, e)) == 1 for e in range(D))
        assert lowest[1] < 0 or most == 1 or single


@pytest.mark.parametrize(("t", "s"), TIMES[1:])
def test_absorbing_noise_is_remdm(t, s):
    """A token is masked again with sigma; a mask becomes x_0 with (a_s - (1 - sigma) a_t) / (1 - a_t)."""
    d = usd3.Diffusion(usd3.Absorbing(K), usd3.Cosine())
    a_t, a_s = (float(d.schedule.alpha_bar(v)) for v in (t, s))
    most = float(largest_sigma(d, *times(t, s)))
    assert most == pytest.approx(min(1, (1 - a_s) / a_t))
    f = np.tile(np.array([0.5, 0.3, 0.2, 0.0]), (K, D, 1))
    for sigma in (0.0, 0.4 * most, most):
        probs = step_of(d, f, t, s, sigma)
        np.testing.assert_allclose(probs[0, 0], [1 - sigma, 0, 0, sigma], atol=1e-9)
        to_data = (a_s - (1 - sigma) * a_t) / (1 - a_t)
        np.testing.assert_allclose(probs[3, 0], [*(to_data * f[0, 0, :3]), 1 - to_data], atol=1e-9)


def test_the_schedules_of_sigma():
    d, (t, s) = (
        usd3.Diffusion(usd3.Absorbing(K), usd3.Linear()),
        (torch.tensor([0.9, 0.5, 0.1]), torch.tensor([0.5, 0.1, 0.0])),
    )
    t, s = t.double(), s.double()
    most = torch.tensor([1.0, 0.2, 0.0], dtype=torch.float64)
    torch.testing.assert_close(largest_sigma(d, t, s), most)
    torch.testing.assert_close(usd3.Revision("cap", 0.3).sigma(d, t, s), most.clamp(max=0.3))
    torch.testing.assert_close(usd3.Revision("rescale", 0.3).sigma(d, t, s), 0.3 * most)
    loop = usd3.Revision("loop", 0.15, on=0.6, off=0.1).sigma(d, t, s)
    torch.testing.assert_close(loop, torch.tensor([0.0, 0.15, 0.0], dtype=torch.float64))


@pytest.mark.parametrize("impl", ["eager", "chunked"])
@pytest.mark.parametrize("name", ALL)
def test_without_revision_it_is_the_exact_sampler_bit_for_bit(name, impl):
    d = usd3.Diffusion(ALL[name][0](), usd3.Cosine(), impl=impl)
    table = torch.randn(D, K, generator=torch.Generator().manual_seed(1))
    model = lambda x, t: table + torch.nn.functional.one_hot(x, K)
    exact, revised = (
        d.sample(model, (200, D), 6, sampler=sampler, generator=torch.Generator().manual_seed(0))
        for sampler in ("exact", usd3.Revision(eta=0))
    )
    assert torch.equal(exact, revised)


@pytest.mark.parametrize("impl", ["eager", "chunked"])
@pytest.mark.parametrize("name", ["uniform", "absorbing", "per_element", "random_support"])
def test_draws_with_the_largest_sigma_have_the_marginals(name, impl, generator):
    """kappa < 0 in every implementation: independent elements keep their law whatever is revised."""
    make, rows = ALL[name]
    d, n = usd3.Diffusion(make(), usd3.Linear(), impl=impl), 20_000
    w = np.zeros((D, K))
    for e in range(D):
        data = data_categories(d.noise, e)
        w[e, data] = np.random.default_rng(e).dirichlet(np.full(len(data), 3.0))
    joints = [oracle.Joint(w[e], rows[e : e + 1]) for e in range(D)]

    def model(x, t):
        f = np.stack([joint.denoiser(float(d.schedule.alpha_bar(t[0].double())))[:, 0] for joint in joints])
        return torch.from_numpy(np.log(np.maximum(f, 1e-300)))[torch.arange(D), x]

    x = d.sample(model, (n, D), 6, sampler=usd3.Revision("rescale", 1.0), generator=generator)
    for e in range(D):
        assert chi_square_p_value(torch.bincount(x[:, e], minlength=K), n * w[e]) > FALSE_ALARM


def test_given_elements_and_padding_stay_while_others_are_masked_again(generator):
    d, steps = usd3.Diffusion(usd3.Absorbing(K), usd3.Linear()), []
    tokens = torch.tensor([1, 0, 2])
    x = d.sample(
        lambda x, t, pad: torch.zeros(*x.shape, K), (50, D), 8, given=torch.tensor([True, False, False]),
        given_tokens=tokens, pad=torch.tensor([False, False, True]), sampler=usd3.Revision("rescale", 1.0),
        generator=generator, callback=steps.append,
    )  # fmt: skip
    assert all((step.x_s[:, [0, 2]] == tokens[[0, 2]]).all() for step in steps)
    assert any(((step.x_t[:, 1] != 3) & (step.x_s[:, 1] == 3)).any() for step in steps)
    assert (x != 3).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": "best"}, "schedule = best: expected one of cap, rescale, loop"),
        ({"eta": 2}, r"eta = 2: expected a number in \[0, 1\]"),
        ({"eta": -0.1}, r"eta = -0.1: expected a number in \[0, 1\]"),
        ({"off": 0.5, "on": 0.2}, r"on = 0.2: expected a number in \[0.5, 1\]"),
    ],
)
def test_unknown_options_are_refused(options, message):
    assert SAMPLERS["revision"] == usd3.Revision("cap", 0.02)
    with pytest.raises(ValueError, match=message):
        usd3.Revision(**options)
