"""Parts of the Triton kernel that draws: what it reads of a row, and how it chooses a category."""

import pytest
import torch

from support.problems import NEEDS_TRITON, device_of

pytestmark = list(NEEDS_TRITON)
triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")
draw = pytest.importorskip("usd3.kernels.triton_draw")

load_others, choose = draw._load_others, draw._choose
MARKS = {"all": (False, False), "mask": (True, False), "support": (False, True), "both": (True, True)}
SUPPORT = [True, True, False, True, False, True]


@triton.jit
def _others(
    logits, support, out, x, mask, read, K: tl.constexpr, MASK: tl.constexpr, SUPPORT: tl.constexpr, N: tl.constexpr
):
    z = tl.arange(0, N)
    tl.store(out + z, load_others(logits, z, x, mask, support, read != 0, K, MASK, SUPPORT, tl.float32))


@triton.jit
def _chosen(weights, targets, out, N: tl.constexpr, TARGETS: tl.constexpr):
    w = tl.load(weights + tl.arange(0, N))
    for i in range(TARGETS):
        chosen, share = choose(w, tl.load(targets + i))
        tl.store(out + i, chosen.to(tl.float64))
        tl.store(out + TARGETS + i, share)


@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize("marks", MARKS)
def test_the_others_of_a_row_are_all_data_but_x(marks, read):
    """-inf also beyond K = 6, and everywhere in a row that is not read."""
    mask, support = MARKS[marks]
    logits, table = torch.arange(6.0, device=device_of("triton")), torch.tensor(SUPPORT, device=device_of("triton"))
    out = torch.zeros(8, device=logits.device)
    _others[(1,)](logits, table, out, 1, 5, int(read), K=6, MASK=mask, SUPPORT=support, N=8)
    others = [z for z in range(6) if read and z != 1 and (z != 5 or not mask) and (SUPPORT[z] or not support)]
    assert out.tolist() == [z if z in others else -float("inf") for z in range(8)]


def test_a_target_chooses_by_the_running_sum_and_leaves_its_share():
    """Weights 0, 1, 0, 2: targets below 1 choose index 1, those below 3 index 3. Weight 0 is never chosen."""
    weights = torch.tensor([0.0, 1.0, 0.0, 2.0], dtype=torch.float64, device=device_of("triton"))
    targets = torch.tensor([0.0, 0.25, 1.0, 2.5, 3.0], dtype=torch.float64, device=weights.device)
    out = torch.zeros(2, 5, dtype=torch.float64, device=weights.device)
    _chosen[(1,)](weights, targets, out, N=4, TARGETS=5)
    assert out[0].tolist() == [1, 1, 3, 3, 3]
    assert out[1, :4].tolist() == [0, 0.25, 0, 0.75]
    assert 0.999 < float(out[1, 4]) <= 1  # rounding may bring a target up to the whole sum
