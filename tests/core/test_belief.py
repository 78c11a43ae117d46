"""The two numbers behind every formula, against the joint distribution they summarise."""

import numpy as np
import torch

import usd3
from support import oracle
from support.problems import D, K, all_pairs, supported
from usd3._internal.checks import Checks
from usd3.core.belief import model_belief, true_belief


def never_noised(f, x, alpha, m):
    """P(never noised | x) = sum_x0 f(x_0) P(never noised, x | x_0) / q(x | x_0), over the x_0 that can lead to x."""
    q = oracle.transition(alpha, m)[:, x]
    return sum(f[k] * (alpha if k == x else 0) / q[k] for k in range(len(m)) if f[k] > 0 and q[k] > 0)


def test_untouched_is_the_probability_of_never_having_been_noised(noise):
    noise, ms = noise
    _, x_t = all_pairs(noise, ms)
    logits = torch.randn(*x_t.shape, K, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    f = supported(oracle.softmax(logits.numpy()), x_t, noise, ms)
    d = usd3.Diffusion(noise, usd3.Cosine())
    for t in (0.05, 0.5, 0.95):
        level = d.level(torch.full((len(x_t),), t, dtype=torch.float64), x_t)
        belief = model_belief(logits, x_t, noise, level, Checks(True))
        alpha = oracle.ALPHA_BAR["cosine"](t)
        expected = np.array(
            [[never_noised(f[i, e], int(x_t[i, e]), alpha, ms[e]) for e in range(D)] for i in range(len(f))]
        )
        np.testing.assert_allclose(belief.untouched, expected, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(belief.noised, 1 - expected, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(belief.f_x + belief.not_f_x, 1, rtol=1e-12)
        for z in range(K):
            at = belief.log_f_at(torch.full_like(x_t, z)).exp()
            np.testing.assert_allclose(at, f[..., z], rtol=1e-9, atol=1e-13)


def test_a_known_x_0_is_the_limit_of_a_sure_prediction(noise):
    noise, ms = noise
    x_0, x_t = all_pairs(noise, ms)
    d = usd3.Diffusion(noise, usd3.Cosine())
    level = d.level(torch.full((len(x_t),), 0.4, dtype=torch.float64), x_t)
    sure = torch.zeros(*x_t.shape, K, dtype=torch.float64).scatter(-1, x_0[..., None], 800.0)
    a, b = true_belief(x_0, x_t, noise, level), model_belief(sure, x_t, noise, level, Checks(True))
    for name in ("m_x", "r", "f_x", "not_f_x", "untouched", "noised"):
        torch.testing.assert_close(getattr(a, name), getattr(b, name), rtol=1e-12, atol=1e-15)
