"""Elements that do not count: given, padding, or none at all."""

import pytest
import torch

import usd3
from support.kernel_cases import case, loss_and_gradient
from support.problems import K, device_of


@pytest.mark.parametrize("name", ["uniform", "absorbing", "per_element_zeros"])
def test_fixed_elements_are_not_read(impl, name):
    """Whatever their logits hold, NaN and infinity too."""
    d, x_0, x_t, t, logits = case(impl, name, B=2)
    given = torch.zeros_like(x_0, dtype=torch.bool)
    given[:, 0] = True
    pad = torch.zeros_like(given)
    pad[0] = pad[1, 2] = True
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
    d, x_0, x_t, t, logits = case(impl, B=2)
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


def test_objects_without_elements_have_a_loss_of_zero_and_empty_draws(impl):
    d = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine(), 10, impl=impl)
    x = torch.zeros(3, 0, dtype=torch.long, device=device_of(impl))
    logits = torch.zeros(3, 0, K, device=x.device)
    seen, gradient = loss_and_gradient(d, logits, x, x, 4)
    assert (seen == 0).all()
    assert gradient.shape == (3, 0, K)
    assert d.loss_terms(logits, x, x, 4).vlb.shape == (3, 0)
    assert d.draw(logits, x, 4, 2).shape == (3, 0)
