"""Passes of the Triton loss over the categories: what they read, and cells without noise."""

import pytest
import torch

import usd3
from support.kernel_cases import WIDE
from support.problems import NEEDS_TRITON, device_of, retile
from usd3.kernels.loss import loss_rows

pytestmark = list(NEEDS_TRITON)


@pytest.mark.skipif(torch.cuda.is_available(), reason="looks into the interpreter")
@pytest.mark.parametrize("block", [None, 4])
@pytest.mark.parametrize("name", ["uniform", "absorbing", "random"])
def test_nothing_is_read_or_written_behind_the_last_row(name, block, monkeypatch):
    """K = 5 fills no block. The memory behind the rows is the test's own, and every access is recorded."""
    builder = pytest.importorskip("triton.runtime.interpreter").InterpreterBuilder
    k, touched = 5, set()

    def recorded(method, place_of_mask):
        def access(self, *args):
            touched.update(args[0].data[args[place_of_mask].data].tolist())
            return method(self, *args)

        return access

    if block:
        retile(monkeypatch, "triton_loss", BLOCK=block, LOOP=True)
    d = usd3.Diffusion(WIDE[name](k), usd3.Cosine())
    x_0, x_t = torch.tensor([[0, 2]]), torch.tensor([[4, 4]])
    p = d.problem(x_t, x_0, d.coefficients(torch.tensor([0.5], dtype=torch.float64)), False)
    logits, gradient = torch.zeros(2, 3, k)
    with monkeypatch.context() as patch:
        patch.setattr(builder, "create_masked_load", recorded(builder.create_masked_load, 1))
        patch.setattr(builder, "create_masked_store", recorded(builder.create_masked_store, 2))
        loss_rows(logits[:2], p, torch.ones(3, 1, dtype=torch.float64), False, gradient[:2], "triton")
    for rows in (logits, gradient):
        assert {v.data_ptr() for v in rows[:2].flatten()} <= touched
        assert not {v.data_ptr() for v in rows[2]} & touched


def test_a_category_that_is_never_noise_costs_its_rate_near_time_zero(monkeypatch):
    """Long rows are not scaled by their largest logit, and A f / k of such a category may overflow in float32."""
    retile(monkeypatch, "triton_loss", BLOCK=2, LOOP=True)
    noise, x = usd3.Marginal([0.5, 0.5, 0.0, 0.0]), torch.tensor([[0]])
    logits, found = torch.tensor([[[0.0, -20.0, 25.0, -20.0]]]), []
    for impl, dtype, device in (("eager", torch.float64, "cpu"), ("triton", torch.float32, device_of("triton"))):
        d, x = usd3.Diffusion(noise, usd3.Linear(), impl=impl), x.to(device)
        found.append(float(d.loss_terms(logits.to(device, dtype), x, x, 1e-20).vlb))
    assert found[0] == pytest.approx(1e20, rel=1e-5)
    assert found[1] == pytest.approx(found[0], rel=1e-5)
