"""Which logits are taken and what they give: the same rule for every implementation, in losses and in draws.

Logits are read where an element is free and not certainly clean (m_x > 0), at data categories. There they must be
finite, or -inf for some categories; elsewhere they may be anything, and change nothing.
"""

import pytest
import torch

import usd3
from support.kernel_cases import case, loss_and_gradient
from support.problems import NOISES, TRITON, D, K, device_of, retile
from usd3._internal.checks import Checks
from usd3.core.fused import jump_mass
from usd3.core.mixture import Jumps

NAN, INF = torch.nan, torch.inf
BAD = {  # the mask of `absorbing` is category 1
    "a NaN": (NAN, 0.1, 0.2, 0.3),
    "all NaN": (NAN, NAN, NAN, NAN),
    "+inf": (0.1, 0.2, 0.3, INF),
    "+inf and -inf": (INF, -INF, -INF, -INF),
    "all -inf": (-INF, -INF, -INF, -INF),
}
FINE = {
    "some -inf": (0.3, -INF, -INF, 0.2),
    "one left": (0.3, -INF, -INF, -INF),
    "as low as can be": (torch.finfo(torch.float32).min,) * 4,
}
NOISY, CLEAN = {"uniform": 2, "absorbing": 1, "zeros": 2}, {"absorbing": 2, "zeros": 1}
PLACES = [(name, place) for name in NOISY for place in ("read", "given", "pad")] + [(name, "clean") for name in CLEAN]
REFUSED = "logits contains nan: expected finite numbers (or -inf for a category that cannot be, but not for all)"


class EntryPoints:
    """All that reads logits, for one object of two elements; the logits of the second are the ones in question."""

    def __init__(self, impl, name, place):
        self.impl, self.device, self.place = impl, device_of(impl), place
        self.d, self.single = (usd3.Diffusion(NOISES[name][0](), usd3.Cosine(), T, impl=impl) for T in (10, 1))
        x, first = (CLEAN if place == "clean" else NOISY)[name], NOISY[name]
        self.x_0 = torch.tensor([[0, x if place == "clean" else 0]], device=self.device)
        self.x_t = torch.tensor([[first, x]], device=self.device)
        fixed = torch.tensor([False, True], device=self.device)
        self.masks = {place: fixed} if place in ("given", "pad") else {}
        self.free = ~fixed.expand(1, 2) if self.masks else None

    def results(self, row):
        """What each entry point makes of these logits: tensors, or None where it refuses them."""
        logits = torch.tensor([[(0.5, -0.2, 0.1, 0.9), row]], device=self.device)
        calls = {"loss": self.loss, "mass": self.mass}
        if self.place != "clean":
            calls |= {"bound": self.bound, "sample": self.sample}
        if not self.masks:
            calls |= {"terms": self.terms, "draw": self.draw}
        return {name: taken(call, logits) for name, call in calls.items()}

    def loss(self, logits):
        leaf = logits.clone().requires_grad_()
        out = self.d.loss_from_logits(leaf, self.x_t, self.x_0, 5, "usd3*", **self.masks)
        out.loss.backward()
        return torch.cat([torch.stack([out.loss.detach(), out.vlb, out.ce]), leaf.grad.flatten()])

    def terms(self, logits):
        found = self.d.loss_terms(logits, self.x_t, self.x_0, 5)
        return torch.stack([found.vlb, found.ce, found.l2])

    def bound(self, logits):
        chance = torch.Generator().manual_seed(0)
        return self.single.bound(lambda x, t, pad=None: logits, self.x_0, generator=chance, **self.masks)

    def draw(self, logits):
        return self.d.draw(logits, self.x_t, 5, 0, torch.Generator().manual_seed(0))

    def sample(self, logits):
        tokens = {"given_tokens": self.x_0} if self.masks else {}
        chance = torch.Generator().manual_seed(0)
        model = lambda x, t, pad=None: logits
        return self.single.sample(model, (1, 2), 1, generator=chance, device=self.device, **tokens, **self.masks)

    def mass(self, logits):
        time = torch.full((1,), 0.5, dtype=torch.float64, device=self.device)
        rate, level, checks = self.d.rate_weights(time, self.x_t), self.d.level(time, self.x_t), Checks(True)
        jumps = Jumps(rate.to_data, rate.to_noise, rate.to_noise).scaled(0.01)
        mass = jump_mass(logits, self.x_t, self.d.noise, level, jumps, self.free, self.impl, checks)
        checks.raise_first()
        return mass


def taken(call, *args):
    """The answer, or None where the logits are refused."""
    try:
        return call(*args)
    except ValueError as error:
        if str(error) != REFUSED:
            raise
        return None


@pytest.mark.parametrize(("name", "place"), PLACES)
def test_logits_are_refused_where_they_are_read_and_nowhere_else(impl, name, place):
    calls = EntryPoints(impl, name, place)
    plain = calls.results((0.1, 0.2, 0.3, 0.4))
    assert all(found is not None for found in plain.values())
    for what, row in BAD.items():
        for call, found in calls.results(row).items():
            if place == "read":
                assert found is None, (what, call)
            else:
                assert torch.equal(found, plain[call]), (what, call)


@pytest.mark.parametrize("name", NOISY)
def test_minus_infinity_is_taken_where_a_category_is_left(fused, name):
    """Also where the finite logits are the lowest that there are. Numbers are those of the eager code."""
    found, expected = (EntryPoints(impl, name, "read") for impl in (fused, "eager"))
    for what, row in FINE.items():
        own, reference = found.results(row), expected.results(row)
        for call, value in own.items():
            assert value is not None, (what, call)
            torch.testing.assert_close(value.cpu(), reference[call], rtol=1e-5, atol=1e-6, msg=f"{what}, {call}")


def test_the_logit_of_the_mask_is_not_read(impl):
    calls = EntryPoints(impl, "absorbing", "read")
    plain = calls.results((0.1, 0.2, 0.3, 0.4))
    for value in (NAN, INF, -INF, 1e30):
        for call, found in calls.results((0.1, value, 0.3, 0.4)).items():
            assert torch.equal(found, plain[call]), (value, call)
    assert all(found is None for found in calls.results((-INF, 0.2, -INF, -INF)).values())


@pytest.mark.parametrize("name", ["uniform", "absorbing"])
@pytest.mark.parametrize("impl", [TRITON])
def test_rows_of_many_blocks_are_read_by_the_same_rule(impl, name, monkeypatch):
    """Whole blocks may be -inf, at the beginning too; the whole row may not. One logit may be far above the rest."""
    k = 40
    retile(monkeypatch, "triton_draw", BLOCK=8, BLOCKS=8, PART=4)
    retile(monkeypatch, "triton_loss", BLOCK=8, LOOP=True)
    noise = usd3.Uniform(k) if name == "uniform" else usd3.Absorbing(k)

    def found(row, which):
        d, where = usd3.Diffusion(noise, usd3.Cosine(), impl=which), device_of(which)
        logits, x_0, x_t = (v.to(where) for v in (row[None, None], torch.tensor([[30]]), torch.tensor([[k - 1]])))
        chance = torch.Generator().manual_seed(1)
        drawn = taken(d.draw, logits, x_t, 0.9, 0.0, chance)
        terms = taken(lambda: d.loss_terms(logits, x_t, x_0, 0.5).vlb)
        return [None if v is None else v.cpu() for v in (drawn, terms)]

    index, row = torch.arange(k), torch.linspace(-1, 1, k)
    half = row.masked_fill(index < 20, -INF)
    high = row.masked_fill(index == 17, 500.0)  # exp(500) is infinite in float32
    for fine in (half, torch.where(index < 20, half, torch.finfo(torch.float32).min), high):
        for a, b in zip(found(fine, impl), found(fine, "eager")):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    for bad in (row.masked_fill(index == 17, NAN), row.masked_fill(index == 17, INF), torch.full_like(row, -INF)):
        assert found(bad, impl) == found(bad, "eager") == [None, None]


# ---- impossible categories, and logits at the edge of what numbers can be ------------------------------------------


@pytest.mark.parametrize("num_steps", [10, None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_minus_infinity_excludes_a_category(impl, num_steps, dtype):
    """As a logit far below the rest does; its own gradient is 0."""
    d, x_0, x_t, t, logits = case(impl, "random", B=2, num_steps=num_steps, dtype=dtype)
    excluded = torch.zeros_like(logits, dtype=torch.bool)
    excluded[..., 3] = (x_0 != 3) & (x_t != 3)
    assert excluded.any()
    objective = "usd3*"
    seen, gradient = loss_and_gradient(d, logits.masked_fill(excluded, -torch.inf), x_t, x_0, t, objective)
    low, low_gradient = loss_and_gradient(d, logits.masked_fill(excluded, -500.0), x_t, x_0, t, objective)
    torch.testing.assert_close(seen, low, rtol=1e-6, atol=0)
    torch.testing.assert_close(gradient, low_gradient, rtol=1e-5, atol=1e-7)
    assert (gradient[excluded] == 0).all()
    drawn = d.draw(logits.masked_fill(excluded, -torch.inf), x_t, t, 0, torch.Generator().manual_seed(0))
    assert not excluded.gather(-1, drawn[..., None]).any()


@pytest.mark.parametrize("name", ["uniform", "absorbing", "per_element_zeros"])
@pytest.mark.parametrize("num_steps", [10, None])
def test_one_category_may_be_left(impl, name, num_steps):
    d, x_0, x_t, t, logits = case(impl, name, B=2, num_steps=num_steps, dtype=torch.float32)
    only = torch.full_like(logits, -torch.inf).scatter(-1, x_0[..., None], 0.3)
    seen, gradient = loss_and_gradient(d, only, x_t, x_0, t)
    torch.testing.assert_close(seen, torch.zeros_like(seen), rtol=0, atol=1e-6)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-6)
    if num_steps:
        assert torch.equal(d.draw(only, x_t, t, 0), torch.where(d.noise.at(x_t) > 0, x_0, x_t))


@pytest.mark.parametrize("name", ["uniform", "absorbing", "per_element_zeros"])
@pytest.mark.parametrize("num_steps", [10, None])
def test_a_truth_that_is_excluded_costs_much_but_not_everything(impl, name, num_steps):
    d, x_0, x_t, t, logits = case(impl, name, B=2, num_steps=num_steps, dtype=torch.float32)
    seen, gradient = loss_and_gradient(d, logits.scatter(-1, x_0[..., None], -torch.inf), x_t, x_0, t)
    assert seen.isfinite().all()
    assert seen[2] > 1e20
    assert gradient.isfinite().all()


@pytest.mark.parametrize("name", ["uniform", "absorbing", "per_element_zeros"])
@pytest.mark.parametrize("num_steps", [10, None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits_give_finite_numbers(impl, name, num_steps, dtype, generator):
    d, x_0, x_t, t, logits = case(impl, name, B=2, num_steps=num_steps)
    sign = torch.randint(0, 2, logits.shape, generator=generator).to(logits.device) * 2 - 1
    seen, gradient = loss_and_gradient(d, (1e4 * sign).to(dtype), x_t, x_0, t)
    assert seen.isfinite().all()
    assert (seen >= -1e-6).all()
    assert gradient.isfinite().all()
    assert (d.draw((1e4 * sign).to(dtype), x_t, t, 0) < K).all()


@pytest.mark.parametrize("name", ["uniform", "absorbing", "random"])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_logits_that_are_not_finite_are_refused(impl, name, bad):
    d, x_0, x_t, _, logits = case(impl, name, B=1, num_steps=None)
    x_t[0, 2] = 1  # the mask of `absorbing`: elements known to be clean are not read
    logits[0, 2, 0] = bad
    model = lambda x, t: logits
    for call in (
        lambda: d.loss_terms(logits, x_t, x_0, 0.5),
        lambda: d.loss_from_logits(logits, x_t, x_0, 0.5),
        lambda: d.draw(logits, x_t, 0.5, 0.2),
        lambda: d.loss(model, x_0, t=1.0),
        lambda: d.sample(model, (1, D), 3, device=logits.device),
        lambda: d.sample(model, (1, D), 3, usd3.Corrector(1, 0.5, None), device=logits.device),
    ):
        with pytest.raises(ValueError, match="logits contains nan: expected finite numbers"):
            call()


def test_logits_of_elements_that_stay_may_be_nan(impl):
    """What is given is not read by a draw either."""
    d, x_0, _, _, logits = case(impl, "uniform", num_steps=None)
    given = torch.zeros_like(x_0, dtype=torch.bool)
    given[1] = True
    spoilt = logits.masked_fill(given[..., None], torch.nan)
    drawn = [
        d.sample(lambda x, t, v=v: v, (4, D), 3, given=given, given_tokens=x_0, generator=torch.Generator())
        for v in (logits, spoilt)
    ]
    assert torch.equal(*drawn)
    assert torch.equal(drawn[0][1], x_0[1])


def test_without_validation_nan_logits_leave_elements_where_they_are(impl):
    x_t = torch.tensor([[0, 3, 5]], device=device_of(impl))
    d = usd3.Diffusion(usd3.Uniform(6), usd3.Cosine(), validate=False, impl=impl)
    assert torch.equal(d.draw(torch.full((1, 3, 6), torch.nan, device=x_t.device), x_t, 0.5, 0.4), x_t)
