"""Which logits are taken and which are refused: the same table for every implementation, in losses and in draws.

Logits are read where an element is free and not certainly clean (m_x > 0), at data categories. There they must be
finite, or -inf for some categories; elsewhere they may be anything, and change nothing.
"""

import pytest
import torch

import usd3
from support.problems import NOISES, TRITON, device_of, retile
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


class Case:
    """One object of two elements; the second is the one whose logits are spoilt."""

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
    case = Case(impl, name, place)
    plain = case.results((0.1, 0.2, 0.3, 0.4))
    assert all(found is not None for found in plain.values())
    for what, row in BAD.items():
        for call, found in case.results(row).items():
            if place == "read":
                assert found is None, (what, call)
            else:
                assert torch.equal(found, plain[call]), (what, call)


@pytest.mark.parametrize("name", NOISY)
def test_minus_infinity_is_taken_where_a_category_is_left(fused, name):
    """Also where the finite logits are the lowest that there are. Numbers are those of the eager code."""
    found, expected = (Case(impl, name, "read") for impl in (fused, "eager"))
    for what, row in FINE.items():
        own, reference = found.results(row), expected.results(row)
        for call, value in own.items():
            assert value is not None, (what, call)
            torch.testing.assert_close(value.cpu(), reference[call], rtol=1e-5, atol=1e-6, msg=f"{what}, {call}")


def test_the_logit_of_the_mask_is_not_read(impl):
    case = Case(impl, "absorbing", "read")
    plain = case.results((0.1, 0.2, 0.3, 0.4))
    for value in (NAN, INF, -INF, 1e30):
        for call, found in case.results((0.1, value, 0.3, 0.4)).items():
            assert torch.equal(found, plain[call]), (value, call)
    assert all(found is None for found in case.results((-INF, 0.2, -INF, -INF)).values())


@pytest.mark.parametrize("name", ["uniform", "absorbing"])
@pytest.mark.parametrize("impl", [TRITON])
def test_rows_of_many_blocks_are_read_by_the_same_rule(impl, name, monkeypatch):
    """Whole blocks may be -inf, at the beginning too; the whole row may not."""
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
    for fine in (half, torch.where(index < 20, half, torch.finfo(torch.float32).min)):
        for a, b in zip(found(fine, impl), found(fine, "eager")):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    for bad in (row.masked_fill(index == 17, NAN), row.masked_fill(index == 17, INF), torch.full_like(row, -INF)):
        assert found(bad, impl) == found(bad, "eager") == [None, None]
