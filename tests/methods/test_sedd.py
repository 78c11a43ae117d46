"""SEDD against enumeration: the loss, its bound, and its samplers with exact ratios over all objects."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import usd3
from support import oracle
from support.problems import NOISES, RANDOM, WITH_ZEROS, D, K, LargestTensor, all_pairs, data_categories, data_like
from support.toys import known_joint
from usd3._internal.checks import LoopChecks
from usd3.core import converters
from usd3.core.samplers import Run
from usd3.methods import SEDD

TIMES = (1e-3, 0.2, 0.6, 0.97)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def double(*shape, seed=0):
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


def schedule_for(noise):
    return usd3.Linear() if noise.has_zeros else usd3.LogLinear()


def constant(t, x):
    return torch.full((len(x),), t, dtype=torch.float64)


def score_entropy(log_s, x, x_0, alpha, beta, m, possible):
    """beta sum over possible z != x of m_x (s - rho log s + rho (log rho - 1)), from the matrices."""
    q = oracle.transition(alpha, m)[x_0]
    loss = 0.0
    for z in possible:
        if z != x and m[x] > 0:
            rho = q[z] / q[x]
            loss += beta * m[x] * (math.exp(log_s[z]) - rho * log_s[z] + (rho * (math.log(rho) - 1) if rho else 0.0))
    return loss


def log_rho(d, x_t, x_0, t):
    """The conditional ratios, by division; NEVER-like where impossible."""
    q = d.q_probs(x_0, t)
    return (q / q.gather(-1, x_t[..., None]).clamp(min=1e-300)).clamp(min=1e-300).log()


# ---- the loss ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("t", TIMES)
def test_the_loss_is_the_score_entropy_for_any_noise(noise, t):
    noise, rows = noise
    d = usd3.Diffusion(noise, schedule_for(noise))
    x_0, x_t = all_pairs(noise, rows)
    output = double(*x_0.shape, K)
    found = SEDD(d, scale_by_sigma=False).score_entropy(output, x_t, x_0, constant(t, x_0))
    alpha, beta = float(d.schedule.alpha_bar(t)), float(d.schedule.beta(t))
    for i, j in itertools.product(range(len(x_0)), range(D)):
        possible = {*data_categories(noise, j), *np.flatnonzero(rows[j])}
        x, clean = int(x_t[i, j]), int(x_0[i, j])
        wanted = score_entropy(output[i, j].tolist(), x, clean, alpha, beta, rows[j], possible)
        assert float(found[i, j]) == pytest.approx(wanted, rel=1e-9, abs=1e-9)
        assert wanted > -1e-9


@pytest.mark.parametrize("t", TIMES)
def test_the_loss_is_0_at_the_true_ratios_and_positive_elsewhere(noise, t):
    """T2."""
    noise, rows = noise
    d = usd3.Diffusion(noise, schedule_for(noise))
    x_0, x_t = all_pairs(noise, rows)
    method, time, exact = SEDD(d, scale_by_sigma=False), constant(t, x_0), log_rho(d, x_t, x_0, t)
    at_truth = method.score_entropy(exact, x_t, x_0, time)
    scale = 1 + float(d.schedule.beta(t)) * exact.clamp(max=40).exp().amax()
    assert at_truth.abs().max() < 1e-12 * float(scale)
    elsewhere = method.score_entropy(exact + 0.1 * double(*exact.shape), x_t, x_0, time)
    noisy = noise.at(x_t) > 0
    choice = torch.tensor([len({*data_categories(noise, j), *np.flatnonzero(rows[j])}) > 1 for j in range(D)])
    assert (elsewhere[noisy & choice] > 0).all()
    assert (elsewhere[~(noisy & choice)] == 0).all()


@pytest.mark.parametrize("t", TIMES)
def test_the_closed_forms_of_uniform_noise(t):
    """T1: L6 at g = s, plus the closed constant, with rho = ((1 - a) / K) / (a + (1 - a) / K)."""
    d = usd3.Diffusion(usd3.Uniform(K), usd3.LogLinear())
    x_0, x_t = all_pairs(d.noise, np.full((D, K), 1 / K))
    output = double(*x_0.shape, K)
    found = SEDD(d).score_entropy(output, x_t, x_0, constant(t, x_0))
    a, beta = float(d.schedule.alpha_bar(t)), float(d.schedule.beta(t))
    rho = (1 - a) / K / (a + (1 - a) / K)
    for i in range(len(x_0)):
        x, x0, L = int(x_t[i, 0]), int(x_0[i, 0]), output[i, 0].numpy()
        others = [z for z in range(K) if z != x]
        s = sum(math.exp(L[z]) for z in others) / K
        if x == x0:
            l6 = s - rho / K * sum(L[z] for z in others) + 1 / K - 1
            constant_ = (K - 1) / K * (1 + rho * (math.log(rho) - 1))
        else:
            l6 = s - sum(L[z] for z in others) / K - a / (1 - a) * L[x0] + 1 / K - 1
            constant_ = (K - 1) / K + ((-math.log(rho) - 1) / rho - (K - 2)) / K
        assert float(found[i, 0]) == pytest.approx(beta * (l6 + constant_), rel=1e-9, abs=1e-9)


def test_the_closed_form_of_absorbing_noise():
    d = usd3.Diffusion(usd3.Absorbing(K), usd3.Linear())
    x_0, output, sigma = torch.arange(K - 1)[:, None], double(K - 1, 1, K), -math.log(0.7)
    x_t = torch.full_like(x_0, K - 1)
    found = SEDD(d, scale_by_sigma=False).score_entropy(output, x_t, x_0, constant(0.3, x_0))
    r = 1 / math.expm1(sigma)
    wanted = output[:, 0, :-1].exp().sum(-1) - output[range(K - 1), 0, range(K - 1)] * r + r * (math.log(r) - 1)
    torch.testing.assert_close(found[:, 0], wanted / 0.7)
    assert (SEDD(d).score_entropy(output, x_0, x_0, constant(0.3, x_0)) == 0).all()


@pytest.mark.parametrize("t", TIMES)
def test_through_a_belief_it_is_the_vlb_of_usd3(noise, t):
    """T3: with s = U2(f) both are the same Bregman terms of the same rates, constants included."""
    noise, rows = noise
    d = usd3.Diffusion(noise, schedule_for(noise))
    x_0, x_t = all_pairs(noise, rows)
    logits, time = double(*x_0.shape, K), constant(t, x_0)
    ratios = converters.ratio_from_full(d, logits, x_t, time)
    found = SEDD(d, scale_by_sigma=False).score_entropy(ratios, x_t, x_0, time)
    torch.testing.assert_close(found, d.loss_terms(logits, x_t, x_0, t).vlb, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("schedule", [usd3.Linear(), usd3.Cosine()])
@pytest.mark.parametrize("t", [*TIMES, 1.0])
def test_with_masks_it_is_a_weighted_cross_entropy(schedule, t):
    """T5, also at t = 1, where alpha_bar = 0: net = log f + log(number of data categories)."""
    d = usd3.Diffusion(usd3.Absorbing(K), schedule)
    x_0, logits = torch.arange(K - 1)[:, None], double(K - 1, 1, K)
    logits[..., -1] = -torch.inf
    log_f, x_t = logits.log_softmax(-1), torch.full_like(x_0, K - 1)
    found = SEDD(d).score_entropy(log_f + math.log(K - 1), x_t, x_0, constant(t, x_0))
    at = torch.tensor(t, dtype=torch.float64)
    weight = float(d.schedule.decay(at) / d.schedule.lost(at))
    torch.testing.assert_close(found, -weight * log_f.gather(-1, x_0[..., None]).squeeze(-1), rtol=1e-10, atol=1e-10)
    if isinstance(schedule, usd3.Linear):
        assert weight == pytest.approx(1 / t)


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("t", [0.01, 0.5])
def test_scaling_by_sigma_moves_the_output_only(t, scaled):
    d = usd3.Diffusion(usd3.Absorbing(K), usd3.Linear())
    method, x = SEDD(d, scale_by_sigma=scaled), torch.tensor([[K - 1, 0]])
    output = double(1, 2, K)
    sigma = -math.log(1 - t)
    moved = -math.log(math.expm1(sigma)) - math.log(K - 1) if scaled else 0.0
    wanted = (output + moved).scatter(-1, x[..., None], 0.0)
    torch.testing.assert_close(method.log_ratio(output, x, constant(t, x)), wanted)
    assert SEDD(d).scale_by_sigma
    assert not SEDD(usd3.Diffusion(usd3.Uniform(K), usd3.Linear())).scale_by_sigma


@pytest.mark.parametrize("kind", ["uniform", "absorbing", "per_element", "zeros"])
def test_the_gradient_is_that_of_the_loss(kind):
    make, rows = NOISES[kind]
    d = usd3.Diffusion(make(), schedule_for(make()))
    x_0, x_t = all_pairs(d.noise, rows)
    output, time = double(*x_0.shape, K).requires_grad_(), constant(0.4, x_0)
    method = SEDD(d)
    assert torch.autograd.gradcheck(lambda o: method.score_entropy(o, x_t, x_0, time), output)
    method.score_entropy(output, x_t, x_0, time).sum().backward()
    assert (output.grad.gather(-1, x_t[..., None]) == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("t", [1e-3, 0.5, 1.0])
def test_large_outputs_and_low_precision_stay_finite(noise, t, dtype):
    noise, rows = noise
    d = usd3.Diffusion(noise, schedule_for(noise))
    x_0, x_t = all_pairs(noise, rows)
    for size in (80.0, -80.0, 1.0):
        output = (size * torch.sign(double(*x_0.shape, K))).to(dtype).requires_grad_()
        terms = SEDD(d).score_entropy(output, x_t, x_0, constant(t, x_0))
        assert terms.dtype == torch.float32
        assert terms.isfinite().all()
        terms.sum().backward()
        assert output.grad.dtype == dtype
        assert output.grad.isfinite().all()
        if size == 1.0 and t < 1:
            wanted = SEDD(d).score_entropy(output.detach().double(), x_t, x_0, constant(t, x_0))
            torch.testing.assert_close(terms.double(), wanted, rtol=1e-5, atol=1e-3)


def test_nothing_of_the_size_of_the_output_is_float64():
    d = usd3.Diffusion(usd3.Uniform(64), usd3.LogLinear(), validate=False)
    output = torch.randn(8, 16, 64, generator=seeded()).requires_grad_()
    x = torch.randint(64, (8, 16), generator=seeded())
    with LargestTensor() as largest:
        SEDD(d).score_entropy(output, x, x.flip(0), constant(0.4, x)).sum().backward()
    assert largest.bytes == output.numel() * 4


# ---- training ---------------------------------------------------------------------------------------------------


def test_given_and_padding_have_no_loss_and_project_only_ignores_given():
    d = usd3.Diffusion(usd3.Uniform(K), usd3.LogLinear())
    x_0 = torch.zeros(64, D, dtype=torch.long)
    given, pad = torch.tensor([True, False, False]), torch.tensor([False, True, False])
    seen = {}

    def model(x, t, given=None, pad=None):
        seen.update(x=x, given=given)
        return logits

    for condition in ("clamp", "project_only"):
        logits = torch.zeros(64, D, K, requires_grad=True)
        out = SEDD(d, condition).loss(model, x_0, given=given, pad=pad, generator=seeded(), stratified=True)
        out.loss.backward()
        has_loss = logits.grad.abs().sum((0, 2)) > 0
        clamps = condition == "clamp"
        assert has_loss.tolist() == [not clamps, False, True]
        assert bool((seen["x"][:, 0] == 0).all()) == clamps
        assert (seen["x"][:, 1] == 0).all()
        assert bool(seen["given"].any()) == clamps
        torch.testing.assert_close(out.vlb, d.vlb_scale * out.loss.detach())


@pytest.mark.parametrize("shape", [(6,), (6, 2), (6, 2, 3)])
@pytest.mark.parametrize("noise", [usd3.Uniform(K), usd3.Absorbing(K), usd3.Marginal(RANDOM)])
def test_objects_of_any_shape(noise, shape):
    method = SEDD(usd3.Diffusion(noise, schedule_for(noise)))
    x_0 = torch.randint(K - 1, shape, generator=seeded())
    model = lambda x, t: torch.zeros(*x.shape, K)
    assert method.loss(model, x_0, generator=seeded()).loss >= 0
    assert method.bound(model, x_0, 2, generator=seeded()).shape == (6,)
    drawn = method.sample(model, shape, 3, generator=seeded())
    assert drawn.shape == shape
    assert all(int(x) in data_categories(noise) for x in drawn.unique())


@pytest.mark.parametrize("noise", [usd3.Uniform(3), usd3.Absorbing(3)])
def test_it_learns(noise):
    """A table over all x_t and 8 times, one distribution over two elements: the loss falls towards its least value."""
    d = usd3.Diffusion(noise, schedule_for(noise), t_min=0.05)
    method, table = SEDD(d), torch.zeros(8, 9, 2, 3, requires_grad=True)
    model = lambda x, t: table[(t * 8).long().clamp(max=7), x[:, 0] * 3 + x[:, 1]]
    x_0 = torch.tensor([[0, 0], [0, 0], [0, 0], [1, 1]]).repeat(64, 1)
    optimizer = torch.optim.Adam([table], 0.1)
    before = float(method.bound(model, x_0, 32, generator=seeded()).mean())
    generator = seeded()
    for _ in range(150):
        loss = method.loss(model, x_0, generator=generator, stratified=True).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    after = float(method.bound(model, x_0, 32, generator=seeded()).mean())
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert entropy - 0.05 < after < entropy + 0.3 * (before - entropy)


# ---- the bound --------------------------------------------------------------------------------------------------


def exact_ratios(joint, schedule, shifted=None):
    """model(x_t, t) -> log of q_t(z, others) / q_t(x_t), by enumeration, in the form that `shifted` asks for."""
    tables = {}
    index = torch.tensor([[joint.K ** (joint.D - 1 - e)] for e in range(joint.D)]).squeeze(1)

    def table(time):
        q = joint.marginal(float(schedule.alpha_bar(torch.tensor(time, dtype=torch.float64))))
        found = np.zeros((len(q), joint.D, joint.K))
        for i, state in enumerate(joint.states):
            for e, z in itertools.product(range(joint.D), range(joint.K)):
                j = i + (z - state[e]) * joint.K ** (joint.D - 1 - e)
                found[i, e, z] = np.log(max(q[j], 1e-30) / max(q[i], 1e-30))
        return torch.from_numpy(found)

    def model(x, t):
        output = torch.empty(*x.shape, joint.K, dtype=torch.float64)
        for time in t.unique().tolist():
            tables[time] = tables[time] if time in tables else table(time)
            at = t == time
            output[at] = tables[time][(x[at] * index).sum(1)]
        return output if shifted is None else output - shifted._shift(x, t.double())[..., None]

    return model


def small(kind):
    ms = np.random.default_rng(5).dirichlet(np.full(3, 3.0), size=D)
    noise = {"uniform": usd3.Uniform(3), "absorbing": usd3.Absorbing(3), "per_element": usd3.Marginal(ms)}[kind]
    schedule = schedule_for(noise)
    joint = known_joint(noise, np.broadcast_to(noise.probs.numpy(), (D, 3)), K=3)
    return usd3.Diffusion(noise, schedule), joint


@pytest.mark.parametrize("kind", ["uniform", "absorbing", "random"])
def test_the_bound_of_one_element_with_exact_ratios_is_tight(kind):
    """Averaged over x_0: entropy + KL(q_1 || m), by Gauss-Legendre in log t and enumeration of x_0 and x_t.

    That -log p(x_0) is not met for each x_0, only on average, is due to the prior: q_1 is not m.
    """
    make, rows = NOISES[kind]
    noise = make()
    d = usd3.Diffusion(noise, schedule_for(noise))
    joint = known_joint(noise, rows[:1], D=1)
    method = SEDD(d, scale_by_sigma=False)
    model = exact_ratios(joint, d.schedule)
    data, everything = torch.tensor(data_categories(noise))[:, None], torch.arange(K)[:, None]
    w = torch.from_numpy(joint.w)[data[:, 0]]

    def mean(t, term):
        q, x = d.q_probs(data, t)[:, 0], everything
        output = model(x, constant(t, x))
        found = torch.stack([term(output, x, x_0.expand_as(x), constant(t, x))[:, 0] for x_0 in data])
        return float((w[:, None] * torch.where(q > 0, q * found, 0.0)).sum())

    def decoder(output, x, x_0, time):
        return -method.denoised(output, x, time).gather(-1, x_0[..., None]).squeeze(-1).clamp(min=1e-300).log()

    nodes, weights = np.polynomial.legendre.leggauss(150)
    log_t = np.log(1e-3) * (1 - nodes) / 2
    total = mean(1e-3, decoder) + float((w[:, None] * d.prior(data)).sum())
    for t, weight in zip(np.exp(log_t), -np.log(1e-3) / 2 * weights * np.exp(log_t)):
        total += weight * mean(float(t), method.score_entropy)
    q_1, m = joint.marginal(float(d.schedule.alpha_bar(1.0))), rows[0]
    entropy = -float((w * w.log()).sum())
    assert total == pytest.approx(entropy + oracle.kl(q_1, m), abs=1e-5)


@pytest.mark.parametrize("condition", ["clamp", "project_only"])
@pytest.mark.parametrize("scaled", [None, False])
def test_through_a_belief_the_bound_is_that_of_the_diffusion(noise, scaled, condition):
    """The same draws, the same terms, the same decoder but for its floor of 1e-6."""
    noise, _ = noise
    d = usd3.Diffusion(noise, schedule_for(noise))
    method, weights = SEDD(d, condition, scale_by_sigma=scaled), double(K, D, K)
    full = lambda x, t, pad=None: weights[x.flip(1)].diagonal(dim1=1, dim2=2).movedim(-1, 1) * t[:, None, None]

    def ratios(x, t, pad=None):
        found = converters.ratio_from_full(d, full(x, t), x, t.double())
        return found - method._shift(x, t.double())[..., None]

    x_0 = data_like(noise, torch.tensor([0, 2, 3])[torch.randint(3, (9, D), generator=seeded())])
    masks = {"given": torch.tensor([True, False, False]), "pad": torch.tensor([False, False, True])}
    for kept in ({}, masks):
        wanted = d.bound(full, x_0, 8, generator=seeded(2), **kept).double()
        found = method.bound(ratios, x_0, 8, generator=seeded(2), **kept)
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_the_bound_is_finite_where_ratios_are_wrong_and_masks_count_out():
    d = usd3.Diffusion(usd3.Uniform(K), usd3.LogLinear())
    x_0, wrong = torch.zeros(5, D, dtype=torch.long), lambda x, t: torch.full((*x.shape, K), 5.0)
    assert SEDD(d).bound(wrong, x_0, 4, generator=seeded()).isfinite().all()
    everything = torch.ones(D, dtype=torch.bool)
    for condition in ("clamp", "project_only"):
        nothing = SEDD(d, condition).bound(wrong, x_0, 4, given=everything, generator=seeded())
        assert nothing.tolist() == [0.0] * 5


# ---- samplers ---------------------------------------------------------------------------------------------------


def test_the_analytic_step_through_a_belief_is_the_exact_step(noise):
    """T4: U6 with s = U2(f) is U4."""
    noise, rows = noise
    d = usd3.Diffusion(noise, schedule_for(noise))
    x_0, x_t = all_pairs(noise, rows)
    logits = double(*x_0.shape, K)
    method = SEDD(d, scale_by_sigma=False)
    for t, s in ((0.9, 0.4), (0.3, 0.29), (0.5, 0.0)):
        time, before = constant(t, x_0), constant(s, x_0)
        ratios = converters.ratio_from_full(d, logits, x_t, time)
        found = method.analytic(ratios, x_t, time, before)
        torch.testing.assert_close(found, d.backward(logits, x_t, t, s).probs(), rtol=1e-8, atol=1e-10)
        if s == 0:  # there the mask has nothing left
            torch.testing.assert_close(method.denoised(ratios, x_t, time), found, rtol=1e-8, atol=1e-10)


def final_distribution(method, joint, num_steps, sampler):
    """The distribution over objects after all steps, with the library's own probabilities for one step."""
    x, model = torch.tensor(joint.states), exact_ratios(joint, method.diffusion.schedule, method)
    p = np.ones(1)
    for m in joint.ms:
        p = np.kron(p, m)
    grid = method.diffusion.grid(method.grid(num_steps, sampler))
    last = 1.0 if float(method.diffusion.schedule.alpha_bar(1.0)) > 0 else 1 - method.eps
    times = np.clip(grid, 0 if method.denoise else method.eps, last)
    for i, (t, s) in enumerate(itertools.pairwise(times.tolist())):
        time, before = constant(t, x), constant(s, x)
        step = method.denoised if method.denoise and i == len(grid) - 2 else getattr(method, sampler)
        p = p @ oracle.product_step(step(model(x, time), x, time, before).numpy())
    return p


@pytest.mark.parametrize("sampler", SEDD.samplers)
@pytest.mark.parametrize("kind", ["uniform", "absorbing", "per_element"])
def test_with_exact_ratios_the_samplers_reach_the_data(kind, sampler):
    """All elements move at once, so the error falls like 1/n; the floor is q_1 - m, about 1e-3 for the schedule."""
    d, joint = small(kind)
    w = joint.w.reshape(-1)
    tv = [
        oracle.total_variation(final_distribution(SEDD(d), joint, n, sampler), w)
        for n in ((4, 16, 64) if sampler == "analytic" else (16, 64, 256))
    ]
    assert tv[0] > 2 * tv[1] > 4 * tv[2] - 4e-3
    assert tv[2] < 0.02


def test_one_element_is_drawn_exactly_by_any_number_of_analytic_steps():
    """With one element the step is the exact one, so what is left is q_1 - m: a(1) = 1e-3, and nothing with masks."""
    for noise, error in ((usd3.Uniform(3), 1e-3), (usd3.Absorbing(3), 2e-5)):
        d = usd3.Diffusion(noise, schedule_for(noise))
        joint = known_joint(noise, noise.probs.numpy()[None], K=3, D=1)
        for n in (1, 3):
            found = final_distribution(SEDD(d), joint, n, "analytic")
            assert oracle.total_variation(found, joint.w) < error


@pytest.mark.parametrize("sampler", SEDD.samplers)
@pytest.mark.parametrize(
    ("kind", "denoise"), [("uniform", True), ("uniform", False), ("absorbing", True), ("per_element", True)]
)
def test_samples_follow_the_steps(kind, denoise, sampler):
    """20,000 draws against the propagated distribution over 27 objects: expected total variation below 0.015."""
    d, joint = small(kind)
    method = SEDD(d, denoise=denoise, eps=1e-3)
    model, steps = exact_ratios(joint, d.schedule, method), []
    x = method.sample(model, (20_000, D), 6, sampler=sampler, generator=seeded(), callback=steps.append)
    seen = torch.bincount(x @ torch.tensor([9, 3, 1]), minlength=27).numpy() / len(x)
    assert oracle.total_variation(seen, final_distribution(method, joint, 6, sampler)) < 0.03
    assert len(steps) == 6 + denoise
    assert steps[-1].t == pytest.approx(1e-3 if denoise else 1 / 6, rel=0.01)


@pytest.mark.parametrize("condition", ["clamp", "project_only"])
@pytest.mark.parametrize("sampler", SEDD.samplers)
@pytest.mark.parametrize("noise", [usd3.Uniform(K), usd3.Absorbing(K), usd3.Marginal(WITH_ZEROS)])
def test_given_elements_and_padding_are_kept(noise, sampler, condition):
    told = []

    def model(x, t, given=None, pad=None):
        told.append((bool(given.any()), pad is not None))
        return torch.randn(*x.shape, K, generator=seeded(len(told)))

    d = usd3.Diffusion(noise, schedule_for(noise))
    tokens = torch.randint(K - 1, (7, D), generator=seeded())
    given, pad = torch.tensor([True, False, False]), torch.tensor([False, False, True])
    method = SEDD(d, condition)
    x = method.sample(model, (7, D), 5, given=given, given_tokens=tokens, pad=pad, sampler=sampler, generator=seeded())
    assert torch.equal(x[:, [0, 2]], tokens[:, [0, 2]])
    assert set(told) == {(condition == "clamp", True)}
    assert noise.mask is None or not (x == noise.mask).any()


class NoWaiting(TorchDispatchMode):
    """Refuses what would wait for a GPU: a value or a shape that depends on values."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        waits = ("_local_scalar_dense", "nonzero", "masked_select", "unique")
        assert not any(name in str(func) for name in waits), func
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("sampler", SEDD.samplers)
@pytest.mark.parametrize("noise", [usd3.Uniform(K), usd3.Absorbing(K), usd3.Marginal(RANDOM)])
def test_a_cuda_graph_can_replay_a_move(noise, sampler):
    """All that changes from step to step comes as a tensor, and nothing waits."""
    d = usd3.Diffusion(noise, schedule_for(noise))
    net, x = torch.randn(K, K, generator=seeded()), torch.zeros(4, D, dtype=torch.long)
    calls = []

    class Recorded(Run):
        def replayed(self, move):
            def called(*inputs):
                calls.append(inputs)
                with NoWaiting():
                    return move(*inputs)

            return called

    run = Recorded(d, lambda x, t: net[x], torch.ones_like(x, dtype=torch.bool), LoopChecks(True), seeded())
    predict = SEDD(d).predictor(sampler)(run, [1.0, 0.5, 0.25, 0.0])
    for i in range(3):
        x = predict(x, i)
    assert all(isinstance(value, torch.Tensor) for inputs in calls for value in inputs)
    assert [float(inputs[1][0]) for inputs in calls] == pytest.approx([1.0, 0.5], abs=1e-4)  # the last is another


@pytest.mark.parametrize("condition", ["clamp", "project_only"])
@pytest.mark.parametrize("noise", [usd3.Uniform(K), usd3.Absorbing(K), usd3.Marginal(RANDOM)])
def test_a_training_step_does_not_wait(noise, condition):
    method = SEDD(usd3.Diffusion(noise, schedule_for(noise), validate=False), condition)
    net, x_0 = torch.zeros(K, K, requires_grad=True), torch.zeros(4, D, dtype=torch.long)
    given = torch.tensor([True, False, False]).expand(4, D)
    with NoWaiting():
        method.loss(lambda x, t: net[x], x_0, given=given, stratified=True).loss.backward()
    assert net.grad.isfinite().all()


def test_a_grid_of_ones_own():
    d, joint = small("absorbing")
    method, steps = SEDD(d), []
    model = exact_ratios(joint, d.schedule, method)
    x = method.sample(model, (50, D), [1.0, 0.5, 0.0], generator=seeded(), callback=steps.append)
    assert [(s.t, s.s) for s in steps] == [(1.0, 0.5), (0.5, 0.0)]
    assert not (x == 2).any()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d: SEDD(d, "replace"), "condition = replace: expected clamp or project_only"),
        (lambda d: SEDD(d, scale_by_sigma=True), "scale_by_sigma = True: expected False but for absorbing noise"),
        (lambda d: SEDD(d, eps=0.0), r"eps = 0.0: expected a number in \(0, 0.5\)"),
        (
            lambda d: SEDD(usd3.Diffusion(usd3.Absorbing(K), usd3.Linear()), denoise=False),
            "denoise = False: expected True for noise with a mask",
        ),
        (
            lambda d: SEDD(usd3.Diffusion(usd3.Uniform(K), usd3.Linear(), num_steps=10)),
            "diffusion.num_steps = 10: expected continuous time for SEDD",
        ),
        (
            lambda d: SEDD(d).sample(lambda x, t: torch.zeros(*x.shape, K), (2, D), 4, usd3.Corrector()),
            "corrector = .*: expected None for SEDD",
        ),
        (
            lambda d: SEDD(d).sample(lambda x, t: torch.full((*x.shape, K), torch.nan), (2, D), 4),
            "logits contains nan",
        ),
        (
            lambda d: SEDD(d).loss(lambda x, t: torch.full((*x.shape, K), torch.nan), torch.zeros(2, D).long()),
            "logits contains nan",
        ),
        (lambda d: SEDD(d).sample(lambda x, t: torch.zeros(*x.shape, K), (2, D), 0), "num_steps = 0: expected"),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make(usd3.Diffusion(usd3.Uniform(K), usd3.LogLinear()))
