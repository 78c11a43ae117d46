"""The meanings of a network's output and the ways between them, against enumeration in float64."""

import math

import numpy as np
import pytest
import torch

import usd3
from support import oracle
from support.problems import NOISES, WITH_SUPPORT, D, K, data_categories, data_like
from usd3.core import converters

T = torch.tensor([0.01, 0.2, 0.5, 0.7, 0.9, 0.999], dtype=torch.float64)
S = torch.tensor([0.0, 0.1, 0.45, 0.05, 0.89, 0.4], dtype=torch.float64)


@pytest.fixture(params=[*NOISES, *WITH_SUPPORT])
def case(request):
    """A diffusion, hollow logits and x_t, for six times; and m, one row per element."""
    make, rows = (NOISES | WITH_SUPPORT)[request.param]
    d = usd3.Diffusion(make(), usd3.Cosine())
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(len(T), D, d.noise.num_classes, generator=generator, dtype=torch.float64)
    for j in range(D):
        logits[:, j, [k for k in range(K) if k not in data_categories(d.noise, j)]] = -torch.inf
    x = torch.randint(d.noise.num_classes, (len(T), D), generator=generator)
    x = torch.where(d.noise.at(x) > 0, x, data_like(d.noise, x))
    return d, logits, x, np.broadcast_to(rows, (D, K))


def alphas(d, i):
    return float(d.schedule.alpha_bar(T[i])), float(d.schedule.alpha_bar(S[i])) if S[i] else 1.0


def each(case):
    """Every element: where it is, its alphas, f_h, x and m. Elements whose m_x is 0 are clean: left out."""
    d, logits, x, ms = case
    for i in range(len(T)):
        for j in range(D):
            if ms[j][x[i, j]] > 0:
                yield (i, j), *alphas(d, i), oracle.softmax(logits[i, j].numpy()), int(x[i, j]), ms[j]


def full(f_h, x, a_t, m):
    """Bayes' rule: f_k ~ f_h,k q(x | k)."""
    f = f_h * oracle.transition(a_t, m)[:, x]
    return f / f.sum()


def test_u1_full_from_hollow(case):
    d, logits, x, _ = case
    found = converters.full_from_hollow(d, logits, x, T).softmax(-1)
    for where, a_t, _, f_h, x_t, m in each(case):
        if d.noise.mask is None:  # with a mask only that category's logit moves, and it is no data category
            np.testing.assert_allclose(found[where], full(f_h, x_t, a_t, m), atol=1e-12)


def test_u2_u3_ratios(case):
    d, logits, x, _ = case
    from_hollow = converters.ratio_from_hollow(d, logits, x, T).exp()
    from_full = converters.ratio_from_full(d, converters.full_from_hollow(d, logits, x, T), x, T).exp()
    for where, a_t, _, f_h, x_t, m in each(case):
        p = f_h @ oracle.transition(a_t, m)
        np.testing.assert_allclose(from_hollow[where], p / p[x_t], rtol=1e-9, atol=1e-14)
        np.testing.assert_allclose(from_full[where], p / p[x_t], rtol=1e-9, atol=1e-14)
        brute = oracle.ratio(full(f_h, x_t, a_t, m), x_t, a_t, m)
        np.testing.assert_allclose(np.delete(brute, x_t), np.delete(p / p[x_t], x_t), rtol=1e-9, atol=1e-14)


def test_ratios_are_those_of_the_diffusion(case):
    d, logits, x, _ = case
    possible = d.noise.at(x) > 0
    found, wanted = converters.ratio_from_full(d, logits, x, T).exp(), d.ratio(logits, x, T)
    torch.testing.assert_close(found[possible], wanted[possible])


def test_u4_u5_u6_steps(case):
    d, logits, x, _ = case
    logits_f = converters.full_from_hollow(d, logits, x, T)
    ratios = converters.ratio_from_full(d, logits_f, x, T)
    u4 = converters.step_from_full(d, logits_f, x, T, S)
    u5 = converters.step_from_hollow(d, logits, x, T, S)
    u6 = converters.step_from_ratio(d, ratios, x, T, S)
    for where, a_t, a_s, f_h, x_t, m in each(case):
        wanted = oracle.backward(full(f_h, x_t, a_t, m), x_t, a_s, a_t, m)
        for found in (u4, u5, u6):
            np.testing.assert_allclose(found[where], wanted, rtol=1e-8, atol=1e-12)
    torch.testing.assert_close(u4, d.backward(logits_f, x, T, S).probs())


def test_clean_elements_stay(case):
    d, logits, x, _ = case
    clean = d.noise.at(x) == 0
    stay = torch.nn.functional.one_hot(x, d.noise.num_classes).double()[clean]
    for step in (converters.step_from_full, converters.step_from_hollow):
        torch.testing.assert_close(step(d, logits, x, T, S)[clean], stay)
    ratios = converters.ratio_from_full(d, logits, x, T)
    torch.testing.assert_close(converters.step_from_ratio(d, ratios, x, T, S)[clean], stay)


def test_a_free_ratio_still_gives_a_distribution(case):
    d, logits, x, _ = case
    probs = converters.step_from_ratio(d, 3 * logits.nan_to_num(neginf=-50.0), x, T, S)
    assert (probs >= 0).all()
    torch.testing.assert_close(probs.sum(-1), torch.ones(x.shape, dtype=torch.float64))


def test_nothing_is_nan_at_the_ends(case):
    d, logits, x, _ = case
    one, almost = torch.ones(len(T), dtype=torch.float64), torch.full((len(T),), 1e-6, dtype=torch.float64)
    for t, s in ((one, S), (almost, torch.zeros_like(one))):
        ratios = converters.ratio_from_hollow(d, logits, x, t.clamp(max=0.9999999))
        for probs in (
            converters.step_from_full(d, logits, x, t, s),
            converters.step_from_hollow(d, logits, x, t, s),
            converters.step_from_ratio(d, ratios, x, t, s),
        ):
            torch.testing.assert_close(probs.sum(-1), torch.ones(x.shape, dtype=torch.float64))


def test_the_loss_and_the_step_of_udlm_are_ours_for_a_hollow_output(generator):
    """UDLM (Schiff et al. 2024) puts its network's f in the place of x_0 in q(x_s | x_t, x_0), and so in its loss. With
    c = K a x_0 + 1 - a and g = K a f + 1 - a it is

        -a' / (K a) [K / g_x - K / c_x + sum_z c_z / c_x log(g_x c_z / (g_z c_x))]
    """
    k = 5
    d = usd3.Diffusion(usd3.Uniform(k), usd3.Cosine())
    logits = torch.randn(len(T), D, k, generator=generator, dtype=torch.float64)
    x_t, x_0 = (torch.randint(k, (len(T), D), generator=generator) for _ in range(2))
    x_0[:, 0] = x_t[:, 0]
    full_logits = converters.full_from_hollow(d, logits, x_t, T)
    a, a_s = (d.level(v, logits).alpha_bar for v in (T, S))
    clean, f = torch.nn.functional.one_hot(x_0, k).double(), logits.softmax(-1)
    c, g = (k * a * v + 1 - a for v in (clean, f))
    c_x, g_x = (v.gather(-1, x_t[..., None]) for v in (c, g))
    terms = (c / c_x * torch.log(g_x * c / (g * c_x))).sum(-1)
    loss = d.schedule.beta(T)[:, None] / k * ((k / g_x - k / c_x).squeeze(-1) + terms)
    torch.testing.assert_close(d.loss_terms(full_logits, x_t, x_0, T).vlb, loss, rtol=1e-9, atol=1e-12)
    into = a / a_s * torch.nn.functional.one_hot(x_t, k) + (1 - a / a_s) / k  # q(x_t | x_s)
    step = into * (a_s * f + (1 - a_s) / k)
    step = step / step.sum(-1, keepdim=True)
    torch.testing.assert_close(d.backward(full_logits, x_t, T, S).probs(), step, rtol=1e-9, atol=1e-12)
    assert not torch.allclose(d.backward(logits, x_t, T, S).probs(), step, atol=0.01)  # read as full it is another step


def test_a_category_that_is_never_noise_has_no_shift():
    d = usd3.Diffusion(usd3.Absorbing(3), usd3.Linear())
    shift = converters.hollow_shift(d, torch.tensor([[0, 1, 2]]), torch.tensor([0.25], dtype=torch.float64))
    torch.testing.assert_close(shift, torch.tensor([[0, 0, math.log(4)]], dtype=torch.float64))
