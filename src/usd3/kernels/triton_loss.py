"""The losses and their gradient as one Triton kernel: one launch, one program per row.

Where K fits into `BLOCK` categories the row stays in registers: its logits are read once and their gradient is written
once. Longer rows are read three times, from the cache after the first. The arithmetic is that of `chunked_loss.py`, in
float32 without cancellation (float64 where the logits are): see docs/kernels.md.

`triton_loss_cells.py` has the passes over the categories.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from usd3.kernels.loss import ALPHA_BAR, CE, L2, LOST, STAY, TO_DATA, TO_NOISE, VLB, WEIGHTED, Problem
from usd3.kernels.triton_common import ABSORBING, LOG2_E, UNIFORM, bregman, category_constants, log_share
from usd3.kernels.triton_loss_cells import cells_of, is_plain, load_others, store_gradient, sum_of_others

__all__ = ["loss_rows", "scale_", "tile"]

# rows of the coefficients and of the terms: a kernel reads global names only where they are constexpr
_TO_DATA, _TO_NOISE, _STAY = tl.constexpr(TO_DATA), tl.constexpr(TO_NOISE), tl.constexpr(STAY)
_ALPHA_BAR, _LOST = tl.constexpr(ALPHA_BAR), tl.constexpr(LOST)
_VLB, _CE, _L2, _WEIGHTED = tl.constexpr(VLB), tl.constexpr(CE), tl.constexpr(L2), tl.constexpr(WEIGHTED)
_NOTHING = tl.constexpr(1e-30)  # k below this is taken as 0


def loss_rows(logits: Tensor, p: Problem, weights: Tensor, with_l2: bool, gradient: Tensor | None) -> Tensor:
    """Terms (4, R) of each row: vlb, ce, l2 and their weighted sum; see `usd3.kernels.loss.loss_rows`."""
    R, K = logits.shape
    double = logits.dtype == torch.float64
    terms = torch.empty(4, R, dtype=torch.float64 if double else torch.float32, device=logits.device)
    if R == 0:
        return terms
    m, support = p.noise.m, p.noise.support
    _loss_kernel[(R,)](
        logits,
        logits if gradient is None else gradient,
        *(v.contiguous() for v in (p.x, p.x_0, p.coefficients, weights)),
        logits if m is None else m.to(terms.dtype).contiguous(),
        p.x if support is None else support.contiguous(),
        p.x if p.free is None else p.free.contiguous(),
        terms,
        R,
        p.first,
        p.elements,
        p.coefficients.shape[1],
        weights.shape[1],
        1 if m is None else len(m),
        1 if support is None else len(support),
        p.noise.mask,
        logits.stride(0),
        0 if gradient is None else gradient.stride(0),
        **category_constants(p.noise),
        STEP=p.is_step,
        L2=with_l2,
        GRADIENT=gradient is not None,
        FREE=p.free is not None,
        WEIGHT_PER_ROW=weights.shape[1] != p.coefficients.shape[1],
        FLOAT=tl.float64 if double else tl.float32,
        K=K,
        **tile(K, of_table=m is not None, with_l2=with_l2),
    )
    return terms


def tile(K: int, of_table: bool = False, with_l2: bool = False) -> dict[str, Any]:
    """BLOCK, LOOP, num_warps and maxnreg for K categories: the fastest that benchmarks/kernels.py measured on an H200.

    Fewer registers leave room for more warps at a time, as long as they hold everything: a category takes more of them
    with noise of a table, and with l2.
    """
    block = triton.next_power_of_2(K)
    if block <= 4096:
        return {"BLOCK": block, "LOOP": False, "num_warps": max(1, block // 2048)}
    if K <= 16384:
        limit = {} if torch.version.hip or (with_l2 and not of_table) else {"maxnreg": 128}
        return {"BLOCK": 1024 if of_table else 2048, "LOOP": True, "num_warps": 4, **limit}
    return {"BLOCK": 8192, "LOOP": True, "num_warps": 32}  # few rows at a time, so that they stay in the cache


@triton.jit
def _loss_kernel(
    logits,
    gradient,
    xs,
    x_0s,
    coefficients,
    weights,
    tables,
    supports,
    free,
    terms,
    R,
    first_row,
    D,
    B,
    num_weights,
    P,
    S,
    mask,
    stride,
    gradient_stride,
    KIND: tl.constexpr,
    MASK: tl.constexpr,
    SUPPORT: tl.constexpr,
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
    """The terms of one row, and the gradient of their weighted sum. Program i computes row i.

    Pointers (contiguous unless a stride is given):
        logits: (R, K) float16, bfloat16, float32 or float64; categories adjacent, rows `stride` apart.
        gradient: (R, K) in any of these types; receives d(weighted sum)/d(logits). It may be the logits: each part of a
            row is read before it is written. Unused without GRADIENT.
        xs, x_0s: (R,) int64, x and x_0 of each row.
        coefficients: (5, B) float64, see `Problem`; row j of object i is at j B + i.
        weights: (3, num_weights) float64, the weights of vlb, ce and l2 of each object, or of each row.
        tables: (P, K) FLOAT, the noise m; row i of the whole problem has tables[i % P]. Read for TABLE alone.
        supports: (S, K) bool, the categories that data can have; row i has supports[i % S]. Read with SUPPORT alone.
        free: (R,) bool, read with FREE alone.
        terms: (4, R) FLOAT, receives vlb, ce, l2 and their weighted sum.

    Integers:
        R: number of rows.
        first_row: number of row 0 in the whole problem, where these rows are a part of it.
        D: rows of an object. The object of row i is (first_row + i) // D.
        B: number of objects.
        num_weights: B, or R with WEIGHT_PER_ROW.
        P, S: rows of `tables` and of `supports`.
        mask: the category that no data has; used with MASK alone.
        stride, gradient_stride: distance between rows of `logits` and of `gradient`, in numbers.

    Compile-time constants:
        KIND: the noise, UNIFORM, ABSORBING or TABLE.
        MASK: there is a mask, where f is 0.
        SUPPORT: f is 0 where `supports` is False.
        STEP: a step, where the cell at z = x counts; else a rate.
        L2: compute l2; else it is 0.
        GRADIENT: write the gradient.
        FREE: read `free`.
        WEIGHT_PER_ROW: the weights are those of each row.
        FLOAT: tl.float32, or tl.float64 for float64 logits; all arithmetic is in it.
        K: number of categories.
        BLOCK: categories worked on at once, a power of 2; at least K without LOOP.
        LOOP: the row has several blocks, and is read again in each pass.

    Algorithm, with the letters of docs/kernels.md. The vlb is the sum over z (z != x for a rate) of k log(k/h) - k + h,

        k_z = A [z = x_0] + N c_k m_z              c_k = q where x = x_0, else 1
        h_z = A f_z       + N c_h m_z              c_h = (1 - f_x) + q f_x            (z != x)
        h_x = stay + A f_x + N (r f_x + c_h m_x)   r = alpha_bar / (alpha_bar + (1 - alpha_bar) m_x), q = 1 - r

    1. First pass: `others`, the sum of exp(logit - top) over z other than x and x_0. With the logits at x and x_0 this
       gives f_x, f_0, 1 - f_x, 1 - f_0, log f_x and log f_0.
    2. Second pass: the sums over the others of the cells k (u - log(1 + u)), u = (h - k)/k, and of their slopes
       s = 1 - k/h, with f and with m. Absorbing noise has k = 0, h = A f and s = 1 there: this pass is left out.
    3. The cells at x_0 and at x, one by one. G_z = f_z dL/df_z at x and x_0, and E, the sum of G_z over z != x.
    4. Third pass: the gradient, f_z (dL/df_z - G_x - E) at z != x and (1 - f_x) G_x - f_x E at x.

    What limits it for large K is arithmetic, not memory: in each cell one exp2 per pass, a logarithm in the second, and
    a reciprocal in the second and third. So exp2, log2 and reciprocal are those of the special function unit, the
    second pass forms h/k once for the cell and its slope, and x and x_0 are done apart from the others, once per row.
    Sums have positive terms only (1 - f_x is the sum over the rest, h - k has its own formula), so that float32 is
    enough: a difference would lose all digits of a model that is nearly sure.
    """
    row = tl.program_id(0)
    x = tl.load(xs + row).to(tl.int32)
    x_0 = tl.load(x_0s + row).to(tl.int32)
    number = row + first_row  # among the rows of the whole problem
    of = number // D  # the row's object
    logits += row.to(tl.int64) * stride
    gradient += row.to(tl.int64) * gradient_stride
    table, support = tables, supports
    if SUPPORT:
        support += (number % S).to(tl.int64) * K
    if KIND == UNIFORM:
        m_x = 1 / (tl.zeros([], FLOAT) + K)  # a constant 1/K would be rounded to float32
        m_0 = m_x
    elif KIND == ABSORBING:
        m_x = tl.where(x == mask, 1.0, 0.0).to(FLOAT)
        m_0 = tl.zeros([], FLOAT)
    else:
        table += (number % P).to(tl.int64) * K
        m_x, m_0 = tl.load(table + x), tl.load(table + x_0)
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

    # 1. the sum over the other categories, relative to the largest logit
    l_x, l_0 = tl.load(logits + x).to(FLOAT), tl.load(logits + x_0).to(FLOAT)
    if MASK:
        l_x = tl.where(x == mask, -float("inf"), l_x)  # it does not count
    top = tl.maximum(l_x, l_0)
    if LOOP:
        others = sum_of_others(logits, x, x_0, mask, support, top, K, MASK, SUPPORT, BLOCK, FLOAT)
        if (others < 1e30) == 0:  # a logit is far above both of these: look for the largest
            highest = tl.zeros([BLOCK], FLOAT) - float("inf")
            for start in range(0, K, BLOCK):
                l, _, _ = load_others(logits, start, x, x_0, mask, support, K, MASK, SUPPORT, BLOCK, False, FLOAT)
                highest = tl.maximum(highest, l)
            top = tl.maximum(top, tl.max(highest, 0))
            others = sum_of_others(logits, x, x_0, mask, support, top, K, MASK, SUPPORT, BLOCK, FLOAT)
    else:
        l, z, is_other = load_others(logits, 0, x, x_0, mask, support, K, MASK, SUPPORT, BLOCK, False, FLOAT)
        top = tl.maximum(top, tl.max(l, 0))
        e = tl.exp2((l - top) * LOG2_E)
        others = tl.sum(e, 0)

    # numbers of the row: sums of positive numbers throughout
    same = x == x_0
    e_x, e_0 = tl.exp(l_x - top), tl.where(same, 0.0, tl.exp(l_0 - top))  # e_0, m_0, f_0, G_0: 0 where x = x_0
    rest = others + e_0  # sum of e over z != x
    total = rest + e_x  # f = e / total
    f_x, f_0, not_f_x, f_others, not_f_0 = (
        e_x / total,
        e_0 / total,
        rest / total,  # 1 - f_x
        others / total,  # sum of f over the others
        (others + e_x) / total,  # 1 - f_0
    )
    log_f_0 = log_share(e_0, others + e_x, l_0 - top, total)
    log_f_x = log_share(e_x, rest, l_x - top, total)
    ce = -tl.where(same, log_f_x, log_f_0)
    A = tl.load(coefficients + _TO_DATA * B + of).to(FLOAT)
    N = tl.load(coefficients + _TO_NOISE * B + of).to(FLOAT)
    alpha_bar = tl.load(coefficients + _ALPHA_BAR * B + of).to(FLOAT)
    lost = tl.load(coefficients + _LOST * B + of).to(FLOAT)  # 1 - alpha_bar
    here = alpha_bar + lost * m_x  # q(x_t = x | x_0 = x)
    r, q = alpha_bar / here, lost * m_x / here  # r + q = 1: no noise so far, or noise that gave x
    m_0 = tl.where(same, 0.0, m_0)
    gap = tl.where(same, -not_f_x, f_x)  # f_x - [x = x_0]; c_h - c_k = -r gap
    c_k, c_h = tl.where(same, q, 1.0), not_f_x + q * f_x  # P(x is noise) under the truth and under the model
    N_k = N * c_k  # k_z = N_k m_z at the others

    # 2. the other categories; where k = 0 (the row is not live) the cell is h and the slope 1 = e / (e + 1e-30)
    live = N_k * (1.0 / K) > _NOTHING
    safe_k, safe_c = tl.where(live, N_k, 1.0), tl.where(live, c_k, 1.0)
    a = tl.where(live, A / safe_k / total, 1.0)  # A f_z / k_z = a e_z / m_z
    if KIND == UNIFORM:
        a = a * K  # 1 / m_z
    a = tl.minimum(a, 1e30)
    # u = (h - k)/k = a e / m + g, g = (c_h - c_k)/c_k; 1 + u = a e / m + v_0, v_0 = c_h / c_k
    g, v_0 = tl.where(live, -r * gap / safe_c, 0.0), tl.maximum(tl.where(live, c_h / safe_c, 0.0), 1e-30)
    inverse = 1 / total
    uniform = m_x  # m_z of the others where there is no table
    if KIND == ABSORBING:
        uniform = tl.zeros([], FLOAT)
    phi = tl.minimum(N * r / tl.maximum(A, 1e-37), 1.0)
    shift = phi * gap  # l2 is the sum of d^2, d_z = f_z - shift m_z at the others
    if LOOP:  # plural: a sum for each lane
        nothing = tl.zeros([BLOCK], FLOAT)
        values, m_slopes, e_slopes, es_no_m = nothing, nothing, nothing, nothing
        d_ds, d_fs, d_ms = nothing, nothing, nothing
        if KIND != ABSORBING or L2:
            for start in range(0, K, BLOCK):
                if is_plain(start, x, x_0, mask, K, MASK, SUPPORT, BLOCK):
                    l, z, is_other = load_others(
                        logits, start, x, x_0, mask, support, K, MASK, SUPPORT, BLOCK, True, FLOAT
                    )
                    e = tl.exp2((l - top) * LOG2_E)
                    n_0, n_1, n_2, n_3, n_4, n_5, n_6 = cells_of(
                        e, z, is_other, table, a, g, v_0, inverse, shift, uniform, KIND, L2, True
                    )
                else:
                    l, z, is_other = load_others(
                        logits, start, x, x_0, mask, support, K, MASK, SUPPORT, BLOCK, False, FLOAT
                    )
                    e = tl.exp2((l - top) * LOG2_E)
                    n_0, n_1, n_2, n_3, n_4, n_5, n_6 = cells_of(
                        e, z, is_other, table, a, g, v_0, inverse, shift, uniform, KIND, L2, False
                    )
                values, m_slopes, e_slopes, es_no_m = values + n_0, m_slopes + n_1, e_slopes + n_2, es_no_m + n_3
                d_ds, d_fs, d_ms = d_ds + n_4, d_fs + n_5, d_ms + n_6
    else:
        values, m_slopes, e_slopes, es_no_m, d_ds, d_fs, d_ms = cells_of(
            e, z, is_other, table, a, g, v_0, inverse, shift, uniform, KIND, L2, False
        )
    value, m_slope, e_slope, e_no_m = tl.sum(values, 0), tl.sum(m_slopes, 0), tl.sum(e_slopes, 0), tl.sum(es_no_m, 0)
    d_d, d_f, d_m = tl.sum(d_ds, 0), tl.sum(d_fs, 0), tl.sum(d_ms, 0)
    # value: the others' part of the vlb; f_slope and m_slope: the sums of f_z s_z and m_z s_z over the others
    if KIND == ABSORBING:
        value, f_slope, m_slope = A * f_others, f_others, tl.zeros([], FLOAT)
    else:
        m_others = 1 - m_x - m_0
        each = m_x if KIND == UNIFORM else 1.0  # `cells_of` leaves m out for uniform noise
        value = tl.where(live, N_k * (value * each) + A * e_no_m / total, A * f_others + N * c_h * m_others)
        f_slope = e_slope / total
        m_slope = tl.where(live, m_slope * each, m_others)

    # 3. the cell at x_0 != x: k_0 = A + N m_0, h_0 = A f_0 + N c_h m_0
    k_0, rest_0 = A + N * m_0, N * c_h * m_0
    h_0, diff_0 = A * f_0 + rest_0, -(A * not_f_0 + N * m_0 * r * f_x)  # diff = h - k
    safe_0 = tl.where(k_0 > 0, k_0, 1.0)
    log_v = tl.where(  # log(h_0 / k_0); from log f_0 where h_0 = A f_0, as f_0 may underflow
        rest_0 > 0, tl.log(tl.maximum(h_0 / safe_0, 1e-37)), log_f_0 + tl.log(tl.maximum(A / safe_0, 1e-37))
    )
    cell_0 = tl.where(k_0 > 0, k_0 * bregman(diff_0 / safe_0, log_v), h_0)
    vlb = value + tl.where(same, 0.0, cell_0)
    safe_h = tl.where(h_0 > 0, h_0, 1.0)
    # G_0 = f_0 A s_0 and G_x = -r f_x N (sum of m_z s_z over z != x), with the slope s_0 = diff_0 / h_0
    G_0 = tl.where(same, 0.0, diff_0 * tl.where(h_0 > 0, A * f_0 / safe_h, 1.0))
    G_x = -r * f_x * N * m_slope - tl.where(same, 0.0, r * f_x * diff_0 * (rest_0 / safe_h) / tl.maximum(c_h, 1e-37))
    if STEP:  # the cell at x
        stay = tl.load(coefficients + _STAY * B + of).to(FLOAT)
        dh_df = A + N * r * (1 - m_x)  # dh_x / df_x
        k_x = tl.where(same, A + N * r, 0.0) + stay + N * c_k * m_x
        rest_x = stay + N * (r * f_x + c_h * m_x)
        h_x, diff_x = A * f_x + rest_x, gap * dh_df
        safe_x = tl.where(k_x > 0, k_x, 1.0)
        log_v = tl.where(
            rest_x > 0, tl.log(tl.maximum(h_x / safe_x, 1e-37)), log_f_x + tl.log(tl.maximum(A / safe_x, 1e-37))
        )
        vlb += tl.where(k_x > 0, k_x * bregman(diff_x / safe_x, log_v), h_x)
        G_x += diff_x * tl.where(h_x > 0, dh_df * f_x / tl.where(h_x > 0, h_x, 1.0), 1.0)

    at = of
    if WEIGHT_PER_ROW:
        at = row
    w_vlb = tl.load(weights + _VLB * num_weights + at).to(FLOAT)
    w_ce = tl.load(weights + _CE * num_weights + at).to(FLOAT)
    combined = w_vlb * vlb + w_ce * ce
    G_x, G_0, E = w_vlb * G_x, w_vlb * G_0, w_vlb * A * f_slope  # of the weighted sum; ce is added at the end
    l2 = tl.zeros([], FLOAT)
    of_d = l2
    if L2:  # d = f - e_x0 + shift (e_x - m), and dl2/df_z = 2 d_z at z != x
        w_l2 = tl.load(weights + _L2 * num_weights + at).to(FLOAT)
        of_d = 2 * w_l2
        d_x = gap * (1 + phi * (1 - m_x))
        d_0 = tl.where(same, 0.0, -not_f_0 - phi * gap * m_0)
        l2 = d_d + d_x * d_x + d_0 * d_0
        combined += w_l2 * l2
        G_x += of_d * f_x * (d_x * (1 + phi * (1 - m_x)) - phi * (d_m + m_0 * d_0))
        G_0 += of_d * d_0 * f_0
        E += of_d * d_f
    tl.store(terms + _VLB * R + row, vlb)
    tl.store(terms + _CE * R + row, ce)
    tl.store(terms + _L2 * R + row, l2)
    tl.store(terms + _WEIGHTED * R + row, combined)

    # 4. the gradient
    if GRADIENT:
        E += G_0
        g_0 = G_0 - f_0 * (G_x + E) - w_ce * not_f_0  # at x_0
        g_x = not_f_x * G_x - f_x * E + w_ce * gap  # at x
        # at the others: f (...) is e times these
        constant, of_slope, of_d = (w_ce - G_x - E) * inverse, w_vlb * A * inverse, of_d * inverse
        if LOOP:
            for start in range(0, K, BLOCK):
                if is_plain(start, x, x_0, mask, K, MASK, SUPPORT, BLOCK):
                    l, z, is_other = load_others(
                        logits, start, x, x_0, mask, support, K, MASK, SUPPORT, BLOCK, True, FLOAT
                    )
                    e = tl.exp2((l - top) * LOG2_E)
                    store_gradient(
                        gradient, e, z, is_other, x, x_0, g_x, g_0, table, a, g, v_0, inverse, shift, uniform,
                        of_slope, constant, of_d, KIND, L2, K, True,
                    )  # fmt: skip
                else:
                    l, z, is_other = load_others(
                        logits, start, x, x_0, mask, support, K, MASK, SUPPORT, BLOCK, False, FLOAT
                    )
                    e = tl.exp2((l - top) * LOG2_E)
                    store_gradient(
                        gradient, e, z, is_other, x, x_0, g_x, g_0, table, a, g, v_0, inverse, shift, uniform,
                        of_slope, constant, of_d, KIND, L2, K, False,
                    )  # fmt: skip
        else:
            store_gradient(
                gradient, e, z, is_other, x, x_0, g_x, g_0, table, a, g, v_0, inverse, shift, uniform,
                of_slope, constant, of_d, KIND, L2, K, False,
            )  # fmt: skip


def scale_(gradient: Tensor, factor: Tensor) -> Tensor:
    """gradient times `factor` (), a number on the device, in place. A factor of 1 reads and writes nothing."""
    if gradient.is_contiguous() and gradient.numel():
        _scale_kernel[(triton.cdiv(gradient.numel(), 32768),)](gradient, factor, gradient.numel(), num_warps=8)
        return gradient
    return gradient.mul_(factor)


@triton.jit
def _scale_kernel(values, factor, count):
    """Multiply values (count,) by the number at `factor`. Each program has 32768 values, 4096 at a time."""
    by = tl.load(factor)
    if by != 1:
        for i in range(8):
            place = tl.program_id(0).to(tl.int64) * 32768 + i * 4096 + tl.arange(0, 4096)
            value = tl.load(values + place, mask=place < count)
            tl.store(values + place, (value * by).to(value.dtype), mask=place < count)
