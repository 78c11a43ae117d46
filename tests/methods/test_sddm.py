"""SDDM against enumeration: its loss, its minimum, its samplers with the exact hollow network, and a whole run."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import usd3
from support import oracle
from support.problems import NOISES, RANDOM, D, K, all_pairs, data_categories, data_like
from support.runs import tiny_recipe
from support.statistics import chi_square_p_value
from support.toys import exact_model, known_joint
from usd3._internal.checks import Checks
from usd3.core.model import Denoiser
from usd3.core.samplers import Run
from usd3.methods import METHODS, SDDM
from usd3.methods.options import MethodConfig
from usd3.nets import HollowTransformer, MaskedTransformer
from usd3.nets.options import ModelConfig
from usd3.pipeline.pipeline import Pipeline
from usd3.training.run import fit

TIMES = [0.01, 0.3, 0.7, 0.99]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def diffusion(noise=None, schedule=None):
    return usd3.Diffusion(usd3.Uniform(K) if noise is None else noise, schedule or usd3.Constant(5.0))


def hollow_table(joint, alpha):
    """Exact p(x_0^d | the other elements of x_t) for every object: (K^D, D, K)."""
    f = np.zeros((len(joint.states), joint.D, joint.K))
    for d in range(joint.D):
        seen = np.ones((1, 1))
        for e, m in enumerate(joint.ms):
            seen = np.kron(seen, np.ones((joint.K, joint.K)) if e == d else oracle.transition(alpha, m))
        both = joint.w.reshape(-1)[:, None] * seen
        for i, clean in enumerate(joint.states):
            f[:, d, clean[d]] += both[i]
    total = f.sum(-1, keepdims=True)
    return np.where(total > 0, f / np.where(total > 0, total, 1), 1 / joint.K)


def exact_hollow(joint, schedule):
    """model(x_t, t) -> log f_h, exact; a table for each time."""
    tables = {}

    def model(x_t, t):
        time = float(t[0])
        assert (t == t[0]).all()
        if time not in tables:
            tables[time] = torch.from_numpy(
                np.log(np.maximum(hollow_table(joint, float(schedule.alpha_bar(time))), 1e-300))
            )
        index = sum(x_t[:, d] * joint.K ** (joint.D - 1 - d) for d in range(joint.D))
        return tables[time][index]

    return model


# ---- the loss -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ce", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("t", TIMES)
def test_the_loss_is_hollow_minus_full_cross_entropy_minus_log_q(noise, t, ce):
    """T1, for all (x_0, x_t): -log p_t(x_t) = CE(f_h) - CE(f) - log q(x_t | x_0), f by Bayes' rule."""
    noise, rows = noise
    d = diffusion(noise)
    x_0, x_t = all_pairs(noise, rows)
    logits = torch.randn(*x_0.shape, K, dtype=torch.float64, generator=seeded(1))
    time = torch.full((len(x_0),), t, dtype=torch.float64)
    found = SDDM(d, ce=ce).terms(logits, x_t, x_0, d.level(time, x_0))
    alpha = float(d.schedule.alpha_bar(time[0]))
    for i, e in itertools.product(range(len(x_0)), range(D)):
        a, b, q = int(x_0[i, e]), int(x_t[i, e]), oracle.transition(alpha, rows[e])
        f_h = logits[i, e].numpy().copy()
        f_h[[z for z in range(K) if z not in data_categories(noise, e)]] = -np.inf
        f_h = oracle.softmax(f_h)
        f = f_h * q[:, b]
        matching = -np.log(f_h[a]) + np.log(f[a] / f.sum()) - np.log(q[a, b])
        assert float(found[i, e]) == pytest.approx((1 - ce) * matching - ce * np.log(f_h[a]), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("kind", ["uniform", "random", "absorbing"])
def test_the_loss_is_least_at_the_truth(kind):
    """T5, summed over all objects x_t: the derivative by a hollow table is 0 at the truth, and every other is worse."""
    make, rows = NOISES[kind]
    d, joint = diffusion(make(), usd3.Cosine()), known_joint(make(), rows)
    method, x_t = SDDM(d), torch.tensor(joint.states)
    time = torch.full((len(x_t),), 0.5, dtype=torch.float64)
    alpha = float(d.schedule.alpha_bar(time[0]))
    weight = torch.from_numpy(joint.marginal(alpha))[:, None]
    context = torch.stack([x_t @ torch.tensor([0 if e == c else K**e for e in range(D)]) for c in range(D)], 1)
    truth = torch.from_numpy(np.log(np.maximum(hollow_table(joint, alpha), 1e-300)))
    tables = torch.zeros(D, K**D, K, dtype=torch.float64)  # one row for each element and what surrounds it
    for e in range(D):
        tables[e, context[:, e]] = truth[:, e]
    tables.requires_grad_()

    def loss(tables):
        logits = torch.stack([tables[e, context[:, e]] for e in range(D)], 1)
        return (weight * method.terms(logits, x_t, x_t, d.level(time, x_t))).sum()

    least = loss(tables)
    (slope,) = torch.autograd.grad(least, tables)
    assert slope.abs().max() < 1e-12
    for seed in range(5):
        other = tables.detach() + 0.1 * torch.randn(tables.shape, dtype=torch.float64, generator=seeded(seed))
        assert loss(other) > least + 1e-5
    if kind != "absorbing":  # the entropy of an element given the others, under q_t
        q = joint.marginal(alpha).reshape((K,) * D)
        expected = -sum((q * np.log(q / q.sum(e, keepdims=True))).sum() for e in range(D))
        assert float(least.detach()) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_the_loss_of_a_batch(noise, dtype):
    """The terms of the free elements summed, the mean over objects; the log has the bound of the completed logits."""
    noise, _ = noise
    d = diffusion(noise, usd3.Cosine())
    x_0 = data_like(noise, torch.tensor([[2, 3, 0], [3, 0, 2], [0, 2, 3], [2, 2, 2]]))
    given, pad = torch.tensor([True, False, False]), torch.tensor([False, False, True])
    t = torch.tensor([0.1, 0.4, 0.6, 0.9])
    logits = torch.randn(4, 3, K, generator=seeded()).to(dtype).requires_grad_()
    seen = []
    model = lambda x, time, pad: seen.append(x) or logits
    out = SDDM(d, ce=0.2).loss(model, x_0, t, given=given, pad=pad, generator=seeded(1))
    x_t = seen[0]
    assert torch.equal(x_t[:, [0, 2]], x_0[:, [0, 2]])
    terms = SDDM(d, ce=0.2).terms(logits, x_t, x_0, d.level(t.double(), x_0))
    torch.testing.assert_close(out.loss, terms[:, 1].mean())
    assert out.loss.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    full = usd3.core.converters.full_from_hollow(d, logits.detach(), x_t, t.double())
    shown = d.loss_terms(full, x_t, x_0, t)
    torch.testing.assert_close(out.vlb, d.vlb_scale * shown.vlb[:, 1].mean())
    torch.testing.assert_close(out.ce, shown.ce[:, 1].mean())
    out.loss.backward()
    assert torch.isfinite(logits.grad).all()
    assert not logits.grad[:, [0, 2]].any()


def test_the_gradient_is_that_of_finite_differences(noise):
    noise, rows = noise
    d, (x_0, x_t) = diffusion(noise), all_pairs(noise, rows)
    logits = torch.randn(*x_0.shape, K, dtype=torch.float64, generator=seeded(1), requires_grad=True)
    level = d.level(torch.full((len(x_0),), 0.4, dtype=torch.float64), x_0)
    assert torch.autograd.gradcheck(lambda z: SDDM(d, ce=0.3).terms(z, x_t, x_0, level).sum(), logits)


# ---- some positions -----------------------------------------------------------------------------------------------


class Asked(torch.nn.Module):
    """Fixed logits for every element, given where it is asked."""

    def __init__(self, logits):
        super().__init__()
        self.logits, self.seen = torch.nn.Parameter(logits), []

    def forward(self, x_t, t, at=None):
        self.seen.append(at)
        if at is None:
            return self.logits.expand(*x_t.shape, -1)
        return self.logits.flatten(0, -2).expand(len(x_t), -1, -1).gather(1, at[..., None].expand(-1, -1, K))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("shape", [(4,), (2, 2)])
def test_some_positions_give_the_loss_on_average(count, shape, monkeypatch):
    """All orders of four random keys are equally likely: the mean over them is the loss of all positions."""
    d = diffusion()
    given = torch.tensor([[0, 0, 0, 0], [0, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]).bool().reshape(4, *shape)
    x_0 = torch.randint(K, (4, *shape), generator=seeded())
    net = Asked(torch.randn(*shape, K, dtype=torch.float64, generator=seeded(1)))
    loss = lambda method: method.loss(net, x_0, 0.4, given=given, generator=seeded(2))
    whole = loss(SDDM(d))
    (slope,) = torch.autograd.grad(whole.loss, net.logits)
    found, slopes = [], []
    for order in itertools.permutations(range(4)):
        keys = torch.tensor(order, dtype=torch.float64) / 4
        monkeypatch.setattr("usd3.methods.sddm.uniform", lambda *_, keys=keys: keys.expand(4, 4))
        out = loss(SDDM(d, positions=count))
        found.append(torch.stack([out.loss, out.vlb, out.ce]).detach())
        slopes.append(torch.autograd.grad(out.loss, net.logits)[0])
        assert net.seen[-1].shape == (4, min(count, 4))
        asked, free = net.seen[-1][1], ~given[1].flatten()
        assert free[asked].sum() == min(count, 3)
    torch.testing.assert_close(torch.stack(found).mean(0), torch.stack([whole.loss, whole.vlb, whole.ce]).detach())
    torch.testing.assert_close(torch.stack(slopes).mean(0), slope)
    assert len({round(float(f[0]), 9) for f in found}) == len(draws(count))


def draws(count):
    """The different draws of the first two objects together, with four and with three free elements."""
    best = lambda order, free: frozenset(sorted(free, key=lambda i: -order[i])[:count])
    return {(best(order, range(4)), best(order, (0, 2, 3))) for order in itertools.permutations(range(4))}


def test_the_masked_network_is_asked_at_some_positions():
    torch.manual_seed(0)
    d, x_0 = diffusion(), torch.randint(K, (16, 6), generator=seeded())
    net = MaskedTransformer(K, 6, dim=16, depth=1, heads=2, mlp=16)
    given = torch.arange(6) < 2
    calls = []
    net.register_forward_pre_hook(lambda module, args, named: calls.append((args[0], named)), with_kwargs=True)
    out = SDDM(d, positions=2).loss(net, x_0, 0.3, given=given, pad=~given & (x_0 > 2), generator=seeded(1))
    (x_t, named), *_ = calls
    assert named["at"].shape == (16, 2)
    logits = net(x_t, torch.full((16,), 0.3), pad=named["pad"], given=named["given"])
    terms = SDDM(d).terms(logits, x_t, x_0, d.level(torch.full((16,), 0.3, dtype=torch.float64), x_0))
    free = ~(named["given"] | named["pad"])
    expected = torch.zeros(())
    for b in range(16):
        asked = [i for i in named["at"][b].tolist() if free[b, i]]
        assert len(asked) == min(2, int(free[b].sum()))
        expected = expected + sum(terms[b, i] for i in asked) * int(free[b].sum()) / max(1, len(asked)) / 16
    torch.testing.assert_close(out.loss, expected)
    out.loss.backward()
    assert all(p.grad is not None for p in net.parameters())


def test_a_network_without_at_is_refused():
    net = HollowTransformer(K, 3, dim=16, depth=1, heads=2, mlp=16)
    with pytest.raises(
        ValueError, match=r"positions = 2: expected None for HollowTransformer, which takes no argument"
    ):
        SDDM(diffusion(), positions=2).loss(net, torch.zeros(2, 3, dtype=torch.long))


# ---- samplers -----------------------------------------------------------------------------------------------------


def step(joint, d, t, s, sampler):
    """The transition matrix of a step over whole objects, by NumPy from the exact hollow table."""
    a_t, a_s = (float(d.schedule.alpha_bar(v)) if v else 1.0 for v in (t, s))
    beta, f_h = float(d.schedule.beta(t)), hollow_table(joint, a_t)
    rows = np.zeros_like(f_h)
    for i, state in enumerate(joint.states):
        for e, x in enumerate(state):
            m = joint.ms[e]
            if sampler == "exact":  # U4 after U1
                f = f_h[i, e] * oracle.transition(a_t, m)[:, x]
                rows[i, e] = oracle.backward(f / f.sum(), x, a_s, a_t, m)
            else:
                p = f_h[i, e] @ oracle.transition(a_t, m)
                jump = (t - s) * beta * m[x] * p / p[x]
                jump[x] = 0
                jump *= np.exp(-jump.sum()) if sampler == "tau_leaping" else 1 / max(1, jump.sum())
                jump[x] = 1 - jump.sum()
                rows[i, e] = jump
    return oracle.product_step(rows)


def final(joint, d, grid, sampler):
    p = np.ones(1)
    for m in joint.ms:
        p = np.kron(p, m)
    for t, s in itertools.pairwise(grid):
        p = p @ step(joint, d, t, s, sampler)
    return p


def grid_of(n):
    return np.linspace(1, 0, n + 1).astype(np.float32).tolist()


def counts(x, K=3):
    return torch.bincount(x[:, 0] * K * K + x[:, 1] * K + x[:, 2], minlength=K**3).numpy()


def setting(kind, schedule=None):
    noise = {"uniform": usd3.Uniform(3), "random": usd3.Marginal([0.2, 0.3, 0.5]), "absorbing": usd3.Absorbing(3)}[kind]
    d = usd3.Diffusion(noise, schedule or (usd3.Linear() if kind == "absorbing" else usd3.Constant(5.0)))
    joint = known_joint(noise, np.broadcast_to(noise.probs.numpy(), (3, 3)), K=3)
    return d, joint, exact_hollow(joint, d.schedule)


@pytest.mark.parametrize("kind", ["uniform", "random"])
@pytest.mark.parametrize("sampler", SDDM.samplers)
def test_samplers_draw_from_the_product_of_their_step_matrices(kind, sampler, generator):
    """T2 and the rates: a chi-square test on 27 objects, 30,000 draws; the last step is one of the sampler's own."""
    d, joint, model = setting(kind)
    n, grid = 30_000, grid_of(6)
    x = SDDM(d).sample(model, (n, 3), grid, sampler=sampler, generator=generator)
    assert chi_square_p_value(counts(x), n * final(joint, d, grid, sampler)) > 1e-6


@pytest.mark.parametrize("kind", ["uniform", "random"])
@pytest.mark.parametrize("sampler", SDDM.samplers)
def test_samplers_converge_to_the_data(kind, sampler):
    """Matrices alone, no draws. The data have objects of probability near 0, on which jumps by rates are slowest."""
    d, joint, _ = setting(kind)
    start = float(d.schedule.alpha_bar(1.0))  # 0.0067 of the data is left at time 1
    tv = [oracle.total_variation(final(joint, d, grid_of(n), sampler), joint.w.reshape(-1)) for n in (8, 32, 128)]
    assert tv[2] < 0.4 * tv[1] < 0.4 * 0.6 * tv[0] + 0.02
    assert tv[2] < start + (0.06 if sampler == "tau_leaping" else 0.03)  # of the order of the step, 5 / 128


def test_one_exact_step_to_time_0_is_the_completed_posterior(generator):
    d, joint, model = setting("random")
    x = torch.tensor(joint.states).repeat(2000, 1)
    logits = SDDM(d).denoiser(model)
    run = Run(d, Denoiser(logits, 3, None, None), torch.ones_like(x, dtype=torch.bool), Checks(True), generator)
    drawn = SDDM(d).predictor("exact")(run, [0.25, 0.0])(x, 0)
    f = joint.denoiser(float(d.schedule.alpha_bar(0.25)))
    expected = 2000 * oracle.product_step(f).sum(0)
    assert chi_square_p_value(counts(drawn), expected) > 1e-6


@pytest.mark.parametrize("sampler", SDDM.samplers)
def test_absorbing_noise(sampler, generator):
    """No mask stays, and many steps give the data: 8,000 draws, so that a total variation of 0.02 is noise."""
    d, joint, model = setting("absorbing")
    x = SDDM(d).sample(model, (8000, 3), 100, sampler=sampler, generator=generator)
    assert (x != d.noise.mask).all()
    assert oracle.total_variation(counts(x) / 8000, joint.w.reshape(-1)) < 0.05


def test_the_corrector_and_the_bound_see_completed_logits(generator):
    d, joint, model = setting("random", usd3.Cosine())
    method, full = SDDM(d), exact_model(joint, d.schedule)
    x_0 = torch.tensor(joint.states)
    a = method.bound(lambda x, t: rowwise(model, x, t), x_0, 1, generator=seeded(3))
    b = d.bound(full, x_0, 1, generator=seeded(3))
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    few = [
        oracle.total_variation(
            counts(method.sample(model, (20_000, 3), 4, corrector, generator=generator)) / 20_000, joint.w.reshape(-1)
        )
        for corrector in (None, usd3.Corrector(20, 0.05, last=None))
    ]
    assert few[1] < 0.7 * few[0]


def rowwise(model, x, t):
    return torch.cat([model(x[i : i + 1], t[i : i + 1]) for i in range(len(x))])


@pytest.mark.parametrize("sampler", SDDM.samplers)
@pytest.mark.parametrize("noise", [usd3.Uniform(K), usd3.Absorbing(K), usd3.Marginal(RANDOM)])
def test_given_and_padded_elements_are_kept_at_every_step(sampler, noise, generator):
    d, seen = diffusion(noise, usd3.Cosine()), []
    tokens, given = torch.randint(K - 1, (6, 5), generator=generator), torch.rand(6, 5, generator=generator) < 0.5
    pad = torch.arange(5).expand(6, 5) == 4
    torch.manual_seed(0)
    net = HollowTransformer(K, 5, dim=16, depth=1, heads=2, mlp=16).eval()
    SDDM(d).sample(
        net, (6, 5), 5, usd3.Corrector(1, 0.01), given=given, given_tokens=tokens, pad=pad, sampler=sampler,
        generator=generator, callback=seen.append,
    )  # fmt: skip
    fixed = given | pad
    assert len(seen) == 5
    assert all(torch.equal(step.x_s[fixed], tokens[fixed]) for step in seen)


# ---- whole runs -----------------------------------------------------------------------------------------------------


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match=r"ce = 1.5: expected a number in \[0, 1\]"):
        SDDM(diffusion(), ce=1.5)
    with pytest.raises(ValueError, match="positions = 0: expected an integer >= 1"):
        SDDM(diffusion(), positions=0)
    with pytest.raises(ValueError, match="expected continuous time for SDDM"):
        SDDM(usd3.Diffusion(usd3.Uniform(K), usd3.Cosine(), num_steps=10))
    with pytest.raises(ValueError, match="sampler = gillespie: expected one of exact, euler, tau_leaping"):
        SDDM(diffusion()).sample(lambda x, t: torch.zeros(*x.shape, K), (2, 3), 4, sampler="gillespie")
    assert METHODS["sddm"] is SDDM


class Pairs(torch.nn.Module):
    """Two elements, each read from the other: a table for each time is too much, so one for all."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.zeros(2, K, K))

    def forward(self, x_t, t):
        return torch.stack([self.table[0][x_t[:, 1]], self.table[1][x_t[:, 0]]], 1)


@pytest.mark.parametrize("noise", [usd3.Uniform(K), usd3.Absorbing(K)])
def test_a_table_learns_that_two_elements_are_equal(noise):
    d, net, generator = diffusion(noise, usd3.Linear()), Pairs(), seeded()
    optimizer, losses = torch.optim.Adam(net.parameters(), lr=0.1), []
    for _ in range(60):
        x_0 = torch.randint(K - 1, (64, 1), generator=generator).expand(-1, 2)
        loss = SDDM(d).loss(net, x_0, generator=generator, stratified=True).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert np.mean(losses[-10:]) < np.mean(losses[:10]) - 0.1
    f = net.table.softmax(-1).detach()[:, : K - 1, : K - 1]
    assert (f.argmax(-1) == torch.arange(K - 1)).all()


@pytest.mark.parametrize("noise", [usd3.Uniform(K), usd3.Absorbing(K), usd3.Marginal(RANDOM)])
@pytest.mark.parametrize(
    ("kind", "positions", "options"),
    [(HollowTransformer, None, {}), (MaskedTransformer, None, {"chunk": 5}), (MaskedTransformer, 2, {})],
)
def test_nothing_waits_for_the_device(noise, kind, positions, options):
    """Tensors without values: whoever asks for one raises. So a step can be a CUDA graph."""
    d = usd3.Diffusion(noise, usd3.Cosine(), validate=False, impl="eager")
    with FakeTensorMode(allow_non_fake_inputs=True):
        net = kind(K, 6, dim=16, depth=1, heads=2, mlp=16, **options)
        x_0 = torch.zeros(4, 6, dtype=torch.long)
        out = SDDM(d, 0.1, positions).loss(net, x_0, given=x_0 > 2, pad=x_0 > 3, stratified=True)
        out.loss.backward()
        assert out.loss.shape == ()
        with pytest.raises(RuntimeError):
            bool(out.loss > 0)


@pytest.mark.parametrize(
    ("net", "options"), [("hollow_transformer", {"ce": 0.1}), ("masked_transformer", {"positions": 3})]
)
def test_a_run_trains_saves_loads_and_continues(net, options, tmp_path):
    recipe = tiny_recipe(tmp_path, steps=4)
    recipe = replace(
        recipe,
        method=MethodConfig("sddm", options),
        model=ModelConfig(net, dim=16, depth=1, heads=2, mlp=16, dropout=0.1, output_blocks=1, hollow=False),
    )
    recipe.diffusion.num_steps, recipe.diffusion.schedule = None, "constant"
    recipe.diffusion.schedule_options = {"beta": 5.0}
    trained = fit(recipe, tmp_path / "run", progress=False)
    trained.save_pretrained(tmp_path / "model")
    pipeline = Pipeline.from_pretrained(tmp_path / "model", device="cpu")
    tokens, given = torch.arange(8).expand(3, 8) % 5, torch.arange(8) < 3
    drawn = pipeline.sample(tokens=tokens, given=given, num_steps=5, seed=1)
    assert torch.equal(drawn[:, :3], tokens[:, :3])
    assert torch.equal(drawn, trained.sample(tokens=tokens, given=given, num_steps=5, seed=1))
    assert torch.isfinite(pipeline.bound(tokens, given, num_samples=2)).all()
