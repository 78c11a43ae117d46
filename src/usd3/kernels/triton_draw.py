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
from usd3.kernels.triton_loss import ABSORBING, LOG2_E, TABLE, UNIFORM

__all__ = ["draw_rows"]

_BELOW_ONE = tl.constexpr(1 - 2.0**-53)
_LOWEST, _LOWEST_64 = (tl.constexpr(torch.finfo(dtype).min) for dtype in (torch.float32, torch.float64))


def draw_rows(logits: Tensor, p: Leap, u: Tensor | None) -> Tensor:
    """New categories (R,), -1 where the logits are bad. Without uniforms u (2, R): the mass that leaves x, float64."""
    R, K = logits.shape
    out = torch.empty(R, dtype=torch.float64 if u is None else torch.int64, device=logits.device)
    if R == 0:
        return out
    kind = ABSORBING if p.mask >= 0 else UNIFORM if p.m_x is None else TABLE
    B = p.coefficients.shape[1]
    _kernel[(R,)](
        logits,
        p.x.contiguous(),
        p.x if p.m_x is None else p.m_x.contiguous(),
        p.x if p.noisy is None else p.noisy.contiguous(),
        p.coefficients.contiguous(),
        (p.coefficients if u is None else u).contiguous(),
        p.x if p.free is None else p.free.contiguous(),
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
        **tile(K),
    )
    return out


def tile(K: int) -> dict[str, Any]:
    """How the work is cut for this size."""
    block = min(triton.next_power_of_2(K), 2048)
    while triton.cdiv(K, block) > 128:
        block *= 2
    return {
        "BLOCK": block,
        "BLOCKS": triton.next_power_of_2(triton.cdiv(K, block)),
        "PART": min(block, 16 if block <= 256 else 64),
        "num_warps": max(1, min(8, block // 512)),
    }


@triton.jit
def _others(logits, z, x, mask, read, K: tl.constexpr, KIND: tl.constexpr, FLOAT: tl.constexpr):
    """Logits at categories z, -inf at x, at the mask and beyond K."""
    l = tl.load(logits + z, mask=(z < K) & read, other=-float("inf")).to(FLOAT)
    is_other = z != x
    if KIND == ABSORBING:
        is_other = is_other & (z != mask)
    return tl.where(is_other, l, -float("inf"))


@triton.jit
def _choose(weights, target):
    """The index at which the running sum of weights (n,) first exceeds target, and what is left of target there.

    What is left is a share of that weight, in [0, 1).
    """
    n: tl.constexpr = weights.shape[0]
    index = tl.arange(0, n)
    upto = tl.cumsum(weights, 0)
    chosen = tl.sum((upto <= target).to(tl.int32), 0)
    chosen = tl.minimum(chosen, tl.max(tl.where(weights > 0, index, 0), 0))
    weight = tl.sum(tl.where(index == chosen, weights, 0.0), 0)
    below = tl.sum(tl.where(index < chosen, weights, 0.0), 0)
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
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
    PART: tl.constexpr,
):
    row = tl.program_id(0)
    x = tl.load(xs + row).to(tl.int32)
    if FREE:
        if tl.load(free + row) == 0:
            if MASS_ONLY:
                tl.store(out + row, 0.0)
            else:
                tl.store(out + row, x.to(tl.int64))
            return
    of = row // D
    alpha_bar = tl.load(coefficients + 3 * B + of)
    lost = tl.load(coefficients + 4 * B + of)
    if KIND == UNIFORM:
        m_x = 1 / (tl.zeros([], tl.float64) + K)  # a constant 1/K would be rounded to float32
    elif KIND == ABSORBING:
        m_x = tl.where(x == mask, 1.0, 0.0).to(tl.float64)
    else:
        m_x = tl.load(m_xs + row)
    logits += row.to(tl.int64) * stride
    clean = m_x == 0  # then f = e_x, and the logits are not read
    read = clean == 0

    # one pass: the sum of each block, relative to the largest logit so far
    l_x = tl.load(logits + x, mask=read, other=0.0).to(FLOAT)
    if KIND == ABSORBING:
        l_x = tl.zeros([], FLOAT) - float("inf")
    top = tl.maximum(l_x, _LOWEST_64 if l_x.dtype == tl.float64 else _LOWEST)  # so that -inf - top is no NaN
    if BLOCKS == 1:
        l = _others(logits, tl.arange(0, BLOCK), x, mask, read, K, KIND, FLOAT)
        top = tl.maximum(top, tl.max(l, 0))
        e = tl.exp2((l - top) * LOG2_E)
        sums = e
        others = tl.sum(e, 0).to(tl.float64)
    else:
        index = tl.arange(0, BLOCKS)
        sums = tl.zeros([BLOCKS], FLOAT)
        for start in range(0, K, BLOCK):
            l = _others(logits, start + tl.arange(0, BLOCK), x, mask, read, K, KIND, FLOAT)
            higher = tl.maximum(top, tl.max(l, 0))
            block = tl.sum(tl.exp2((l - higher) * LOG2_E), 0)
            sums = tl.where(index * BLOCK == start, block, sums * tl.exp2((top - higher) * LOG2_E))
            top = higher
        others = tl.sum(sums.to(tl.float64), 0)
    e_x = tl.exp2((l_x - top) * LOG2_E).to(tl.float64)

    # the branch
    total = others + e_x
    f_x, not_f_x = tl.where(clean, 1.0, e_x / total), tl.where(clean, 0.0, others / total)
    q = tl.where(clean, 0.0, lost * m_x / tl.where(clean, 1.0, alpha_bar + lost * m_x))
    to_f = tl.load(coefficients + of) * not_f_x
    to_m = tl.load(coefficients + B + of) * (not_f_x + q * f_x)
    to_m = (to_m + tl.load(coefficients + 2 * B + of)) * (1 - m_x)
    mass = to_m + to_f
    if DAMPED:
        damp = tl.exp(-mass)
        to_m, to_f, mass = to_m * damp, to_f * damp, mass * damp
    if MASS_ONLY:
        tl.store(out + row, mass)
        return
    u = tl.load(us + row) * tl.maximum(mass, 1.0)
    v = tl.minimum(tl.load(us + R + row), _BELOW_ONE)
    new = x
    if u < to_m:
        if KIND == UNIFORM:
            new = (v * (K - 1)).to(tl.int32)
            new = tl.minimum(new + (new >= x).to(tl.int32), K - 1)
        elif KIND == ABSORBING:
            new = mask
        else:
            new = tl.load(noisy + row).to(tl.int32)
    elif u < to_m + to_f:
        part, share = 0, v
        if BLOCKS > 1:
            part, share = _choose(sums.to(tl.float64), v * others)
            l_block = _others(logits, part * BLOCK + tl.arange(0, BLOCK), x, mask, read, K, KIND, FLOAT)
            in_block = tl.exp2((l_block - top) * LOG2_E)
        else:
            in_block = e
        if PART < BLOCK:
            parts = tl.sum(tl.reshape(in_block, [BLOCK // PART, PART]), 1).to(tl.float64)
            chosen, share = _choose(parts, share * tl.sum(parts, 0))
            part = part * (BLOCK // PART) + chosen
        l_part = _others(logits, part * PART + tl.arange(0, PART), x, mask, read, K, KIND, FLOAT)
        within = tl.exp2((l_part - top) * LOG2_E).to(tl.float64)
        chosen, share = _choose(within, share * tl.sum(within, 0))
        new = part * PART + chosen
    if (total > 0) == 0 and clean == 0:  # NaN, +inf, or nothing but -inf
        new = -1
    tl.store(out + row, new.to(tl.int64))
