"""RDM against enumeration: the routed step, its loss, and samplers that carry what they believe."""

import itertools
import math

import numpy as np
import pytest
import torch

import usd3
from support import oracle
from support.problems import NOISES, D, K, data_categories, data_like
from support.statistics import chi_square_p_value
from support.toys import exact_model, known_joint
from usd3._internal.checks import Checks
from usd3.core.model import Denoiser
from usd3.core.samplers import Run
from usd3.methods import METHODS, RDM
from usd3.methods.options import MethodConfig
from usd3.methods.rdm import Ranked, Vanilla

T = 10
RANKED = [name for name in RDM.samplers if name != "vanilla"]


def diffusion(noise, steps=T):
    return usd3.Diffusion(noise, usd3.Cosine(), steps)


def alpha(t):
    return oracle.ALPHA_BAR["cosine"](t / T)


def table(noise, seed=0):
    """Logits at every (element, category), float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(D, noise.num_classes, noise.num_classes, generator=generator, dtype=torch.float64)


class Seen:
    """A table model that remembers x_t."""

    def __init__(self, logits):
        self.logits = logits

    def __call__(self, x, t):
        self.x = x
        return self.logits[torch.arange(x.shape[1]), x]


def some_data(noise, n, generator):
    data = torch.tensor([z for z in range(K) if z != noise.mask])
    return data_like(noise, data[torch.randint(len(data), (n, D), generator=generator)])


# ---- loss ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reweighting", "weight"),
    [("none", lambda t: 1), ("linear", lambda t: 1 - (t - 1) / T), ("reciprocal", lambda t: 1 / t)],
)
def test_the_loss_is_the_weighted_cross_entropy_of_noise(noise, reweighting, weight, generator):
    noise, _ = noise
    d, model = diffusion(noise), Seen(table(noise))
    x_0, t = some_data(noise, 40, generator), torch.randint(1, T + 1, (40,), generator=generator)
    given = torch.rand(40, D, generator=generator) < 0.3
    out = RDM(d, reweighting).loss(model, x_0, t, given=given, generator=generator)
    logits = model.logits.numpy().copy()
    for e in range(D):
        logits[e][:, [z for z in range(K) if z not in data_categories(noise, e)]] = -np.inf
    f, wanted = oracle.softmax(logits), 0.0
    for i, e in itertools.product(range(40), range(D)):
        x, clean = int(model.x[i, e]), int(x_0[i, e])
        assert x == clean or not given[i, e]
        wanted -= weight(int(t[i])) * math.log(f[e, x, clean]) * (x != clean) / 40
    assert float(out.loss) == pytest.approx(wanted, rel=1e-9)
    terms = d.loss_terms(model(model.x, None), model.x, x_0, t)
    assert float(out.vlb) == pytest.approx(T * float((terms.vlb * ~given).sum(1).mean()), rel=1e-9)


@pytest.mark.parametrize(("t", "s"), [(1, 0), (4, 3), (8, 2)])
def test_the_routed_step_is_the_posterior_and_its_kl_is_that_of_the_guess(noise, t, s):
    """T1: over outcomes (route, category). b = 0: (1 - mu) CE; b = 1: nothing depends on f."""
    noise, rows = noise
    d, f = diffusion(noise), oracle.softmax(np.random.default_rng(0).normal(size=K))
    mu = (1 - alpha(s)) / (1 - alpha(t))
    found = d.step(*torch.tensor([[t / T], [s / T]], dtype=torch.float64), torch.zeros(1))
    assert float(found.to_data) == pytest.approx(1 - mu, rel=1e-9)
    for m in rows:
        for x_0, x in itertools.product(data_categories(noise), range(K)):
            if m[x] == 0:
                continue
            a_ts = alpha(t) / alpha(s)
            if x == x_0:
                lam = (1 - alpha(s)) * (1 - a_ts) * m[x] / (alpha(t) + (1 - alpha(t)) * m[x])
                routed = (1 - lam) * np.eye(K)[x] + lam * m
            else:
                noisy = mu * (a_ts * np.eye(K)[x] + (1 - a_ts) * m)
                routed = (1 - mu) * np.eye(K)[x_0] + noisy
                outcomes = [np.concatenate([(1 - mu) * g, noisy]) for g in (np.eye(K)[x_0], f)]
                assert oracle.kl(*outcomes) == pytest.approx((1 - mu) * -math.log(f[x_0]), rel=1e-9)
            np.testing.assert_allclose(routed, oracle.posterior(x_0, x, alpha(s), alpha(t), m), atol=1e-12)


def test_with_absorbing_noise_it_is_the_kl_of_the_step(generator):
    """T2."""
    noise = usd3.Absorbing(K, mask=1)
    d, model = diffusion(noise), Seen(table(noise))
    for t in (3, 5, T):
        x_0 = some_data(noise, 50, generator)
        loss = RDM(d).loss(model, x_0, t, generator=generator).loss
        vlb = d.loss_terms(model(model.x, None), model.x, x_0, t).vlb.sum(1).mean()
        mu = (1 - alpha(t - 1)) / (1 - alpha(t))
        assert float(vlb) == pytest.approx((1 - mu) * float(loss), rel=1e-9)
        assert vlb > 0


@pytest.mark.parametrize("right", [False, True])
def test_with_uniform_noise_it_is_neither_that_nor_a_bound_on_it(right):
    """T3, on two examples: too much for one f, and nothing for one that is wrong only at x_t = x_0."""
    x_0, t, generator = 2, 8, torch.Generator().manual_seed(0)
    f = oracle.softmax(np.random.default_rng(1).normal(size=(K, K)))
    if right:
        f = np.where(np.arange(K)[:, None] == x_0, np.eye(K)[0], np.eye(K)[x_0])
        f = (f + 1e-12) / (1 + K * 1e-12)
    model = Seen(torch.from_numpy(np.log(f)).expand(D, K, K))
    out = RDM(diffusion(usd3.Uniform(K))).loss(model, torch.full((4000, D), x_0), t, generator=generator)
    mu = (1 - alpha(t - 1)) / (1 - alpha(t))
    routed, step = (1 - mu) * float(out.loss), float(out.vlb) / T
    assert (routed < 1e-9 < 0.1 < step) if right else (routed > 1.05 * step)


def test_bf16_logits_and_padding(generator):
    noise = usd3.Absorbing(K)
    x_0, pad = some_data(noise, 30, generator), torch.tensor([False, False, True])
    logits = table(noise)
    x_0[:, 2] = noise.mask  # padding may be anything
    d, losses = diffusion(noise), []
    for dtype in (torch.bfloat16, torch.float64):
        weights = logits.to(dtype).requires_grad_()
        model = lambda x, t, pad, weights=weights: weights[torch.arange(D), x]
        out = RDM(d).loss(model, x_0, 5, pad=pad, generator=torch.Generator().manual_seed(1))
        out.loss.backward()
        assert weights.grad.isfinite().all()
        assert (weights.grad[2] == 0).all()
        losses.append(float(out.loss.detach()))
    assert out.loss.dtype == torch.float64
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)


def test_training_lowers_the_loss(generator):
    noise = usd3.Uniform(K)
    weights = torch.zeros(D, K, K, requires_grad=True)
    optimizer, method = torch.optim.Adam([weights], 0.1), RDM(usd3.Diffusion(noise, usd3.Cosine(), T, validate=False))
    x_0, losses = torch.tensor([[0, 1, 2]]).expand(64, D), []
    for _ in range(60):
        out = method.loss(lambda x, t: weights[torch.arange(D), x], x_0, generator=generator, stratified=True)
        optimizer.zero_grad()
        out.loss.backward()
        optimizer.step()
        losses.append((float(out.loss.detach()), float(out.vlb)))
    assert losses[-1][0] < 0.1 * losses[0][0]


# ---- samplers -----------------------------------------------------------------------------------------------------


def run_of(d, model, n, generator, free=None):
    free = torch.ones(n, D, dtype=torch.bool) if free is None else free
    return Run(d, Denoiser(model, d.noise.num_classes, None, None), free, Checks(True), generator)


def product_setting(kind):
    """Independent elements: the exact network reads each by itself."""
    make, rows = NOISES[kind]
    noise, rng = make(), np.random.default_rng(4)
    w = rng.dirichlet(np.ones(K), size=D)
    if noise.mask is not None:
        w[:, noise.mask] = 0
        w /= w.sum(1, keepdims=True)

    def f(e, x, t):
        joint = w[e] * oracle.transition(alpha(t), rows[e])[:, x]
        return joint / joint.sum() if joint.sum() > 0 else np.eye(K)[x]

    def model(x, t):
        known = np.array([[f(e, x, round(float(t[0]) * T)) for x in range(K)] for e in range(D)])
        return torch.from_numpy(np.log(np.maximum(known, 1e-300)))[torch.arange(D), x]

    return noise, rows, w, f, model


def vanilla_law(m, f, times):
    """The distribution of one element in the end: (x, b) propagated, [b, x]."""
    p = np.stack([m, np.zeros(K)])
    for t, s in itertools.pairwise(times):
        mu, a_ts = (1 - alpha(s)) / (1 - alpha(t)) if s else 0.0, alpha(t) / alpha(s)
        after = np.stack([np.zeros(K), p[1]])
        for x in range(K):
            after[1] += p[0, x] * (1 - mu) * f(x, t)
            after[0] += p[0, x] * mu * (a_ts * np.eye(K)[x] + (1 - a_ts) * m)
        p = after
    assert p[0].sum() < 1e-12
    return p[1]


def counts(x):
    return torch.bincount(x[:, 0] * K * K + x[:, 1] * K + x[:, 2], minlength=K**3).numpy()


@pytest.mark.parametrize("kind", ["uniform", "random", "zeros", "per_element", "absorbing"])
def test_vanilla_draws_from_the_law_of_x_and_b(kind, generator):
    """20,000 objects over 64 cells; a false alarm has probability 1e-6."""
    noise, rows, w, f, model = product_setting(kind)
    n, times = 20_000, [10, 7, 6, 2, 0]
    law = [vanilla_law(rows[e], lambda x, t, e=e: f(e, x, t), times) for e in range(D)]
    if kind == "absorbing":  # b = 0 is the mask: it is seen, and for independent elements the steps are exact
        np.testing.assert_allclose(law, w, atol=1e-12)
    else:  # a step believes in what it guesses as if x_t were wrong
        assert oracle.total_variation(law[0], w[0]) > 0.01
    x = RDM(diffusion(noise)).sample(model, (n, D), times, generator=generator)
    joint = np.einsum("i,j,k->ijk", *law).reshape(-1)
    assert chi_square_p_value(counts(x), n * joint) > 1e-6


@pytest.mark.parametrize("kind", ["uniform", "absorbing"])
def test_the_bound_is_one_of_exact_steps_and_not_of_its_own_sampler(kind, generator):
    """With the exact network. Only with a mask, where b is seen, is the bound one of what it samples."""
    make, rows = NOISES[kind]
    d, joint = diffusion(make(), 16), known_joint(make(), rows)
    model, w, n = exact_model(joint, usd3.Cosine()), joint.w.reshape(-1), 10_000
    x_0 = torch.tensor(joint.states)[torch.multinomial(torch.from_numpy(w), n, True, generator=generator)]
    bound = float(RDM(d).bound(model, x_0, num_samples=16, generator=generator).mean())
    law = (counts(RDM(d).sample(model, (n, D), 16, generator=generator)) + 0.1) / n
    sampled = -float(np.sum(w * np.log(law)))
    assert (sampled < bound + 0.05) if kind == "absorbing" else (sampled > bound + 0.15)


def test_vanilla_with_absorbing_noise_is_the_exact_sampler(generator):
    """Same law as the product of the exact steps, whose error falls with their number (elements are dependent)."""
    noise = usd3.Absorbing(K)
    joint = known_joint(noise, np.broadcast_to(noise.probs.numpy(), (D, K)))
    d, model, x = diffusion(noise), exact_model(joint, usd3.Cosine()), torch.tensor(joint.states)
    errors = []
    for times in ([10, 5, 0], range(10, -1, -1)):
        p = np.eye(K**D)[-1]
        for t, s in itertools.pairwise(times):
            p = p @ oracle.product_step(d.backward(model(x, torch.full((len(x),), t / T)), x, t, s).probs().numpy())
        drawn = RDM(d).sample(model, (20_000, D), list(times), generator=generator)
        assert chi_square_p_value(counts(drawn), 20_000 * p) > 1e-6
        errors.append(oracle.total_variation(p, joint.w.reshape(-1)))
    assert errors[1] < 0.5 * errors[0]


def test_noise_that_is_not_believed_and_data_that_are_dropped(generator):
    """b = 0: a_ts e_x + (1 - a_ts) m. b = 1: m, not the former. 30,000 draws each, false alarm 1e-6."""
    noise, n = usd3.Marginal(NOISES["random"][1][0]), 10_000
    m, a_ts = noise.probs.numpy(), alpha(7) / alpha(4)
    run = run_of(diffusion(noise), lambda x, t: torch.zeros(*x.shape, K), n, generator)
    step = Ranked(run, [0.7, 0.4, 0.0], False, 0.0, "linear")
    step.routed = lambda x, held, *_: (torch.zeros_like(run.free), torch.ones_like(run.free))
    x = torch.full((n, D), 2)
    seen = np.bincount(step(x, 0).flatten(), minlength=K)
    assert chi_square_p_value(seen, n * D * (a_ts * np.eye(K)[2] + (1 - a_ts) * m)) > 1e-6
    step.held = torch.zeros(n, D, dtype=torch.float64)
    assert chi_square_p_value(np.bincount(step(x, 0).flatten(), minlength=K), n * D * m) > 1e-6
    assert (step.held == -torch.inf).all()


def test_vanilla_keeps_what_it_believed_and_ends_without_noise(generator):
    """T4."""
    d, n = diffusion(usd3.Uniform(K)), 500
    step = Vanilla(run_of(d, Seen(table(d.noise)), n, generator), [v / T for v in range(T, -1, -1)])
    x, before = d.noise.sample(torch.zeros(n, D).long(), generator), torch.zeros(n, D, dtype=torch.bool)
    for i in range(T):
        x_s = step(x, i)
        settled = step.held > -torch.inf
        assert torch.equal(x_s[before], x[before])
        assert (settled | ~before).all()
        x, before = x_s, settled
        mu = (1 - alpha(T - i - 1)) / (1 - alpha(T))  # those that are noise still, of all
        assert (~settled).double().mean() == pytest.approx(mu, abs=5 * math.sqrt(0.25 / n / D))
    assert settled.all()


@pytest.mark.parametrize("name", RANKED)
def test_ranked_decodings_follow_their_schedule(name, generator):
    d, n, steps = diffusion(usd3.Uniform(K)), 60, 5
    free = torch.rand(n, D, generator=generator) < 0.8
    step = RDM(d).predictor(name)(
        run_of(d, lambda x, t: Seen(table(d.noise))(x, t) * (1 + t[0]), n, generator, free),
        [v / T for v in range(T, -1, -2)],
    )
    x = torch.randint(K, (n, D), generator=generator)
    start = x.clone()
    for j in range(1, steps + 1):
        x = step(x, j - 1)
        rate = 1 - j / steps if name.endswith("linear") else math.cos(math.pi / 2 * j / steps)
        k = torch.tensor([math.floor(rate * c + 1e-9) for c in free.sum(1).tolist()])
        noise = ((step.held == -torch.inf) & free).sum(1)
        assert (noise == k).all() if name.startswith("uncond") else (noise <= k).all()
        assert (step.held[~free] == torch.inf).all()
    assert torch.equal(x[~free], start[~free])
    assert (noise == 0).all()


@pytest.mark.parametrize("stochastic", [False, True])
def test_the_confident_are_believed_first_and_stay(stochastic, generator):
    """Element e is sure with a margin that grows with e: after each step the noise is the first k elements."""
    d, n = diffusion(usd3.Uniform(K)), 50
    margin = torch.tensor([1.0, 20.0, 400.0], dtype=torch.float64)
    model = lambda x, t: torch.nn.functional.one_hot(torch.tensor([3, 1, 2]), K) * margin[:, None] + 0 * x[..., None]
    step = Ranked(run_of(d, model, n, generator), [1.0, 0.5, 0.2, 0.0], False, 30.0 * stochastic, "linear")
    x, orders = torch.zeros(n, D, dtype=torch.long), set()
    for k in (2, 1, 0):
        x = step(x, 3 - k - 1)
        noise = step.held == -torch.inf
        assert (noise.sum(1) == k).all()
        orders |= {tuple(row) for row in noise.tolist()}
        if not stochastic:
            assert not noise[:, k:].any()
            assert (x[:, 2] == 2).all()
    assert (x[:, 1:] == torch.tensor([1, 2])).all()
    assert len(orders) == (7 if stochastic else 3)


def test_equal_scores_rank_by_index_and_the_last_step_leaves_none(generator):
    """All scores are exactly 0, as those of a fully confident network."""
    d, n = diffusion(usd3.Uniform(K)), 4
    model = lambda x, t: torch.nn.functional.one_hot(torch.full_like(x, 1), K) * 1e4
    free = torch.tensor([[True, True, True], [False, True, True], [True, False, True], [False, False, False]])
    step = Ranked(run_of(d, model, n, generator, free), [1.0, 0.5, 0.0], False, 0.0, "linear")
    x = step(torch.zeros(n, D, dtype=torch.long), 0)
    noise = torch.tensor([[True, False, False], [False, True, False], [True, False, False], [False] * 3])
    assert torch.equal(step.held == -torch.inf, noise)
    assert torch.equal(x[free & ~noise], torch.ones(4, dtype=torch.long))
    x = step(x, 1)
    assert torch.equal(x, free.long())


def test_cond_drops_only_what_was_guessed_again_with_less_confidence(generator):
    d = diffusion(usd3.Uniform(K))
    run = run_of(d, lambda x, t: torch.zeros(*x.shape, K), 1, generator)
    x, guess = torch.tensor([[0, 1, 2]]), torch.tensor([[0, 1, 3]])
    held, score = torch.tensor([[-1.0, -3.0, -1.0]]).double(), torch.tensor([[-2.0, -2.0, -2.0]]).double()
    rate = torch.ones(1, 1, dtype=torch.float64)
    for cond, wanted in ((True, [True, False, False]), (False, [True, True, True])):
        believed, dropped = Ranked(run, [1.0, 0.0], cond, 0.0, "linear").routed(
            x, held, guess, score, rate, torch.full((1, D), 0.5, dtype=torch.float64)
        )
        assert dropped.tolist() == [wanted]
        assert not believed.any()


def test_with_a_mask_ranked_decodings_may_mask_again(generator):
    """A network that loses its trust in an element takes it back."""
    d = diffusion(usd3.Absorbing(K))
    trust = lambda x, t: torch.tensor([20.0, 12.0, 8.0] if t[0] > 0.8 else [4.0, 12.0, 8.0]).double()
    model = lambda x, t: torch.nn.functional.one_hot(torch.ones_like(x), K) * trust(x, t)[:, None]
    step = Ranked(run_of(d, model, 1, generator), [1.0, 0.6, 0.3, 0.0], False, 0.0, "linear")
    x = step(torch.full((1, D), K - 1), 0)
    assert x.tolist() == [[1, K - 1, K - 1]]
    assert step(x, 1)[0, 0] == K - 1


@pytest.mark.parametrize("name", ["vanilla", "cond-stochastic-cosine"])
@pytest.mark.parametrize("kind", ["uniform", "absorbing"])
def test_given_elements_stay_in_any_shape(name, kind, generator):
    noise = NOISES[kind][0]()
    model = lambda x, t, pad=None: torch.ones(*x.shape, K, dtype=torch.bfloat16) * torch.arange(K)
    tokens = some_data(noise, 8, generator).reshape(4, 2, D)
    given = torch.rand(4, 2, D, generator=generator) < 0.4
    x = RDM(diffusion(noise), decoding=name).sample(
        model, (4, 2, D), 4, given=given, given_tokens=tokens, pad=torch.tensor([False, False, True]),
        generator=generator,
    )  # fmt: skip
    assert torch.equal(x[given], tokens[given])
    assert noise.mask is None or (x != noise.mask).all()


def test_the_choice_of_the_decoding(generator):
    d, model = diffusion(usd3.Uniform(K)), Seen(table(usd3.Uniform(K)))
    method = RDM(d, decoding="uncond-deterministic-cosine")
    assert method.samplers[0] == "uncond-deterministic-cosine"
    assert sorted(method.samplers) == sorted(RDM.samplers)
    assert len(RDM.samplers) == 9
    assert RDM(d).samplers[0] == "vanilla"
    draw = lambda **k: method.sample(model, (50, D), 5, generator=torch.Generator().manual_seed(0), **k)
    assert torch.equal(draw(), draw(sampler="uncond-deterministic-cosine"))
    assert not torch.equal(draw(), draw(sampler="vanilla"))
    assert METHODS["rdm"] is RDM
    assert isinstance(MethodConfig("rdm", {"reweighting": "linear"}).build(d), RDM)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reweighting": "cubic"}, "reweighting = cubic: expected one of none, linear, reciprocal"),
        ({"decoding": "greedy"}, "decoding = greedy: expected one of vanilla, uncond-"),
        ({"tau": -1.0}, r"tau = -1.0: expected a number in \[0, inf\)"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        RDM(diffusion(usd3.Uniform(K)), **options)


def test_it_needs_discrete_time_and_takes_no_corrector():
    with pytest.raises(ValueError, match="expected discrete time for RDM"):
        RDM(usd3.Diffusion(usd3.Uniform(K), usd3.Cosine()))
    with pytest.raises(ValueError, match=r"corrector = .*: expected None for RDM"):
        RDM(diffusion(usd3.Uniform(K))).sample(Seen(table(usd3.Uniform(K))), (1, D), 2, usd3.Corrector())
    with pytest.raises(ValueError, match="logits contains nan: expected finite numbers"):
        RDM(diffusion(usd3.Uniform(K))).sample(lambda x, t: torch.full((*x.shape, K), torch.nan), (1, D), 2)


@pytest.mark.gpu
@pytest.mark.parametrize("name", RDM.samplers)
@pytest.mark.parametrize("kind", ["random", "absorbing"])
def test_replayed_steps_draw_what_plain_steps_draw(name, kind):
    noise = NOISES[kind][0]()
    weights, method = table(noise).cuda(), RDM(diffusion(noise, 30))
    model = lambda x, t: weights[torch.arange(D, device="cuda"), x] * (1 + t[:, None, None])
    given, tokens = torch.tensor([True, False, False]), torch.zeros(40, D, dtype=torch.long)
    drawn = [
        method.sample(
            model, (40, D), 30, given=given, given_tokens=tokens, generator=torch.Generator().manual_seed(0),
            sampler=name, device="cuda", graph=graph,
        )
        for graph in (False, True)
    ]  # fmt: skip
    assert torch.equal(*drawn)
