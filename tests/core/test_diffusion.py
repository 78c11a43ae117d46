"""Every closed form of the forward and backward process, against tests/oracle.py."""

import itertools

import numpy as np
import pytest
import torch

import usd3
from support import oracle
from support.problems import D, K, all_pairs, data_categories, supported
from support.statistics import chi_square_p_value
from support.toys import ALPHA, exact_model, known_joint, random_logits, rows_of

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
    x_0 = torch.full((n, D), data_categories(noise)[-1])
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
    noise, ms = usd3.Marginal(noise.probs[:1]) if noise.probs.dim() == 2 else noise, ms[:1]
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
    noise, ms = usd3.Marginal(noise.probs[:1]) if noise.probs.dim() == 2 else noise, ms[:1]
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


def enumerated_bound(d, joint, model, times):
    """E over x_0 ~ w of the bound of the sampler with these steps, by full enumeration of x_0 and x_t."""
    states = torch.tensor(joint.states)
    w = torch.from_numpy(joint.w.reshape(-1))
    total = float((w[:, None] * d.prior(states, times[0])).sum())
    for t, s in itertools.pairwise(times):
        q = torch.from_numpy(joint.forward_matrix(float(d.schedule.alpha_bar(t))))
        logits = model(states, torch.full((len(states),), t, dtype=torch.float64))
        for i, x_0 in enumerate(states):
            terms = d.loss_terms(logits, states, x_0.expand_as(states), t, s)
            total += float(w[i] * (q[i] * terms.vlb.sum(1)).sum())
    return total


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
