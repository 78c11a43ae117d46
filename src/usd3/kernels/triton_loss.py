"""The losses and their gradient as one Triton kernel: one launch, one program per row.

Where K fits into `BLOCK` categories the row stays in registers: its logits are read once and their gradient is written
once. Longer rows are gone through three times, from the cache after the first. The arithmetic is that of `chunked`, in
float32 without cancellation (float64 where the logits are): see docs/kernels.md.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from usd3.kernels.problem import Problem
from usd3.kernels.triton_math import fast_log2, fast_reciprocal

__all__ = ["ABSORBING", "LOG2_E", "TABLE", "UNIFORM", "loss_rows", "scale_"]

UNIFORM, ABSORBING, TABLE = (tl.constexpr(kind) for kind in range(3))
LOG2_E = tl.constexpr(1.4426950408889634)
_LN_2 = tl.constexpr(0.6931471805599453)
_NOTHING = tl.constexpr(1e-30)


def loss_rows(logits: Tensor, p: Problem, weights: Tensor, with_l2: bool, gradient: Tensor | None) -> Tensor:
    """Terms (4, R) of each row: vlb, ce, l2 (0 unless asked for) and their weighted sum; see `chunked.loss_rows`."""
    R, K = logits.shape
    double = logits.dtype == torch.float64
    terms = torch.empty(4, R, dtype=torch.float64 if double else torch.float32, device=logits.device)
    if R == 0:
        return terms
    _kernel[(R,)](
        logits,
        logits if gradient is None else gradient,
        *(v.contiguous() for v in (p.x, p.x_0, p.coefficients, weights)),
        logits if p.m is None else p.m.contiguous(),
        p.x if p.free is None else p.free.contiguous(),
        terms,
        R,
        p.first,
        p.elements,
        p.coefficients.shape[1],
        weights.shape[1],
        1 if p.m is None else len(p.m),
        p.mask,
        logits.stride(0),
        0 if gradient is None else gradient.stride(0),
        KIND=ABSORBING if p.mask >= 0 else UNIFORM if p.m is None else TABLE,
        STEP=p.is_step,
        L2=with_l2,
        GRADIENT=gradient is not None,
        FREE=p.free is not None,
        WEIGHT_PER_ROW=weights.shape[1] != p.coefficients.shape[1],
        FLOAT=tl.float64 if double else tl.float32,
        K=K,
        **tile(K),
    )
    return terms


def tile(K: int) -> dict[str, Any]:
    """How a row is cut: the best of what benchmarks/kernels.py tried on an H200."""
    block = triton.next_power_of_2(K)
    if block <= 4096:
        return {"BLOCK": block, "LOOP": False, "num_warps": max(1, block // 2048)}
    if K <= 16384:
        return {"BLOCK": 2048, "LOOP": True, "num_warps": 4}
    return {"BLOCK": 8192, "LOOP": True, "num_warps": 32}  # few rows at a time, so that they stay in the cache


@triton.jit
def _bregman(u, log_v):
    """u - log(1 + u) from u and log(1 + u), right for small u too."""
    near = -1 / 9.0
    near = near * u + 1 / 8.0
    near = near * u - 1 / 7.0
    near = near * u + 1 / 6.0
    near = near * u - 1 / 5.0
    near = near * u + 1 / 4.0
    near = near * u - 1 / 3.0
    near = near * u + 1 / 2.0
    near = near * u * u
    limit = 0.01 if u.dtype == tl.float64 else 0.2
    return tl.where(tl.abs(u) < limit, near, u - log_v)


@triton.jit
def _log_1_plus(y):
    """log(1 + y) for y >= 0, right for small y too."""
    w = y / (2 + y)
    w_2 = w * w
    near = w * (2 + w_2 * (2 / 3 + w_2 * (2 / 5 + w_2 * (2 / 7 + w_2 * (2 / 9)))))
    return tl.where(y < (0.01 if y.dtype == tl.float64 else 0.3), near, tl.log(1 + y))


@triton.jit
def _log_share(part, rest, log_part, total):
    """log(part / total), total = part + rest: right where the part is nearly all, and -1e30 where there is nothing."""
    most = part > rest
    log_f = tl.where(most, -_log_1_plus(rest / tl.where(most, part, 1.0)), log_part - tl.log(total))
    return tl.where(log_f < -1e30, -1e30, log_f)  # NaN stays NaN


@triton.jit
def _is_plain(start, x, x_0, mask, K: tl.constexpr, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """Whether a part of a row holds others alone, so that nothing has to be selected; most parts of a long row do."""
    plain = (start + BLOCK <= K) & (x // BLOCK != start // BLOCK) & (x_0 // BLOCK != start // BLOCK)
    if KIND == ABSORBING:
        plain = plain & (mask // BLOCK != start // BLOCK)
    return plain


@triton.jit
def _others(
    logits, start, x, x_0, mask,
    K: tl.constexpr, KIND: tl.constexpr, BLOCK: tl.constexpr, PLAIN: tl.constexpr, FLOAT: tl.constexpr,
):  # fmt: skip
    """A part of a row of logits, -inf at x, at x_0, at the mask and beyond K; its categories; which are others."""
    z = start + tl.arange(0, BLOCK)
    if PLAIN:
        return tl.load(logits + z).to(FLOAT), z, z >= 0
    else:
        is_other = (z < K) & (z != x) & (z != x_0)
        if KIND == ABSORBING:
            is_other = is_other & (z != mask)
        if BLOCK == K:
            l = tl.load(logits + z).to(FLOAT)
        else:
            l = tl.load(logits + z, mask=z < K, other=-float("inf")).to(FLOAT)
        return tl.where(is_other, l, -float("inf")), z, is_other


@triton.jit
def _sum_of_others(
    logits, x, x_0, mask, top, K: tl.constexpr, KIND: tl.constexpr, BLOCK: tl.constexpr, FLOAT: tl.constexpr
):
    """The sum of exp(logit - top), without a reduction or a barrier in the loop."""
    parts = tl.zeros([BLOCK], FLOAT)
    for start in range(0, K, BLOCK):
        if _is_plain(start, x, x_0, mask, K, KIND, BLOCK):
            l, _, _ = _others(logits, start, x, x_0, mask, K, KIND, BLOCK, True, FLOAT)
            parts += tl.exp2((l - top) * LOG2_E)
        else:
            l, _, _ = _others(logits, start, x, x_0, mask, K, KIND, BLOCK, False, FLOAT)
            parts += tl.exp2((l - top) * LOG2_E)
    return tl.sum(parts, 0)


@triton.jit
def _ratio(e, a, g, v_0, m, KIND: tl.constexpr):
    """u = (h - k)/k = a e / m + g and v = 1 + u = h/k, which is formed without cancellation."""
    scaled = a * e
    if KIND == TABLE:
        scaled = scaled / tl.where(m > 0, m, 1.0)
    return scaled + g, scaled + v_0


@triton.jit
def _cells(
    e, z, is_other, table, a, g, v_0, inverse, shift, uniform,
    KIND: tl.constexpr, L2: tl.constexpr, PLAIN: tl.constexpr,
):  # fmt: skip
    """What is summed over the other categories: m cell, m slope, e slope, e where m = 0 (uniform noise: without m).

    For l2, with d = f - shift m: d d, d f, d m.
    """
    m = 1.0
    nothing = tl.zeros_like(e)
    value, m_slope, e_slope, dead, d_d, d_f, d_m = nothing, nothing, nothing, nothing, nothing, nothing, nothing
    if KIND == TABLE:
        m = tl.load(table + z, mask=is_other, other=0.0).to(e.dtype)
        dead = tl.where(m > 0, 0.0, e)
    if KIND != ABSORBING:
        u, v = _ratio(e, a, g, v_0, m, KIND)
        value, m_slope = _bregman(u, fast_log2(v) * _LN_2), u * fast_reciprocal(v)
        if KIND == TABLE:
            value, m_slope = tl.where(m > 0, value, 0.0), tl.where(m > 0, m_slope, 0.0)
        if not PLAIN:
            value, m_slope = tl.where(is_other, value, 0.0), tl.where(is_other, m_slope, 0.0)
        e_slope = m_slope * e
        if KIND == TABLE:
            value, m_slope, e_slope = value * m, m_slope * m, e_slope + dead
    if L2:
        m_z = m if KIND == TABLE else uniform
        f = e * inverse
        d = tl.where(is_other, f - shift * m_z, 0.0)
        d_d, d_f, d_m = d * d, d * f, d * m_z
    return value, m_slope, e_slope, dead, d_d, d_f, d_m


@triton.jit
def _store(
    gradient, e, z, is_other, x, x_0, g_x, g_0, table, a, g, v_0, inverse, shift, uniform, steep, level, bend, unit,
    KIND: tl.constexpr, L2: tl.constexpr, K: tl.constexpr, PLAIN: tl.constexpr,
):  # fmt: skip
    """f (dL/df - G_x - E) of the other categories, and the entries at x and x_0."""
    m = 1.0
    if KIND == TABLE:
        m = tl.load(table + z, mask=is_other, other=0.0).to(e.dtype)
    if KIND == ABSORBING:
        inner = steep + level
    else:
        u, v = _ratio(e, a, g, v_0, m, KIND)
        slope = u * fast_reciprocal(v)
        if KIND == TABLE:
            slope = tl.where(m > 0, slope, unit)
        inner = steep * slope + level
    if L2:
        m_z = m if KIND == TABLE else uniform
        inner += bend * (e * inverse - shift * m_z)
    out = e * inner
    if PLAIN:
        tl.store(gradient + z, out.to(gradient.dtype.element_ty))
    else:
        out = tl.where(z == x, g_x, tl.where(z == x_0, g_0, out))
        tl.store(gradient + z, out.to(gradient.dtype.element_ty), mask=z < K)


@triton.jit
def _kernel(
    logits,
    gradient,
    xs,
    x_0s,
    coefficients,
    weights,
    tables,
    free,
    terms,
    R,
    first_row,
    D,
    B,
    num_weights,
    P,
    mask,
    stride,
    gradient_stride,
    KIND: tl.constexpr,
    STEP: tl.constexpr,
    L2: tl.constexpr,
    GRADIENT: tl.constexpr,
    FREE: tl.constexpr,
    WEIGHT_PER_ROW: tl.constexpr,
    FLOAT: tl.constexpr,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
    LOOP: tl.constexpr,
):
    row = tl.program_id(0)
    x = tl.load(xs + row).to(tl.int32)
    x_0 = tl.load(x_0s + row).to(tl.int32)
    number = row + first_row  # among the rows of the whole problem
    of = number // D
    logits += row.to(tl.int64) * stride
    gradient += row.to(tl.int64) * gradient_stride
    table = tables
    if KIND == UNIFORM:
        m_x = 1 / (tl.zeros([], FLOAT) + K)  # a constant 1/K would be rounded to float32
        m_0 = m_x
    elif KIND == ABSORBING:
        m_x = tl.where(x == mask, 1.0, 0.0).to(FLOAT)
        m_0 = tl.zeros([], FLOAT)
    else:
        table += (number % P).to(tl.int64) * K
        m_x, m_0 = tl.load(table + x).to(FLOAT), tl.load(table + x_0).to(FLOAT)
    active = m_x > 0  # elsewhere x is certainly clean
    if FREE:
        active = active & (tl.load(free + row) != 0)

    if active == 0:
        for i in tl.static_range(4):
            tl.store(terms + i * R + row, 0.0)
        if GRADIENT:
            for start in range(0, K, BLOCK):
                z = start + tl.arange(0, BLOCK)
                tl.store(gradient + z, tl.zeros([BLOCK], gradient.dtype.element_ty), mask=z < K)
        return

    # the sum over the other categories, relative to the largest logit
    l_x, l_0 = tl.load(logits + x).to(FLOAT), tl.load(logits + x_0).to(FLOAT)
    if KIND == ABSORBING:
        top = l_0
    else:
        top = tl.maximum(l_x, l_0)
    if LOOP:
        others = _sum_of_others(logits, x, x_0, mask, top, K, KIND, BLOCK, FLOAT)
        if (others < 1e30) == 0:  # a logit is far above both of these: look for the largest
            highest = tl.zeros([BLOCK], FLOAT) - float("inf")
            for start in range(0, K, BLOCK):
                l, _, _ = _others(logits, start, x, x_0, mask, K, KIND, BLOCK, False, FLOAT)
                highest = tl.maximum(highest, l)
            top = tl.maximum(top, tl.max(highest, 0))
            others = _sum_of_others(logits, x, x_0, mask, top, K, KIND, BLOCK, FLOAT)
    else:
        l, z, is_other = _others(logits, 0, x, x_0, mask, K, KIND, BLOCK, False, FLOAT)
        top = tl.maximum(top, tl.max(l, 0))
        e = tl.exp2((l - top) * LOG2_E)
        others = tl.sum(e, 0)

    # numbers of the row: sums of positive numbers throughout
    same = x == x_0
    e_x, e_0 = tl.exp(l_x - top), tl.where(same, 0.0, tl.exp(l_0 - top))
    if KIND == ABSORBING:
        e_x = tl.zeros([], FLOAT)
    rest = others + e_0  # of all but x
    total = rest + e_x
    f_x, f_0, not_f_x, f_others, not_f_0 = (
        e_x / total,
        e_0 / total,
        rest / total,
        others / total,
        (others + e_x) / total,
    )
    log_f_0 = _log_share(e_0, others + e_x, l_0 - top, total)
    log_f_x = _log_share(e_x, rest, l_x - top, total)
    ce = -tl.where(same, log_f_x, log_f_0)
    A = tl.load(coefficients + of).to(FLOAT)
    N = tl.load(coefficients + B + of).to(FLOAT)
    alpha_bar = tl.load(coefficients + 3 * B + of).to(FLOAT)
    lost = tl.load(coefficients + 4 * B + of).to(FLOAT)
    here = alpha_bar + lost * m_x
    r, q = alpha_bar / here, lost * m_x / here
    m_0 = tl.where(same, 0.0, m_0)
    gap = tl.where(same, -not_f_x, f_x)  # f_x - [x = x_0]
    c_k, c_h = tl.where(same, q, 1.0), not_f_x + q * f_x
    N_k = N * c_k

    # the other categories; where k = 0 (no live row) the cell is h and the slope 1
    live = N_k * (1.0 / K) > _NOTHING
    safe_k, safe_c = tl.where(live, N_k, 1.0), tl.where(live, c_k, 1.0)
    a = tl.where(live, A / safe_k / total, 0.0)
    if KIND == UNIFORM:
        a = a * K
    a = tl.minimum(a, 1e30)
    g, v_0 = tl.where(live, -r * gap / safe_c, 0.0), tl.where(live, tl.maximum(c_h / safe_c, 1e-30), 1.0)
    inverse = 1 / total
    uniform = m_x
    if KIND == ABSORBING:
        uniform = tl.zeros([], FLOAT)
    phi = tl.minimum(N * r / tl.maximum(A, 1e-37), 1.0)
    shift = phi * gap
    if LOOP:
        nothing = tl.zeros([BLOCK], FLOAT)
        c_0, c_1, c_2, c_3, c_4, c_5, c_6 = nothing, nothing, nothing, nothing, nothing, nothing, nothing
        if KIND != ABSORBING or L2:
            for start in range(0, K, BLOCK):
                if _is_plain(start, x, x_0, mask, K, KIND, BLOCK):
                    l, z, is_other = _others(logits, start, x, x_0, mask, K, KIND, BLOCK, True, FLOAT)
                    e = tl.exp2((l - top) * LOG2_E)
                    n_0, n_1, n_2, n_3, n_4, n_5, n_6 = _cells(
                        e, z, is_other, table, a, g, v_0, inverse, shift, uniform, KIND, L2, True
                    )
                else:
                    l, z, is_other = _others(logits, start, x, x_0, mask, K, KIND, BLOCK, False, FLOAT)
                    e = tl.exp2((l - top) * LOG2_E)
                    n_0, n_1, n_2, n_3, n_4, n_5, n_6 = _cells(
                        e, z, is_other, table, a, g, v_0, inverse, shift, uniform, KIND, L2, False
                    )
                c_0, c_1, c_2, c_3 = c_0 + n_0, c_1 + n_1, c_2 + n_2, c_3 + n_3
                c_4, c_5, c_6 = c_4 + n_4, c_5 + n_5, c_6 + n_6
    else:
        c_0, c_1, c_2, c_3, c_4, c_5, c_6 = _cells(
            e, z, is_other, table, a, g, v_0, inverse, shift, uniform, KIND, L2, False
        )
    value, m_slope, e_slope, dead = tl.sum(c_0, 0), tl.sum(c_1, 0), tl.sum(c_2, 0), tl.sum(c_3, 0)
    d_d, d_f, d_m = tl.sum(c_4, 0), tl.sum(c_5, 0), tl.sum(c_6, 0)
    if KIND == ABSORBING:
        value, f_slope, m_slope = A * f_others, f_others, tl.zeros([], FLOAT)
    else:
        m_others = 1 - m_x - m_0
        each = m_x if KIND == UNIFORM else 1.0
        value = tl.where(live, N_k * (value * each) + A * dead / total, A * f_others + N * c_h * m_others)
        f_slope = tl.where(live, e_slope / total, f_others)
        m_slope = tl.where(live, m_slope * each, m_others)

    # the cell at x_0 != x
    k_0, rest_0 = A + N * m_0, N * c_h * m_0
    h_0, more_0 = A * f_0 + rest_0, -(A * not_f_0 + N * m_0 * r * f_x)  # h - k
    safe_0 = tl.where(k_0 > 0, k_0, 1.0)
    log_v = tl.where(
        rest_0 > 0, tl.log(tl.maximum(h_0 / safe_0, 1e-37)), log_f_0 + tl.log(tl.maximum(A / safe_0, 1e-37))
    )
    cell_0 = tl.where(k_0 > 0, k_0 * _bregman(more_0 / safe_0, log_v), h_0)
    vlb = value + tl.where(same, 0.0, cell_0)
    safe_h = tl.where(h_0 > 0, h_0, 1.0)
    G_0 = tl.where(same, 0.0, more_0 * tl.where(h_0 > 0, A * f_0 / safe_h, 1.0))
    G_x = -r * f_x * N * m_slope - tl.where(same, 0.0, r * f_x * more_0 * (rest_0 / safe_h) / tl.maximum(c_h, 1e-37))
    if STEP:  # the cell at x
        keep = tl.load(coefficients + 2 * B + of).to(FLOAT)
        pull = A + N * r * (1 - m_x)  # dh/df_x
        k_x = tl.where(same, A + N * r, 0.0) + keep + N * c_k * m_x
        rest_x = keep + N * (r * f_x + c_h * m_x)
        h_x, more_x = A * f_x + rest_x, gap * pull
        safe_x = tl.where(k_x > 0, k_x, 1.0)
        log_v = tl.where(
            rest_x > 0, tl.log(tl.maximum(h_x / safe_x, 1e-37)), log_f_x + tl.log(tl.maximum(A / safe_x, 1e-37))
        )
        vlb += tl.where(k_x > 0, k_x * _bregman(more_x / safe_x, log_v), h_x)
        G_x += more_x * tl.where(h_x > 0, pull * f_x / tl.where(h_x > 0, h_x, 1.0), 1.0)

    at = of
    if WEIGHT_PER_ROW:
        at = row
    w_vlb = tl.load(weights + at).to(FLOAT)
    w_ce = tl.load(weights + num_weights + at).to(FLOAT)
    combined = w_vlb * vlb + w_ce * ce
    G_x, G_0, E = w_vlb * G_x, w_vlb * G_0, w_vlb * A * f_slope
    l2 = tl.zeros([], FLOAT)
    bend = l2
    if L2:
        w_l2 = tl.load(weights + 2 * num_weights + at).to(FLOAT)
        bend = 2 * w_l2
        d_x = gap * (1 + phi * (1 - m_x))
        d_0 = tl.where(same, 0.0, -not_f_0 - phi * gap * m_0)
        l2 = d_d + d_x * d_x + d_0 * d_0
        combined += w_l2 * l2
        G_x += bend * f_x * (d_x * (1 + phi * (1 - m_x)) - phi * (d_m + m_0 * d_0))
        G_0 += bend * d_0 * f_0
        E += bend * d_f
    tl.store(terms + row, vlb)
    tl.store(terms + R + row, ce)
    tl.store(terms + 2 * R + row, l2)
    tl.store(terms + 3 * R + row, combined)

    if GRADIENT:
        E += G_0
        g_0 = G_0 - f_0 * (G_x + E) - w_ce * not_f_0
        g_x = not_f_x * G_x - f_x * E + w_ce * gap
        level, steep, bend = (w_ce - G_x - E) * inverse, w_vlb * A * inverse, bend * inverse  # e times these is f times
        unit = tl.where(live, 1.0, 0.0).to(FLOAT)  # the slope where m = 0; a row that is not live has it in its level
        if KIND != ABSORBING:
            level += (1 - unit) * steep
        if LOOP:
            for start in range(0, K, BLOCK):
                if _is_plain(start, x, x_0, mask, K, KIND, BLOCK):
                    l, z, is_other = _others(logits, start, x, x_0, mask, K, KIND, BLOCK, True, FLOAT)
                    e = tl.exp2((l - top) * LOG2_E)
                    _store(
                        gradient, e, z, is_other, x, x_0, g_x, g_0, table, a, g, v_0, inverse, shift, uniform,
                        steep, level, bend, unit, KIND, L2, K, True,
                    )  # fmt: skip
                else:
                    l, z, is_other = _others(logits, start, x, x_0, mask, K, KIND, BLOCK, False, FLOAT)
                    e = tl.exp2((l - top) * LOG2_E)
                    _store(
                        gradient, e, z, is_other, x, x_0, g_x, g_0, table, a, g, v_0, inverse, shift, uniform,
                        steep, level, bend, unit, KIND, L2, K, False,
                    )  # fmt: skip
        else:
            _store(
                gradient, e, z, is_other, x, x_0, g_x, g_0, table, a, g, v_0, inverse, shift, uniform,
                steep, level, bend, unit, KIND, L2, K, False,
            )  # fmt: skip


def scale_(gradient: Tensor, factor: Tensor) -> Tensor:
    """gradient times a number on the device, in place; nothing is read or written where it is 1."""
    if gradient.is_contiguous() and gradient.numel():
        _scale[(triton.cdiv(gradient.numel(), 32768),)](gradient, factor, gradient.numel(), num_warps=8)
        return gradient
    return gradient.mul_(factor)


@triton.jit
def _scale(values, factor, count):
    by = tl.load(factor)
    if by != 1:
        for i in range(8):
            place = tl.program_id(0).to(tl.int64) * 32768 + i * 4096 + tl.arange(0, 4096)
            value = tl.load(values + place, mask=place < count)
            tl.store(values + place, (value * by).to(value.dtype), mask=place < count)
