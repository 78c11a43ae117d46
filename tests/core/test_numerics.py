"""Extremes: alpha_bar from 0 to 1 inclusive, K = 2, logits of +-1e4, low precision, m with zeros. Nothing breaks."""

import mpmath
import numpy as np
import pytest
import torch

import usd3

NOISES = {
    "uniform": lambda k: usd3.Uniform(k),
    "absorbing": lambda k: usd3.Absorbing(k),
    "zeros": lambda k: usd3.Marginal([1.0] + [0.0] * (k - 1)),
    "tiny": lambda k: usd3.Marginal([1 - 1e-12 * (k - 1)] + [1e-12] * (k - 1)),
}
SCHEDULES = [usd3.Cosine(), usd3.Linear(), usd3.Geometric(1e-5, 1e5), usd3.LogLinear(1e-4), usd3.Constant(2000.0)]


def logits_of(kind, shape, dtype, generator):
    if kind == "zero":
        return torch.zeros(shape, dtype=dtype)
    sign = torch.randint(0, 2, shape, generator=generator) * 2 - 1
    return (1e4 * sign).to(dtype) if kind == "huge" else torch.randn(shape, generator=generator).to(dtype)


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
@pytest.mark.parametrize("k", [2, 7])
@pytest.mark.parametrize("num_steps", [None, 5])
def test_losses_and_gradients_are_finite_everywhere(name, schedule, k, num_steps, generator):
    d = usd3.Diffusion(NOISES[name](k), schedule, num_steps)
    data = [c for c in range(k) if c != d.noise.mask]
    x_0 = torch.tensor(data)[torch.randint(len(data), (6, 9), generator=generator)]
    times = [1, 2, 5] if num_steps else [1e-3, 0.5, 1 - 1e-7, 1.0]
    for t in times:
        x_t = d.q_sample(x_0, t, generator=generator)
        for kind in ("zero", "huge", "random"):
            for dtype in (torch.float32, torch.bfloat16):
                logits = logits_of(kind, (6, 9, k), dtype, generator).requires_grad_()
                terms = d.loss_terms(logits, x_t, x_0, t)
                values = [terms.vlb, terms.ce] + ([terms.l2, terms.kl2] if num_steps else [])
                for value in values:
                    assert value.isfinite().all()
                    assert (value >= -1e-6).all()
                    (grad,) = torch.autograd.grad(value.sum(), logits, retain_graph=True)
                    assert grad.isfinite().all()


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("k", [2, 7])
def test_backward_steps_are_distributions_everywhere(name, k, generator):
    d = usd3.Diffusion(NOISES[name](k), usd3.Cosine())
    data = [c for c in range(k) if c != d.noise.mask]
    x_0 = torch.tensor(data)[torch.randint(len(data), (6, 9), generator=generator)]
    for t, s in ((1.0, 0.0), (1.0, 1 - 1e-9), (1e-9, 0.0), (1e-9, 1e-12), (0.5, 0.5 - 1e-12), (1.0, 0.5)):
        x_t = d.q_sample(x_0, t, generator=generator)
        for kind in ("zero", "huge", "random"):
            logits = logits_of(kind, (6, 9, k), torch.float32, generator)
            for mix in (d.backward(logits, x_t, t, s), d.posterior(x_0, x_t, t, s)):
                probs = mix.probs()
                assert probs.isfinite().all()
                assert (probs >= 0).all()
                torch.testing.assert_close(probs.sum(-1).double(), torch.ones(6, 9).double(), rtol=0, atol=1e-6)
                assert (mix.sample(generator) < k).all()
                assert not mix.log_prob(x_t).isnan().any()


def test_a_schedule_that_has_ended_early_takes_no_false_step():
    """Geometric(1e-5, 1e5): alpha_bar underflows long before t = 1. The posterior there still obeys Bayes' rule."""
    d = usd3.Diffusion(usd3.Uniform(3), usd3.Geometric(1e-5, 1e5))
    x_0, x_t = torch.tensor([[0, 1]]), torch.tensor([[2, 1]])
    probs = d.posterior(x_0, x_t, 1.0, 0.99).probs()
    torch.testing.assert_close(probs, torch.full((1, 2, 3), 1 / 3).double(), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("t", [1e-6, 1e-3, 0.5, 1 - 1e-6, 1 - 1e-12])
def test_small_weights_keep_their_relative_precision(t):
    """1 - mu, gamma and the noise weight of a backward step against 40 digits, from alpha_bar near 1 to near 0."""
    mpmath.mp.dps = 40
    s, m = t * (1 - 1e-5), mpmath.mpf(0.25)
    h = lambda v: mpmath.sin(mpmath.pi / 2 / mpmath.mpf(1.008) * (1 - mpmath.mpf(v)))
    a_t, a_s = h(t) / h(0), h(s) / h(0)
    mu = (1 - a_s) / (1 - a_t)
    d = usd3.Diffusion(usd3.Uniform(4), usd3.Cosine())
    x = torch.zeros(1, 1, dtype=torch.long)
    mix = d.posterior(x, x + 1, t, s)
    assert float(mix.w_0) == pytest.approx(float(1 - mu), rel=1e-6)
    assert float(mix.w_m) == pytest.approx(float(mu * (1 - a_t / a_s)), rel=1e-6)
    same = d.posterior(x, x, t, s)
    lam = (1 - a_s) * (1 - a_t / a_s) * m / (a_t + (1 - a_t) * m)
    assert float(same.w_m) == pytest.approx(float(lam), rel=1e-6)


def test_float32_terms_near_the_ends_match_float64(generator):
    """The continuous loss where beta is large and where it is small, against float64 on the same logits."""
    noise = usd3.Marginal(np.random.default_rng(0).dirichlet(np.full(50, 0.3)))
    d = usd3.Diffusion(noise, usd3.Cosine())
    x_0 = torch.randint(50, (200,), generator=generator)[:, None]
    for t in (1e-3, 0.1, 0.9, 1 - 1e-5, 1 - 1e-7):
        x_t = d.q_sample(x_0, t, generator=generator)
        for sharp in (0.0, 5.0, 15.0):
            logits = torch.randn(200, 1, 50, generator=generator)
            logits = logits.scatter_add(-1, x_0[..., None], torch.full((200, 1, 1), sharp))
            low, exact = (d.loss_terms(v.requires_grad_(), x_t, x_0, t).vlb for v in (logits.clone(), logits.double()))
            torch.testing.assert_close(low.double(), exact, rtol=1e-4, atol=1e-9)


def test_probabilities_that_float32_cannot_tell_from_one(generator):
    """f_x = 1 - 1e-12: 1 - f_x survives in float32 logits, because it comes from the other categories."""
    d = usd3.Diffusion(usd3.Uniform(3), usd3.Linear(), 100)
    x = torch.zeros(1, 1, dtype=torch.long)
    logits = torch.tensor([[[27.63, 0.0, -50.0]]])
    exact = d.loss_terms(logits.double(), x, x, 50).vlb
    assert float(exact) > 0
    torch.testing.assert_close(d.loss_terms(logits, x, x, 50).vlb.double(), exact, rtol=1e-3, atol=0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_are_refused(bad):
    d = usd3.Diffusion(usd3.Uniform(3), usd3.Linear())
    x = torch.zeros(2, 2, dtype=torch.long)
    logits = torch.zeros(2, 2, 3)
    logits[1, 0, 2] = bad
    model = lambda x, t: logits
    for call in (
        lambda: d.backward(logits, x, 0.5, 0.2),
        lambda: d.loss_terms(logits, x, x, 0.5),
        lambda: d.rate(logits, x, 0.5),
        lambda: d.loss(model, x),
        lambda: d.bound(model, x),
        lambda: d.sample(model, (2, 2), 3),
    ):
        with pytest.raises(ValueError, match="logits contains nan: expected finite numbers"):
            call()


def test_minus_infinity_excludes_a_category():
    """f is 0 there, the rest is as without it, and gradients stay finite, even where only one category is left."""
    d, x = usd3.Diffusion(usd3.Uniform(3), usd3.Linear()), torch.tensor([[0, 1]])
    logits = torch.tensor([[[0.3, -torch.inf, 0.8], [-torch.inf, 0.0, -torch.inf]]], requires_grad=True)
    terms = d.loss_terms(logits, x, x, 0.5)
    (terms.vlb + terms.ce).sum().backward()
    assert terms.vlb.isfinite().all()
    assert logits.grad.isfinite().all()
    probs = d.backward(logits, x, 0.5, 0).probs()
    assert probs[0, 0, 1] == 0
    torch.testing.assert_close(probs[0, 1], torch.tensor([0.0, 1.0, 0.0]))


@pytest.mark.parametrize("value", [-1e31, torch.finfo(torch.float32).min, 3e38])
def test_the_mask_is_never_predicted_whatever_the_logits(value):
    d, x = usd3.Diffusion(usd3.Absorbing(4), usd3.Linear()), torch.full((1, 5), 3)
    probs = d.backward(torch.full((1, 5, 4), value), x, 0.5, 0).probs()
    torch.testing.assert_close(probs, torch.tensor([1 / 3, 1 / 3, 1 / 3, 0.0]).expand(1, 5, 4))


def test_a_ratio_is_finite_where_the_category_is_never_noise():
    d = usd3.Diffusion(usd3.Absorbing(4), usd3.Linear())
    for t in (0.3, 1.0):
        assert d.ratio(torch.randn(1, 4, 4), torch.tensor([[0, 1, 2, 3]]), t).isfinite().all()


def test_evaluating_in_inference_mode_does_not_break_training():
    d, weight = usd3.Diffusion(usd3.Uniform(4), usd3.Cosine()), torch.randn(4, 4, requires_grad=True)
    x, model = torch.zeros(3, 5, dtype=torch.long), lambda x, t: weight[x]
    with torch.inference_mode():
        d.bound(model, x, num_samples=2)
        d.sample(model, (3, 5), 2)
    d.loss(model, x).loss.backward()
    assert weight.grad.isfinite().all()


def test_large_vocabulary_in_float32():
    """K = 50257: the loss of a nearly perfect model is small, positive and close to float64."""
    k, d = 50257, usd3.Diffusion(usd3.Uniform(50257), usd3.Cosine())
    x_0 = torch.tensor([[5, 50256]])
    logits = torch.zeros(1, 2, k).scatter(-1, x_0[..., None], 25.0)
    for x_t in (x_0, torch.tensor([[7, 0]])):
        low, exact = (d.loss_terms(v, x_t, x_0, 0.3).vlb.double() for v in (logits, logits.double()))
        assert (exact > 0).all()
        torch.testing.assert_close(low, exact, rtol=1e-4, atol=1e-9)
