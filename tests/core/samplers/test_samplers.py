"""Samplers against exact distributions over all objects: no sampling noise where a matrix will do."""

import itertools

import numpy as np
import pytest
import torch

import usd3
from support import oracle
from support.places import ROOT
from support.problems import data_categories
from support.statistics import chi_square_p_value
from support.toys import exact_model, known_joint
from usd3._internal.checks import Checks
from usd3.core import fused
from usd3.core.mixture import Jumps, jump_mixture
from usd3.core.model import Denoiser
from usd3.core.samplers import SAMPLERS, Run

K, D = 3, 3
DRAW_ONCE = ("first_hitting", "confidence", "margin", "entropy")  # and take no corrector
FOR_ANY_NOISE = [name for name in SAMPLERS if name not in DRAW_ONCE]
MS = np.random.default_rng(5).dirichlet(np.full(K, 3.0), size=D)


def make(kind):
    noise = {"random": usd3.Marginal(MS), "uniform": usd3.Uniform(K), "absorbing": usd3.Absorbing(K)}[kind]
    joint = known_joint(noise, np.broadcast_to(noise.probs.numpy(), (D, K)), K=K)
    return usd3.Diffusion(noise, usd3.Cosine()), joint, exact_model(joint, usd3.Cosine())


@pytest.fixture(params=["random", "uniform", "absorbing"])
def setting(request):
    return make(request.param)


def states(joint):
    return torch.tensor(joint.states)


def step_matrix(d, joint, model, t, s):
    """p(x_s | x_t) over whole objects, from the library's own probabilities."""
    x = states(joint)
    logits = model(x, torch.full((len(x),), t))
    return oracle.product_step(d.backward(logits, x, t, s).probs().numpy())


def corrector_matrix(d, joint, model, s, size):
    x = states(joint)
    time = torch.full((len(x),), s, dtype=torch.float64)
    belief = d.belief(model(x, time), x, time, Checks(True))
    rate = d.rate_weights(time, x)
    moves = jump_mixture(belief, Jumps(rate.to_data, rate.to_noise, forward=rate.to_noise)).scaled(torch.tensor(size))
    return oracle.product_step(moves.probs().numpy())


def final_distribution(d, joint, model, times, corrections=0, size=0.0, last=None, matrix=corrector_matrix):
    p = np.ones(1)
    for m in joint.ms:
        p = np.kron(p, m)
    for i, (t, s) in enumerate(itertools.pairwise(times)):
        p = p @ step_matrix(d, joint, model, t, s)
        if s > 0 and (last is None or i >= len(times) - 2 - last):
            p = p @ np.linalg.matrix_power(matrix(d, joint, model, s, size), corrections)
    return p


def grid(n):
    return np.linspace(1, 0, n + 1).astype(np.float32).tolist()


def test_total_variation_falls_as_steps_grow(setting):
    d, joint, model = setting
    tv = [
        oracle.total_variation(final_distribution(d, joint, model, grid(n)), joint.w.reshape(-1))
        for n in (1, 4, 16, 64)
    ]
    assert all(a > b for a, b in itertools.pairwise(tv))
    assert tv[-1] < 0.1 * tv[0]


def test_the_corrector_lowers_the_total_variation(setting):
    d, joint, model = setting
    w, times = joint.w.reshape(-1), grid(8)
    plain = oracle.total_variation(final_distribution(d, joint, model, times), w)
    tv = [oracle.total_variation(final_distribution(d, joint, model, times, n, 0.02), w) for n in (2, 8, 32)]
    assert tv[0] < plain
    assert tv[2] < tv[1] < tv[0]


def test_the_corrector_leaves_q_t_invariant_to_second_order(setting):
    """One element at a time it is exactly invariant; all at once the drift per length vanishes with the size."""
    d, joint, model = setting
    for s in (0.3, 0.7):
        s = float(np.float32(s))
        q = joint.marginal(float(d.schedule.alpha_bar(s)))
        drift = [np.abs(q @ corrector_matrix(d, joint, model, s, h) - q).sum() / h for h in (1e-2, 1e-3, 1e-4)]
        assert drift[1] < 0.2 * drift[0] + 1e-10
        assert drift[2] < 0.2 * drift[1] + 1e-10


def test_q_t_is_stationary_for_the_corrector_chain(setting):
    """Run the corrector's generator r + r_hat for a long time from one object: it ends at q_t."""
    d, joint, model = setting
    s = 0.5
    alpha, beta = float(d.schedule.alpha_bar(s)), float(d.schedule.beta(s))
    q = joint.marginal(alpha)
    x, time = states(joint), torch.full((len(joint.states),), s)
    reverse = d.rate(model(x, time), x, s).numpy()
    generator = joint.forward_generator(beta)
    index = {state: i for i, state in enumerate(joint.states)}
    for i, state in enumerate(joint.states):
        for e in range(D):
            for z in range(K):
                if z != state[e]:
                    j = index[tuple(z if k == e else v for k, v in enumerate(state))]
                    generator[i, j] += reverse[i, e, z]
                    generator[i, i] -= reverse[i, e, z]
    np.testing.assert_allclose(q @ generator, 0, atol=1e-6)
    step = np.eye(len(q)) + generator / (2 * np.abs(np.diag(generator)).max())
    np.testing.assert_allclose(np.linalg.matrix_power(step, 4096)[np.argmax(q)], q, atol=1e-5)


def test_reverse_rates_are_those_of_the_reversed_chain(setting):
    d, joint, model = setting
    s = 0.4
    truth = joint.reverse_generator(float(d.schedule.alpha_bar(s)), float(d.schedule.beta(s)))
    x, time = states(joint), torch.full((len(joint.states),), s)
    rates = d.rate(model(x, time), x, s).numpy()
    q = joint.marginal(float(d.schedule.alpha_bar(s)))
    for i, state in enumerate(joint.states):
        for j, other in enumerate(joint.states):
            moved = [e for e in range(D) if state[e] != other[e]]
            if len(moved) == 1 and q[i] > 0:
                assert rates[i, moved[0], other[moved[0]]] == pytest.approx(truth[i, j], rel=1e-5, abs=1e-9)


# ---- draws ------------------------------------------------------------------------------------------------------


def object_counts(x):
    return torch.bincount(x[:, 0] * K * K + x[:, 1] * K + x[:, 2], minlength=K**D).numpy()


def test_exact_sampler_draws_from_the_product_of_its_step_matrices(setting, generator):
    d, joint, model = setting
    n, times = 60_000, grid(6)
    x = d.sample(model, (n, D), times, generator=generator)
    assert chi_square_p_value(object_counts(x), n * final_distribution(d, joint, model, times)) > 1e-6


def test_exact_sampler_with_corrector_draws_from_the_product_of_all_matrices(setting, generator):
    d, joint, model = setting
    n, times = 60_000, grid(5)
    x = d.sample(model, (n, D), times, usd3.Corrector(3, 0.01, last=3), generator=generator)
    expected = final_distribution(d, joint, model, times, 3, 0.01, last=3)
    assert chi_square_p_value(object_counts(x), n * expected) > 1e-6


def test_corrector_lowers_the_error_by_real_draws(generator):
    """4 steps, 30,000 objects, an error well above the sampling noise of 0.012."""
    d, joint, model = make("random")
    n, w = 30_000, joint.w.reshape(-1)
    correctors = (None, usd3.Corrector(20, 0.05, last=None))
    tv = [
        oracle.total_variation(object_counts(d.sample(model, (n, D), 4, c, generator=generator)) / n, w)
        for c in correctors
    ]
    assert tv[1] < 0.7 * tv[0]


@pytest.mark.parametrize("kind", ["random", "absorbing"])
def test_gillespie_agrees_with_the_exact_marginals(kind, generator):
    """From q_t to q_s exactly, whatever the distance. The network call per candidate makes it slow."""
    d, joint, _ = make(kind)
    n, t, s = 4000, 0.8, 0.3
    alpha = {v: float(d.schedule.alpha_bar(v)) for v in (t, s)}

    def model(x, time):  # exact denoiser at any time: one table per object is too slow, so vectorise the enumeration
        a = d.schedule.alpha_bar(time.double())[:, None, None]
        q = torch.ones(len(x), *[1] * D, dtype=torch.float64)
        w = torch.from_numpy(joint.w)
        for e in range(D):
            m = torch.from_numpy(joint.ms[e].copy())
            like = a[:, 0] * torch.eye(K).double()[x[:, e]] + (1 - a[:, 0]) * m[x[:, e]][:, None]
            q = q * like.reshape(len(x), *[K if k == e else 1 for k in range(D)])
        post = q * w
        logits = [post.sum([k + 1 for k in range(D) if k != e]) for e in range(D)]
        return torch.stack(logits, 1).clamp(min=1e-300).log()

    start = torch.multinomial(torch.from_numpy(joint.marginal(alpha[t])), n, True, generator=generator)
    x = states(joint)[start]
    run = Run(d, Denoiser(model, K, None, None), torch.ones(n, D, dtype=torch.bool), Checks(True), generator)
    x_s = SAMPLERS["gillespie"](run, [t, s])(x, 0)
    assert chi_square_p_value(object_counts(x_s), n * joint.marginal(alpha[s])) > 1e-6
    whole = d.sample(model, (n, D), [1.0, 0.0], sampler="gillespie", generator=generator)
    assert chi_square_p_value(object_counts(whole), n * joint.w.reshape(-1)) > 1e-6


@pytest.mark.parametrize("name", ["euler", "tau_leaping"])
def test_rate_based_samplers_converge_to_the_truth(setting, name, generator):
    d, joint, model = setting
    n, w = 20_000, joint.w.reshape(-1)
    tv = [
        oracle.total_variation(object_counts(d.sample(model, (n, D), steps, sampler=name, generator=generator)) / n, w)
        for steps in (4, 100)
    ]
    noise = oracle.total_variation(np.random.default_rng(0).multinomial(n, w) / n, w)
    assert tv[1] < 0.6 * tv[0]
    assert tv[1] < 4 * noise + 0.02


def test_tau_leaping_moves_with_probability_l_exp_minus_L(generator):
    d = usd3.Diffusion(usd3.Marginal([0.2, 0.3, 0.5]), usd3.Linear())
    n, t, s = 100_000, 0.6, 0.4
    logits = torch.tensor([0.3, -1.0, 0.8], dtype=torch.float64)
    model = lambda x, time: logits.expand(*x.shape, 3)
    x = torch.zeros(n, 1, dtype=torch.long)
    run = Run(d, Denoiser(model, 3, None, None), torch.ones_like(x, dtype=torch.bool), Checks(True), generator)
    rates = (t - s) * d.rate(model(x[:1], None), x[:1], t)[0, 0]
    total = rates.sum()
    expected = rates * torch.exp(-total)
    expected[0] = 1 - expected.sum()
    moved = SAMPLERS["tau_leaping"](run, [t, s])(x, 0)
    assert chi_square_p_value(torch.bincount(moved[:, 0], minlength=3), n * expected) > 1e-6
    euler = rates.clone()
    euler[0] = 1 - total
    moved = SAMPLERS["euler"](run, [t, s])(x, 0)
    assert chi_square_p_value(torch.bincount(moved[:, 0], minlength=3), n * euler) > 1e-6


# ---- conditioning, grids, callbacks -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", FOR_ANY_NOISE)
@pytest.mark.parametrize("num_steps", [None, 12])
@pytest.mark.parametrize("noise", [usd3.Uniform(5), usd3.Absorbing(5), usd3.Marginal([0.4, 0.3, 0.3, 0.0, 0.0])])
def test_every_sampler_keeps_the_given_and_pad_elements_at_every_step(name, num_steps, noise, generator):
    d = usd3.Diffusion(noise, usd3.Cosine(), num_steps)
    tokens = torch.randint(4, (6, 4), generator=generator)
    given = torch.rand(6, 4, generator=generator) < 0.5
    pad = torch.zeros(6, 4, dtype=torch.bool)
    pad[:, 3] = True
    steps, masks = [], []

    def model(x, t, pad, given):
        masks.append((pad, given))
        return torch.nn.functional.one_hot(x, 5) * 1.5 + torch.arange(5.0)

    x = d.sample(
        model, (6, 4), 6, usd3.Corrector(2, 0.5), given=given, given_tokens=tokens, pad=pad,
        generator=generator, callback=steps.append, sampler=name,
    )  # fmt: skip
    fixed = given | pad
    assert len(steps) == 6
    assert torch.equal(steps[-1].x_s, x)
    assert [(step.index, step.num_steps) for step in steps] == [(i, 6) for i in range(6)]
    assert steps[0].t == 1
    assert steps[-1].s == 0
    assert all(torch.equal(a.x_s, b.x_t) for a, b in itertools.pairwise(steps))
    assert all(torch.equal(step.x_s[fixed], tokens[fixed]) for step in steps)
    assert all(torch.equal(a, pad) and torch.equal(b, given) for a, b in masks)
    if noise.mask is not None:
        assert (x != noise.mask).all()


def test_conditional_samples_follow_the_conditional_distribution(generator):
    """A network that is exact for the third element given two clean ones: its samples are those conditionals."""
    d, joint, _ = make("random")
    n = 20_000

    def model(x, t, given):
        a = float(d.schedule.alpha_bar(t[0].double()))
        q = torch.from_numpy(oracle.transition(a, joint.ms[2]))
        post = torch.from_numpy(joint.w)[x[:, 0], x[:, 1]] * q[:, x[:, 2]].T
        logits = torch.zeros(len(x), D, K, dtype=torch.float64)
        logits[:, 2] = post.log()
        return logits

    given = torch.tensor([True, True, False])
    tokens = torch.tensor([0, 2, -1])  # one prompt for all
    x = d.sample(model, (n, D), 5, given=given, given_tokens=tokens, generator=generator)
    expected = joint.w[0, 2] / joint.w[0, 2].sum()
    assert chi_square_p_value(torch.bincount(x[:, 2], minlength=K), n * expected) > 1e-6


def test_the_corrector_acts_only_on_the_last_steps_and_at_the_time_reached():
    d = usd3.Diffusion(usd3.Uniform(4), usd3.Linear())
    times = []

    def model(x, t):
        times.append(round(float(t[0]), 6))
        return torch.zeros(*x.shape, 4)

    d.sample(model, (2, 3), 5, usd3.Corrector(2, 0.01, last=2))
    assert times == [1.0, 0.8, 0.6, 0.4, 0.4, 0.4, 0.2, 0.2, 0.2]
    times.clear()
    d.sample(model, (2, 3), 3, usd3.Corrector(1, 0.01, last=1))
    assert len(times) == 4


def test_the_corrector_looks_at_the_current_state():
    """Evaluated once at the first state, as the released code does, the chain would drift (docs/equations.md)."""
    d = usd3.Diffusion(usd3.Uniform(4), usd3.Linear())
    seen = []

    def model(x, t):
        seen.append(x)
        return torch.zeros(*x.shape, 4)

    free = torch.ones(64, 3, dtype=torch.bool)
    run = Run(d, Denoiser(model, 4, None, None), free, Checks(True), torch.Generator().manual_seed(0))
    x = usd3.Corrector(3, 0.3)(run, [1.0, 0.5])(torch.zeros(64, 3, dtype=torch.long), 0)
    assert not torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[1], seen[2])
    assert x.shape == (64, 3)


def test_no_corrector_step_has_a_jump_mass_above_four_fifths(generator):
    """K = 2 and Linear at s = 1/2: all weights are 2. An element leaves at rate 8/3 where f_x = 1/2 and at 4/3
    where f_x = 1. A step is capped for each object: what the busiest element of one does slows no other down.
    """
    d, n = usd3.Diffusion(usd3.Uniform(2), usd3.Linear()), 50_000
    x, rates = torch.zeros(2, n, dtype=torch.long), torch.tensor([8 / 3, 4 / 3])
    logits = torch.tensor([[0.0, 0.0], [50.0, 0.0]])[:, None].expand(2, n, 2)
    denoise = Denoiser(lambda x, t: logits, 2, None, None)
    run = Run(d, denoise, torch.ones_like(x, dtype=torch.bool), Checks(True), generator)
    for size in (0.1, 0.4, 10.0):
        moved = usd3.Corrector(1, size)(run, [1.0, 0.5])(x, 0).double().mean(1)
        assert ((moved - (size * rates).clamp(max=0.8)).abs() < 5 * 0.5 / n**0.5).all()


def test_only_moves_that_may_be_too_long_are_measured(monkeypatch):
    """The masses take a pass over the logits of their own."""
    asked, before = [], fused.jump_mass
    monkeypatch.setattr(fused, "jump_mass", lambda *args: asked.append(1) or before(*args))
    d, model = usd3.Diffusion(usd3.Uniform(4), usd3.Linear()), lambda x, t: torch.zeros(*x.shape, 4)
    d.sample(model, (2, 3), 10, usd3.Corrector(2, 0.01, last=None))
    assert not asked
    d.sample(model, (2, 3), 10, usd3.Corrector(2, 0.05, last=None))
    assert len(asked) == 2  # at s = 0.9, where no rate is above 21.1; elsewhere none is above 12.3


def test_automatic_corrector_steps_do_no_harm(setting, generator):
    """With the exact network, where there is nothing to correct but the error of 16 steps."""
    d, joint, model = setting
    n, w = 15_000, joint.w.reshape(-1)
    without, corrected = (
        oracle.total_variation(object_counts(d.sample(model, (n, D), 16, c, generator=generator)) / n, w)
        for c in (None, usd3.Corrector(5, "auto", last=None))
    )
    assert corrected <= without + 0.01


def test_an_automatic_step_is_the_default_one():
    d, model = usd3.Diffusion(usd3.Uniform(4), usd3.Cosine()), lambda x, t: torch.arange(4.0).expand(*x.shape, 4)
    assert usd3.Corrector().step_size == 1e-3
    a, b = (
        d.sample(model, (500, 3), 50, usd3.Corrector(5, *size), generator=torch.Generator().manual_seed(2))
        for size in (["auto"], [])
    )
    assert torch.equal(a, b)


def test_discrete_time_takes_any_number_of_steps_up_to_its_own():
    d = usd3.Diffusion(usd3.Uniform(4), usd3.Cosine(), 10)
    seen = []

    def model(x, t):
        seen.append(round(float(t[0]) * 10))
        return torch.zeros(*x.shape, 4)

    d.sample(model, (1, 2), 4)
    assert seen == [10, 8, 5, 2]
    seen.clear()
    d.sample(model, (1, 2), [10, 3, 0])
    assert seen == [10, 3]
    d.sample(model, (1, 2), torch.tensor([7, 1, 0]))
    d.sample(model, (1, 2), np.array([7, 1, 0]))
    d.sample(model, (1, 2), np.int64(3))
    with pytest.raises(ValueError, match=r"num_steps = 11: expected an integer 1\.\.10"):
        d.sample(model, (1, 2), 11)


def test_samples_are_reproducible_and_live_where_the_model_lives():
    net = torch.nn.Embedding(5, 5).to("meta")
    assert net.weight.device.type == "meta"
    d = usd3.Diffusion(usd3.Uniform(5), usd3.Linear())
    model = lambda x, t: torch.zeros(*x.shape, 5)
    a, b = (d.sample(model, (3, 4), 5, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(a, b)
    assert d.sample(model, (3, 4), 2, device="cpu").device.type == "cpu"

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = torch.nn.Parameter(torch.zeros(5))

        def forward(self, x, t):
            return self.bias.expand(*x.shape, 5)

    assert d.sample(Net(), (3, 4), 2).device.type == "cpu"


@pytest.mark.parametrize("sampler", FOR_ANY_NOISE)
def test_objects_of_no_or_many_dimensions_and_empty_ones_are_fine(sampler):
    d = usd3.Diffusion(usd3.Uniform(5), usd3.Linear())
    model = lambda x, t: torch.zeros(*x.shape, 5)
    for shape in ((0, 3), (2, 0), (5,), (2, 1, 3, 1)):
        assert d.sample(model, shape, 3, usd3.Corrector(1, 0.5), sampler=sampler).shape == shape
    assert d.bound(model, torch.zeros(0, 3, dtype=torch.long), 2).shape == (0,)


def test_padding_without_tokens_is_never_the_mask():
    d = usd3.Diffusion(usd3.Absorbing(4, mask=0), usd3.Linear())
    x = d.sample(lambda x, t, pad: torch.zeros(*x.shape, 4), (5, 3), 4, pad=torch.tensor([False, True, True]))
    assert (x != 0).all()


def test_tokens_and_times_of_every_integer_dtype(generator):
    d = usd3.Diffusion(usd3.Uniform(5), usd3.Linear(), 1000)
    model = lambda x, t: torch.zeros(*x.shape, 5)
    given = torch.tensor([True, False])
    for dtype in (torch.uint8, torch.int8, torch.uint16, torch.int32, torch.uint32, torch.uint64):
        tokens = torch.full((3, 2), 4).to(dtype)
        assert (d.sample(model, (3, 2), 2, given=given, given_tokens=tokens)[:, 0] == 4).all()
        assert d.q_sample(tokens, torch.full((3,), 100).to(dtype)).dtype == torch.int64


def test_a_trained_model_needs_no_gradients_to_sample():
    logits = torch.zeros(5, requires_grad=True)
    d = usd3.Diffusion(usd3.Uniform(5), usd3.Linear())
    seen = []
    d.sample(
        lambda x, t: logits.expand(*x.shape, 5), (2, 2), 3, callback=lambda step: seen.append(torch.is_grad_enabled())
    )
    assert seen == [False] * 3


def test_every_data_category_can_be_reached():
    for noise in (usd3.Uniform(6), usd3.Absorbing(6), usd3.Marginal([0.5, 0.5, 0, 0, 0, 0])):
        d = usd3.Diffusion(noise, usd3.Cosine())
        x = d.sample(lambda x, t: torch.zeros(*x.shape, 6), (200, 10), 4, generator=torch.Generator().manual_seed(0))
        assert set(x.unique().tolist()) == set(data_categories(noise))


def test_the_table_of_step_sizes_in_the_documentation():
    """docs/sampling.md: the total variation after 5 moves of each size after every step, by enumeration."""
    d, joint, model = make("uniform")
    x, eye = states(joint), np.eye(K)[joint.states]

    def moves(d, joint, model, s, size):
        """As `corrector_matrix`, an object's moves shortened so that no element leaves with more than 0.8."""
        time = torch.full((len(x),), s, dtype=torch.float64)
        belief, rate = d.belief(model(x, time), x, time, Checks(True)), d.rate_weights(time, x)
        jumps = jump_mixture(belief, Jumps(rate.to_data, rate.to_noise, forward=rate.to_noise))
        probs = jumps.scaled(torch.tensor(size)).probs().numpy()
        leaving = 1 - (probs * eye).sum(-1)
        shorter = np.minimum(1, 0.8 / leaving.max(1).clip(1e-12))
        return oracle.product_step(eye + (probs - eye) * shorter[:, None, None])

    table = (ROOT / "docs" / "sampling.md").read_text().partition("| steps | none |")[2]
    sizes, rows = [0.001, 0.01, 0.05, 0.2], table.splitlines()[2:4]
    for row in rows:
        steps, *shown = row.strip("| ").split(" | ")
        plain = final_distribution(d, joint, model, grid(int(steps)))
        corrected = [final_distribution(d, joint, model, grid(int(steps)), 5, size, matrix=moves) for size in sizes]
        computed = [oracle.total_variation(p, joint.w.reshape(-1)) for p in (plain, *corrected)]
        assert [f"{tv:.3f}" for tv in computed] == shown
