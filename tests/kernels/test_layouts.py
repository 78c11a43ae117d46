"""Memory of any layout: what a kernel takes may be a view, with gaps, transposed, expanded, or part of something.

A kernel reads memory, not strides: it must be given row-major tensors without gaps, whoever made them.
"""

from dataclasses import fields, is_dataclass, replace

import pytest
import torch

import usd3
from support.kernel_cases import case, loss_and_gradient
from support.problems import D, K, device_of
from usd3._internal.checks import Checks
from usd3.core.fused import draw, leap_of
from usd3.core.mixture import Jumps
from usd3.kernels.draw import draw_rows
from usd3.kernels.loss import loss_rows

P = torch.rand(K, 3, generator=torch.Generator().manual_seed(0)).softmax(0)
ONE = torch.tensor([0.1, 0.2, 0.3, 0.4])

TABLES = {
    "transposed": P.T,
    "with gaps": torch.stack([P.T, 1 - P.T], -1)[..., 0],
    "inside": torch.cat([torch.ones(1, K), P.T])[1:],
    "one row": ONE[None],
    "one row of each object": ONE.expand(1, 1, K),
    "expanded": ONE.expand(3, K),
    "expanded elements": P.T[None].expand(2, 3, K).transpose(0, 1)[:, 0],
    "one for each object": torch.stack([ONE, ONE.flip(0)])[:, None],
}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("num_steps", [10, None])
def test_the_layout_of_the_noise_does_not_matter(impl, table, num_steps):
    """The numbers are those of the eager code with a table of its own for every element."""
    device, B = device_of(impl), 2
    whole = TABLES[table].expand(B, 3, K).contiguous()
    chance = torch.Generator().manual_seed(3)
    x_0, x_t = (torch.randint(K, (B, 3), generator=chance) for _ in range(2))
    logits = torch.randn(B, 3, K, generator=chance, dtype=torch.float64)
    t, found = 7 if num_steps else 0.7, []
    for which, probs in (("eager", whole), (impl, TABLES[table])):
        d = usd3.Diffusion(usd3.Marginal(probs), usd3.Cosine(), num_steps, impl=which)
        where = device_of(which)
        own = [v.to(where) for v in (logits, x_t, x_0)]
        drawn = d.draw(own[0], own[1], t, 0, torch.Generator().manual_seed(0))
        found.append([*loss_and_gradient(d, *own, t, "usd3*"), drawn])
    for a, b in zip(*found):
        torch.testing.assert_close(a.to(device), b, rtol=1e-9, atol=1e-12)


def gapped(v):
    """The same numbers with others between and before them."""
    other = torch.zeros_like(v) if v.dtype == torch.bool else v + 1
    return torch.stack([other, v, other], -1)[..., 1]


def views(value):
    """The tensors of a problem, one at a time, as views with gaps; those of its noise too."""
    for field in fields(value):
        part = getattr(value, field.name)
        if isinstance(part, torch.Tensor):
            view = gapped(part)
            assert not view.is_contiguous()
            yield replace(value, **{field.name: view})
        elif is_dataclass(part):
            yield from (replace(value, **{field.name: inner}) for inner in views(part))


def test_a_loss_reads_every_tensor_by_its_strides(fused):
    d, x_0, x_t, t, logits = case(fused, "random_support")
    free = torch.ones_like(x_0, dtype=torch.bool)
    free[1, 1] = False
    p = d.problem(x_t, x_0, d.coefficients(t.double() / 10), True, free)
    weights = torch.rand(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).to(logits.device)
    rows = logits.reshape(-1, K)

    def found(rows, p, weights):
        gradient = torch.empty(len(rows), K, dtype=rows.dtype, device=rows.device)
        return loss_rows(rows, p, weights, True, gradient, fused), gradient

    expected = found(rows, p, weights)
    wide = torch.cat([rows + 1, rows, rows], 1)[:, K : 2 * K]
    problems = list(views(p))
    assert len(problems) == 6
    for args in ((wide, p, weights), (rows, p, gapped(weights)), *((rows, other, weights) for other in problems)):
        for a, b in zip(found(*args), expected):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-15)


def test_a_draw_reads_every_tensor_by_its_strides(fused):
    d, x_0, x_t, t, logits = case(fused, "random_support", num_steps=None)
    free = torch.ones_like(x_0, dtype=torch.bool)
    free[1, 1] = False
    level, to = d.transition(t.double(), torch.zeros_like(t.double()), x_t)
    jumps = Jumps(to.to_data, to.to_noise, 0.1 * to.to_noise)
    u = torch.rand(2, *x_t.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5)).to(x_t.device)
    leap, rows = leap_of(d.noise, level, jumps, x_t, u[1], free), logits.reshape(-1, K)
    leaps = list(views(leap))
    assert len(leaps) == 7
    wide = torch.cat([rows + 1, rows, rows], 1)[:, K : 2 * K]
    for v in (u.reshape(2, -1), None):
        expected = draw_rows(rows, leap, v, fused)
        for args in ((wide, leap, v), (rows, leap, None if v is None else gapped(v)), *((rows, p, v) for p in leaps)):
            torch.testing.assert_close(draw_rows(*args, fused), expected, rtol=1e-12, atol=0)


def test_uniforms_may_be_a_part_of_more(impl):
    d, _, x_t, t, logits = case(impl, "uniform", num_steps=None)
    level, to = d.transition(t.double(), torch.zeros_like(t.double()), x_t)
    more = torch.rand(2, 8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(5)).to(x_t.device)
    a, b = (
        draw(logits, x_t, d.noise, level, Jumps(to.to_data, to.to_noise), u, None, impl, Checks(True))
        for u in (more[:, :4], more[:, :4].contiguous())
    )
    assert torch.equal(a, b)


def test_masks_times_and_categories_may_be_views(impl):
    d, x_0, x_t, t, logits = case(impl, "per_element")
    given = torch.zeros_like(x_0, dtype=torch.bool)
    given[1] = given[2, 0] = True
    pad = torch.tensor([[False], [False], [False], [True]], device=x_0.device)
    expected = loss_and_gradient(d, logits, x_t, x_0, t, given=given, pad=pad)
    turned = lambda v: v.T.contiguous().T
    for a, b in zip(
        loss_and_gradient(d, logits, turned(x_t), turned(x_0), gapped(t), given=turned(given), pad=gapped(pad)),
        expected,
    ):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-15)


def test_a_projection_may_be_made_of_views(impl):
    d, x_0, x_t, t, _ = case(impl, "per_element", num_steps=None)
    chance = torch.Generator().manual_seed(7)
    hidden, weight, bias, at_x = (
        torch.randn(*size, generator=chance, dtype=torch.float64).to(x_0.device)
        for size in ((4, 3, 5), (K, 5), (K,), (4, 3))
    )

    def found(*parts):
        leaves = [v.detach().requires_grad_() for v in parts[:3]]
        loss = d.loss_from_logits(usd3.Projection(*leaves, parts[3]), x_t, x_0, t).loss
        return [loss.detach(), *torch.autograd.grad(loss, leaves)]

    expected = found(hidden, weight, bias, at_x)
    turned = hidden.transpose(0, 2).contiguous().transpose(0, 2), weight.T.contiguous().T
    for parts in ((gapped(hidden), gapped(weight), gapped(bias), gapped(at_x)), (*turned, bias, at_x.T.clone().T)):
        for a, b in zip(found(*parts), expected):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", ["uniform", "absorbing", "per_element_zeros"])
def test_the_layout_of_the_logits_does_not_matter(impl, name):
    d, x_0, x_t, t, logits = case(impl, name, B=2)
    expected, gradient = loss_and_gradient(d, logits, x_t, x_0, t)
    drawn = d.draw(logits, x_t, t, 0, torch.Generator().manual_seed(0))
    wide = torch.full((2, 2 * D, K + 3), torch.nan, dtype=logits.dtype, device=logits.device)
    wide[:, ::2, 1 : K + 1] = logits
    for view in (
        logits.transpose(0, 1).contiguous().transpose(0, 1),  # rows apart
        logits.transpose(1, 2).contiguous().transpose(1, 2),  # categories apart
        wide[:, ::2, 1 : K + 1],  # a part of something larger
    ):
        assert not view.is_contiguous()
        leaf = view.detach().requires_grad_()
        out = d.loss_from_logits(leaf, x_t, x_0, t, "usd3*")
        out.loss.backward()
        torch.testing.assert_close(torch.stack([out.loss.detach(), out.vlb, out.ce]), expected, rtol=1e-12, atol=0)
        torch.testing.assert_close(leaf.grad, gradient, rtol=1e-12, atol=1e-15)
        assert torch.equal(d.draw(view, x_t, t, 0, torch.Generator().manual_seed(0)), drawn)


def test_expanded_logits_gather_the_gradient_of_all_their_uses(impl):
    d, x_0, x_t, t, logits = case(impl)
    _, gradient = loss_and_gradient(d, logits[:1].expand(4, D, K), x_t, x_0, t)
    leaf = logits[:1].clone().requires_grad_()
    d.loss_from_logits(leaf.expand(4, D, K), x_t, x_0, t, "usd3*").loss.backward()
    torch.testing.assert_close(leaf.grad, gradient.sum(0, keepdim=True), rtol=1e-12, atol=1e-15)


def test_categories_may_lie_apart_in_memory_or_share_it(impl):
    device, chance = device_of(impl), torch.Generator().manual_seed(0)
    d = usd3.Diffusion(usd3.Uniform(6), usd3.Cosine(), validate=False, impl=impl)
    wide, logits = (
        torch.randint(6, (4, 8), generator=chance).to(device),
        torch.randn(4, 4, 6, generator=chance).to(device),
    )
    one = torch.tensor(3, device=device).expand(4, 4)
    for x_0, x_t in ((wide[:, ::2], wide[:, 1::2]), (one, one)):
        dense = d.loss_from_logits(logits, x_t.contiguous(), x_0.contiguous(), 0.4).loss
        assert d.loss_from_logits(logits, x_t, x_0, 0.4).loss == dense
