"""Guidance without a classifier, against a joint distribution p(x, y) that is enumerated."""

import itertools

import numpy as np
import pytest
import torch

import usd3
from support import oracle
from support.toys import exact_model, known_joint
from usd3._internal.checks import LoopChecks
from usd3.core.guidance import Guided, StepGuided, guided_step, tilted
from usd3.core.logits import LogitOptions
from usd3.core.model import Denoiser
from usd3.core.samplers import Run

K, D, LABELS = 3, 2, 2
MS = np.random.default_rng(5).dirichlet(np.full(K, 3.0), size=D)
NOISES = {"random": usd3.Marginal(MS), "uniform": usd3.Uniform(K), "absorbing": usd3.Absorbing(K)}
PRIOR = [0.3, 0.7]  # p(y)


class Exact(torch.nn.Module):
    """log p(x_0 | x_t, y), or log p(x_0 | x_t) for the label -1: exact, by enumeration."""

    def __init__(self, noise, schedule):
        super().__init__()
        ms = np.broadcast_to(noise.probs.numpy(), (D, K))
        self.joints = [known_joint(noise, ms, K, D, seed=y) for y in range(LABELS)]
        self.whole = oracle.Joint(sum(p * joint.w for p, joint in zip(PRIOR, self.joints)), ms)
        self.models = [exact_model(joint, schedule) for joint in (*self.joints, self.whole)]  # -1 is the last
        self.asked = []

    def forward(self, x_t, t, label):
        self.asked.append(len(x_t))
        logits = torch.empty(*x_t.shape, K, dtype=torch.float64)
        for y in range(-1, LABELS):
            rows = label[:, 0] == y
            logits[rows] = self.models[y](x_t[rows], t[rows])
        return logits


@pytest.fixture(params=NOISES)
def setting(request):
    d = usd3.Diffusion(NOISES[request.param], usd3.Cosine())
    return d, Exact(d.noise, d.schedule)


def states():
    return torch.tensor(list(itertools.product(range(K), repeat=D)))


def labels(y):
    return torch.full((K**D, 1), y)


def possible(d, x):
    """Elements that may be noise; the others are certain, and their logits are not read."""
    return d.noise.at(x) > 0


@pytest.mark.parametrize("scale", [0.5, 2.0, 5.0])
def test_logits_mix_linearly_in_log_f_and_the_network_is_asked_once_with_both(setting, scale):
    d, net = setting
    x, t = states(), torch.full((K**D,), 0.4)
    logits = Guided(net, d, scale, label=labels(1))(x, t)
    assert net.asked == [2 * K**D]
    with_it, without = (np.exp(net.models[y](x, t).numpy()) for y in (1, -1))
    if d.noise.is_absorbing:
        with_it, without = with_it[..., :-1], without[..., :-1]
        assert (logits[..., -1] == -torch.inf).all()
        logits = logits[..., :-1]
    read = possible(d, x).numpy()
    with_it, without = (f[read] / f[read].sum(-1, keepdims=True) for f in (with_it, without))
    expected = with_it**scale * without ** (1 - scale)
    expected /= expected.sum(-1, keepdims=True)
    np.testing.assert_allclose(oracle.softmax(logits.numpy()[read]), expected, atol=1e-6)


@pytest.mark.parametrize(("scale", "label"), [(1, 1), (0, -1)])
def test_scale_1_is_the_condition_and_scale_0_none_and_each_asks_once(setting, scale, label):
    d, net = setting
    x, t = states(), torch.full((K**D,), 0.4)
    logits = Guided(net, d, scale, label=labels(1))(x, t)
    assert net.asked == [K**D]
    assert torch.equal(logits, net(x, t, labels(label)))


def run_of(d, model, **options):
    free, options = torch.ones(K**D, D, dtype=torch.bool), LogitOptions(**options)
    denoise = Denoiser(model, K, None, None, options.belief if options.changes_belief else None)
    return Run(d, denoise, free, LoopChecks(True), None, logit_options=options)


@pytest.mark.parametrize("scale", [0, 0.5, 1, 2.0, 5.0])
@pytest.mark.parametrize(("t", "s"), [(0.95, 0.7), (0.6, 0.3), (0.3, 0.0)])
def test_the_guided_step_is_the_tilted_and_renormalised_step(setting, scale, t, s):
    d, net = setting
    model, x = Guided(net, d, scale, label=labels(1)), states()
    alpha_t, alpha_s = (float(d.schedule.alpha_bar(v)) if v else 1.0 for v in (t, s))
    time, before = (torch.full((K**D,), v, dtype=torch.float64) for v in (t, s))
    found = guided_step(run_of(d, model), x, time, before).exp().numpy()
    assert net.asked == [K**D if scale in (0, 1) else 2 * K**D]
    f_c, f_u = (np.exp(net.models[y](x, time.float()).numpy()) for y in (1, -1))
    ms = np.broadcast_to(d.noise.probs.numpy(), (D, K))
    for n, i in np.ndindex(K**D, D):
        at = int(x[n, i])
        if ms[i][at] == 0:
            expected = np.eye(K)[at]
        else:
            c, u = (oracle.backward(f[n, i] / f[n, i].sum(), at, alpha_s, alpha_t, ms[i]) for f in (f_c, f_u))
            both = (c > 1e-250) & (u > 1e-250)
            expected = np.where(both, np.where(both, c, 1) ** scale * np.where(both, u, 1) ** (1 - scale), 0)
        np.testing.assert_allclose(found[n, i], expected / expected.sum(), atol=1e-6)


def test_the_sampler_draws_from_the_guided_steps(setting):
    """Total variation between 20,000 draws and the product of the steps; 0.03 is 4 standard errors and more."""
    d, net = setting
    num, times, scale = 20_000, [1.0, 0.5, 0.0], 2.0
    p = np.ones(1)
    for m in np.broadcast_to(d.noise.probs.numpy(), (D, K)):
        p = np.kron(p, m)
    model = Guided(net, d, scale, label=labels(0))
    for t, s in itertools.pairwise(times):
        time, before = (torch.full((K**D,), v, dtype=torch.float64) for v in (t, s))
        p = p @ oracle.product_step(guided_step(run_of(d, model), states(), time, before).exp().numpy())
    model = Guided(net, d, scale, label=torch.zeros(num, 1, dtype=torch.long))
    net.asked.clear()
    x = d.sample(model, (num, D), times, sampler=StepGuided(), generator=torch.Generator().manual_seed(0))
    assert net.asked == [2 * num] * 2
    found = np.bincount((x[:, 0] * K + x[:, 1]).numpy(), minlength=K**D) / num
    assert oracle.total_variation(found, p) < 0.03


def test_the_guided_step_follows_temperature_bias_and_the_likeliest_categories_of_the_condition(setting):
    """Both f are changed alike, then tilted; what top_k leaves out of the conditional f is in neither."""
    d, net = setting
    x, scale, bias = states(), 3.0, torch.linspace(-1, 1, K, dtype=torch.float64)
    model = Guided(net, d, scale, label=labels(1))
    options = {"temperature": 0.5, "top_k": 1, "bias": bias}
    time, before = (torch.full((K**D,), v, dtype=torch.float64) for v in (0.6, 0.0))
    found = guided_step(run_of(d, model, **options), x, time, before).exp()
    best = (net.models[1](x, time.float()) + bias)[..., : K - d.noise.is_absorbing].argmax(-1)
    read = possible(d, x)
    torch.testing.assert_close(found[read], torch.nn.functional.one_hot(best, K)[read].to(found.dtype))
    warm = guided_step(run_of(d, model, temperature=0.5, bias=bias), x, time, before).exp()
    f_c, f_u = (
        torch.softmax((net.models[y](x, time.float()) + bias)[..., : K - d.noise.is_absorbing] / 0.5, -1)
        for y in (1, -1)
    )
    expected = f_c**scale * f_u ** (1 - scale)
    expected = expected / expected.sum(-1, keepdim=True)
    torch.testing.assert_close(warm[read][:, : K - d.noise.is_absorbing], expected[read], atol=1e-5, rtol=1e-4)


def test_guided_steps_keep_what_is_given(setting):
    d, net = setting
    model = Guided(net, d, 2.0, label=torch.zeros(50, 1, dtype=torch.long))
    given, tokens = torch.tensor([True, False]), torch.tensor([1, 0])
    x = d.sample(model, (50, D), 4, given=given, given_tokens=tokens, sampler=StepGuided())
    assert (x[:, 0] == 1).all()


def test_adjust_gets_the_objects_not_twice_as_many(setting):
    d, net = setting
    seen = []

    def adjust(logits, x_t, t):
        seen.append(len(x_t))
        return logits

    for sampler in ("exact", StepGuided()):
        model = Guided(net, d, 2.0, label=torch.zeros(7, 1, dtype=torch.long))
        d.sample(model, (7, D), 2, sampler=sampler, logit_options=LogitOptions(adjust=adjust))
    assert set(seen) == {7}


def test_what_p_of_x_excludes_stays_excluded():
    inf = torch.inf
    log_c, log_u = torch.tensor([-1.0, -2.0, -inf, -inf]), torch.tensor([-1.0, -inf, -3.0, -inf])
    for scale in (0.5, 3.0):
        assert tilted(log_c, log_u, scale).tolist() == [-1.0, -inf, -inf, -inf]


# ---- given elements ------------------------------------------------------------------------------------------------


class Recorder(torch.nn.Module):
    """Logits of zeros; keeps what it was asked."""

    def forward(self, x_t, t, given, pad=None):
        self.seen = {"x_t": x_t, "t": t, "given": given, "pad": pad}
        return torch.zeros(*x_t.shape, K)


class KnowsAbsence(Recorder):
    def forward(self, x_t, t, given, absent, pad=None):
        self.seen = {"x_t": x_t, "t": t, "given": given, "absent": absent, "pad": pad}
        return torch.zeros(*x_t.shape, K)


GIVEN = torch.tensor([[True, True, False], [False, True, False]])
PAD = torch.tensor([[False, False, True], [False, False, False]])
X = torch.tensor([[0, 1, 2], [2, 0, 2]])


def asked(net, d, **options):
    model = Guided(net, d, 2.0, **options)
    Denoiser(model, K, GIVEN, PAD)(X, torch.tensor([0.3, 0.6]))
    return {name: None if part is None else part.chunk(2) for name, part in net.seen.items()}


def test_absorbing_noise_masks_the_elements_that_are_left_out():
    condition = torch.tensor([[True, False, False], [False, True, False]])
    seen = asked(Recorder(), usd3.Diffusion(usd3.Absorbing(K), usd3.Cosine()), condition=condition)
    assert torch.equal(seen["x_t"][0], X)
    assert torch.equal(seen["x_t"][1], torch.where(condition, 2, X))
    assert torch.equal(seen["given"][0], GIVEN)
    assert torch.equal(seen["given"][1], GIVEN & ~condition)
    for name in ("t", "pad"):
        assert torch.equal(*seen[name])


def test_other_noise_draws_the_elements_that_are_left_out_at_the_level_of_t():
    d = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine())
    x, condition = torch.zeros(20_000, 1, dtype=torch.long), torch.ones(1, dtype=torch.bool)
    net, t = Recorder(), torch.full((20_000,), 0.5)
    model = Guided(net, d, 2.0, condition, generator=torch.Generator().manual_seed(0))
    assert model.draws
    Denoiser(model, K, torch.ones(20_000, 1, dtype=torch.bool), None)(x, t)
    kept = (net.seen["x_t"].chunk(2)[1] == 0).float().mean()
    assert float(kept) == pytest.approx(float(d.q_probs(x[:1], 0.5)[0, 0, 0]), abs=0.015)
    assert not net.seen["given"].chunk(2)[1].any()


@pytest.mark.parametrize("noise", [usd3.Absorbing(K), usd3.Uniform(K)])
def test_a_network_that_knows_absence_gets_the_mask_alone(noise):
    seen = asked(KnowsAbsence(), usd3.Diffusion(noise, usd3.Cosine()), condition=GIVEN)
    assert torch.equal(seen["x_t"][0], seen["x_t"][1])
    assert torch.equal(seen["given"][1], GIVEN)
    assert not seen["absent"][0].any()
    assert torch.equal(seen["absent"][1], GIVEN)


def test_guiding_by_given_elements_is_guiding_by_their_values():
    """With the exact denoiser of three elements, one of them given, against the two conditional laws by enumeration."""
    noise = usd3.Absorbing(K)
    d = usd3.Diffusion(noise, usd3.Cosine())
    joint = known_joint(noise, np.broadcast_to(noise.probs.numpy(), (3, K)), K, 3)
    model = exact_model(joint, d.schedule)
    x, t = torch.tensor([[1, 2, 0], [0, 2, 2]]), torch.full((2,), 0.5)
    logits = Guided(model, d, 3.0, torch.tensor([True, False, False]))(x, t)
    for n in range(2):
        c, u = (joint.w[int(x[n, 0])], joint.w.sum(0))  # over elements 1 and 2
        if n == 0:  # element 2 is known, too
            c, u = c[:, 0], u[:, 0]
        else:
            c, u = c.sum(1), u.sum(1)
        expected = (c / c.sum()) ** 3.0 / np.where(u > 0, u / u.sum(), 1) ** 2.0
        expected[2] = 0
        np.testing.assert_allclose(oracle.softmax(logits[n, 1].numpy()), expected / expected.sum(), atol=1e-6)


def test_models_that_ignore_the_time_or_estimate_are_asked_as_without_guidance():
    class Timeless(torch.nn.Module):
        ignores_time = True

        def __init__(self):
            super().__init__()
            self.asked = []

        def forward(self, x_t, t, given):
            self.asked.append(len(x_t))
            return torch.zeros(*x_t.shape, K)

    class Estimates(torch.nn.Module):
        self_conditioned = True

        def forward(self, x_t, t, estimate):
            self.estimate = estimate.clone()
            return torch.nn.functional.one_hot(x_t, K).float()

    d, t = usd3.Diffusion(usd3.Absorbing(K), usd3.Cosine()), torch.full((2,), 0.5)
    net = Timeless()
    denoise = Denoiser(Guided(net, d, 2.0, GIVEN), K, GIVEN, None)
    denoise(X, t)
    x = X.clone()
    x[0, 2] = 1
    denoise(x, t)
    assert net.asked == [4, 2]
    net = Estimates()
    denoise = Denoiser(Guided(net, d, 2.0, GIVEN), K, GIVEN, None)
    denoise(X, t)
    assert not net.estimate.any()
    denoise(X, t)
    own = torch.cat([X, torch.where(GIVEN, 2, X)])
    torch.testing.assert_close(net.estimate, torch.nn.functional.one_hot(own, K).float().softmax(-1))


@pytest.mark.parametrize("scale", [-1, float("nan"), float("inf")])
def test_a_bad_scale_is_refused(scale):
    with pytest.raises(ValueError, match="guidance_scale"):
        Guided(Recorder(), usd3.Diffusion(usd3.Uniform(K), usd3.Cosine()), scale, GIVEN)


def test_what_does_not_fit_is_refused():
    d = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine())
    with pytest.raises(ValueError, match=r"label = .*: expected None for a model without the keyword `label`"):
        Guided(Recorder(), d, 2.0, label=torch.zeros(2, 1, dtype=torch.long))
    with pytest.raises(TypeError, match=r"model is .*: expected a Guided model"):
        d.sample(lambda x, t: torch.zeros(*x.shape, K), (2, D), 3, sampler=StepGuided())


def test_one_guided_model_serves_several_runs():
    """Nothing is kept of the first one: neither answers, nor estimates, nor the number of objects."""

    class Net(torch.nn.Module):
        def __init__(self, **kind):
            super().__init__()
            for name, value in kind.items():
                setattr(self, name, value)

        def forward(self, x_t, t, label, estimate=None):
            wanted = torch.nn.functional.one_hot(label[:, :1].clamp(min=0), K + 1)
            logits = 6.0 * wanted.expand(*x_t.shape, K + 1)
            return logits if estimate is None else logits + estimate

    d = usd3.Diffusion(usd3.Absorbing(K + 1), usd3.Linear())
    for kind in ({"ignores_time": True}, {"self_conditioned": True}, {}):
        net = Net(**kind)
        guided = Guided(net, d, 2.0, label=torch.zeros(40, 1, dtype=torch.long))
        found = [d.sample(guided, (40, D), 6, generator=torch.Generator().manual_seed(1)) for _ in range(2)]
        assert torch.equal(*found)
        guided.label = torch.ones(9, 1, dtype=torch.long)
        assert (d.sample(guided, (9, D), 6) == 1).float().mean() > 0.9
    condition = torch.tensor([[True, False]])
    guided = Guided(lambda x_t, t: torch.zeros(*x_t.shape, K + 1), d, 2.0, condition)
    for num in (10, 6):
        assert d.sample(guided, (num, D), 3).shape == (num, D)
