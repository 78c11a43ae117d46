"""Draws of every implementation: what the eager code draws, and each category as often as it should be."""

import numpy as np
import pytest
import torch

import usd3
from support.kernel_cases import WIDE
from support.problems import TRITON, device_of, retile, some
from support.statistics import chi_square_p_value
from usd3._internal.checks import Checks
from usd3.core.fused import draw, jump_mass
from usd3.core.mixture import Jumps

FALSE_ALARM = 1e-6
"""A chi-square test fails by chance this often; the seeds are fixed, so a test that passed goes on passing."""

SMALL_TILE = {"BLOCK": 16, "BLOCKS": lambda k: 1 << (-(-k // 16) - 1).bit_length(), "PART": 4}


def logits_for(shape, dtype=torch.float32, scale=2.0):
    return (scale * torch.randn(*shape, generator=torch.Generator().manual_seed(6), dtype=torch.float64)).to(dtype)


def diffusion(name, k, impl):
    return usd3.Diffusion(WIDE[name](k), usd3.Cosine(), impl=impl)


def drawn(impl, noise, x, logits, t, s, u):
    """The step t -> s that belongs to uniforms u, (2, *x.shape)."""
    device = device_of(impl)
    d, x, u = usd3.Diffusion(noise, usd3.Cosine()), x.to(device), u.to(device)
    times = (torch.full((len(x),), v, dtype=torch.float64, device=device) for v in (t, s))
    level, to = d.transition(*times, x)
    checks = Checks(True)
    new = draw(logits.to(device), x, noise, level, Jumps(to.to_data, to.to_noise), u, None, impl, checks)
    checks.raise_first()
    return new.cpu()


# ---- the same as the eager code ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WIDE)
@pytest.mark.parametrize(("k", "dtype"), [(2, torch.float32), (7, torch.bfloat16), (129, torch.float64)])
def test_a_step_draws_what_the_eager_code_draws(fused, name, k, dtype):
    """Each object has its own pair of times."""
    B, D = 12, 4
    t = torch.linspace(0.1, 1, B)
    t, s, logits = some(fused, 4, t, torch.linspace(0, 0.9, B) * t, logits_for((B, D, k), dtype))
    x_t = None
    results = []
    for impl in ("eager", fused):
        d, device = diffusion(name, k, impl), device_of(impl)
        x_0 = torch.zeros(len(t), D, dtype=torch.long)
        x_t = d.q_sample(x_0, t, generator=torch.Generator().manual_seed(0)).to(device)
        new = [d.draw(logits.to(device), x_t, t, s, torch.Generator().manual_seed(seed)).cpu() for seed in range(2)]
        results.append(torch.stack(new))
    assert (results[0] != x_t.cpu()).any()
    assert torch.equal(*results)


SAMPLERS = [
    ("exact", None),
    ("euler", usd3.Corrector(1, 0.05)),
    ("tau_leaping", usd3.Corrector(2, 0.5)),
    ("gillespie", None),
]


@pytest.mark.parametrize("name", ["uniform", "absorbing", "per_element_zeros"])
@pytest.mark.parametrize(("sampler", "corrector"), SAMPLERS, ids=str)
def test_a_sampler_draws_what_the_eager_code_draws(fused, name, sampler, corrector):
    k, shape = 9, (1 if sampler == "gillespie" else len(some(fused, 3, torch.empty(9))[0]), 4)
    table = logits_for((4, k), torch.float64)
    given, tokens = torch.tensor([False, False, True, False]), torch.ones(shape, dtype=torch.long)
    results = []
    for impl in ("eager", fused):
        device = device_of(impl)
        model = lambda x, t, v=device: table.to(v) + torch.nn.functional.one_hot(x, k)
        results.append(
            diffusion(name, k, impl)
            .sample(
                model, shape, 3, corrector, given, tokens, None, torch.Generator().manual_seed(9), None, sampler, device
            )
            .cpu()
        )
    assert torch.equal(*results)
    assert len(results[0].unique()) > 1


@pytest.mark.parametrize("name", WIDE)
@pytest.mark.parametrize("k", [129, 70, 16])
@pytest.mark.parametrize("impl", [TRITON])
def test_rows_of_many_blocks_draw_what_the_eager_code_draws(impl, name, k, monkeypatch):
    """The levels of the inverse CDF: blocks, parts of a block, categories of a part."""
    retile(monkeypatch, "triton_draw", **SMALL_TILE)
    noise, shape = WIDE[name](k), (3 if device_of(impl).type == "cpu" else 200, 4)
    x = torch.randint(k, shape, generator=torch.Generator().manual_seed(1))
    u = torch.rand(2, *shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    logits = logits_for((*shape, k), torch.float64)
    a, b = (drawn(which, noise, x, logits, 1.0, 0.0, u) for which in ("eager", impl))
    assert torch.equal(a, b)


@pytest.mark.parametrize(("k", "name"), [(7, "uniform"), (5000, "uniform"), (300, "absorbing"), (300, "zeros")])
@pytest.mark.parametrize("impl", [TRITON])
def test_the_tile_of_a_gpu_draws_what_the_eager_code_draws(impl, k, name):
    noise, x = WIDE[name](k), torch.tensor([[0, k - 1, 2]])
    u = torch.tensor([[[0.3, 0.6, 0.1]], [[0.999, 0.0, 0.5]]], dtype=torch.float64)
    logits = logits_for((1, 3, k), torch.float64)
    a, b = (drawn(which, noise, x, logits, 0.9, 0.0, u) for which in ("eager", impl))
    assert torch.equal(a, b)


@pytest.mark.parametrize("name", WIDE)
def test_the_mass_that_leaves_is_that_of_the_eager_code(fused, name):
    noise, k = WIDE[name](129), 129
    x = torch.randint(k, (6, 4), generator=torch.Generator().manual_seed(1))
    logits, masses = logits_for((6, 4, k), torch.float64), []
    for impl in ("eager", fused):
        d, device = usd3.Diffusion(noise, usd3.Cosine(), impl=impl), device_of(impl)
        time = torch.linspace(0.1, 0.9, 6, dtype=torch.float64, device=device)
        here = x.to(device)
        rate = d.rate_weights(time, here)
        for jumps in (
            Jumps(rate.to_data, rate.to_noise, rate.to_noise),
            Jumps(rate.to_data, rate.to_noise, damped=True),
        ):
            args = (logits.to(device), here, noise, d.level(time, here), jumps.scaled(0.1), None, impl, Checks(True))
            masses.append(jump_mass(*args).cpu())
    for a, b in zip(masses[:2], masses[2:]):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-300)


def test_no_mass_leaves_an_element_that_is_not_free(impl):
    d, device = diffusion("random", 7, impl), device_of(impl)
    x, free = torch.zeros(1, 2, dtype=torch.long, device=device), torch.tensor([[True, False]], device=device)
    level, to = d.transition(torch.ones(1, dtype=torch.float64, device=device), None, x)
    jumps = Jumps(to.to_data, to.to_noise).scaled(0.01)
    mass = jump_mass(logits_for((1, 2, 7)).to(device), x, d.noise, level, jumps, free, impl, Checks(True))
    assert mass[0, 0] > 0
    assert mass[0, 1] == 0


def test_uniforms_at_the_ends_of_the_interval_draw_possible_categories(impl):
    """u = v = 0 and numbers just below 1 stay within the categories that can be."""
    k = 9
    logits = logits_for((1, 4, k), torch.float32)
    logits[..., 0] = logits[..., -1] = -torch.inf
    x = torch.tensor([[3, 3, 3, 3]])
    for v in (0.0, 1 - 2.0**-53):
        u = torch.tensor([[[0.0, 0.1, 0.2, 0.3]], [[v] * 4]], dtype=torch.float64)
        new = drawn(impl, usd3.Uniform(k), x, logits, 1.0, 0.0, u)
        moved = new[new != 3]
        assert len(moved) > 0
        assert set(moved.tolist()) == ({1} if v == 0.0 else {7})


def test_a_generator_makes_draws_reproducible(impl):
    d, device = diffusion("random", 7, impl), device_of(impl)
    x, logits = torch.zeros(12, 1, dtype=torch.long, device=device), logits_for((12, 1, 7)).to(device)
    a, b, c = (d.draw(logits, x, 0.9, 0.1, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
    state = torch.Generator().manual_seed(1)
    first, second = d.draw(logits, x, 0.9, 0.1, state), d.draw(logits, x, 0.9, 0.1, state)
    assert torch.equal(first, a)
    assert not torch.equal(first, second)


# ---- distributions ----------------------------------------------------------------------------------------------


def test_a_million_draws_follow_f():
    """Of the chunked code, at s = 0: seen from x every category has its share."""
    k, n = 32, 1_000_000
    f = np.random.default_rng(0).dirichlet(np.full(k, 0.3))
    d = usd3.Diffusion(usd3.Uniform(k), usd3.Cosine(), impl="chunked")
    x = torch.full((n, 1), 5)
    logits = torch.tensor(f).log().float().expand(n, 1, k)
    new = d.draw(logits, x, 1.0, 0.0, torch.Generator().manual_seed(0))
    assert chi_square_p_value(torch.bincount(new.flatten(), minlength=k), n * f) > FALSE_ALARM


def test_draws_follow_the_backward_step(impl):
    """Against the probabilities of p(x_s | x_t), which tests/core/test_diffusion.py holds against the matrices."""
    k, n = 5, len(some(impl, 20, torch.empty(3000))[0])
    noise = usd3.Marginal([0.1, 0.2, 0.3, 0.0, 0.4])
    d, device = usd3.Diffusion(noise, usd3.Cosine(), impl=impl), device_of(impl)
    logits = torch.tensor([0.5, -1.0, 0.0, 1.0, 0.3], device=device).expand(n, 1, k)
    x = torch.full((n, 1), 2, device=device)
    new = d.draw(logits, x, 0.7, 0.4, torch.Generator().manual_seed(0)).cpu()
    expected = d.backward(logits[:1], x[:1], 0.7, 0.4).probs()[0, 0].cpu()
    assert chi_square_p_value(torch.bincount(new.flatten(), minlength=k), n * expected) > FALSE_ALARM


HEAD, RARE = 40, 1e-9


class Tail:
    """A head of large probabilities at x, the rest of probability about 1e-9 each: seen from x, in float64.

    Categories 0..99 are rare and come before the head; rare ones between and behind the head follow. Triton's
    interpreter gets fewer categories and more blocks.
    """

    def __init__(self, impl, dtype, monkeypatch):
        self.impl, interpreted = impl, impl == "triton" and not torch.cuda.is_available()
        self.k = 1000 if interpreted else 50257
        if interpreted:
            retile(monkeypatch, "triton_draw", BLOCK=128, BLOCKS=8, PART=16)
        generator = torch.Generator().manual_seed(11)
        p = RARE * (0.5 + torch.rand(self.k, generator=generator, dtype=torch.float64))
        self.head = 100 + torch.randperm(self.k - 200, generator=generator)[:HEAD]
        p[self.head] = torch.rand(HEAD, generator=generator, dtype=torch.float64)
        p[self.head] /= p[self.head].sum()
        self.x = int(self.head[0])
        self.logits = p.log().to(dtype)
        f = np.exp(self.logits.double().numpy().astype(np.longdouble))
        f[self.x] = 0
        self.f = torch.from_numpy((f / f.sum()).astype(np.float64))
        self.upto = torch.from_numpy((f.cumsum() / f.sum()).astype(np.float64))

    def draw(self, v):
        """What uniforms v make of x, one step from t = 1 to 0: always a jump to f."""
        v = torch.as_tensor(v, dtype=torch.float64)
        x, u = torch.full((len(v), 1), self.x), torch.stack([torch.zeros_like(v), v])[..., None]
        logits = self.logits.expand(len(v), 1, self.k)
        return drawn(self.impl, usd3.Uniform(self.k), x, logits, 1.0, 0.0, u).squeeze(1)


def test_rare_categories_come_with_their_share(impl, monkeypatch):
    """Uniforms spread evenly over the interval of the first 100 categories, 1e-7 long: each gets what it should."""
    tail, n = Tail(impl, torch.float32, monkeypatch), len(some(impl, 12, torch.empty(500))[0])
    end = float(tail.upto[99])
    assert end < 2e-7
    v = (torch.arange(n).double() + 0.5) / n * end
    new = tail.draw(v)
    assert torch.equal(new, torch.searchsorted(tail.upto, v, right=True))
    counts = torch.bincount(new, minlength=tail.k)
    assert counts[100:].sum() == 0
    assert ((counts[:100] - n * tail.f[:100] / end).abs() <= 1 + 1e-4 * n).all()


def test_boundaries_of_rare_categories_are_those_of_float64(impl, monkeypatch):
    """With float64 logits: 1e-4 of the rare probability inside its interval, and as much outside."""
    tail = Tail(impl, torch.float64, monkeypatch)
    (rare,) = some(impl, 4, torch.arange(3, tail.k - 1, tail.k // 24), first=1)
    rare = rare[(tail.f[rare] < 1e-8) & (abs(rare - tail.x) > 1)]
    assert len(rare) > 3
    low, high, margin = tail.upto[rare - 1], tail.upto[rare], 1e-4 * tail.f[rare]
    found = tail.draw(torch.cat([low - margin, low + margin, high - margin, high + margin])).reshape(4, -1)
    assert torch.equal(found, torch.stack([rare - 1, rare, rare, rare + 1]))


def test_the_interval_of_a_rare_category_is_as_long_as_its_probability(impl, monkeypatch):
    """In float32 the head's rounding moves what comes after it, but not its length: both ends found by bisection."""
    tail = Tail(impl, torch.float32, monkeypatch)
    (rare,) = some(impl, 4, torch.tensor([7, int(tail.k * 0.37), int(tail.k * 0.61), tail.k - 5]), first=2)
    assert ((tail.f[rare] > 0) & (tail.f[rare] < 1e-8)).all()
    target = torch.cat([rare, rare + 1])  # an end is where the first category >= target is drawn
    middle = torch.cat([tail.upto[rare - 1], tail.upto[rare]])
    low, high = (middle - 1e-6).clamp(min=0.0), (middle + 1e-6).clamp(max=1.0)
    for _ in range(30):  # 2e-6 / 2^30 = 2e-15
        half = (low + high) / 2
        above = tail.draw(half) >= target
        low, high = torch.where(above, low, half), torch.where(above, half, high)
    ends = high.reshape(2, -1)
    torch.testing.assert_close(ends[1] - ends[0], tail.f[rare], rtol=1e-4, atol=0)
