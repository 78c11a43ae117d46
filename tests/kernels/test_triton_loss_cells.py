"""Passes of the Triton loss over the categories: what they read, and cells without noise."""

import pytest
import torch

import usd3
from support.kernel_cases import WIDE
from support.problems import NEEDS_TRITON, device_of, retile
from usd3.kernels.loss import loss_rows

pytestmark = list(NEEDS_TRITON)
triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")
cells = pytest.importorskip("usd3.kernels.triton_loss_cells")

is_plain, load_others = cells.is_plain, cells.load_others
MARKS = {"all": (False, False), "mask": (True, False), "support": (False, True), "both": (True, True)}
SUPPORT = [True, True, False, True, False, True, True, False, True]


@triton.jit
def _plain_blocks(out, x, x_0, mask, K: tl.constexpr, MASK: tl.constexpr, SUPPORT: tl.constexpr, BLOCK: tl.constexpr):
    for start in range(0, K, BLOCK):
        tl.store(out + start // BLOCK, is_plain(start, x, x_0, mask, K, MASK, SUPPORT, BLOCK).to(tl.int32))


@triton.jit
def _others(
    logits, support, out, x, x_0, mask,
    K: tl.constexpr, MASK: tl.constexpr, SUPPORT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    l, z, is_other = load_others(logits, 0, x, x_0, mask, support, K, MASK, SUPPORT, BLOCK, False, tl.float32)
    tl.store(out + z, l)
    tl.store(out + BLOCK + z, is_other.to(tl.float32))


@pytest.mark.parametrize(("x", "x_0"), [(0, 5), (5, 0), (1, 1)])
@pytest.mark.parametrize("marks", MARKS)
def test_a_plain_block_has_neither_x_nor_x_0_nor_the_mask_nor_an_end(marks, x, x_0):
    """Blocks of 2 of 9 categories: the last one is not full. The mask is 7. With a support no block is plain."""
    mask, support = MARKS[marks]
    out = torch.full((5,), -1, dtype=torch.int32, device=device_of("triton"))
    _plain_blocks[(1,)](out, x, x_0, 7, K=9, MASK=mask, SUPPORT=support, BLOCK=2)
    special = {x // 2, x_0 // 2, 4, *([3] if mask else []), *(range(5) if support else [])}
    assert out.tolist() == [int(block not in special) for block in range(5)]


@pytest.mark.parametrize("marks", MARKS)
def test_the_others_of_a_row_are_all_but_x_and_x_0_and_logits_count_where_data_can_be(marks):
    mask, support = MARKS[marks]
    logits, table = torch.arange(6.0, device=device_of("triton")), torch.tensor(SUPPORT, device=device_of("triton"))
    out = torch.zeros(2, 8, device=logits.device)
    _others[(1,)](logits, table, out, 1, 3, 5, K=6, MASK=mask, SUPPORT=support, BLOCK=8)
    others = [z for z in range(6) if z not in (1, 3)]
    data = [z for z in others if (z != 5 or not mask) and (SUPPORT[z] or not support)]
    assert out.tolist() == [
        [z if z in data else -float("inf") for z in range(8)],
        [float(z in others) for z in range(8)],
    ]


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
