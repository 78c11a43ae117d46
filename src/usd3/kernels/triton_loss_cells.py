"""The passes of the Triton loss over the categories of a row.

The others are all categories but x and x_0. A cell is one of them. Those that data cannot have, the mask and those
outside the support, have e = 0, but noise may go there. These functions work on BLOCK categories, z = start ...
start + BLOCK - 1, of one row:

    e = exp(logit - top)      f = e / total      u = (h - k)/k = a e / m + g      v = 1 + u = h/k = a e / m + v_0

Here a, g and v_0 are numbers of the row (`triton_loss.py`), and m is 1 in this formula for uniform noise, whose a
contains the factor K. A cell of the vlb is k (u - log v), its slope s = dL/dh = 1 - k/h = u / v. Where m is read, m u
and m v are formed: a slope then needs no division by m, and is 1 where m = 0, as it should be, since such a cell is h.

PLAIN says that a block holds nothing but others that data can have, so that nothing has to be selected; most blocks of
a long row do.
"""

import triton
import triton.language as tl

from usd3.kernels.triton_common import ABSORBING, LN_2, LOG2_E, TABLE, UNIFORM, bregman, fast_log2, fast_reciprocal

__all__ = ["cells_of", "is_plain", "load_others", "store_gradient", "sum_of_others"]


@triton.jit
def is_plain(start, x, x_0, mask, K: tl.constexpr, MASK: tl.constexpr, SUPPORT: tl.constexpr, BLOCK: tl.constexpr):
    """Whether the block at `start` holds others alone that data can have: no x, x_0 or mask, no places beyond K.

    With a support, which would have to be read, no block is plain.
    """
    plain = (start + BLOCK <= K) & (x // BLOCK != start // BLOCK) & (x_0 // BLOCK != start // BLOCK)
    if MASK:
        plain = plain & (mask // BLOCK != start // BLOCK)
    if SUPPORT:
        plain = plain & (start < 0)
    return plain


@triton.jit
def load_others(
    logits, start, x, x_0, mask, support,
    K: tl.constexpr, MASK: tl.constexpr, SUPPORT: tl.constexpr,
    BLOCK: tl.constexpr, PLAIN: tl.constexpr, FLOAT: tl.constexpr,
):  # fmt: skip
    """The block of logits at `start`, -inf but at the others that data can have; its categories z; which are others.

    `logits` and `support` point to the first category of the row. All three results are (BLOCK,).
    """
    z = start + tl.arange(0, BLOCK)
    if PLAIN:
        return tl.load(logits + z).to(FLOAT), z, z >= 0
    else:
        is_other = (z < K) & (z != x) & (z != x_0)
        is_data = is_other
        if MASK:
            is_data = is_data & (z != mask)
        if SUPPORT:
            is_data = is_data & (tl.load(support + z, mask=z < K, other=0) != 0)
        if BLOCK == K:
            l = tl.load(logits + z).to(FLOAT)
        else:
            l = tl.load(logits + z, mask=z < K, other=-float("inf")).to(FLOAT)
        return tl.where(is_data, l, -float("inf")), z, is_other


@triton.jit
def sum_of_others(
    logits, x, x_0, mask, support, top,
    K: tl.constexpr, MASK: tl.constexpr, SUPPORT: tl.constexpr, BLOCK: tl.constexpr, FLOAT: tl.constexpr,
):  # fmt: skip
    """Sum of exp(logit - top) over the others of the row, without a reduction or a barrier in the loop."""
    parts = tl.zeros([BLOCK], FLOAT)
    for start in range(0, K, BLOCK):
        if is_plain(start, x, x_0, mask, K, MASK, SUPPORT, BLOCK):
            l, _, _ = load_others(logits, start, x, x_0, mask, support, K, MASK, SUPPORT, BLOCK, True, FLOAT)
            parts += tl.exp2((l - top) * LOG2_E)
        else:
            l, _, _ = load_others(logits, start, x, x_0, mask, support, K, MASK, SUPPORT, BLOCK, False, FLOAT)
            parts += tl.exp2((l - top) * LOG2_E)
    return tl.sum(parts, 0)


@triton.jit
def _ratio(e, a, g, v_0, m, KIND: tl.constexpr):
    """m u = m (h - k)/k and m v = m h/k. Both are formed from a e: 1 + u would cancel where h is far below k."""
    if KIND == TABLE:
        scaled = tl.minimum(a * e, 1e37)  # both bounds are for m = 0
        return scaled + g * m, tl.maximum(scaled + v_0 * m, 1e-37)
    else:
        scaled = a * e
        return scaled + g, scaled + v_0


@triton.jit
def cells_of(
    e, z, is_other, table, a, g, v_0, inverse, shift, uniform,
    KIND: tl.constexpr, L2: tl.constexpr, PLAIN: tl.constexpr,
):  # fmt: skip
    """What the loss sums over the others, seven times (BLOCK,), 0 at all else.

    Args:
        e, z, is_other: (BLOCK,) exp(logit - top), categories, and which are others.
        table: pointer to the row's noise m (K,), in the type of e; read for TABLE alone.
        a, g, v_0: numbers of the row, see the head of this file.
        inverse: 1 / total, so that f = e inverse.
        shift: phi (f_x - [x = x_0]), of l2.
        uniform: m_z of all others where there is no table: 1/K, or 0 with absorbing noise.

    Returns:
        m (u - log v), m s and e s (uniform noise: without the factor m), and e where m = 0: such a cell is h = A f.
        Then, for l2 with d = f - shift m: d d, d f and d m. Absorbing noise has m = 0 in all cells, and the first four
        are 0.
    """
    m = 1.0
    nothing = tl.zeros_like(e)
    value, m_slope, e_slope, e_no_m, d_d, d_f, d_m = nothing, nothing, nothing, nothing, nothing, nothing, nothing
    if KIND == TABLE:
        m = tl.load(table + z, mask=is_other, other=0.0)
        e_no_m = tl.where(m > 0, 0.0, e)
    if KIND != ABSORBING:
        mu, mv = _ratio(e, a, g, v_0, m, KIND)
        if KIND == TABLE:
            per_m = fast_reciprocal(tl.where(m > 0, m, 1.0))
            value = m * bregman(mu * per_m, fast_log2(mv * per_m) * LN_2, True)
            value = tl.where(m > 0, value, 0.0)
        else:
            value = bregman(mu, fast_log2(mv) * LN_2)
        slope = mu * fast_reciprocal(mv)
        if KIND == UNIFORM and not PLAIN:
            value, slope = tl.where(is_other, value, 0.0), tl.where(is_other, slope, 0.0)
        m_slope, e_slope = m * slope, e * slope
    if L2:
        m_z = m if KIND == TABLE else uniform
        f = e * inverse
        d = tl.where(is_other, f - shift * m_z, 0.0)
        d_d, d_f, d_m = d * d, d * f, d * m_z
    return value, m_slope, e_slope, e_no_m, d_d, d_f, d_m


@triton.jit
def store_gradient(
    gradient, e, z, is_other, x, x_0, g_x, g_0, table, a, g, v_0, inverse, shift, uniform,
    of_slope, constant, of_d,
    KIND: tl.constexpr, L2: tl.constexpr, K: tl.constexpr, PLAIN: tl.constexpr,
):  # fmt: skip
    """Write the gradient of a block: f (dL/df - G_x - E) = e (constant + of_slope s + of_d d) at the others.

    Args:
        gradient: pointer to the first category of the row's gradient.
        g_x, g_0: the gradient at x and at x_0.
        of_slope: weight of vlb times A / total.
        constant: (weight of ce - G_x - E) / total.
        of_d: 2 times the weight of l2 / total.

    The other arguments are those of `cells_of`.
    """
    m = 1.0
    if KIND == TABLE:
        m = tl.load(table + z, mask=is_other, other=0.0)
    if KIND == ABSORBING:
        inner = of_slope + constant
    else:
        mu, mv = _ratio(e, a, g, v_0, m, KIND)
        inner = of_slope * (mu * fast_reciprocal(mv)) + constant
    if L2:
        m_z = m if KIND == TABLE else uniform
        inner += of_d * (e * inverse - shift * m_z)
    out = e * inner
    if PLAIN:  # ".cs": nobody reads it soon, and the logits shall stay in the cache
        tl.store(gradient + z, out.to(gradient.dtype.element_ty), cache_modifier=".cs")
    else:
        out = tl.where(z == x, g_x, tl.where(z == x_0, g_0, out))
        tl.store(gradient + z, out.to(gradient.dtype.element_ty), mask=z < K)
