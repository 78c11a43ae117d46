"""Guidance with a classifier, against a joint distribution p(x, y) that is enumerated."""

import itertools

import numpy as np
import pytest
import torch

import usd3
from support import oracle
from support.toys import exact_model, known_joint
from usd3._internal.checks import LoopChecks
from usd3.core.classifier_guidance import ClassifierGuided
from usd3.core.model import Denoiser
from usd3.core.samplers import Run

K, D, LABELS, WANTED = 3, 2, 2, 1
PRIOR = [0.4, 0.6]  # p(y)
MS = np.random.default_rng(5).dirichlet(np.full(K, 3.0), size=D)
NOISES = {"random": usd3.Marginal(MS), "uniform": usd3.Uniform(K), "absorbing": usd3.Absorbing(K)}
X = torch.tensor(list(itertools.product(range(K), repeat=D)))


class Setting:
    def __init__(self, name):
        self.d = usd3.Diffusion(NOISES[name], usd3.Cosine())
        ms = np.broadcast_to(self.d.noise.probs.numpy(), (D, K))
        self.joints = [known_joint(self.d.noise, ms, K, D, seed=y) for y in range(LABELS)]
        for joint in self.joints:  # no object is impossible, so that p(y | x) is never 0
            free = known_joint(self.d.noise, ms, K, D, seed=9).w > 0
            joint.w = 0.5 * joint.w + 0.5 * free / free.sum()
        self.whole = oracle.Joint(sum(p * joint.w for p, joint in zip(PRIOR, self.joints)), ms)
        self.model = exact_model(self.whole, self.d.schedule)
        self.prior = np.ones(1)
        for m in ms:
            self.prior = np.kron(self.prior, m)
        self.asked = []

    def alpha(self, t):
        return float(self.d.schedule.alpha_bar(t))

    def log_p(self, t):
        """log p_t(y | x_t) of all objects."""
        q = [joint.marginal(self.alpha(t)) for joint in self.joints]
        total = sum(p * v for p, v in zip(PRIOR, q))
        return np.log(np.maximum(PRIOR[WANTED] * q[WANTED], 1e-300)) - np.log(np.maximum(total, 1e-300))

    def classifier(self, x, t):
        self.asked.append(len(x))
        at = (x[:, 0] * K + x[:, 1]).numpy()
        result = np.empty(len(x))
        for time in t.unique().tolist():
            rows = (t == time).numpy()
            result[rows] = self.log_p(time)[at[rows]]
        return torch.from_numpy(result)

    def run(self):
        free = torch.ones(X.shape, dtype=torch.bool)
        return Run(self.d, Denoiser(self.model, K, None, None), free, LoopChecks(True), None)

    def law(self, sampler, times):
        p, run = self.prior, self.run()
        for t, s in itertools.pairwise(times):
            t_, s_ = (torch.tensor(v, dtype=torch.float64) for v in (t, s))
            p = p @ oracle.product_step(sampler.probs(run, X, t_, s_, s == 0).numpy())
        return p


@pytest.fixture(params=NOISES)
def setting(request):
    return Setting(request.param)


def grid(n):
    return np.linspace(1, 0, n + 1).astype(np.float32).tolist()


@pytest.mark.parametrize("steps", ["euler", "tau_leaping"])
def test_scale_1_reaches_the_conditional_law_as_steps_grow(setting, steps):
    sampler, wanted = ClassifierGuided(setting.classifier, steps=steps), setting.joints[WANTED].w.reshape(-1)
    far = [oracle.total_variation(setting.law(sampler, grid(n)), wanted) for n in (8, 32, 128, 512)]
    assert far[-1] < 0.01
    assert all(a > b for a, b in itertools.pairwise(far))


def test_scale_0_reaches_the_whole_law_without_asking_the_classifier(setting):
    far = oracle.total_variation(
        setting.law(ClassifierGuided(setting.classifier, scale=0), grid(256)), setting.whole.w.reshape(-1)
    )
    assert far < 0.02
    assert not setting.asked


@pytest.mark.parametrize("scale", [0.5, 1.0, 3.0])
def test_a_step_jumps_by_the_tilted_rates(setting, scale):
    t, s = 0.5, 0.4999
    sampler = ClassifierGuided(setting.classifier, scale, batch_size=5)
    found = sampler.probs(setting.run(), X, *(torch.tensor(v, dtype=torch.float64) for v in (t, s)), False)
    rates = setting.d.rate(setting.model(X, torch.full((len(X),), t)), X, t).numpy()
    log_p, expected = setting.log_p(t), np.zeros((len(X), D, K))
    for n, i, z in np.ndindex(len(X), D, K):
        neighbour = [z if j == i else int(X[n, j]) for j in range(D)]
        ratio = np.exp(log_p[neighbour[0] * K + neighbour[1]] - log_p[n])
        expected[n, i, z] = 0 if z == X[n, i] else (t - s) * rates[n, i, z] * ratio**scale
    for n, i in np.ndindex(len(X), D):
        expected[n, i, X[n, i]] = 1 - expected[n, i].sum()
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)
    assert max(setting.asked[1:]) <= 5


def test_the_last_step_draws_from_the_tilted_f(setting):
    t, scale = 0.2, 2.0
    sampler = ClassifierGuided(setting.classifier, scale)
    times = (torch.tensor(v, dtype=torch.float64) for v in (t, 0.0))
    found = sampler.probs(setting.run(), X, *times, True).numpy()
    f, log_p = np.exp(setting.model(X, torch.full((len(X),), t)).numpy()), setting.log_p(t)
    noise = setting.d.noise
    for n, i in np.ndindex(len(X), D):
        if float(noise.at(X)[n, i]) == 0:
            assert found[n, i, X[n, i]] == 1
            continue
        near = [[z if j == i else int(X[n, j]) for j in range(D)] for z in range(K)]
        expected = f[n, i] * np.exp(log_p[[a * K + b for a, b in near]] - log_p[n]) ** scale
        expected[noise.mask if noise.mask is not None else slice(0)] = 0
        np.testing.assert_allclose(found[n, i], expected / expected.sum(), atol=1e-6)


class Additive(torch.nn.Module):
    """log p(y | x) that adds up over elements: the first order is exact."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(D, K, generator=torch.Generator().manual_seed(0)))

    def forward(self, x, t):
        one_hot = x if x.is_floating_point() else torch.nn.functional.one_hot(x, K).float()
        return (one_hot * self.table).sum((1, 2)) * (1 + t)


@pytest.mark.parametrize("inference", [False, True])
def test_the_gradient_is_exact_where_elements_add_up(inference):
    setting = Setting("uniform")
    d, classifier, drawn = setting.d, Additive(), []
    for method in ("exact", "gradient"):
        with torch.inference_mode(inference):
            sampler, seeded = ClassifierGuided(classifier, 2.0, method), torch.Generator().manual_seed(0)
            drawn.append(d.sample(setting.model, (500, D), 10, sampler=sampler, generator=seeded))
    assert (drawn[0] == drawn[1]).float().mean() > 0.99  # float32 decides some


def test_given_elements_stay_and_are_not_asked_about():
    setting = Setting("uniform")
    asked = []

    def classifier(x, t):
        asked.append(x)
        return torch.zeros(len(x))

    tokens, given = torch.tensor([[2, 0]]), torch.tensor([True, False])
    x = setting.d.sample(
        setting.model, (50, D), 4, given=given, given_tokens=tokens, sampler=ClassifierGuided(classifier)
    )
    assert (x[:, 0] == 2).all()
    assert all((part[:, 0] == 2).all() for part in asked)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"classifier": 3}, TypeError, "classifier"),
        ({"scale": -1}, ValueError, "scale = -1"),
        ({"method": "fast"}, ValueError, "method = fast"),
        ({"steps": "exact"}, ValueError, "steps = exact"),
        ({"batch_size": 0}, ValueError, "batch_size = 0"),
    ],
)
def test_bad_options_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        ClassifierGuided(**{"classifier": Additive(), **options})


def test_a_classifier_with_another_output_is_refused():
    setting = Setting("uniform")
    with pytest.raises(ValueError, match=r"classifier\(x_t, t\)\.shape = \(4, 2\): expected \(4,\)"):
        setting.d.sample(setting.model, (4, D), 2, sampler=ClassifierGuided(lambda x, t: torch.zeros(len(x), 2)))


def test_a_corrector_whose_moves_would_not_be_guided_is_refused():
    d = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine())
    sampler = ClassifierGuided(lambda x, t: torch.zeros(len(x)))
    with pytest.raises(ValueError, match=r"corrector = Corrector\(.*: expected None with the sampler ClassifierGuided"):
        d.sample(lambda x, t: torch.zeros(*x.shape, K), (2, D), 3, usd3.Corrector(), sampler=sampler)


def test_a_last_step_that_can_go_nowhere_is_refused_and_leaves_no_mask():
    d, mask = usd3.Diffusion(usd3.Absorbing(K), usd3.Linear()), K - 1
    allowed = lambda x, t: torch.where(x[:, 0] == mask, 0.0, -torch.inf)  # of no clean object
    with pytest.raises(ValueError, match=r"classifier\(x_t, t\).*: expected log probabilities"):
        d.sample(lambda x, t: torch.zeros(*x.shape, K), (2, D), 3, sampler=ClassifierGuided(allowed))
