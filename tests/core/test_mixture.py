"""Probabilities, log-probabilities and draws of a mixture agree; their values are tested in test_diffusion."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import usd3
from support.problems import K, all_pairs
from support.statistics import chi_square_p_value
from usd3._internal.checks import Checks
from usd3.core.mixture import Jumps, jump_mixture

N = 3000
FALSE_ALARM = 1e-7  # of each of the few hundred cells below


def mixtures(noise, rows, copies=1):
    d = usd3.Diffusion(noise, usd3.Cosine())
    x_0, x_t = all_pairs(noise, rows)
    logits = torch.randn(*x_t.shape, K, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    x_0, x_t, logits = x_0.repeat(copies, 1), x_t.repeat(copies, 1), logits.repeat(copies, 1, 1)
    return x_t, [d.posterior(x_0, x_t, 0.7, 0.3), d.backward(logits, x_t, 0.7, 0.3), d.backward(logits, x_t, 0.7, 0)]


def test_log_prob_is_the_log_of_probs(noise):
    x_t, mixes = mixtures(*noise)
    for mix in mixes:
        every = torch.stack([mix.log_prob(torch.full_like(x_t, z)) for z in range(K)], -1)
        torch.testing.assert_close(every.exp(), mix.probs(), rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(mix.probs().sum(-1), torch.ones_like(x_t, dtype=torch.float64), rtol=0, atol=1e-12)


def test_draws_follow_probs(noise, generator):
    for one, many in zip(mixtures(*noise)[1], mixtures(*noise, copies=N)[1]):
        probs = one.probs()
        drawn = many.sample(generator).unflatten(0, (N, -1))  # (N, pairs, D)
        seen = torch.stack([(drawn == z).sum(0) for z in range(K)], -1)
        for pair, element in np.ndindex(*probs.shape[:2]):
            expected = N * np.where(probs[pair, element] > 1e-12, probs[pair, element], 0)
            assert chi_square_p_value(seen[pair, element], expected) > FALSE_ALARM


def test_log_prob_has_gradients_and_says_minus_infinity_for_the_impossible():
    d = usd3.Diffusion(usd3.Absorbing(3), usd3.Linear())
    logits = torch.randn(1, 2, 3, requires_grad=True)
    mix = d.backward(logits, torch.tensor([[2, 0]]), 0.5, 0.25)
    log_p = mix.log_prob(torch.tensor([[1, 0]]))
    log_p.sum().backward()
    assert logits.grad.isfinite().all()
    assert logits.grad[0, 0].abs().sum() > 0
    assert mix.log_prob(torch.tensor([[2, 1]]))[0, 1] == -torch.inf


def test_the_same_generator_gives_the_same_draw():
    d = usd3.Diffusion(usd3.Uniform(5), usd3.Linear())
    mix = d.backward(torch.randn(4, 6, 5), torch.randint(5, (4, 6)), 0.9, 0.2)
    a, b = (mix.sample(torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(a, b)
    assert a.dtype == torch.int64


def test_rare_categories_are_drawn_at_their_rate():
    """400 of 500 categories share a probability of 2e-4, 5e-7 each: 200,000 draws give Poisson(40) of them.

    P(fewer than 13 or more than 76) is below 1e-6. A float32 race of exponentials cuts such tails.
    """
    n, k = 200_000, 500
    logits = torch.full((k,), 0.0)
    logits[100:] = torch.logit(torch.tensor(2e-4)) - torch.log(torch.tensor(4.0))
    d = usd3.Diffusion(usd3.Uniform(k), usd3.Linear())
    mix = d.backward(logits.expand(n, 1, k), torch.zeros(n, 1, dtype=torch.long), 1.0, 0)
    drawn = mix.sample(torch.Generator().manual_seed(5))
    assert 13 <= int((drawn >= 100).sum()) <= 76


@pytest.mark.parametrize("p", [1e-9, 1e-12])
def test_the_tail_of_a_categorical_draw_is_cut_nowhere(p):
    """Feed the draw the uniforms that belong to a category of probability p, and their neighbours."""
    from usd3._internal.random import categorical

    logits = torch.zeros(3, 50257, dtype=torch.float64)
    logits[:, 0] = torch.log(torch.tensor(p * 50256, dtype=torch.float64))
    edge = p / (1 + p)
    u = torch.tensor([0.0, 0.99 * edge, 1.01 * edge], dtype=torch.float64)
    assert categorical(logits, u).tolist() == [0, 0, 1]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0, 1), min_size=2, max_size=5).filter(lambda v: sum(v) > 0.01),
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(0, 2**31),
)
def test_any_noise_and_any_times_give_distributions(weights, t, s, seed):
    s, t = sorted((s, t))
    if t - s < 1e-6:
        return
    m = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    k = len(m)
    d = usd3.Diffusion(usd3.Marginal(m), usd3.Linear())
    g = torch.Generator().manual_seed(seed)
    x_0 = torch.randint(k, (2, 3), generator=g)
    x_t = d.q_sample(x_0, t, generator=g)
    logits = 20 * torch.randn(2, 3, k, generator=g)
    for mix in (d.posterior(x_0, x_t, t, s), d.backward(logits, x_t, t, s)):
        probs = mix.probs()
        assert (probs >= -1e-7).all()
        torch.testing.assert_close(probs.sum(-1).double(), torch.ones(2, 3).double(), rtol=0, atol=1e-5)
        assert (mix.probs().gather(-1, mix.sample(g)[..., None]) > 0).all()
    terms = usd3.Diffusion(usd3.Marginal(m), usd3.Linear(), 7).loss_terms(logits, x_0, x_0, 3)
    assert (terms.vlb >= 0).all()
    assert terms.vlb.isfinite().all()


def test_bad_categories_in_log_prob_are_refused():
    mix = usd3.Diffusion(usd3.Uniform(3), usd3.Linear()).posterior(
        torch.zeros(1, 2).long(), torch.zeros(1, 2).long(), 1, 0
    )
    with pytest.raises(ValueError, match=r"x contains 3: expected categories 0\.\.2"):
        mix.log_prob(torch.tensor([[0, 3]]))
    with pytest.raises(ValueError, match=r"x\.shape = \(2,\): expected \(1, 2\)"):
        mix.log_prob(torch.tensor([0, 1]))


def test_a_short_jump_is_a_distribution_and_a_scaled_one_too():
    d, x = usd3.Diffusion(usd3.Marginal([0.2, 0.3, 0.5]), usd3.Linear()), torch.tensor([[0, 1, 2]])
    time = torch.tensor([0.5], dtype=torch.float64)
    belief = d.belief(torch.randn(1, 3, 3, dtype=torch.float64), x, time, Checks(True))
    jump = jump_mixture(belief, Jumps(torch.tensor([[0.1]]).double(), torch.tensor([[0.2]]).double()))
    for mix, to_f, to_m in ((jump, 0.1, 0.2), (jump.scaled(torch.tensor(0.5)), 0.05, 0.1)):
        to_m = to_m * belief.noised[..., None]
        stay = torch.nn.functional.one_hot(x, 3) * (1 - to_f - to_m)
        expected = to_f * belief.log_f.exp() + to_m * d.noise.probs + stay
        torch.testing.assert_close(mix.probs(), expected)
        torch.testing.assert_close(mix.jump_mass(), 1 - mix.probs().gather(-1, x[..., None]).squeeze(-1))


def test_an_element_that_cannot_jump_stays_for_every_uniform():
    """Also for u = 0: with masses of 0 no branch is open."""
    d, x_t = usd3.Diffusion(usd3.Absorbing(3), usd3.Cosine()), torch.tensor([[0, 1]])
    zeros = torch.zeros(1, 2, dtype=torch.float64)
    assert torch.equal(d.backward(torch.zeros(1, 2, 3), x_t, 0.7, 0.3).drawn(zeros, zeros), x_t)


def test_the_posterior_of_time_zero_is_x_0_for_every_uniform():
    d, x_0 = usd3.Diffusion(usd3.Uniform(3), usd3.Cosine()), torch.tensor([[0, 1, 2]])
    for u in (0.0, 0.5, 1 - 2.0**-53):
        uniforms = torch.full((2, 1, 3), u, dtype=torch.float64)
        assert torch.equal(d.posterior(x_0, torch.tensor([[1, 1, 0]]), 0.7, 0).drawn(*uniforms), x_0)
