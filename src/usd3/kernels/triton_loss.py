"""The losses and their gradient as one Triton kernel: one launch, the logits read from memory once where they fit.

A program works on `ROWS` rows. Where K fits into `BLOCK`, the logits stay in registers; otherwise the row is gone
through again, from the cache. The arithmetic is that of `chunked`: numbers of a row in float64, cells in float32.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from usd3.kernels.problem import Problem

__all__ = ["loss_rows"]

_NEVER = tl.constexpr(-1e30)
_NOTHING = tl.constexpr(1e-30)
UNIFORM, ABSORBING, TABLE = (tl.constexpr(kind) for kind in range(3))


def loss_rows(logits: Tensor, p: Problem, weights: Tensor, with_l2: bool, gradient: Tensor | None) -> Tensor:
    """Terms (4, R) of each row: vlb, ce, l2 (0 unless asked for) and their weighted sum; see `chunked.loss_rows`."""
    R, K = logits.shape
    double = logits.dtype == torch.float64
    terms = torch.empty(4, R, dtype=torch.float64 if double else torch.float32, device=logits.device)
    if R == 0:
        return terms
    kind = ABSORBING if p.mask >= 0 else UNIFORM if p.m is None else TABLE
    settings = tile(R, K, gradient is not None)
    table, exact = (logits, p.coefficients) if p.m is None else (p.m.to(terms.dtype), p.m)
    _kernel[(triton.cdiv(R, settings["ROWS"]),)](
        logits,
        logits if gradient is None else gradient,
        p.x,
        p.x_0,
        p.coefficients,
        weights,
        table,
        exact,
        p.x if p.free is None else p.free,
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
        KIND=kind,
        STEP=p.is_step,
        L2=with_l2,
        GRADIENT=gradient is not None,
        FREE=p.free is not None,
        WEIGHT_PER_ROW=weights.shape[1] != p.coefficients.shape[1],
        FLOAT=tl.float64 if double else tl.float32,
        K=K,
        **settings,
    )
    return terms


def tile(rows: int, K: int, gradient: bool) -> dict[str, Any]:
    """How the work is cut for this size."""
    block = triton.next_power_of_2(K)
    if block <= 16384:
        return {"ROWS": 1, "BLOCK": block, "LOOP": False, "num_warps": max(1, min(16, block // 512))}
    return {"ROWS": 1, "BLOCK": 4096, "LOOP": True, "num_warps": 16}


@triton.jit
def _log(value):
    """log, with NEVER for 0."""
    return tl.where(value > 0, tl.log(tl.where(value > 0, value, 1.0)), _NEVER)


@triton.jit
def _log_add(a, b):
    """log(exp a + exp b)."""
    return tl.maximum(a, b) + tl.log(1 + tl.exp(-tl.abs(a - b)))


@triton.jit
def _bregman(k, gap, log_h):
    """k log(k/h) - k + h from gap = log(h/k); h where k = 0."""
    near = gap * gap * (0.5 + gap * (1 / 6 + gap * (1 / 24 + gap / 120)))
    far = tl.exp(tl.minimum(gap, 600.0)) - 1 - gap
    return tl.where(k > 0, k * tl.where(tl.abs(gap) < 1e-3, near, far), tl.exp(log_h))


@triton.jit
def _cells(e, a, g, v_0, m, is_other, live, KIND: tl.constexpr):
    """u - log(1 + u) and the slope u / (1 + u) of the other categories, at u = (h - k)/k = a e / m + g."""
    scaled = a * e
    if KIND == TABLE:
        scaled = scaled / tl.where(m > 0, m, 1.0)
    u, v = scaled + g, tl.maximum(scaled + v_0, 1e-30)
    w = u / (1 + v)
    w_2 = w * w
    near = w * (u - w_2 * (2 / 3 + w_2 * (2 / 5 + w_2 * (2 / 7 + w_2 * (2 / 9 + w_2 * (2 / 11))))))
    cell = tl.where(tl.abs(w) < (0.05 if e.dtype == tl.float64 else 0.34), near, u - tl.log(v))
    slope = u / v
    if KIND == TABLE:
        live = live & (m > 0)
    return tl.where(is_other & live, cell, 0.0), tl.where(is_other, tl.where(live, slope, 1.0), 0.0)


@triton.jit
def _row_logits(
    logits,
    row,
    start,
    x,
    x_0,
    active,
    stride,
    K: tl.constexpr,
    mask,
    KIND: tl.constexpr,
    BLOCK: tl.constexpr,
    FLOAT: tl.constexpr,
):
    """A tile of logits, -inf at x, at x_0, at the mask and beyond K; and which cells are others."""
    z = start + tl.arange(0, BLOCK)[None, :]
    place = row.to(tl.int64)[:, None] * stride + z
    inside = (z < K) & active[:, None]
    l = tl.load(logits + place, mask=inside, other=-float("inf")).to(FLOAT)
    is_other = inside & (z != x[:, None]) & (z != x_0[:, None])
    if KIND == ABSORBING:
        is_other = is_other & (z != mask)
    return tl.where(is_other, l, -float("inf")), is_other, z


@triton.jit
def _table_row(table, row, z, P, K: tl.constexpr, inside):
    return tl.load(table + (row % P).to(tl.int64)[:, None] * K + z, mask=inside, other=0.0)


@triton.jit
def _sums(
    e,
    z,
    is_other,
    number,
    table,
    P,
    a,
    g,
    v_0,
    inverse,
    shift,
    uniform,
    live,
    KIND: tl.constexpr,
    L2: tl.constexpr,
    K: tl.constexpr,
):
    """Sums over the other categories: m cell, m slope, e slope, e where m = 0; for l2, with d = f - shift m, of d d,
    d f, d m. With uniform noise the first two lack the factor m.
    """
    m = 1.0
    if KIND == TABLE:
        m = _table_row(table, number, z, P, K, is_other)
    if KIND == ABSORBING:
        value, m_slope, e_slope = tl.zeros_like(uniform), tl.zeros_like(uniform), tl.zeros_like(uniform)
    else:
        cell, slope = _cells(e, a, g, v_0, m, is_other, live, KIND)
        value, m_slope, e_slope = tl.sum(cell * m, 1), tl.sum(slope * m, 1), tl.sum(slope * e, 1)
    dead = tl.zeros_like(uniform)
    if KIND == TABLE:
        dead = tl.sum(tl.where(m > 0, 0.0, e), 1)
    d_d, d_f, d_m = tl.zeros_like(uniform), tl.zeros_like(uniform), tl.zeros_like(uniform)
    if L2:
        m_z = m if KIND == TABLE else uniform[:, None]
        f = e * inverse
        d = tl.where(is_other, f - shift * m_z, 0.0)
        d_d, d_f, d_m = tl.sum(d * d, 1), tl.sum(d * f, 1), tl.sum(d * m_z, 1)
    return value, m_slope, e_slope, dead, d_d, d_f, d_m


@triton.jit
def _store_gradient(
    gradient,
    row,
    inside,
    stride,
    e,
    z,
    is_other,
    x,
    x_0,
    g_x,
    g_0,
    number,
    table,
    P,
    a,
    g,
    v_0,
    inverse,
    shift,
    uniform,
    live,
    steep,
    level,
    bend,
    KIND: tl.constexpr,
    L2: tl.constexpr,
    K: tl.constexpr,
):
    """f (dL/df - G_x - E) of the other categories, and the entries at x and x_0."""
    m = 1.0
    if KIND == TABLE:
        m = _table_row(table, number, z, P, K, is_other)
    if KIND == ABSORBING:
        inner = steep + level
    else:
        _, slope = _cells(e, a, g, v_0, m, is_other, live, KIND)
        inner = steep * slope + level
    f = e * inverse
    if L2:
        m_z = m if KIND == TABLE else uniform[:, None]
        inner += bend * (f - shift * m_z)
    out = tl.where(is_other, f * inner, 0.0)
    out = tl.where(z == x_0[:, None], g_0, out)
    out = tl.where(z == x[:, None], g_x, out)
    place = row.to(tl.int64)[:, None] * stride + z
    tl.store(gradient + place, out.to(gradient.dtype.element_ty), mask=(z < K) & inside[:, None])


@triton.jit
def _kernel(
    logits,
    gradient,
    xs,
    x_0s,
    coefficients,
    weights,
    table,
    exact_table,
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
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    LOOP: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < R
    x = tl.load(xs + row, mask=inside, other=0).to(tl.int32)
    x_0 = tl.load(x_0s + row, mask=inside, other=0).to(tl.int32)
    same = x == x_0
    number = row + first_row  # among the rows of the whole problem
    of = number // D
    A = tl.load(coefficients + of, mask=inside, other=0.0)
    N = tl.load(coefficients + B + of, mask=inside, other=0.0)
    alpha_bar = tl.load(coefficients + 3 * B + of, mask=inside, other=1.0)
    lost = tl.load(coefficients + 4 * B + of, mask=inside, other=0.0)
    if KIND == UNIFORM:
        m_x = 1 / (tl.zeros_like(A) + K)  # a constant 1/K would be rounded to float32
        m_0 = m_x
    elif KIND == ABSORBING:
        m_x = tl.where(x == mask, 1.0, 0.0).to(tl.float64)
        m_0 = tl.zeros_like(A)
    else:
        first = (number % P).to(tl.int64) * K
        m_x = tl.load(exact_table + first + x, mask=inside, other=0.0)
        m_0 = tl.load(exact_table + first + x_0, mask=inside, other=0.0)
    m_0 = tl.where(same, 0.0, m_0)
    active = inside & (m_x > 0)  # elsewhere x is certainly clean
    if FREE:
        active = active & (tl.load(free + row, mask=inside, other=0) != 0)
    here = tl.where(active, alpha_bar + lost * m_x, 1.0)
    r, q = alpha_bar / here, lost * m_x / here

    # one pass: the sum over the other categories, relative to the largest logit so far
    first = row.to(tl.int64) * stride
    l_x = tl.load(logits + first + x, mask=active, other=0.0).to(FLOAT)
    l_0 = tl.load(logits + first + x_0, mask=active, other=0.0).to(FLOAT)
    if KIND == ABSORBING:
        top = l_0
    else:
        top = tl.maximum(l_x, l_0)
    others = tl.zeros_like(top)
    if LOOP:
        for start in range(0, K, BLOCK):
            l, is_other, z = _row_logits(logits, row, start, x, x_0, active, stride, K, mask, KIND, BLOCK, FLOAT)
            higher = tl.maximum(top, tl.max(l, 1))
            others = others * tl.exp(top - higher) + tl.sum(tl.exp(l - higher[:, None]), 1)
            top = higher
    else:
        l, is_other, z = _row_logits(logits, row, 0, x, x_0, active, stride, K, mask, KIND, BLOCK, FLOAT)
        top = tl.maximum(top, tl.max(l, 1))
        e = tl.exp(l - top[:, None])
        others = tl.sum(e, 1)

    # numbers of the row
    others, high = others.to(tl.float64), top.to(tl.float64)
    e_x = tl.exp(l_x.to(tl.float64) - high)
    if KIND == ABSORBING:
        e_x = tl.zeros_like(e_x)
    e_0 = tl.where(same, 0.0, tl.exp(l_0.to(tl.float64) - high))
    total = others + e_0 + e_x
    f_x, f_0, not_f_x, f_others = e_x / total, e_0 / total, (others + e_0) / total, others / total
    log_total = high + tl.log(total)
    log_f_x = tl.where(not_f_x < 0.5, tl.log(1 - not_f_x), l_x.to(tl.float64) - log_total)
    if KIND == ABSORBING:
        log_f_x = tl.zeros_like(log_f_x) + _NEVER
    log_f_0 = l_0.to(tl.float64) - log_total
    log_f_x = tl.where(log_f_x < _NEVER, _NEVER, log_f_x)  # NaN stays NaN
    log_f_0 = tl.where(log_f_0 < _NEVER, _NEVER, log_f_0)
    gap = tl.where(same, -not_f_x, f_x)
    c_k, c_h = tl.where(same, q, 1.0), not_f_x + q * f_x
    at = row if WEIGHT_PER_ROW else of
    w_vlb = tl.where(active, tl.load(weights + at, mask=inside, other=0.0), 0.0)
    w_ce = tl.where(active, tl.load(weights + num_weights + at, mask=inside, other=0.0), 0.0)

    # the other categories
    N_k = N * c_k
    live = N_k * (1.0 / K) > _NOTHING
    safe_k, safe_c = tl.where(live, N_k, 1.0), tl.where(live, c_k, 1.0)
    scale = A / safe_k / total
    if KIND == UNIFORM:
        scale = scale * K
    a = tl.minimum(scale, 1e30).to(FLOAT)[:, None]
    g, v_0 = (-r * gap / safe_c).to(FLOAT)[:, None], (c_h / safe_c).to(FLOAT)[:, None]
    inverse = (1 / total).to(FLOAT)[:, None]
    uniform = tl.where(KIND == ABSORBING, 0.0, m_x).to(FLOAT)  # m of every category, where it is one number
    phi = tl.minimum(N * r / tl.maximum(A, 1e-300), 1.0)
    shift, alive = (phi * gap).to(FLOAT)[:, None], live[:, None]
    value, m_slope, e_slope, dead = tl.zeros_like(top), tl.zeros_like(top), tl.zeros_like(top), tl.zeros_like(top)
    d_d, d_f, d_m = tl.zeros_like(top), tl.zeros_like(top), tl.zeros_like(top)
    if LOOP:
        if KIND != ABSORBING or L2:
            for start in range(0, K, BLOCK):
                l, is_other, z = _row_logits(logits, row, start, x, x_0, active, stride, K, mask, KIND, BLOCK, FLOAT)
                e = tl.exp(l - top[:, None])
                s_0, s_1, s_2, s_3, s_4, s_5, s_6 = _sums(
                    e, z, is_other, number, table, P, a, g, v_0, inverse, shift, uniform, alive, KIND, L2, K
                )
                value, m_slope, e_slope, dead = value + s_0, m_slope + s_1, e_slope + s_2, dead + s_3
                d_d, d_f, d_m = d_d + s_4, d_f + s_5, d_m + s_6
    else:
        value, m_slope, e_slope, dead, d_d, d_f, d_m = _sums(
            e, z, is_other, number, table, P, a, g, v_0, inverse, shift, uniform, alive, KIND, L2, K
        )
    if KIND == ABSORBING:
        value, f_slope, m_slope = A * f_others, f_others, tl.zeros_like(f_others)
    else:
        each = m_x if KIND == UNIFORM else 1.0
        m_others = 1 - m_x - m_0
        sum_h = A * f_others + N * c_h * m_others
        value = tl.where(live, N_k * (value.to(tl.float64) * each) + A * dead.to(tl.float64) / total, sum_h)
        f_slope = tl.where(live, e_slope.to(tl.float64) / total, f_others)
        m_slope = tl.where(live, m_slope.to(tl.float64) * each, m_others)

    # the cells at x_0 and x
    log_A = _log(A)
    k_0, rest_0 = A + N * m_0, N * c_h * m_0
    log_h_0 = _log_add(log_A + log_f_0, _log(rest_0))
    gap_0 = tl.where(k_0 > 0, log_h_0 - _log(k_0), 0.0)
    vlb = value + tl.where(same, 0.0, _bregman(k_0, gap_0, log_h_0))
    slope_0 = 1 - tl.exp(tl.minimum(-gap_0, 600.0))
    G_x = -r * f_x * N * (m_slope + m_0 * slope_0)
    G_0 = A * f_0 - k_0 * tl.exp(tl.minimum(log_A + log_f_0 - log_h_0, 0.0))
    if STEP:
        keep = tl.load(coefficients + 2 * B + of, mask=inside, other=0.0)
        k_x = tl.where(same, A + N * r, 0.0) + keep + N * c_k * m_x
        rest_x = keep + N * (r * f_x + c_h * m_x)
        log_h_x = _log_add(log_A + log_f_x, _log(rest_x))
        gap_x = tl.where(k_x > 0, log_h_x - _log(k_x), 0.0)
        vlb += _bregman(k_x, gap_x, log_h_x)
        pull = A + N * r * (1 - m_x)
        G_x += pull * f_x - k_x * tl.exp(tl.minimum(_log(pull) + log_f_x - log_h_x, 0.0))
    ce = -tl.where(same, log_f_x, log_f_0)
    vlb, ce = tl.where(active, vlb, 0.0), tl.where(active, ce, 0.0)
    combined = w_vlb * vlb + w_ce * ce
    G_x, G_0, E = w_vlb * G_x, w_vlb * G_0, w_vlb * A * f_slope
    l2 = tl.zeros_like(ce)
    if L2:
        w_l2 = tl.where(active, tl.load(weights + 2 * num_weights + at, mask=inside, other=0.0), 0.0)
        d_x = gap * (1 + phi * (1 - m_x))
        d_0 = tl.where(same, 0.0, -(others + e_x) / total - phi * gap * m_0)
        l2 = tl.where(active, d_d.to(tl.float64) + d_x * d_x + d_0 * d_0, 0.0)
        combined += w_l2 * l2
        G_x += w_l2 * f_x * 2 * (d_x * (1 + phi * (1 - m_x)) - phi * (d_m.to(tl.float64) + m_0 * d_0))
        G_0 += w_l2 * 2 * d_0 * f_0
        E += w_l2 * 2 * d_f.to(tl.float64)
    tl.store(terms + row, vlb.to(FLOAT), mask=inside)
    tl.store(terms + R + row, ce.to(FLOAT), mask=inside)
    tl.store(terms + 2 * R + row, l2.to(FLOAT), mask=inside)
    tl.store(terms + 3 * R + row, combined.to(FLOAT), mask=inside)

    if GRADIENT:
        E += tl.where(same, 0.0, G_0)
        g_0 = G_0 - f_0 * (G_x + E) - w_ce * (others + e_x) / total
        g_x = not_f_x * G_x - f_x * E + w_ce * gap
        g_x, g_0 = tl.where(active, g_x, 0.0).to(FLOAT)[:, None], tl.where(active, g_0, 0.0).to(FLOAT)[:, None]
        level = (w_ce - G_x - E).to(FLOAT)[:, None]
        steep = (w_vlb * A).to(FLOAT)[:, None]
        bend = level
        if L2:
            bend = (2 * w_l2).to(FLOAT)[:, None]
        if LOOP:
            for start in range(0, K, BLOCK):
                l, is_other, z = _row_logits(logits, row, start, x, x_0, active, stride, K, mask, KIND, BLOCK, FLOAT)
                e = tl.exp(l - top[:, None])
                _store_gradient(
                    gradient,
                    row,
                    inside,
                    gradient_stride,
                    e,
                    z,
                    is_other,
                    x,
                    x_0,
                    g_x,
                    g_0,
                    number,
                    table,
                    P,
                    a,
                    g,
                    v_0,
                    inverse,
                    shift,
                    uniform,
                    alive,
                    steep,
                    level,
                    bend,
                    KIND,
                    L2,
                    K,
                )
        else:
            _store_gradient(
                gradient,
                row,
                inside,
                gradient_stride,
                e,
                z,
                is_other,
                x,
                x_0,
                g_x,
                g_0,
                number,
                table,
                P,
                a,
                g,
                v_0,
                inverse,
                shift,
                uniform,
                alive,
                steep,
                level,
                bend,
                KIND,
                L2,
                K,
            )


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
