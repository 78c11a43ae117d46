"""Every closed form of the forward and backward process, against support/oracle.py."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import usd3
from support import oracle
from support.problems import D, K, all_pairs, data_categories, supported
from support.statistics import chi_square_p_value
from support.toys import ALPHA, random_logits, rows_of

T = 10
TIMES = [(1.0, 0.6), (0.7, 0.3), (0.3, 0.0), (0.05, 0.01), (1.0, 0.0)]


def both_modes(noise):
    """Continuous and discrete time, with the (t, s) pairs of TIMES in the units of each."""
    continuous, discrete = usd3.Diffusion(noise, usd3.Cosine()), usd3.Diffusion(noise, usd3.Cosine(), 100)
    for t, s in TIMES:
        yield continuous, t, s, t, s
        yield discrete, t, s, round(100 * t), round(100 * s)


def test_q_probs_is_a_row_of_the_transition_matrix(noise):
    noise, ms = noise
    x_0, _ = all_pairs(noise, ms)
    for d, t, _, t_user, _ in both_modes(noise):
        expected = rows_of(lambda i, e, t=t: oracle.transition(ALPHA(t), ms[e])[x_0[i, e]], x_0)
        np.testing.assert_allclose(d.q_probs(x_0, t_user), expected, atol=1e-14)


def test_q_sample_follows_q_probs_and_keeps_what_is_given(noise, generator):
    noise, ms = noise
    d, n = usd3.Diffusion(noise, usd3.Cosine()), 50_000
    x_0 = torch.tensor([data_categories(noise, e)[-1] for e in range(D)]).expand(n, D)
    given = torch.tensor([False, False, True])
    x_t = d.q_sample(x_0, 0.6, given=given, generator=generator)
    assert torch.equal(x_t[:, 2], x_0[:, 2])
    for e in range(2):
        expected = n * oracle.transition(ALPHA(0.6), ms[e])[x_0[0, e]]
        assert chi_square_p_value(torch.bincount(x_t[:, e], minlength=K), expected) > 1e-6


def test_posterior_is_bayes_rule(noise):
    noise, ms = noise
    x_0, x_t = all_pairs(noise, ms)
    for d, t, s, t_user, s_user in both_modes(noise):
        possible = rows_of(lambda i, e, t=t: oracle.transition(ALPHA(t), ms[e])[x_0[i, e], x_t[i, e]] > 1e-14, x_t)
        probs = d.posterior(x_0, x_t, t_user, s_user).probs().numpy()
        for i, e in zip(*np.nonzero(possible)):
            expected = oracle.posterior(int(x_0[i, e]), int(x_t[i, e]), ALPHA(s), ALPHA(t), ms[e])
            np.testing.assert_allclose(probs[i, e], expected, atol=1e-12)


def test_backward_is_the_posterior_averaged_over_clean_categories(noise):
    noise, ms = noise
    _, x_t = all_pairs(noise, ms)
    logits = random_logits(x_t)
    f = supported(oracle.softmax(logits.numpy()), x_t, noise, ms)
    for d, t, s, t_user, s_user in both_modes(noise):
        if t == 1.0 and noise.has_zeros:
            continue  # alpha_bar = 0: categories with m = 0 cannot occur at all
        probs = d.backward(logits, x_t, t_user, s_user).probs()
        expected = rows_of(
            lambda i, e, t=t, s=s: oracle.backward(f[i, e], int(x_t[i, e]), ALPHA(s), ALPHA(t), ms[e]), x_t
        )
        np.testing.assert_allclose(probs, expected, atol=1e-12)


def test_the_last_step_is_a_draw_from_f():
    d = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine())
    x_t = torch.randint(K, (5, D))
    logits = random_logits(x_t)
    torch.testing.assert_close(d.backward(logits, x_t, 0.4, 0).probs(), logits.softmax(-1), rtol=1e-12, atol=1e-14)


def test_backward_is_linear_in_f_and_prop_3_is_its_difference():
    noise = usd3.Marginal([0.1, 0.2, 0.3, 0.4])
    d, x_t, x_0 = usd3.Diffusion(noise, usd3.Cosine()), torch.tensor([[0, 1, 2]]), torch.tensor([[0, 3, 1]])
    logits = random_logits(x_t)
    f, m, t, s = logits.softmax(-1), noise.probs, 0.7, 0.4
    a_t, a_s, e_t, e_0 = ALPHA(t), ALPHA(s), torch.eye(K).double()[x_t], torch.eye(K).double()[x_0]
    phi = (1 - a_s) * (a_t / a_s) / (a_t + (1 - a_t) * m[x_t])
    gap = f - e_0 + (phi * (f.gather(-1, x_t[..., None])[..., 0] - (x_t == x_0).double()))[..., None] * (e_t - m)
    difference = d.backward(logits, x_t, t, s).probs() - d.posterior(x_0, x_t, t, s).probs()
    torch.testing.assert_close(difference, (1 - (1 - a_s) / (1 - a_t)) * gap, rtol=0, atol=1e-14)


def test_reverse_rate_and_ratio(noise):
    noise, ms = noise
    d = usd3.Diffusion(noise, usd3.Cosine())
    _, x_t = all_pairs(noise, ms)
    logits = random_logits(x_t)
    f = supported(oracle.softmax(logits.numpy()), x_t, noise, ms)
    for t in (0.9, 0.5, 0.01):
        beta = float(d.schedule.beta(t))
        rates = rows_of(lambda i, e, t=t, b=beta: oracle.reverse_rate(f[i, e], int(x_t[i, e]), ALPHA(t), b, ms[e]), x_t)
        np.testing.assert_allclose(d.rate(logits, x_t, t), rates, rtol=1e-9, atol=1e-12)
        g = rows_of(lambda i, e, t=t: oracle.ratio(f[i, e], int(x_t[i, e]), ALPHA(t), ms[e]), x_t)
        np.testing.assert_allclose(d.ratio(logits, x_t, t), g, rtol=1e-9, atol=1e-12)


def test_the_rate_is_the_limit_of_the_backward_step(noise):
    noise, ms = noise
    d, dt, t = usd3.Diffusion(noise, usd3.Cosine()), 1e-6, 0.4
    _, x_t = all_pairs(noise, ms)
    logits = random_logits(x_t)
    step = d.backward(logits, x_t, t, t - dt).probs().scatter(-1, x_t[..., None], 0.0) / dt
    torch.testing.assert_close(step, d.rate(logits, x_t, t), rtol=1e-4, atol=1e-6)


def test_elements_of_any_shape_give_the_same_numbers():
    """(B, 6), (B, 2, 3) and (B, 1, 6, 1) are the same object; so is (B * 6,) for per-element results."""
    noise = usd3.Marginal([0.1, 0.2, 0.3, 0.4])
    d = usd3.Diffusion(noise, usd3.Cosine(), T)
    x_0, x_t = torch.randint(K, (2, 5, 6), generator=torch.Generator().manual_seed(0))
    logits = random_logits(x_t)
    t = torch.tensor([1, 3, 5, 7, 10])
    flat = d.loss_terms(logits, x_t, x_0, t)
    for shape in ((5, 2, 3), (5, 1, 6, 1)):
        shaped = d.loss_terms(logits.reshape(*shape, K), x_t.reshape(shape), x_0.reshape(shape), t)
        for name in ("vlb", "ce", "l2", "kl2"):
            assert torch.equal(getattr(shaped, name).reshape(5, 6), getattr(flat, name))
        mix = d.backward(logits.reshape(*shape, K), x_t.reshape(shape), t, t - 1)
        assert mix.sample().shape == shape
    alone = d.loss_terms(logits.reshape(30, K), x_t.reshape(30), x_0.reshape(30), t.repeat_interleave(6))
    torch.testing.assert_close(alone.vlb, flat.vlb.reshape(30), rtol=1e-12, atol=0)
    model = lambda x, t: torch.zeros(*x.shape, K)
    assert d.loss(model, x_0.reshape(5, 2, 3)).loss.isfinite()
    assert d.bound(model, x_0.reshape(5, 2, 3), num_samples=2).shape == (5,)
    assert d.sample(model, (4, 2, 3), 3).shape == (4, 2, 3)


def test_integer_dtypes_go_in_and_int64_comes_out():
    d = usd3.Diffusion(usd3.Uniform(5), usd3.Linear())
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        assert d.q_sample(torch.zeros(2, 3, dtype=dtype), 0.5).dtype == torch.int64


def test_a_schedule_with_an_offset_still_starts_from_clean_data():
    d = usd3.Diffusion(usd3.Uniform(4), usd3.Geometric(0.05, 20.0, offset=True))
    x = torch.randint(4, (8, 3))
    assert torch.equal(d.q_sample(x, 0.0), x)
    logits = random_logits(x)
    torch.testing.assert_close(d.backward(logits, x, 0.5, 0.0).probs(), logits.softmax(-1), rtol=1e-12, atol=1e-15)
    expected = oracle.posterior(
        1, 2, float(d.schedule.alpha_bar(0.1)), float(d.schedule.alpha_bar(0.6)), np.full(4, 0.25)
    )
    np.testing.assert_allclose(
        d.posterior(torch.tensor([[1]]), torch.tensor([[2]]), 0.6, 0.1).probs()[0, 0], expected, atol=1e-13
    )


def test_validation_can_be_switched_off():
    d = usd3.Diffusion(usd3.Uniform(3), usd3.Linear(), validate=False)
    x = torch.randint(3, (4, 2))
    assert d.loss(lambda x, t: torch.full((*x.shape, 3), float("nan")), x).loss.isnan()
    assert d.sample(lambda x, t: torch.zeros(*x.shape, 3), (4, 2), 3).shape == (4, 2)


def test_repr():
    assert repr(usd3.Diffusion(usd3.Uniform(3), usd3.Linear(), 7)) == "Diffusion(Uniform(3), Linear(), num_steps=7)"


@pytest.mark.parametrize("num_steps", [None, 20])
def test_a_loss_goes_straight_from_the_draw_to_the_kernels(num_steps):
    """The files of the core that the second call of a loss enters: a reader of the loss opens these."""
    d, x_0 = usd3.Diffusion(usd3.Uniform(7), usd3.Cosine(), num_steps), torch.zeros(2, 3, dtype=torch.long)
    package, entered = Path(usd3.__file__).parent, set()

    def enter(frame, event, argument):
        path = Path(frame.f_code.co_filename)
        if event == "call" and package in path.parents:
            entered.add(path.relative_to(package).as_posix())

    for hook in (None, enter):
        sys.setprofile(hook)
        d.loss(lambda x, t: torch.zeros(*x.shape, 7), x_0)
        sys.setprofile(None)
    path = ["diffusion", "coefficients", "cached", "noise", "model", "objectives"]
    path += ["schedules"] if num_steps is None else []  # discrete time looks its coefficients up
    assert {name for name in entered if name.startswith("core/")} == {f"core/{name}.py" for name in path}


@pytest.mark.parametrize("impl", ["eager", "chunked"])
def test_a_draw_is_that_of_the_backward_mixture(impl, noise):
    """For the same generator; noise with a table needs both uniforms of an element, also for its jumps to m."""
    noise, _ = noise
    d = usd3.Diffusion(noise, usd3.Cosine(), impl=impl)
    x_t = noise.sample(torch.zeros(40, D, dtype=torch.long), torch.Generator().manual_seed(1))
    logits = random_logits(x_t)
    drawn = d.draw(logits, x_t, 0.9, 0.3, torch.Generator().manual_seed(2))
    assert torch.equal(drawn, d.backward(logits, x_t, 0.9, 0.3).sample(torch.Generator().manual_seed(2)))
    assert not torch.equal(drawn, x_t)


@pytest.mark.parametrize(("num_steps", "t"), [(None, 0.6), (10, 6)])
def test_a_loss_from_logits_is_the_weighted_sum_of_the_terms_of_free_elements(num_steps, t):
    d, random = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine(), num_steps), torch.Generator().manual_seed(0)
    x_0, x_t = torch.randint(K, (2, 4, D), generator=random)
    logits = torch.randn(4, D, K, generator=random, dtype=torch.float64)
    given = torch.arange(D) == 0
    terms = d.loss_terms(logits, x_t, x_0, t)
    vlb, ce = (term[:, 1:].sum(1).mean() for term in (terms.vlb, terms.ce))
    out = d.loss_from_logits(logits, x_t, x_0, t, usd3.Objective(vlb=2, ce=0.5), given)
    torch.testing.assert_close(out.loss, 2 * vlb + 0.5 * ce)
    torch.testing.assert_close(out.vlb, d.vlb_scale * vlb)
    torch.testing.assert_close(out.ce, ce)
    with pytest.raises(ValueError, match="expected at least one object"):
        d.loss_from_logits(logits[:0], x_t[:0], x_0[:0], t)
