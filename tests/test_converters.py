"""The meanings of a network's output and the ways between them, against enumeration in float64."""

import numpy as np
import oracle
import pytest
import torch
from conftest import NOISES, D

import usd3
from usd3 import converters

T = torch.tensor([0.01, 0.2, 0.5, 0.7, 0.9, 0.999], dtype=torch.float64)
S = torch.tensor([0.0, 0.1, 0.45, 0.05, 0.89, 0.4], dtype=torch.float64)


@pytest.fixture(params=NOISES)
def case(request):
    """A diffusion, hollow logits and x_t, for six times; and m, one row per element."""
    make, rows = NOISES[request.param]
    d = usd3.Diffusion(make(), usd3.Cosine())
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(len(T), D, d.noise.num_classes, generator=generator, dtype=torch.float64)
    if d.noise.mask is not None:
        logits[..., d.noise.mask] = -torch.inf
    x = torch.randint(d.noise.num_classes, (len(T), D), generator=generator)
    return d, logits, x, np.broadcast_to(np.asarray(rows() if callable(rows) else rows), (D, d.noise.num_classes))


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
