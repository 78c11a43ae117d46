"""Every loss against tests/oracle.py, and what `Diffusion.loss` makes of them."""

import numpy as np
import pytest
import torch

import usd3
from support import oracle
from support.problems import D, K, all_pairs, supported
from support.toys import ALPHA, random_logits, rows_of
from usd3.nets import Hollow, Transformer

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


# ---- Diffusion.loss ---------------------------------------------------------------------------------------------


def constant_model(logits):
    return lambda x, t: logits


def test_named_objectives_weigh_the_terms_as_documented(generator):
    noise = usd3.Marginal([0.1, 0.2, 0.3, 0.4])
    x_0 = torch.randint(K, (6, D), generator=generator)
    logits = random_logits(x_0)
    for num_steps, t in ((T, torch.tensor([1, 2, 3, 5, 8, 10])), (None, torch.tensor([0.01, 0.2, 0.4, 0.6, 0.9, 1.0]))):
        d = usd3.Diffusion(noise, usd3.Cosine(), num_steps)
        seen = {}

        def model(x, _, seen=seen):
            seen["x_t"] = x
            return logits

        for objective in ("usd3", "usd3*", "vlb", "ce", usd3.Objective(vlb=2.0, ce=0.5)):
            out = d.loss(model, x_0, objective, t=t)
            terms = d.loss_terms(logits, seen["x_t"], x_0, t)
            vlb, ce = terms.vlb.sum(1), terms.ce.sum(1)
            simple = terms.l2.sum(1) + ce if num_steps else vlb * (1 / d.schedule.beta(t.double())).clamp(max=1) + ce
            expected = {"usd3": vlb + 0.001 * ce, "usd3*": simple, "vlb": vlb, "ce": ce}
            expected = 2 * vlb + 0.5 * ce if isinstance(objective, usd3.Objective) else expected[objective]
            assert float(out.loss) == pytest.approx(float(expected.mean()), rel=1e-9)
            assert float(out.ce) == pytest.approx(float(ce.mean()), rel=1e-9)
            assert float(out.vlb) == pytest.approx((num_steps or 0.999) * float(vlb.mean()), rel=1e-9)
            assert not out.vlb.requires_grad


def test_second_order_objective_trains():
    d = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine(), T)
    logits = torch.zeros(8, D, K, requires_grad=True)
    out = d.loss(constant_model(logits), torch.zeros(8, D, dtype=torch.long), usd3.Objective(kl2=1.0))
    out.loss.backward()
    assert logits.grad.abs().sum() > 0


def test_logged_vlb_is_bound_minus_prior_minus_decoder(generator):
    """The expectation over t and x_t, in both kinds of time; stratified times spread evenly."""
    noise = usd3.Uniform(3)
    table = torch.randn(2, 3, dtype=torch.float64, generator=generator)
    model = lambda x, t: table.expand(len(x), 2, 3)
    x_0 = torch.tensor([[0, 2]])
    for num_steps in (T, None):
        d = usd3.Diffusion(noise, usd3.Cosine(), num_steps, t_min=0.05)
        bound = d.bound(model, x_0.expand(4000, 2), generator=generator)
        logged = torch.stack(
            [d.loss(model, x_0.expand(512, 2), generator=generator, stratified=True).vlb for _ in range(200)]
        )
        # the decoder term of a model that ignores x is its cross entropy
        decoder = 0 if num_steps else -float(table.log_softmax(-1).gather(-1, x_0.T).sum())
        gap = float(bound.mean()) - float(d.prior(x_0).sum()) - decoder - float(logged.mean())
        assert abs(gap) < 5 * (float(bound.std()) / 4000**0.5 + float(logged.std()) / 200**0.5)


def test_stratified_times_fill_every_part_and_lower_the_variance(generator):
    d, x_0 = usd3.Diffusion(usd3.Uniform(5), usd3.Cosine()), torch.zeros(64, 20, dtype=torch.long)
    t = d.draw_times(64, stratified=True, generator=generator)
    assert torch.equal((((t - d.t_min) / (1 - d.t_min)) * 64).clamp(max=63.99).long(), torch.arange(64))
    steps = usd3.Diffusion(usd3.Uniform(5), usd3.Cosine(), 64).draw_times(64, stratified=True, generator=generator)
    assert torch.equal(steps, torch.arange(1, 65))
    free = d.draw_times(100_000, generator=generator)
    assert free.min() >= 0.001
    assert free.max() <= 1
    assert abs(float(free.mean()) - 0.5005) < 5 * 0.29 / 100_000**0.5
    d, model = usd3.Diffusion(usd3.Uniform(5), usd3.Cosine(), t_min=0.1), lambda x, t: torch.zeros(*x.shape, 5)
    spread = [
        torch.stack([d.loss(model, x_0, generator=generator, stratified=s).loss for _ in range(100)]).std()
        for s in (False, True)
    ]
    assert spread[1] < 0.6 * spread[0]


def test_given_and_pad_elements_carry_no_loss_and_reach_the_model(generator):
    d = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine())
    x_0 = torch.randint(K, (16, D), generator=generator)
    given = torch.rand(16, D, generator=generator) < 0.3
    pad = ~given & (torch.rand(16, D, generator=generator) < 0.3)
    logits = random_logits(x_0).requires_grad_()
    calls = {}

    def model(x_t, t, pad, given):
        calls.update(pad=pad, given=given, x_t=x_t)
        return logits

    d.loss(model, x_0, given=given, pad=pad, t=1.0).loss.backward()
    fixed = given | pad
    assert torch.equal(calls["x_t"][fixed], x_0[fixed])
    assert torch.equal(calls["given"], given)
    assert torch.equal(calls["pad"], pad)
    assert (logits.grad[fixed] == 0).all()
    assert (logits.grad[~fixed].abs().sum(-1) > 0).all()


def test_a_model_that_names_given_always_gets_a_mask_and_one_that_does_not_never_does():
    d = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine())
    x_0 = torch.zeros(2, D, dtype=torch.long)
    logits, seen = torch.zeros(2, D, K), []

    def named(x, t, given):
        seen.append(given)
        return logits

    def any_keyword(x, t, **masks):
        seen.append(sorted(masks))
        return logits

    d.loss(named, x_0)
    assert seen.pop().any() == False  # noqa: E712
    d.loss(any_keyword, x_0)
    assert seen.pop() == []
    d.loss(any_keyword, x_0, given=torch.tensor([True, False, False]))
    assert seen.pop() == ["given"]
    d.loss(lambda x, t: logits, x_0, given=torch.tensor([True, False, False]))

    class Net(torch.nn.Module):
        def forward(self, x, t, given=None):
            seen.append(given)
            return logits

    d.loss(torch.nn.DataParallel(Net()), x_0, given=torch.tensor([True, False, False]))
    assert seen.pop().sum() == 2


def test_the_model_sees_the_time_that_is_meant():
    seen = []

    def model(x, t):
        seen.append(t)
        return torch.zeros(*x.shape, K)

    x_0 = torch.zeros(3, D, dtype=torch.long)
    usd3.Diffusion(usd3.Uniform(K), usd3.Linear(), 10).loss(model, x_0, t=torch.tensor([1, 5, 10]))
    torch.testing.assert_close(seen.pop(), torch.tensor([0.1, 0.5, 1.0]))
    usd3.Diffusion(usd3.Uniform(K), usd3.Linear()).loss(model, x_0, t=0.25)
    torch.testing.assert_close(seen.pop(), torch.full((3,), 0.25))


def test_a_generator_makes_the_loss_reproducible():
    d = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine())
    model = lambda x, t: torch.nn.functional.one_hot(x, K) * t[:, None, None]
    x_0 = torch.zeros(9, D, dtype=torch.long)
    a, b = (d.loss(model, x_0, generator=torch.Generator().manual_seed(3)).loss for _ in range(2))
    assert torch.equal(a, b)


def test_the_minimum_of_the_second_order_kl_is_not_the_right_model():
    """Errata 9: over x_0 ~ (0.9, 0.1), the posterior mean has a lower VLB and a higher kl2 than some other f."""
    d, x_t = usd3.Diffusion(usd3.Uniform(2), usd3.Cosine(), T), torch.zeros(2, 1, dtype=torch.long)
    x_0, w = torch.tensor([[0], [1]]), torch.tensor([[0.9], [0.1]]).double()
    values = {}
    for p in (0.9, 0.99):
        logits = torch.tensor([p, 1 - p]).double().log().expand(2, 1, 2)
        terms = d.loss_terms(logits, x_t, x_0, 2)
        values[p] = [float((w * term).sum()) for term in (terms.vlb, terms.l2, terms.kl2)]
    assert values[0.9][0] < values[0.99][0]
    assert values[0.9][1] < values[0.99][1]
    assert values[0.9][2] > values[0.99][2]


@pytest.mark.parametrize(
    ("noise", "num_steps"), [(usd3.Uniform(K), 10), (usd3.Absorbing(K), None)], ids=["uniform-10", "absorbing-None"]
)
def test_the_whole_loss_compiles_as_one_graph(noise, num_steps):
    d = usd3.Diffusion(noise, usd3.Cosine(), num_steps, validate=False)
    net = Transformer(K, dim=8, depth=1, heads=2, mlp=8)
    torch.nn.init.normal_(net.logits.weight)
    model = Hollow(net, d)

    def loss(x_0):
        return d.loss(model, x_0, given=torch.arange(D) < 1, stratified=True).loss

    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    x_0 = torch.randint(K - 1, (6, D), generator=torch.Generator().manual_seed(1))
    results = []
    for function in (loss, compiled):
        torch.manual_seed(0)
        value = function(x_0)
        results.append((value, *torch.autograd.grad(value, list(net.layers.parameters()))))
    for eager, graph in zip(*results):
        torch.testing.assert_close(graph, eager)
