"""Every term of a loss against support/oracle.py."""

import numpy as np
import pytest
import torch

import usd3
from support import oracle
from support.problems import K, all_pairs, supported
from support.toys import ALPHA, random_logits, rows_of

T = 10


def close(actual, expected, rtol=1e-9, atol=1e-12):
    np.testing.assert_allclose(actual.detach().numpy(), expected, rtol=rtol, atol=atol)


@pytest.fixture
def case(noise):
    noise, ms = noise
    x_0, x_t = all_pairs(noise, ms)
    logits = random_logits(x_t, scale=2.0)
    f = supported(oracle.softmax(logits.numpy()), x_t, noise, ms)
    return noise, ms, x_0, x_t, logits, f


def possible(x_0, x_t, alpha, ms):
    return rows_of(lambda i, e: oracle.transition(alpha, ms[e])[x_0[i, e], x_t[i, e]] > 1e-14, x_t)


@pytest.mark.parametrize("t", [1, 2, 6, 9, 10])
def test_discrete_vlb_is_the_kl_of_the_matrices(case, t):
    noise, ms, x_0, x_t, logits, f = case
    terms = usd3.Diffusion(noise, usd3.Cosine(), T).loss_terms(logits, x_t, x_0, t)
    a_s, a_t = ALPHA((t - 1) / T), ALPHA(t / T)
    for i, e in zip(*np.nonzero(possible(x_0, x_t, a_t, ms))):
        x, y = int(x_t[i, e]), int(x_0[i, e])
        q, p = oracle.posterior(y, x, a_s, a_t, ms[e]), oracle.backward(f[i, e], x, a_s, a_t, ms[e])
        assert float(terms.vlb[i, e]) == pytest.approx(oracle.kl(q, p), rel=1e-9, abs=1e-12)
        if t == 1:
            assert float(terms.vlb[i, e]) == pytest.approx(-np.log(f[i, e, y]), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("t", "s"), [(0.9, 0.2), (0.5, 0.49), (1.0, 0.3)])
def test_partial_time_terms_hold_for_any_s_in_continuous_time(case, t, s):
    noise, ms, x_0, x_t, logits, f = case
    terms = usd3.Diffusion(noise, usd3.Cosine()).loss_terms(logits, x_t, x_0, t, s)
    for i, e in zip(*np.nonzero(possible(x_0, x_t, ALPHA(t), ms))):
        x, y = int(x_t[i, e]), int(x_0[i, e])
        q, p = (
            oracle.posterior(y, x, ALPHA(s), ALPHA(t), ms[e]),
            oracle.backward(f[i, e], x, ALPHA(s), ALPHA(t), ms[e]),
        )
        assert float(terms.vlb[i, e]) == pytest.approx(oracle.kl(q, p), rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("t", [0.001, 0.1, 0.5, 0.99])
def test_continuous_vlb_is_the_rate_form_and_zero_at_the_truth(case, t):
    noise, ms, x_0, x_t, logits, f = case
    d = usd3.Diffusion(noise, usd3.Cosine())
    beta = float(d.schedule.beta(t))
    expected = rows_of(
        lambda i, e: oracle.continuous_vlb(f[i, e], int(x_t[i, e]), int(x_0[i, e]), ALPHA(t), beta, ms[e]), x_t
    )
    close(d.loss_terms(logits, x_t, x_0, t).vlb, expected, rtol=1e-8)
    truth = torch.full_like(logits, -1e4).scatter(-1, x_0[..., None], 1e4)
    close(d.loss_terms(truth, x_t, x_0, t).vlb, np.zeros(x_t.shape))


def test_cross_entropy_is_minus_log_f(case):
    noise, _, x_0, x_t, logits, f = case
    expected = -np.log(np.take_along_axis(f, x_0.numpy()[..., None], -1)[..., 0])
    close(usd3.Diffusion(noise, usd3.Cosine(), T).loss_terms(logits, x_t, x_0, 4).ce, expected)
    close(usd3.Diffusion(noise, usd3.Cosine()).loss_terms(logits, x_t, x_0, 0.4).ce, expected)


@pytest.mark.parametrize("t", [1, 5, 10])
def test_simplified_l2_with_phi_clipped(case, t):
    noise, ms, x_0, x_t, logits, f = case
    a_s, a_t = ALPHA((t - 1) / T), ALPHA(t / T)
    one_hot = np.eye(K)

    def l2(i, e):
        x, y, m = int(x_t[i, e]), int(x_0[i, e]), ms[e]
        phi = (1 - a_s) * (a_t / a_s) / (a_t + (1 - a_t) * m[x] + 1e-300)
        v = f[i, e] - one_hot[y] + min(1, phi) * (f[i, e, x] - (x == y)) * (one_hot[x] - m)
        return v @ v

    terms = usd3.Diffusion(noise, usd3.Cosine(), T).loss_terms(logits, x_t, x_0, t)
    seen = possible(x_0, x_t, a_t, ms)
    close(terms.l2[seen], rows_of(l2, x_t)[seen])


def test_unclipped_l2_is_the_squared_difference_of_the_steps():
    """With phi <= 1 the loss is || (B(f) - B(e_x0)) / (1 - mu) ||^2."""
    d = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine(), T)
    x_0, x_t = torch.tensor([[0, 1, 2]]), torch.tensor([[0, 3, 2]])
    logits, t = random_logits(x_t), 3
    gap = d.backward(logits, x_t, t, t - 1).probs() - d.posterior(x_0, x_t, t, t - 1).probs()
    mu = (1 - ALPHA(0.2)) / (1 - ALPHA(0.3))
    close(d.loss_terms(logits, x_t, x_0, t).l2, (gap / (1 - mu)).square().sum(-1).numpy())


def test_second_order_kl_has_its_half(case):
    noise, ms, x_0, x_t, logits, f = case
    t = 5
    a_s, a_t = ALPHA((t - 1) / T), ALPHA(t / T)

    def kl2(i, e):
        x, y = int(x_t[i, e]), int(x_0[i, e])
        q, p = oracle.posterior(y, x, a_s, a_t, ms[e]), oracle.backward(f[i, e], x, a_s, a_t, ms[e])
        return sum((b - a) ** 2 / (2 * a) if a > 0 else b for a, b in zip(q, p))

    d = usd3.Diffusion(noise, usd3.Cosine(), T)
    close(d.loss_terms(logits, x_t, x_0, t).kl2, rows_of(kl2, x_t))


def test_second_order_kl_approaches_the_kl_near_the_truth():
    """The paper's expansion lacks the 1/2 (docs/equations.md, errata 1)."""
    noise = usd3.Marginal([0.1, 0.2, 0.3, 0.4])
    d = usd3.Diffusion(noise, usd3.Cosine(), T)
    x_0, x_t = torch.tensor([[0, 2, 1]]), torch.tensor([[0, 1, 1]])
    near = torch.zeros(1, 3, K).double().scatter(-1, x_0[..., None], 12.0)
    terms = d.loss_terms(near, x_t, x_0, 5)
    close(terms.kl2 / terms.vlb, np.ones((1, 3)), rtol=3e-3)


def test_masked_diffusion_is_weighted_cross_entropy():
    """Absorbing noise: beta abar/(1-abar) CE on masked elements, 0 elsewhere; weight 1/t for the linear schedule."""
    noise = usd3.Absorbing(5)
    x_0 = torch.tensor([[0, 1, 2, 3]])
    x_t = torch.tensor([[4, 1, 4, 3]])
    logits = torch.randn(1, 4, 5, dtype=torch.float64)
    ce = -logits[..., :4].log_softmax(-1).gather(-1, x_0[..., None]).squeeze(-1)
    masked = x_t == 4
    terms = usd3.Diffusion(noise, usd3.Linear()).loss_terms(logits, x_t, x_0, 0.25)
    close(terms.vlb, (4 * ce * masked).numpy())
    close(terms.ce, (ce * masked).numpy())
    discrete = usd3.Diffusion(noise, usd3.Linear(), 8).loss_terms(logits, x_t, x_0, 4)
    close(discrete.vlb, (0.25 * ce * masked).numpy())  # (1 - mu) CE


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_low_precision_logits_are_reduced_in_float32(case, dtype):
    """The error against float64 on the same rounded logits is that of float32 arithmetic."""
    noise, _, x_0, x_t, logits, _ = case
    rounded = logits.to(dtype)
    for d, t in ((usd3.Diffusion(noise, usd3.Cosine(), T), 4), (usd3.Diffusion(noise, usd3.Cosine()), 0.4)):
        low, exact = d.loss_terms(rounded, x_t, x_0, t), d.loss_terms(rounded.double(), x_t, x_0, t)
        for name in ("vlb", "ce", "l2", "kl2"):
            a, b = getattr(low, name), getattr(exact, name)
            if b is not None:
                assert a.dtype == torch.float32
                close(a, b.numpy(), rtol=2e-5, atol=1e-6)


def test_gradients_are_those_of_finite_differences(case):
    noise, _, x_0, x_t, logits, _ = case
    some = slice(0, None, 5)
    x_0, x_t, logits = x_0[some], x_t[some], logits[some].clone().requires_grad_()
    for d, t in ((usd3.Diffusion(noise, usd3.Cosine(), T), 4), (usd3.Diffusion(noise, usd3.Cosine()), 0.4)):
        for name in ("vlb", "ce") + (("l2", "kl2") if not d.continuous else ()):
            assert torch.autograd.gradcheck(
                lambda v, d=d, t=t, n=name: getattr(d.loss_terms(v, x_t, x_0, t), n), logits
            )
