"""One jump of every element as one Triton kernel: the logits are read once, and one uniform chooses the category.

The inverse CDF has two or three levels: the sums of blocks, the sums of parts of the chosen block, and at last running
sums in float64 over the `PART` categories of the chosen part, which are read again. So a category of any probability
that float32 can hold is drawn as often as it should, and nothing of size K is ever written.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from usd3.kernels.problem import Leap
from usd3.kernels.triton_loss import ABSORBING, TABLE, UNIFORM

__all__ = ["draw_rows"]

_BELOW_ONE = tl.constexpr(1 - 2.0**-53)


def draw_rows(logits: Tensor, p: Leap, u: Tensor | None) -> Tensor:
    """New categories (R,), -1 where the logits are NaN. Without uniforms u (2, R): the mass that leaves x, float64."""
    R, K = logits.shape
    out = torch.empty(R, dtype=torch.float64 if u is None else torch.int64, device=logits.device)
    if R == 0:
        return out
    settings = tile(K)
    kind = ABSORBING if p.mask >= 0 else UNIFORM if p.m_x is None else TABLE
    B = p.coefficients.shape[1]
    _kernel[(triton.cdiv(R, settings["ROWS"]),)](
        logits,
        p.x,
        p.x if p.m_x is None else p.m_x,
        p.x if p.noisy is None else p.noisy,
        p.coefficients,
        p.coefficients if u is None else u,
        p.x if p.free is None else p.free,
        out,
        R,
        R // B,
        B,
        p.mask,
        logits.stride(0),
        KIND=kind,
        FREE=p.free is not None,
        DAMPED=p.damped,
        MASS_ONLY=u is None,
        FLOAT=tl.float64 if logits.dtype == torch.float64 else tl.float32,
        K=K,
        **settings,
    )
    return out


def tile(K: int) -> dict[str, Any]:
    """How the work is cut for this size."""
    block = min(triton.next_power_of_2(K), 4096)
    return {
        "ROWS": 1,
        "BLOCK": block,
        "BLOCKS": triton.next_power_of_2(triton.cdiv(K, block)),
        "PART": min(block, 16 if block <= 256 else 32 if block <= 1024 else 64),
        "num_warps": max(1, min(8, block // 256)),
    }


@triton.jit
def _others(
    logits,
    row,
    z,
    x,
    needed,
    stride,
    mask,
    K: tl.constexpr,
    KIND: tl.constexpr,
    FLOAT: tl.constexpr,
):
    """Logits at categories z (rows, n), -inf at x, at the mask and beyond K."""
    inside = (z < K) & needed[:, None] & (z != x[:, None])
    if KIND == ABSORBING:
        inside = inside & (z != mask)
    return tl.load(logits + row.to(tl.int64)[:, None] * stride + z, mask=inside, other=-float("inf")).to(FLOAT)


@triton.jit
def _choose(weights, target):
    """The index at which the running sum of weights (rows, n) first exceeds target, and what is left of target there.

    What is left is a share of that weight, in [0, 1).
    """
    n: tl.constexpr = weights.shape[1]
    index = tl.arange(0, n)[None, :]
    before = tl.arange(0, n)[None, None, :] <= tl.arange(0, n)[None, :, None]
    upto = tl.sum(tl.where(before, weights[:, None, :], 0.0), 2)  # n is small, and tl.cumsum fails for some layouts
    chosen = tl.sum((upto <= target[:, None]).to(tl.int32), 1)
    last = tl.max(tl.where(weights > 0, index, 0), 1)
    chosen = tl.minimum(chosen, last)
    here = index == chosen[:, None]
    weight = tl.sum(tl.where(here, weights, 0.0), 1)
    below = tl.sum(tl.where(here, upto - weights, 0.0), 1)
    share = (target - below) / tl.where(weight > 0, weight, 1.0)
    return chosen, tl.minimum(tl.maximum(share, 0.0), _BELOW_ONE)


@triton.jit
def _kernel(
    logits,
    xs,
    m_xs,
    noisy,
    coefficients,
    us,
    free,
    out,
    R,
    D,
    B,
    mask,
    stride,
    KIND: tl.constexpr,
    FREE: tl.constexpr,
    DAMPED: tl.constexpr,
    MASS_ONLY: tl.constexpr,
    FLOAT: tl.constexpr,
    K: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
    PART: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < R
    x = tl.load(xs + row, mask=inside, other=0).to(tl.int32)
    of = row // D
    alpha_bar = tl.load(coefficients + 3 * B + of, mask=inside, other=1.0)
    lost = tl.load(coefficients + 4 * B + of, mask=inside, other=0.0)
    if KIND == UNIFORM:
        m_x = 1 / (tl.zeros_like(lost) + K)  # a constant 1/K would be rounded to float32
    elif KIND == ABSORBING:
        m_x = tl.where(x == mask, 1.0, 0.0).to(tl.float64)
    else:
        m_x = tl.load(m_xs + row, mask=inside, other=0.0)
    active = inside
    if FREE:
        active = active & (tl.load(free + row, mask=inside, other=0) != 0)
    believed = active & (m_x > 0)  # elsewhere f = e_x

    # one pass: the sum of each block, relative to the largest logit so far
    l_x = tl.load(logits + row.to(tl.int64) * stride + x, mask=believed, other=-float("inf")).to(FLOAT)
    if KIND == ABSORBING:
        l_x = tl.zeros_like(l_x) - float("inf")
    top = tl.maximum(l_x, -1e30)
    if BLOCKS == 1:
        z = tl.arange(0, BLOCK)[None, :]
        l = _others(logits, row, z, x, believed, stride, mask, K, KIND, FLOAT)
        top = tl.maximum(top, tl.max(l, 1))
        e = tl.exp(l - top[:, None])
        sums = tl.sum(e, 1)[:, None]
    else:
        number = tl.arange(0, BLOCKS)[None, :]
        sums = tl.zeros([ROWS, BLOCKS], FLOAT)
        for i in range((K + BLOCK - 1) // BLOCK):
            z = i * BLOCK + tl.arange(0, BLOCK)[None, :]
            l = _others(logits, row, z, x, believed, stride, mask, K, KIND, FLOAT)
            higher = tl.maximum(top, tl.max(l, 1))
            block = tl.sum(tl.exp(l - higher[:, None]), 1)
            sums = tl.where(number == i, block[:, None], sums * tl.exp(top - higher)[:, None])
            top = higher
    exact = sums.to(tl.float64)
    others, e_x = tl.sum(exact, 1), tl.exp(l_x.to(tl.float64) - top.to(tl.float64))

    # the branch
    total = tl.where(believed, others + e_x, 1.0)
    f_x, not_f_x = tl.where(believed, e_x / total, 1.0), tl.where(believed, others / total, 0.0)
    q = tl.where(m_x > 0, lost * m_x / tl.where(m_x > 0, alpha_bar + lost * m_x, 1.0), 0.0)
    noised = not_f_x + q * f_x
    to_f = tl.load(coefficients + of, mask=inside, other=0.0) * not_f_x
    to_m = tl.load(coefficients + B + of, mask=inside, other=0.0) * noised
    to_m = (to_m + tl.load(coefficients + 2 * B + of, mask=inside, other=0.0)) * (1 - m_x)
    mass = to_m + to_f
    if DAMPED:
        damp = tl.exp(-mass)
        to_m, to_f = to_m * damp, to_f * damp
        mass = mass * damp
    if MASS_ONLY:
        tl.store(out + row, mass, mask=inside)
    else:
        u = tl.load(us + row, mask=inside, other=0.0) * tl.maximum(mass, 1.0)
        v = tl.minimum(tl.load(us + R + row, mask=inside, other=0.0), _BELOW_ONE)
        goes_to_m = active & (u < to_m)
        goes_to_f = active & (u >= to_m) & (u < to_m + to_f)

        # the category: nothing to do where no row of this program jumps to f
        drawn = x
        if tl.max(goes_to_f.to(tl.int32), 0) > 0:
            part, share = tl.zeros_like(x), v
            if BLOCKS > 1:
                part, share = _choose(exact, v * others)
                at = part[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
                in_block = tl.exp(_others(logits, row, at, x, goes_to_f, stride, mask, K, KIND, FLOAT) - top[:, None])
            else:
                in_block = e
            if PART < BLOCK:
                parts = tl.sum(tl.reshape(in_block, [ROWS, BLOCK // PART, PART]), 2).to(tl.float64)
                chosen, share = _choose(parts, share * tl.sum(parts, 1))
                part = part * (BLOCK // PART) + chosen
            place = part[:, None] * PART + tl.arange(0, PART)[None, :]
            l_part = _others(logits, row, place, x, goes_to_f, stride, mask, K, KIND, FLOAT)
            within = tl.exp(l_part - top[:, None]).to(tl.float64)
            chosen, share = _choose(within, share * tl.sum(within, 1))
            drawn = part * PART + chosen
        if KIND == UNIFORM:
            new = (v * (K - 1)).to(tl.int32)
            new = tl.minimum(new + (new >= x).to(tl.int32), K - 1)
        elif KIND == ABSORBING:
            new = tl.zeros_like(x) + mask
        else:
            new = tl.load(noisy + row, mask=goes_to_m, other=0).to(tl.int32)
        new = tl.where(goes_to_m, new, tl.where(goes_to_f, drawn, x))
        new = tl.where(active & (total != total), -1, new)
        tl.store(out + row, new.to(tl.int64), mask=inside)
