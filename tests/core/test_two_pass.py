"""Losses that call the network twice. Prop. 5 (any S_t) equals Prop. 6 in expectation, by enumeration of x and z."""

import itertools

import numpy as np
import pytest
import torch

import usd3
from support import oracle
from support.statistics import chi_square_p_value
from usd3._internal.checks import Checks
from usd3.core import two_pass
from usd3.core.belief import model_belief, true_belief
from usd3.core.two_pass import auxiliary, auxiliary_weight, two_pass_terms

K, D, T_USER = 3, 2, 0.6
STATES = torch.tensor(list(itertools.product(range(K), repeat=D)))
FREE = torch.ones(K**D, D, dtype=torch.bool)
_random = np.random.default_rng(3)
MS = _random.dirichlet(np.ones(K), size=D)

NOISES = {
    "uniform": usd3.Uniform(K),
    "random": usd3.Marginal(MS[0]),
    "per_element": usd3.Marginal(MS),
}
JUMPS = {
    "forward rate": lambda noise: noise.probs[..., None, :].expand(*noise.probs.shape[:-1], K, K).double(),
    "uniform": lambda noise: torch.ones(K, K, dtype=torch.float64),
    "random": lambda noise: torch.from_numpy(_random.uniform(0.1, 2, (K, K))),
    "random per element": lambda noise: torch.from_numpy(_random.uniform(0.1, 2, (D, K, K))),
}


def rows(noise):
    return np.broadcast_to(noise.probs.numpy(), (D, K))


def jump_matrix(jumps):
    """S(z | x) over whole objects, normalised: probability of the auxiliary z given x."""
    s = jumps.expand(D, K, K).numpy()
    matrix = np.zeros((K**D, K**D))
    for i, x in enumerate(STATES.tolist()):
        for j, z in enumerate(STATES.tolist()):
            moved = [e for e in range(D) if x[e] != z[e]]
            if len(moved) == 1:
                matrix[i, j] = s[moved[0], x[moved[0]], z[moved[0]]]
    return matrix / matrix.sum(1, keepdims=True)


@pytest.fixture(params=NOISES)
def d(request):
    return usd3.Diffusion(NOISES[request.param], usd3.Cosine())


@pytest.fixture
def network():
    """Logits at every object: any function of the whole object will do."""
    return torch.randn(K**D, D, K, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


@pytest.mark.parametrize("kind", JUMPS)
@pytest.mark.parametrize("x_0", [(0, 0), (2, 1)])
def test_two_passes_equal_one_pass_in_expectation(d, network, kind, x_0):
    jumps, x_0 = JUMPS[kind](d.noise), torch.tensor([x_0]).expand(K**D, D)
    time = torch.full((K**D,), T_USER, dtype=torch.float64)
    level, to = d.level(time, STATES), d.rate_weights(time, STATES)
    q = d.q_probs(x_0, T_USER)
    weight = auxiliary_weight(STATES, q, jumps, FREE)
    q_object = np.kron(q[0, 0].numpy(), q[0, 1].numpy())
    # the auxiliary has density q(z) M(z)
    np.testing.assert_allclose(q_object @ jump_matrix(jumps), q_object * weight.numpy(), rtol=1e-10)

    model = model_belief(network, STATES, d.noise, level, Checks(False))
    truth = true_belief(x_0, STATES, d.noise, level)
    joint = q_object[:, None] * jump_matrix(jumps)
    total = 0.0
    for i, j in itertools.product(range(K**D), repeat=2):
        at = [[i], [j]]
        pick = lambda belief, k: type(belief)(
            **{n: v[k] if isinstance(v, torch.Tensor) and v.numel() else v for n, v in vars(belief).items()}
        )
        one = two_pass_terms(
            pick(truth, at[1]), pick(model, at[0]), pick(model, at[1]), x_0[:1],
            type(to)(to.to_data[:1], to.to_noise[:1]), weight[at[1]], FREE[:1],
        )  # fmt: skip
        total += joint[i, j] * float(one)
    single = float((q_object * d.loss_terms(network, STATES, x_0, T_USER).vlb.sum(1).numpy()).sum())
    assert total == pytest.approx(single, rel=1e-9)


def test_one_pass_equals_the_multi_pass_bound_of_the_chain(d, network):
    """E over x of sum_z [rhat(z|x) - r(z|x) log rhat(x|z)] + constants: the network at every neighbour."""
    x_0, ms = (2, 1), rows(d.noise)
    alpha, beta = oracle.ALPHA_BAR["cosine"](T_USER), float(d.schedule.beta(T_USER))
    f = oracle.softmax(network.numpy())
    index = {tuple(s): i for i, s in enumerate(STATES.tolist())}
    total = 0.0
    for x, i in index.items():
        q_x = np.prod([oracle.transition(alpha, ms[e])[x_0[e], x[e]] for e in range(D)])
        for e, z_e in itertools.product(range(D), range(K)):
            if z_e == x[e]:
                continue
            z = tuple(z_e if k == e else x[k] for k in range(D))
            forward = beta * ms[e][z_e]
            back = oracle.reverse_rate(f[index[z], e], z_e, alpha, beta, ms[e])[x[e]]
            true = oracle.reverse_rate(np.eye(K)[x_0[e]], z_e, alpha, beta, ms[e])[x[e]]
            total += q_x * (oracle.reverse_rate(f[i, e], x[e], alpha, beta, ms[e])[z_e])
            total += q_x * forward * (np.log(true) - np.log(back) - 1)
    target = torch.tensor([x_0]).expand(K**D, D)
    q = d.q_probs(target, T_USER)
    q_object = np.kron(q[0, 0].numpy(), q[0, 1].numpy())
    single = float((q_object * d.loss_terms(network, STATES, target, T_USER).vlb.sum(1).numpy()).sum())
    assert total == pytest.approx(single, rel=1e-9)


@pytest.mark.parametrize("kind", JUMPS)
def test_the_auxiliary_is_drawn_from_its_distribution(d, kind, generator):
    jumps, n = JUMPS[kind](d.noise), 40_000
    x = torch.tensor([[1, 2]]).expand(n, D)
    z = auxiliary(x, jumps, torch.ones(n, D, dtype=torch.bool), generator)
    seen = torch.bincount(z[:, 0] * K + z[:, 1], minlength=K**D).numpy()
    assert chi_square_p_value(seen, n * jump_matrix(jumps)[1 * K + 2]) > 1e-6


def test_only_free_elements_jump_and_stuck_objects_stay(generator):
    x = torch.tensor([[0, 1], [2, 2]])
    free = torch.tensor([[True, False], [False, False]])
    z = auxiliary(x, torch.ones(3, 3, dtype=torch.float64), free, generator)
    assert z[0, 0] != 0
    assert z[0, 1] == 1
    assert torch.equal(z[1], x[1])


@pytest.mark.parametrize("noise", [usd3.Uniform(K), usd3.Absorbing(K + 1), usd3.Marginal([0.5, 0.5, 0.0])])
def test_two_pass_loss_estimates_the_one_pass_loss(noise, generator):
    """Same mean over 60 batches of 2000; false alarm below 1e-6."""
    d = usd3.Diffusion(noise, usd3.Linear())
    k = noise.num_classes
    table = torch.randn(D, k, generator=generator)
    model = lambda x, t: table + torch.nn.functional.one_hot(x.flip(1), k)
    x_0 = torch.tensor([[0, 1]]).expand(2000, D)
    t = torch.linspace(0.1, 0.9, 2000)
    one = torch.stack([d.loss(model, x_0, "vlb", t=t, generator=generator).vlb for _ in range(60)]).double()
    outs = [usd3.two_pass_loss(d, model, x_0, ce=0.5, t=t, generator=generator) for _ in range(60)]
    two = torch.stack([out.vlb for out in outs])
    assert abs(one.mean() - two.mean()) < 5 * (one.var() / 60 + two.var() / 60).sqrt()
    for out in outs:
        torch.testing.assert_close(out.loss, out.vlb / (1 - d.t_min) + 0.5 * out.ce)


def test_partial_times_stay_apart_at_the_edge_of_the_uniforms(monkeypatch):
    monkeypatch.setattr(
        two_pass, "uniform", lambda shape, *_: torch.full(tuple(shape), 1 - 2.0**-53, dtype=torch.float64)
    )
    d = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine())
    model = lambda x, t: torch.zeros(*x.shape, K)
    assert usd3.partial_time_loss(d, model, torch.zeros(64, D, dtype=torch.long)).loss.isfinite()


def test_two_pass_loss_trains_and_masks(generator):
    d = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine())
    logits = torch.zeros(8, D, K, requires_grad=True)
    given = torch.tensor([True, False])
    out = usd3.two_pass_loss(
        d,
        lambda x, t: logits,
        torch.zeros(8, D, dtype=torch.long),
        ce=0.1,
        given=given,
        generator=generator,
        stratified=True,
    )
    out.loss.backward()
    assert (logits.grad[:, 0] == 0).all()
    assert logits.grad[:, 1].abs().sum() > 0
    with pytest.raises(ValueError, match=r"diffusion = .*: expected continuous time"):
        usd3.two_pass_loss(usd3.Diffusion(usd3.Uniform(K), usd3.Cosine(), 5), None, torch.zeros(1, 1).long())
    with pytest.raises(ValueError, match=r"jumps\.shape = \(2, 2\): expected \(\.\.\., 3, 3\)"):
        usd3.two_pass_loss(d, lambda x, t: logits, torch.zeros(8, D).long(), jumps=torch.ones(2, 2))
    with pytest.raises(ValueError, match="jumps contains -1: expected rates >= 0 off the diagonal"):
        usd3.two_pass_loss(d, lambda x, t: logits, torch.zeros(8, D).long(), jumps=-torch.ones(3, 3))
    rate_matrix = torch.ones(3, 3) - 3 * torch.eye(3)  # its negative diagonal is not read
    assert usd3.two_pass_loss(d, lambda x, t: logits, torch.zeros(8, D).long(), jumps=rate_matrix).loss.isfinite()


@pytest.mark.parametrize("num_steps", [None, 10])
def test_partial_time_loss_plus_prior_is_the_bound_of_the_two_step_grid(num_steps, generator):
    """KL(t -> s) + CE at s + prior at t estimates `bound(times=[t, s, 0])`; false alarm below 1e-6."""
    d = usd3.Diffusion(usd3.Marginal(MS), usd3.Cosine(), num_steps)
    t, s = (7, 2) if num_steps else (0.7, 0.2)
    table = torch.randn(D, K, generator=generator)
    model = lambda x, time: table * time[:, None, None] + torch.nn.functional.one_hot(x.flip(1), K)
    x_0 = torch.tensor([[0, 1]]).expand(1000, D)
    loss = torch.stack(
        [usd3.partial_time_loss(d, model, x_0, t, s, generator=generator).loss for _ in range(60)]
    ).double()
    bound = torch.stack([d.bound(model, x_0, times=[t, s, 0], generator=generator).mean() for _ in range(60)])
    gap = loss.mean() + d.prior(x_0[:1], t).sum() - bound.mean()
    assert abs(float(gap)) < 5 * float((loss.var() / 60 + bound.var() / 60).sqrt())


@pytest.mark.parametrize("num_steps", [None, 4])
def test_partial_time_loss_draws_its_own_times_and_masks(num_steps, generator):
    d = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine(), num_steps)
    logits, seen = torch.zeros(64, D, K, requires_grad=True), []

    def model(x, t):
        seen.append(t)
        return logits

    given = torch.tensor([True, False])
    out = usd3.partial_time_loss(
        d, model, torch.zeros(64, D, dtype=torch.long), given=given, generator=generator, stratified=True
    )
    out.loss.backward()
    assert (seen[1] < seen[0]).all()
    assert (seen[1] == 0).any() == (num_steps is not None)
    assert (logits.grad[:, 0] == 0).all()
    assert logits.grad[:, 1].isfinite().all()
    torch.testing.assert_close(out.loss.detach(), out.vlb + out.ce)


def test_without_a_weight_the_cross_entropy_is_only_logged(generator):
    d, logits = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine()), torch.tensor([[[0.0, 1.0, 2.0]] * D] * 4)
    out = usd3.two_pass_loss(d, lambda x, t: logits, torch.zeros(4, D, dtype=torch.long), generator=generator)
    assert out.ce > 0.1
    torch.testing.assert_close(d.vlb_scale * out.loss, out.vlb)


def test_an_object_that_cannot_jump_has_no_second_pass():
    """S leaves category 0 alone, so the loss of an object of zeros is the exit rate of the model: the part at x."""
    d, x_0, t = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine()), torch.zeros(2, D, dtype=torch.long), 1e-6
    logits = torch.randn(2, D, K, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    jumps = torch.ones(K, K, dtype=torch.float64)
    jumps[0] = 0
    generator = torch.Generator().manual_seed(0)  # no element is noise at this t
    out = usd3.two_pass_loss(d, lambda x, t: logits, x_0, jumps, t=t, generator=generator)
    assert float(out.loss) == pytest.approx(float(d.rate(logits, x_0, t).sum((1, 2)).mean()), rel=1e-12)


def test_an_object_that_jumps_has_a_second_pass():
    d, x_0 = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine()), torch.zeros(8, 1, dtype=torch.long)
    logits = torch.zeros(8, 1, K, dtype=torch.float64)
    given_jumps, default = (
        usd3.two_pass_loss(d, lambda x, t: logits, x_0, jumps, t=0.5, generator=torch.Generator().manual_seed(0)).loss
        for jumps in (torch.full((K, K), 1 / K), None)  # the same S
    )
    torch.testing.assert_close(given_jumps, default, rtol=1e-6, atol=0)


def test_jumps_may_differ_between_objects_and_elements():
    """S of (B, D, K, K): each object jumps by the rates of its own element, here to one category alone."""
    x = torch.tensor([[0, 1], [2, 2], [1, 0]])
    jumps = torch.zeros(3, D, K, K, dtype=torch.float64)
    jumps[0, 0, 0, 2] = jumps[1, 1, 2, 0] = jumps[2, 0, 1, 2] = 1
    z = auxiliary(x, jumps, torch.ones(3, D, dtype=torch.bool), torch.Generator().manual_seed(0))
    assert z.tolist() == [[2, 1], [2, 0], [2, 0]]
