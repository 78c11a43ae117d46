"""Elements that do not count, logits of any layout, and logits at the edge of what numbers can be."""

import pytest
import torch

import usd3
from support.kernel_cases import case, loss_and_gradient
from support.problems import D, K, device_of

FINITE = "logits contains nan: expected finite numbers"


@pytest.mark.parametrize("name", ["uniform", "absorbing", "per_element_zeros"])
def test_fixed_elements_are_not_read(impl, name):
    """Whatever their logits hold, NaN and infinity too."""
    d, x_0, x_t, t, logits = case(impl, name)
    given = torch.zeros_like(x_0, dtype=torch.bool)
    given[:, 0] = True
    pad = torch.zeros_like(given)
    pad[1, 2] = pad[3] = True
    fixed = given | pad
    expected, gradient = loss_and_gradient(d, logits, x_t, x_0, t, given=given, pad=pad)
    assert gradient[~fixed].abs().sum() > 0
    for bad in (torch.nan, torch.inf, -torch.inf, 1e4):
        spoilt = torch.where(fixed[..., None], bad, logits)
        seen, spoilt_gradient = loss_and_gradient(d, spoilt, x_t, x_0, t, given=given, pad=pad)
        assert torch.equal(seen, expected)
        assert torch.equal(spoilt_gradient, gradient)
        assert (spoilt_gradient[fixed] == 0).all()


def test_fixed_elements_have_no_share_in_the_loss(impl):
    """The loss with masks is that of the terms, summed over the free elements."""
    d, x_0, x_t, t, logits = case(impl)
    given = torch.tensor([True, False, False], device=x_0.device)
    seen, gradient = loss_and_gradient(d, logits, x_t, x_0, t, given=given)
    terms = d.loss_terms(logits, x_t, x_0, t)
    expected = (terms.l2 + terms.ce)[:, 1:].sum() / len(x_0)
    torch.testing.assert_close(seen[0], expected, rtol=1e-9, atol=0)
    assert (gradient[:, 0] == 0).all()


def test_nothing_free_is_a_loss_of_zero(impl):
    d, x_0, x_t, t, logits = case(impl)
    seen, gradient = loss_and_gradient(d, logits, x_t, x_0, t, pad=torch.ones_like(x_0, dtype=torch.bool))
    assert (seen == 0).all()
    assert (gradient == 0).all()


def test_objects_without_elements(impl):
    d = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine(), 10, impl=impl)
    x = torch.zeros(3, 0, dtype=torch.long, device=device_of(impl))
    logits = torch.zeros(3, 0, K, device=x.device)
    seen, gradient = loss_and_gradient(d, logits, x, x, 4)
    assert (seen == 0).all()
    assert gradient.shape == (3, 0, K)
    assert d.loss_terms(logits, x, x, 4).vlb.shape == (3, 0)
    assert d.draw(logits, x, 4, 2).shape == (3, 0)


@pytest.mark.parametrize("name", ["uniform", "absorbing", "per_element_zeros"])
def test_the_layout_of_the_logits_does_not_matter(impl, name):
    d, x_0, x_t, t, logits = case(impl, name)
    expected, gradient = loss_and_gradient(d, logits, x_t, x_0, t)
    drawn = d.draw(logits, x_t, t, 0, torch.Generator().manual_seed(0))
    wide = torch.full((4, 2 * D, K + 3), torch.nan, dtype=logits.dtype, device=logits.device)
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


@pytest.mark.parametrize("num_steps", [10, None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_minus_infinity_excludes_a_category(impl, num_steps, dtype):
    """As a logit far below the rest does; its own gradient is 0."""
    d, x_0, x_t, t, logits = case(impl, "random", num_steps=num_steps, dtype=dtype)
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
    d, x_0, x_t, t, logits = case(impl, name, num_steps=num_steps, dtype=torch.float32)
    only = torch.full_like(logits, -torch.inf).scatter(-1, x_0[..., None], 0.3)
    seen, gradient = loss_and_gradient(d, only, x_t, x_0, t)
    torch.testing.assert_close(seen, torch.zeros_like(seen), rtol=0, atol=1e-6)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-6)
    if num_steps:
        assert torch.equal(d.draw(only, x_t, t, 0), torch.where(d.noise.at(x_t) > 0, x_0, x_t))


@pytest.mark.parametrize("name", ["uniform", "absorbing", "per_element_zeros"])
@pytest.mark.parametrize("num_steps", [10, None])
def test_a_truth_that_is_excluded_costs_much_but_not_everything(impl, name, num_steps):
    d, x_0, x_t, t, logits = case(impl, name, num_steps=num_steps, dtype=torch.float32)
    seen, gradient = loss_and_gradient(d, logits.scatter(-1, x_0[..., None], -torch.inf), x_t, x_0, t)
    assert seen.isfinite().all()
    assert seen[2] > 1e20
    assert gradient.isfinite().all()


@pytest.mark.parametrize("name", ["uniform", "absorbing", "per_element_zeros"])
@pytest.mark.parametrize("num_steps", [10, None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_extreme_logits_give_finite_numbers(impl, name, num_steps, dtype, generator):
    d, x_0, x_t, t, logits = case(impl, name, num_steps=num_steps)
    sign = torch.randint(0, 2, logits.shape, generator=generator).to(logits.device) * 2 - 1
    seen, gradient = loss_and_gradient(d, (1e4 * sign).to(dtype), x_t, x_0, t)
    assert seen.isfinite().all()
    assert (seen >= -1e-6).all()
    assert gradient.isfinite().all()
    assert (d.draw((1e4 * sign).to(dtype), x_t, t, 0) < K).all()


@pytest.mark.parametrize("name", ["uniform", "absorbing", "random"])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_logits_that_are_not_finite_are_refused(impl, name, bad):
    d, x_0, x_t, _, logits = case(impl, name, num_steps=None)
    x_t[1, 2] = 1  # the mask of `absorbing`: elements known to be clean are not read
    logits[1, 2, 0] = bad
    model = lambda x, t: logits
    for call in (
        lambda: d.loss_terms(logits, x_t, x_0, 0.5),
        lambda: d.loss_from_logits(logits, x_t, x_0, 0.5),
        lambda: d.draw(logits, x_t, 0.5, 0.2),
        lambda: d.loss(model, x_0, t=1.0),
        lambda: d.sample(model, (4, D), 3, device=logits.device),
        lambda: d.sample(model, (4, D), 3, usd3.Corrector(1, 0.5, None), device=logits.device),
    ):
        with pytest.raises(ValueError, match=FINITE):
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


def test_without_validation_nan_logits_leave_elements_where_they_are(impl):
    x_t = torch.tensor([[0, 3, 5]], device=device_of(impl))
    d = usd3.Diffusion(usd3.Uniform(6), usd3.Cosine(), validate=False, impl=impl)
    assert torch.equal(d.draw(torch.full((1, 3, 6), torch.nan, device=x_t.device), x_t, 0.5, 0.4), x_t)
