"""What `Diffusion.loss` makes of the terms: weights, times, masks, the log."""

import types

import pytest
import torch

import usd3
from support.problems import D, K
from support.toys import random_logits
from usd3.core.objectives import element_loss
from usd3.nets import Hollow, Transformer

T = 10


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


def one_batch(given=None):
    d = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine(), t_min=0.2)
    return d, d.noisy_batch(torch.zeros(2, D, dtype=torch.long), 0.5, given)


def test_a_loss_of_elements_is_logged_as_the_bound_with_the_entropy_that_is_given():
    given = torch.tensor([True] + [False] * (D - 1))
    d, batch = one_batch(given)
    terms = torch.arange(2.0 * D).reshape(2, D)
    out = element_loss(d, terms, batch, ce=terms + 1)
    loss = float(terms[:, 1:].sum()) / 2
    assert float(out.loss) == loss
    assert float(out.vlb) == pytest.approx(0.8 * loss)
    assert float(out.ce) == loss + D - 1


def test_a_loss_of_elements_without_an_entropy_logs_nan():
    d, batch = one_batch()
    out = element_loss(d, torch.ones(2, D), batch)
    assert out.ce.isnan()
    assert float(out.loss) == D


def test_a_clip_is_for_the_bound_alone():
    terms = types.SimpleNamespace(vlb=torch.tensor([[2.0]]), ce=torch.tensor([[3.0]]))
    clip = torch.tensor([[0.5]], dtype=torch.float64)
    assert float(usd3.Objective(vlb=1, ce=1).combine(terms, clip)) == 4
    assert float(usd3.Objective(vlb=1, ce=1).combine(terms, None)) == 5
    assert float(usd3.Objective(ce=1).combine(terms, clip)) == 3
