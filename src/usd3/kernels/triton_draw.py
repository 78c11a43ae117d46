"""One jump of every element as one Triton kernel: one launch, one program per row; each logit is read once.

A uniform chooses the category by inverse CDF, in two or three levels: the sums of blocks, the sums of parts of the
chosen block, and at last running sums in float64 over the `PART` categories of the chosen part, which are read again.
So a category of any probability that float32 can hold is drawn as often as it should be, and nothing of size K is
written.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from usd3.kernels.draw import ALPHA_BAR, FORWARD, LOST, TO_DATA, TO_NOISE, Leap
from usd3.kernels.triton_common import ABSORBING, LOG2_E, UNIFORM, category_constants

__all__ = ["draw_rows", "tile"]

# rows of the coefficients: a kernel reads global names only where they are constexpr
_TO_DATA, _TO_NOISE, _FORWARD = tl.constexpr(TO_DATA), tl.constexpr(TO_NOISE), tl.constexpr(FORWARD)
_ALPHA_BAR, _LOST = tl.constexpr(ALPHA_BAR), tl.constexpr(LOST)
_BELOW_ONE = tl.constexpr(1 - 2.0**-53)
_LOWEST, _LOWEST_64 = (tl.constexpr(torch.finfo(dtype).min) for dtype in (torch.float32, torch.float64))


def draw_rows(logits: Tensor, p: Leap, u: Tensor | None, failed: Tensor | None = None) -> Tensor:
    """New categories (R,), x where the logits are bad. Without uniforms u (2, R): the mass that leaves x, float64."""
    R, K = logits.shape
    out = torch.empty(R, dtype=torch.float64 if u is None else torch.int64, device=logits.device)
    if R == 0:
        return out
    B, support = p.coefficients.shape[1], p.noise.support
    _draw_kernel[(R,)](
        logits,
        p.x.contiguous(),
        p.x if p.m_x is None else p.m_x.contiguous(),
        p.x if p.noisy is None else p.noisy.contiguous(),
        p.coefficients.contiguous(),
        (p.coefficients if u is None else u).contiguous(),
        p.x if p.free is None else p.free.contiguous(),
        p.x if support is None else support.contiguous(),
        out,
        out if failed is None else failed,
        R,
        R // B,
        B,
        1 if support is None else len(support),
        p.noise.mask,
        logits.stride(0),
        **category_constants(p.noise),
        FREE=p.free is not None,
        DAMPED=p.damped,
        MASS_ONLY=u is None,
        REPORT=failed is not None,
        FLOAT=tl.float64 if logits.dtype == torch.float64 else tl.float32,
        K=K,
        **tile(K),
    )
    return out


def tile(K: int) -> dict[str, Any]:
    """BLOCK, BLOCKS, PART and num_warps for K categories."""
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
def _load_others(
    logits, z, x, mask, support, read,
    K: tl.constexpr, MASK: tl.constexpr, SUPPORT: tl.constexpr, FLOAT: tl.constexpr,
):  # fmt: skip
    """Logits (n,) at the categories z (n,): -inf at x, where data cannot be, beyond K, and everywhere unless `read`."""
    l = tl.load(logits + z, mask=(z < K) & read, other=-float("inf")).to(FLOAT)
    is_other = z != x
    if MASK:
        is_other = is_other & (z != mask)
    if SUPPORT:
        is_other = is_other & (tl.load(support + z, mask=z < K, other=0) != 0)
    return tl.where(is_other, l, -float("inf"))


@triton.jit
def _choose(weights, target):
    """The first index at which the running sum of weights (n,) exceeds `target`, a number below their sum.

    Also what is left of the target there, as a share of that weight, in [0, 1): it chooses at the next level.
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
def _draw_kernel(
    logits,
    xs,
    m_xs,
    noisy,
    coefficients,
    us,
    free,
    supports,
    out,
    failed,
    R,
    D,
    B,
    S,
    mask,
    stride,
    KIND: tl.constexpr,
    MASK: tl.constexpr,
    SUPPORT: tl.constexpr,
    FREE: tl.constexpr,
    DAMPED: tl.constexpr,
    MASS_ONLY: tl.constexpr,
    REPORT: tl.constexpr,
    FLOAT: tl.constexpr,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
    PART: tl.constexpr,
):
    """Where one element jumps, or the mass that leaves x. Program i computes row i.

    Pointers (contiguous unless a stride is given):
        logits: (R, K) float16, bfloat16, float32 or float64; categories adjacent, rows `stride` apart.
        xs: (R,) int64, the current categories.
        m_xs: (R,) float64, the noise's probability of x. Read for TABLE alone.
        noisy: (R,) int64, the category of a jump to m. Read for TABLE alone.
        coefficients: (5, B) float64, see `Leap`; row j of object i is at j B + i.
        us: (2, R) float64 uniforms: u chooses the branch, v the category. Unused with MASS_ONLY.
        free: (R,) bool, read with FREE alone.
        supports: (S, K) bool, the categories that data can have; row i has supports[i % S]. Read with SUPPORT alone.
        out: (R,). Receives int64 categories, x where the logits are bad; with MASS_ONLY float64 masses.
        failed: bool (), set to true where any logits are bad. Used with REPORT alone.

    Integers:
        R: number of rows.
        D: rows of an object. The object of row i is i // D.
        B: number of objects.
        S: rows of `supports`.
        mask: the category that no data has; used with MASK alone.
        stride: distance between rows of `logits`, in numbers.

    Compile-time constants:
        KIND: the noise, UNIFORM, ABSORBING or TABLE.
        MASK: there is a mask, where f is 0.
        SUPPORT: f is 0 where `supports` is False.
        FREE: read `free`; an element that is not free keeps x, and its mass is 0.
        DAMPED: multiply the masses by exp(-L), L being their sum.
        MASS_ONLY: return the mass that leaves x.
        REPORT: write to `failed`.
        FLOAT: type of exp(logit - top), tl.float32, or tl.float64 for float64 logits. Masses are float64.
        K: number of categories.
        BLOCK: categories read at once, a power of 2.
        BLOCKS: number of blocks, rounded up to a power of 2.
        PART: categories of the last level; it divides BLOCK.

    Algorithm:
    1. One pass over the row: the sum of exp(logit - top) over z != x in each block. `top` rises as larger logits come,
       and the sums so far are scaled to it.
    2. The masses to_f = to_data (1 - f_x) and to_m = (to_noise c(f) + forward) (1 - m_x), c(f) = (1 - f_x) + q f_x, and
       the branch: u max(1, mass) < to_m goes to m, the next to_f goes to f, the rest stays. A mass above 1 is scaled
       down to 1.
    3. Most rows stay or go to m, and are done. The others invert the CDF of f at v: block, part, category.

    1 - f_x is a sum of positive numbers, and q = 1 - r has its own formula: neither is formed by subtraction. A running
    sum in float32 over a whole row would lose rare categories behind a large one; each level here has its own sum.
    """
    row = tl.program_id(0)
    x = tl.load(xs + row).to(tl.int32)
    if FREE:
        if tl.load(free + row) == 0:
            if MASS_ONLY:
                tl.store(out + row, 0.0)
            else:
                tl.store(out + row, x.to(tl.int64))
            return
    of = row // D  # the row's object
    alpha_bar = tl.load(coefficients + _ALPHA_BAR * B + of)
    lost = tl.load(coefficients + _LOST * B + of)  # 1 - alpha_bar
    if KIND == UNIFORM:
        m_x = 1 / (tl.zeros([], tl.float64) + K)  # a constant 1/K would be rounded to float32
    elif KIND == ABSORBING:
        m_x = tl.where(x == mask, 1.0, 0.0).to(tl.float64)
    else:
        m_x = tl.load(m_xs + row)
    logits += row.to(tl.int64) * stride
    support = supports
    if SUPPORT:
        support += (row % S).to(tl.int64) * K
    is_certain = m_x == 0  # then x is clean, f = e_x, and the logits are not read
    read = is_certain == 0

    # 1. one pass: the sum of each block, relative to the largest logit so far
    l_x = tl.load(logits + x, mask=read, other=0.0).to(FLOAT)
    if MASK:
        l_x = tl.where(x == mask, -float("inf"), l_x)
    top = tl.maximum(l_x, _LOWEST_64 if l_x.dtype == tl.float64 else _LOWEST)  # so that -inf - top is no NaN
    if BLOCKS == 1:
        l = _load_others(logits, tl.arange(0, BLOCK), x, mask, support, read, K, MASK, SUPPORT, FLOAT)
        top = tl.maximum(top, tl.max(l, 0))
        e = tl.exp2((l - top) * LOG2_E)
        sums = e
        others = tl.sum(e, 0).to(tl.float64)
    else:
        index = tl.arange(0, BLOCKS)
        sums = tl.zeros([BLOCKS], FLOAT)
        for start in range(0, K, BLOCK):
            l = _load_others(logits, start + tl.arange(0, BLOCK), x, mask, support, read, K, MASK, SUPPORT, FLOAT)
            higher = tl.maximum(top, tl.max(l, 0))
            block = tl.sum(tl.exp2((l - higher) * LOG2_E), 0)
            sums = tl.where(index * BLOCK == start, block, sums * tl.exp2((top - higher) * LOG2_E))
            top = higher
        others = tl.sum(sums.to(tl.float64), 0)
    e_x = tl.exp2((l_x - top) * LOG2_E).to(tl.float64)

    # 2. the branch
    total = others + e_x  # f = e / total
    f_x, not_f_x = tl.where(is_certain, 1.0, e_x / total), tl.where(is_certain, 0.0, others / total)
    q = tl.where(is_certain, 0.0, lost * m_x / tl.where(is_certain, 1.0, alpha_bar + lost * m_x))
    to_f = tl.load(coefficients + _TO_DATA * B + of) * not_f_x
    to_m = tl.load(coefficients + _TO_NOISE * B + of) * (not_f_x + q * f_x)  # to_noise c(f)
    to_m = (to_m + tl.load(coefficients + _FORWARD * B + of)) * (1 - m_x)
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
            new = (v * (K - 1)).to(tl.int32)  # uniform over the K - 1 categories other than x
            new = tl.minimum(new + (new >= x).to(tl.int32), K - 1)
        elif KIND == ABSORBING:
            new = mask
        else:
            new = tl.load(noisy + row).to(tl.int32)
    elif u < to_m + to_f:  # 3. the category
        part, share = 0, v
        if BLOCKS > 1:
            part, share = _choose(sums.to(tl.float64), v * others)
            l_block = _load_others(
                logits, part * BLOCK + tl.arange(0, BLOCK), x, mask, support, read, K, MASK, SUPPORT, FLOAT
            )
            in_block = tl.exp2((l_block - top) * LOG2_E)
        else:
            in_block = e
        if PART < BLOCK:
            parts = tl.sum(tl.reshape(in_block, [BLOCK // PART, PART]), 1).to(tl.float64)
            chosen, share = _choose(parts, share * tl.sum(parts, 0))
            part = part * (BLOCK // PART) + chosen
        l_part = _load_others(logits, part * PART + tl.arange(0, PART), x, mask, support, read, K, MASK, SUPPORT, FLOAT)
        within = tl.exp2((l_part - top) * LOG2_E).to(tl.float64)
        chosen, share = _choose(within, share * tl.sum(within, 0))
        new = part * PART + chosen
    if (total > 0) == 0 and is_certain == 0:  # NaN, +inf, or nothing but -inf
        new = x
        if REPORT:
            tl.store(failed, 1)
    tl.store(out + row, new.to(tl.int64))
