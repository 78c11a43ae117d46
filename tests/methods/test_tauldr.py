"""tauLDR against enumeration: its three losses, and its samplers by the exact law of their states."""

import itertools
import math

import numpy as np
import pytest
import torch

import usd3
from support import oracle
from support.problems import LargestTensor, data_categories
from support.statistics import chi_square_p_value
from support.toys import exact_model, known_joint
from usd3._internal.checks import Checks
from usd3.core.model import Denoiser
from usd3.core.samplers import Run, likeliest
from usd3.core.two_pass import ForwardRate, auxiliary_weight
from usd3.methods import METHODS, TauLDR
from usd3.methods.options import MethodConfig
from usd3.methods.tauldr import WholeTime

K, D, BETA = 3, 2, 5.0
PASSES = ("two_pass", "one_pass_biased", "one_pass_exact")
MS = np.random.default_rng(3).dirichlet(np.ones(K), size=D)
NOISES = {
    "uniform": usd3.Uniform(K),
    "random": usd3.Marginal(MS[0]),
    "ties": usd3.Marginal([0.2, 0.6, 0.2]),
    "per_element": usd3.Marginal(MS),
    "absorbing": usd3.Absorbing(K),
    "zeros": usd3.Marginal([0.5, 0.5, 0.0]),
    "per_element_zeros": usd3.Marginal([[0.0, 1.0, 0.0], [0.3, 0.0, 0.7]]),
}
STATES = list(itertools.product(range(K), repeat=D))
ALPHA = oracle.ALPHA_BAR["constant"]


def diffusion(noise, t_min=0.01):
    return usd3.Diffusion(noise, usd3.Constant(beta=BETA), t_min=t_min)


@pytest.fixture(params=NOISES)
def noise(request):
    return NOISES[request.param]


def rows(noise, elements=D):
    return np.broadcast_to(noise.probs.numpy(), (elements, noise.num_classes))


class Table(torch.nn.Module):
    """Any function of the whole object: logits at each; it remembers its calls."""

    def __init__(self, classes=K, elements=D, seed=2):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        logits = torch.randn(classes**elements, elements, classes, generator=generator, dtype=torch.float64)
        self.logits, self.seen, self.times = torch.nn.Parameter(logits), [], []

    def forward(self, x, t, given=None, pad=None):
        self.seen.append(x)
        self.times.append(t)
        elements, classes = self.logits.shape[1:]
        return self.logits[sum(x[:, e] * classes ** (elements - 1 - e) for e in range(elements))]


def q_object(x_0, x, a, ms, free):
    return math.prod(
        oracle.transition(a, ms[e])[x_0[e], x[e]] if free[e] else float(x[e] == x_0[e]) for e in range(len(x))
    )


def neighbours(x, ms, free):
    """Every auxiliary of x with its probability; x itself where it cannot jump."""
    rates = {}
    for e, z in itertools.product(range(len(x)), range(len(ms[0]))):
        if free[e] and z != x[e] and ms[e][z] > 0:
            rates[(*x[:e], z, *x[e + 1 :])] = ms[e][z]
    total = sum(rates.values())
    return {z: rate / total for z, rate in rates.items()} if rates else {x: 1.0}


def density_ratio(z, x_0, a, ms, free):
    """M(z) = sum over x of q(x) P(z | x) / q(z), from the draws themselves."""
    mass = 0.0
    for x in neighbours_of(z, len(ms[0])):
        p = neighbours(x, ms, free).get(z, 0.0)
        mass += q_object(x_0, x, a, ms, free) * p
    return mass / q_object(x_0, z, a, ms, free)


def neighbours_of(z, classes):
    return [(*z[:e], y, *z[e + 1 :]) for e in range(len(z)) for y in range(classes) if y != z[e]]


def network(model, noise, x):
    """f at x as the library must read it: the mask is no data, and x is certainly clean where m_x = 0."""
    logits = model.logits[sum(x[e] * K ** (D - 1 - e) for e in range(D))].detach().numpy().copy()
    if noise.mask is not None:
        logits[:, noise.mask] = -np.inf
    f = oracle.softmax(logits)
    return [np.eye(K)[x[e]] if rows(noise)[e][x[e]] == 0 else f[e] for e in range(D)]


def rates(f, x, e, a, ms):
    return np.zeros(K) if ms[e][x[e]] == 0 else oracle.reverse_rate(f[e], x[e], a, BETA, ms[e])


def reg(model, noise, x, a, free):
    return sum(rates(network(model, noise, x), x, e, a, rows(noise)).sum() for e in range(D) if free[e])


def sig(model, noise, x, x_0, a, free):
    found = 0.0
    for e in range(D):
        k, h = (rates(f, x, e, a, rows(noise)) for f in (np.eye(K)[list(x_0)], network(model, noise, x)))
        found += sum(p * math.log(p / q) - p for p, q in zip(k, h) if p > 0) if free[e] else 0.0
    return found


def ce(model, noise, x, x_0, free):
    f = network(model, noise, x)
    return -sum(math.log(f[e][x_0[e]]) for e in range(D) if free[e])


# ---- loss ---------------------------------------------------------------------------------------------------------


def pinned(method, x, z):
    """The method with its draws of x and x~ in our hands."""
    method.diffusion.draw_noisy = lambda *_: torch.tensor([x])
    method.jump.draw = lambda *_: torch.tensor([z])
    return method


@pytest.mark.parametrize("passes", PASSES)
def test_the_loss_at_every_draw_and_in_expectation(noise, passes):
    """T1: pointwise in (x, x~), by rates of full matrices. T2, T3: its mean is the single pass; one is biased."""
    ms, model, t, x_0, free = rows(noise), Table(), 0.3, (0, 1), [True] * D
    method, a = TauLDR(diffusion(noise), passes, ce=0.0), ALPHA(t)
    mean, shown, whole = 0.0, 0.0, 0.0
    for x in STATES:
        q = q_object(x_0, x, a, ms, free)
        for z, p in neighbours(x, ms, free).items() if q > 0 else ():
            out = pinned(method, x, z).loss(model, torch.tensor([x_0]), t)
            over_M = 0.0 if x == z else 1 / density_ratio(z, x_0, a, ms, free)
            wanted = {
                "two_pass": reg(model, noise, x, a, free) + sig(model, noise, z, x_0, a, free) * over_M,
                "one_pass_biased": reg(model, noise, z, a, free) + sig(model, noise, z, x_0, a, free) * over_M,
                "one_pass_exact": (reg(model, noise, z, a, free) + sig(model, noise, z, x_0, a, free)) * over_M,
            }
            assert float(out.loss.detach()) == pytest.approx(wanted[passes], rel=1e-9, abs=1e-12)
            mean, shown, whole = mean + q * p * wanted[passes], shown + q * p * float(out.vlb) / 0.99, whole + q * p
    assert whole == pytest.approx(1)
    d, states = diffusion(noise), torch.tensor([x for x in STATES if q_object(x_0, x, a, ms, free) > 0])
    terms = d.loss_terms(model(states, None).detach(), states, torch.tensor([x_0]).expand(len(states), D), t)
    q = np.array([q_object(x_0, x, a, ms, free) for x in states.tolist()])
    single = float((q * terms.vlb.sum(1).numpy()).sum())
    assert single > 0.1
    assert shown == pytest.approx(single, rel=1e-9)
    assert (abs(mean / single - 1) > 1e-3) if passes == "one_pass_biased" else mean == pytest.approx(single, rel=1e-9)


def test_the_multi_pass_bound_of_the_chain_is_the_same():
    """T2: E over x of sum over its neighbours z of rhat(z|x) - r(z|x) log rhat(x|z); K = 4, D = 3."""
    classes, elements, x_0, t = 4, 3, (2, 0, 1), 0.3
    d, model, a = diffusion(usd3.Uniform(classes)), Table(classes, elements), ALPHA(0.3)
    ms, states = rows(d.noise, elements), list(itertools.product(range(classes), repeat=elements))
    f = oracle.softmax(model.logits.detach().numpy())
    index = {x: i for i, x in enumerate(states)}
    cells = [(x, e) for x in states for e in range(elements)]
    back = {(x, e): oracle.reverse_rate(f[index[x], e], x[e], a, BETA, ms[e]) for x, e in cells}
    true = {(x, e): oracle.reverse_rate(np.eye(classes)[x_0[e]], x[e], a, BETA, ms[e]) for x, e in cells}
    multi = constant = 0.0
    for x in states:
        q = q_object(x_0, x, a, ms, [True] * elements)
        for e, y in itertools.product(range(elements), range(classes)):
            if y != x[e]:
                z = (*x[:e], y, *x[e + 1 :])
                multi += q * (back[x, e][y] - BETA / classes * math.log(back[z, e][x[e]]))
                constant += q * BETA / classes * (math.log(true[z, e][x[e]]) - 1)
    method, mean = TauLDR(d, ce=0.0), 0.0
    for x in states:
        q = q_object(x_0, x, a, ms, [True] * elements)
        for z, p in neighbours(x, ms, [True] * elements).items():
            mean += q * p * float(pinned(method, x, z).loss(model, torch.tensor([x_0]), t).loss.detach())
    assert mean - constant == pytest.approx(multi, rel=1e-9)


@pytest.mark.parametrize("passes", PASSES)
def test_given_elements_and_padding_have_no_part(noise, passes):
    """One free element of two, by the same formulas; where nothing is free there is nothing."""
    ms, t, x_0 = rows(noise), 0.4, (1, 0)
    a, model = ALPHA(t), Table()
    for e in range(D):
        free = [k == e for k in range(D)]
        for x in STATES:
            if q_object(x_0, x, a, ms, free) == 0:
                continue
            for z in neighbours(x, ms, free):
                mask = {"given": torch.tensor([1 - e == k for k in range(D)])}
                mask = mask if e else {"pad": mask["given"]}
                method = pinned(TauLDR(diffusion(noise), passes, ce=0.5), x, z)
                out = method.loss(model, torch.tensor([x_0]), t, **mask)
                over_M = 0.0 if x == z else 1 / density_ratio(z, x_0, a, ms, free)
                parts = reg(model, noise, x if passes == "two_pass" else z, a, free)
                parts = parts * over_M if passes == "one_pass_exact" else parts
                wanted = parts + sig(model, noise, z, x_0, a, free) * over_M
                entropy = ce(model, noise, x if passes == "two_pass" else z, x_0, free)
                assert float(out.loss.detach()) == pytest.approx(wanted + 0.5 * entropy, rel=1e-9, abs=1e-12)
                assert float(out.ce) == pytest.approx(entropy, rel=1e-9, abs=1e-12)
    nothing = TauLDR(diffusion(noise), passes).loss(model, torch.tensor([x_0]), given=torch.ones(1, D).bool())
    assert float(nothing.loss.detach()) == 0


@pytest.mark.parametrize("passes", PASSES)
def test_the_cross_entropy_may_be_a_mean(passes):
    d, x_0, given = (
        diffusion(usd3.Uniform(K)),
        torch.tensor([[0, 1], [2, 2]]),
        torch.tensor([[True, False], [False] * 2]),
    )
    outs = [
        TauLDR(d, passes, ce=c, ce_reduction=how).loss(
            Table(), x_0, 0.5, given=given, generator=torch.Generator().manual_seed(0)
        )
        for c, how in ((0.0, "sum"), (0.7, "sum"), (0.7, "mean"))
    ]
    plain, summed, mean = (float(out.loss.detach()) for out in outs)
    assert summed - plain == pytest.approx(0.7 * float(outs[0].ce), rel=1e-9)
    assert 0.35 * float(outs[0].ce) < mean - plain < 0.7 * float(outs[0].ce)


def test_two_passes_are_the_two_pass_loss(noise):
    d, x_0 = diffusion(noise), torch.tensor(list(itertools.product(data_categories(noise)[:2], repeat=2)) * 5)
    seeded = lambda: torch.Generator().manual_seed(1)
    mine = TauLDR(d, ce=0.2).loss(Table(), x_0, generator=seeded(), stratified=True)
    theirs = usd3.two_pass_loss(d, Table(), x_0, ce=0.2, generator=seeded(), stratified=True)
    for name in ("loss", "vlb", "ce"):
        assert float(getattr(mine, name).detach()) == pytest.approx(float(getattr(theirs, name).detach()), rel=1e-9)


def test_the_weight_of_an_auxiliary(noise):
    """The closed form against the one for any S, where z is possible; some elements are not free."""
    d = diffusion(noise)
    x_0 = torch.tensor([x for x in STATES for z in STATES if noise.mask not in x])
    z = torch.tensor([z for x in STATES for z in STATES if noise.mask not in x])
    free = torch.tensor([[True, i % 3 > 0] for i in range(len(z))])
    possible = ((noise.at(z) > 0) | (z == x_0)).all(1)
    x_0, z, free = x_0[possible], z[possible], free[possible]
    jumps = noise.probs[..., None, :].expand(*noise.probs.shape[:-1], K, K)
    time = torch.full((len(z),), 0.3, dtype=torch.float64)
    wanted = auxiliary_weight(z, d.q_probs(x_0, 0.3), jumps, free)
    torch.testing.assert_close(ForwardRate(noise).weight(z, x_0, d.level(time, z), free), wanted)


def test_the_auxiliary_is_drawn_from_the_forward_rate(noise, generator):
    """20,000 draws from each of two objects; false alarm 1e-6."""
    n, ms = 20_000, rows(noise)
    for x, free in (((1, 2), [True, True]), ((0, 2), [False, True])):
        drawn = ForwardRate(noise).draw(torch.tensor([x]).repeat(n, 1), torch.tensor([free]).repeat(n, 1), generator)
        wanted = neighbours(x, ms, free)
        seen = torch.bincount(drawn @ torch.tensor([K, 1]), minlength=K**D).numpy()
        assert chi_square_p_value(seen, [n * wanted.get(state, 0.0) for state in STATES]) > 1e-6


@pytest.mark.parametrize("passes", PASSES)
def test_nothing_has_k_times_k_numbers(passes, generator):
    d = usd3.Diffusion(usd3.Marginal(np.random.default_rng(0).dirichlet(np.ones(200))), usd3.Cosine())
    logits = torch.randn(2, 2, 200, generator=generator)
    with LargestTensor() as largest:
        TauLDR(d, passes).loss(lambda x, t: logits, torch.zeros(2, 2, dtype=torch.long))
    assert largest.bytes < 200 * 200 * 4


@pytest.mark.parametrize("passes", PASSES)
def test_training_lowers_the_bound(passes, generator):
    model = Table()
    model.logits.data = torch.zeros_like(model.logits).float()
    method = TauLDR(usd3.Diffusion(usd3.Uniform(K), usd3.Cosine(), t_min=0.01, validate=False), passes)
    optimizer, x_0 = torch.optim.Adam(model.parameters(), 0.1), torch.tensor([[0, 1]]).expand(256, D)
    before = method.bound(model, x_0, generator=generator).mean()
    for _ in range(60):
        out = method.loss(model, x_0, generator=generator, stratified=True)
        assert out.loss.dtype == torch.float32
        optimizer.zero_grad()
        out.loss.backward()
        optimizer.step()
    assert method.bound(model, x_0, generator=generator).mean() < 0.5 * before


# ---- samplers -----------------------------------------------------------------------------------------------------

E = 3  # elements


def setting(kind):
    noise = {"random": usd3.Marginal(MS[1]), "uniform": usd3.Uniform(K), "absorbing": usd3.Absorbing(K)}[kind]
    joint = known_joint(noise, rows(noise, E), K=K, D=E)
    d = diffusion(noise)
    return d, joint, exact_model(joint, d.schedule)


@pytest.fixture(params=["random", "uniform", "absorbing"])
def exact(request):
    return setting(request.param)


def leap_matrix(joint, t, length, forward=False):
    """Poisson jumps at the rates of t; more than one: the element stays. Over whole objects."""
    a, f = ALPHA(t), joint.denoiser(ALPHA(t))
    steps = np.zeros((len(joint.states), E, K))
    for i, x in enumerate(joint.states):
        for e in range(E):
            m = joint.ms[e]
            rate = np.zeros(K) if m[x[e]] == 0 else oracle.reverse_rate(f[i, e], x[e], a, BETA, m)
            rate = length * (rate + (BETA * m * (np.arange(K) != x[e]) if forward else 0.0))
            steps[i, e] = rate * np.exp(-rate.sum())
            steps[i, e, x[e]] = 1 - steps[i, e].sum()
    return oracle.product_step(steps)


def argmax_matrix(joint, t):
    f, last = joint.denoiser(ALPHA(t)), np.zeros((len(joint.states),) * 2)
    for i, x in enumerate(joint.states):
        best = [x[e] if joint.ms[e][x[e]] == 0 else int(f[i, e].argmax()) for e in range(E)]
        last[i, joint.states.index(tuple(best))] = 1
    return last


def law(joint, grid, moves=0, size=0.1, entry=0.9):
    p = np.ones(1)
    for m in joint.ms:
        p = np.kron(p, m)
    for t, s in itertools.pairwise(grid):
        p = p @ leap_matrix(joint, t, t - s)
        if moves and t <= entry and s > 0:
            p = p @ np.linalg.matrix_power(leap_matrix(joint, s, size * (t - s), forward=True), moves)
    return p @ argmax_matrix(joint, 0.01)


def times(n):
    return [*np.linspace(1, 0.01, n).tolist(), 0.0]


def counts(x):
    return torch.bincount(x @ torch.tensor([K * K, K, 1]), minlength=K**E).numpy()


@pytest.mark.parametrize(
    ("sampler", "moves", "options"),
    [
        ("tau_leaping", 0, {}),
        ("predictor_corrector", 2, {}),
        ("predictor_corrector", 3, {"corrector_steps": 3, "corrector_size": 0.5, "corrector_entry": 0.6}),
        ("predictor_corrector", 0, {"corrector_steps": 0}),
    ],
)
def test_samplers_draw_from_their_law(exact, sampler, moves, options, generator):
    """The product of the matrices of all moves; 20,000 objects over 27 cells, false alarm 1e-6."""
    d, joint, model = exact
    wanted = law(joint, times(6), moves, options.get("corrector_size", 0.1), options.get("corrector_entry", 0.9))
    x = TauLDR(d, **options).sample(model, (20_000, E), 6, generator=generator, sampler=sampler)
    assert chi_square_p_value(counts(x), 20_000 * wanted) > 1e-6


def test_the_error_of_a_leap_is_of_first_order(exact):
    """Without sampling: the law changes by half as much with each doubling of the steps, and comes near the data.

    What is left in the end is the start from m, where alpha_bar(1) = 0.007, the last leap from t_min, and the argmax.
    """
    _, joint, _ = exact
    laws = [law(joint, times(n)) for n in (50, 100, 200)]
    changes = [oracle.total_variation(p, q) for p, q in itertools.pairwise(laws)]
    assert 1.5 < changes[0] / changes[1] < 2.7
    errors = [oracle.total_variation(p, joint.w.reshape(-1)) for p in laws]
    assert errors[2] < 0.05
    assert errors[2] < oracle.total_variation(law(joint, times(5)), joint.w.reshape(-1)) / 3


def test_the_corrector_leaves_q_t_alone_to_second_order(exact):
    """T4: drift over length halves with the length. The matrices are those that the samplers' draws agree with."""
    _, joint, _ = exact
    for t in (0.1, 0.4):
        q = joint.marginal(ALPHA(t))
        drift = [np.abs(q @ leap_matrix(joint, t, h, forward=True) - q).sum() / h for h in (4e-4, 2e-4, 1e-4)]
        assert drift[1] / drift[0] == pytest.approx(0.5, abs=0.03)
        assert drift[2] / drift[1] == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("kind", ["random", "uniform"])
def test_the_corrector_lowers_the_error(kind):
    """Not with absorbing noise and so few steps: it masks again, and too little time is left to fill in."""
    _, joint, _ = setting(kind)
    plain, corrected = (
        oracle.total_variation(law(joint, times(20), moves, 0.5), joint.w.reshape(-1)) for moves in (0, 4)
    )
    assert corrected < plain


def test_the_calls_of_the_network(generator):
    """n leaps and the argmax; corrections at the time after the leap, and at what the move before left."""
    method, model = TauLDR(diffusion(usd3.Uniform(K)), corrector_entry=0.7), Table()
    seen = lambda: [round(float(t[0]), 3) for t in model.times]
    method.sample(model, (2, D), 4, generator=generator)
    assert seen() == [1.0, 0.67, 0.34, 0.01, 0.01]
    model.times.clear()
    method.sample(model, (200, D), 4, generator=generator, sampler="predictor_corrector")
    assert seen() == [1.0, 0.67, 0.34, 0.34, 0.34, 0.01, 0.01, 0.01, 0.01]
    assert all(not torch.equal(a, b) for a, b in itertools.pairwise(model.seen[-9:-3]))
    model.times.clear()
    method.sample(model, (2, D), [0.9, 0.5, 0], generator=generator)
    assert seen() == [0.9, 0.5, 0.01]
    assert method.grid(1, "tau_leaping") == [1.0, 0.0]


def test_the_last_step_takes_the_likeliest_that_can_be():
    x, free = torch.tensor([[0, 2, 1, 0]]), torch.tensor([[True, True, True, False]])
    model = lambda x, t: torch.tensor([0.0, 1.0, 5.0]).expand(*x.shape, K)
    cases = (usd3.Marginal([0.5, 0.5, 0.0]), [2, 2, 2, 0]), (usd3.Absorbing(K, mask=2), [0, 1, 1, 0])
    for noise, wanted in cases:
        run = Run(diffusion(noise), Denoiser(model, K, None, None), free, Checks(True), None)
        assert likeliest(run, x, run.process.t_min).tolist() == [wanted]


@pytest.mark.parametrize("sampler", TauLDR.samplers)
@pytest.mark.parametrize("kind", ["uniform", "absorbing"])
def test_given_elements_stay_in_any_shape(sampler, kind, generator):
    noise = NOISES[kind]
    model = lambda x, t, pad=None: torch.ones(*x.shape, K, dtype=torch.bfloat16) * torch.arange(K)
    tokens = torch.randint(2, (4, 2, D), generator=generator)
    given = torch.rand(4, 2, D, generator=generator) < 0.4
    x = TauLDR(diffusion(noise)).sample(
        model, (4, 2, D), 5, given=given, given_tokens=tokens, pad=torch.tensor([False, True]), generator=generator,
        sampler=sampler,
    )  # fmt: skip
    assert torch.equal(x[given], tokens[given])
    assert noise.mask is None or (x != noise.mask).all()


# ---- time ---------------------------------------------------------------------------------------------------------


def test_the_network_may_be_told_whole_times(generator):
    d, x_0 = diffusion(usd3.Uniform(K)), torch.tensor([[0, 1]])
    method, model = TauLDR(d, time_mode="zero"), Table()
    method.loss(model, x_0, generator=generator)
    method.bound(model, x_0, 4, generator=generator)
    assert all((t == 0).all() for t in model.times)
    assert len(model.times) == 2 + 4 + 1
    model.times.clear()
    method.sample(model, (1, D), 3, generator=generator)
    assert [float(t[0]) for t in model.times] == [1, 0, 0, 0]
    model.times.clear()
    TauLDR(d).loss(model, x_0, 0.5, generator=generator)
    assert [float(t[0]) for t in model.times] == [0.5, 0.5]


def test_masks_reach_the_network_behind_the_time(generator):
    method, x_0 = TauLDR(diffusion(usd3.Uniform(K)), time_mode="zero"), torch.tensor([[0, 1]])
    given, seen = torch.tensor([[True, False]]), []

    class Asks(torch.nn.Module):
        ignores_time = True

        def forward(self, x, t, given, pad=None):
            seen.append(given)
            return torch.zeros(*x.shape, K)

    method.loss(Asks(), x_0, given=given, generator=generator)
    assert torch.equal(seen[-1], given)
    method.loss(Asks(), x_0, generator=generator)
    assert not seen[-1].any()
    method.loss(lambda x, t: torch.zeros(*x.shape, K), x_0, given=given, generator=generator)  # asks for nothing
    assert WholeTime(Asks()).ignores_time
    assert not WholeTime(Table()).ignores_time


def test_the_hollow_head_needs_the_time():
    d = diffusion(usd3.Uniform(K))
    with pytest.raises(ValueError, match="time_mode = zero: expected real for a network with the hollow head"):
        TauLDR(d, time_mode="zero").loss(usd3.nets.Hollow(Table(), d), torch.tensor([[0, 1]]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"passes": "three"}, "passes = three: expected one of two_pass, one_pass_biased, one_pass_exact"),
        ({"time_mode": "half"}, "time_mode = half: expected real or zero"),
        ({"ce_reduction": "max"}, "ce_reduction = max: expected sum or mean"),
        ({"ce": -1.0}, r"ce = -1.0: expected a number in \[0, inf\)"),
        ({"corrector_steps": -1}, "corrector_steps = -1: expected an integer >= 0"),
        ({"corrector_size": 0.0}, r"corrector_size = 0.0: expected a number in \(0, inf\)"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        TauLDR(diffusion(usd3.Uniform(K)), **options)


def test_it_needs_continuous_time_and_takes_no_corrector():
    with pytest.raises(ValueError, match="expected continuous time for TauLDR"):
        TauLDR(usd3.Diffusion(usd3.Uniform(K), usd3.Cosine(), 10))
    with pytest.raises(ValueError, match=r"corrector = .*: expected None for TauLDR"):
        TauLDR(diffusion(usd3.Uniform(K))).sample(Table(), (1, D), 2, usd3.Corrector())
    nan = lambda x, t: torch.full((*x.shape, K), torch.nan)
    for call in (lambda m: m.sample(nan, (1, D), 2), lambda m: m.loss(nan, torch.zeros(1, D, dtype=torch.long))):
        with pytest.raises(ValueError, match="logits contains nan: expected finite numbers"):
            call(TauLDR(diffusion(usd3.Uniform(K))))
    assert METHODS["tauldr"] is TauLDR
    assert isinstance(MethodConfig("tauldr", {"time_mode": "zero"}).build(diffusion(usd3.Uniform(K))), TauLDR)


@pytest.mark.gpu
@pytest.mark.parametrize("sampler", TauLDR.samplers)
def test_replayed_steps_draw_what_plain_steps_draw(sampler):
    method, model = TauLDR(diffusion(usd3.Uniform(K))), Table().cuda()
    seeded = lambda: torch.Generator().manual_seed(0)
    draw = lambda graph: method.sample(model, (40, D), 30, generator=seeded(), sampler=sampler, graph=graph)
    assert torch.equal(draw(False), draw(True))
