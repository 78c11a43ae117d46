"""Losses and their gradient in plain torch, a bounded number of rows at a time and without autograd.

For the CPU, and for GPUs without Triton. The Triton kernel does the same arithmetic; docs/kernels.md derives it. With
f = softmax(logits) and G_z = f_z dL/df_z, the gradient needs two numbers of a row beside the slopes, G_x and E, the sum
of G_z over z != x:

    dL/dlogit_z = f_z (dL/df_z - G_x - E)        dL/dlogit_x = (1 - f_x) G_x - f_x E

Numbers of a row are float64 vectors (n,), and 1 - f and h - k are never formed by subtraction. Cells, one per row and
category, are in the precision of the logits and live in a few buffers (n, K) that all chunks share: fresh memory costs
more than the arithmetic. In cells exp2 takes a third of the time of exp, and columns (n, 1) are as fast as scalars.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from usd3.kernels.chunked_common import SCRATCH, data_logits, fill_softmax, numbers_of_rows, places, rows_at_once
from usd3.kernels.loss import ALPHA_BAR, LOST, Problem

__all__ = ["loss_rows"]

_FAR = 1e30  # -log f is at most this
_LEAST = 1e-290  # a denominator is at least this
_ROUGH, _FLAT = 0.01, 3e-3  # where the mean of u - log(1 + u) is less than this part of |u|, or this / sqrt(K), it is
#                             computed again in float64: float32 would leave less than four and a half digits


def loss_rows(logits: Tensor, p: Problem, weights: Tensor, with_l2: bool, gradient: Tensor | None) -> Tensor:
    """Terms (4, R) of each row: vlb, ce, l2 and their weighted sum; see `usd3.kernels.loss.loss_rows`."""
    logits = logits.detach()
    R, K = logits.shape
    dtype = torch.promote_types(logits.dtype, torch.float32)
    terms = torch.zeros(4, R, dtype=dtype, device=logits.device)
    is_read = _is_read(p)
    read = None if is_read is None else is_read.nonzero().squeeze(1)
    if gradient is not None and is_read is not None:
        gradient.index_fill_(0, (~is_read).nonzero().squeeze(1), 0)
    count, size = R if read is None else len(read), rows_at_once(K)
    direct = read is None and gradient is not None and gradient.dtype == dtype  # the gradient itself is the buffer e
    spare = SCRATCH.buffers(2 if direct else 3, min(count, size), K, logits)
    for start in range(0, count, size):
        chunk = slice(start, min(start + size, count))
        rows = chunk if read is None else read[chunk]
        buffers = [buffer[: chunk.stop - start] for buffer in spare]
        e = gradient[chunk] if direct and gradient is not None else buffers.pop()
        c = _row_constants(p, rows, weights)
        chosen = data_logits(_logits_of(logits, rows, e), e, p.noise, rows, p.first)
        chunk_terms = torch.stack(_loss(chosen, e, buffers, p, c, with_l2, gradient is not None))
        terms[:, rows] = chunk_terms if read is None else chunk_terms.to(dtype)
        if gradient is not None and not direct:
            gradient[rows] = e.to(gradient.dtype)
    return terms


def _logits_of(logits: Tensor, rows: slice | Tensor, e: Tensor) -> Tensor:
    """Logits of these rows: a view, or copied into e where the types agree."""
    if isinstance(rows, slice):
        return logits[rows]
    return torch.index_select(logits, 0, rows, out=e if e.dtype == logits.dtype else None)


def _is_read(p: Problem) -> Tensor | None:
    """Which rows are read, (R,) bool: those that are free and not certainly clean (m_x > 0). None: all."""
    m = p.noise.m
    if p.noise.absorbing:
        noisy = p.x == p.noise.mask
    elif m is not None and not bool((m > 0).all()):
        noisy = m[places(slice(0, len(p.x)), len(m), p.x.device, p.first), p.x] > 0
    else:
        return p.free
    return noisy if p.free is None else noisy & p.free


class _RowConstants(NamedTuple):
    """Numbers of each row that do not depend on its logits, (n,) float64."""

    is_mask: bool  # all noise is the mask, and x is the mask in every row that is read
    at: Tensor  # x_0 and x, (n, 2)
    same: Tensor  # [x = x_0], 0 or 1
    apart: Tensor  # 1 - same
    m: Tensor | None  # noise of every category, (n, K) or (1, K); None: uniform, or the mask
    m_x: Tensor | float
    m_0: Tensor  # m at x_0; 0 where x = x_0: that cell is x's
    A: Tensor  # to_data
    N: Tensor  # to_noise
    stay: Tensor
    r: Tensor  # alpha_bar / (alpha_bar + (1 - alpha_bar) m_x)
    q: Tensor  # 1 - r
    w_vlb: Tensor
    w_ce: Tensor
    w_l2: Tensor


def _row_constants(p: Problem, rows: slice | Tensor, weights: Tensor) -> _RowConstants:
    x, x_0 = p.x[rows], p.x_0[rows]
    weights_by_row = weights.shape[1] != p.coefficients.shape[1]
    numbers = p.coefficients if weights_by_row else torch.cat([p.coefficients, weights])
    same = (x == x_0).double()
    apart, at, m = 1 - same, torch.stack([x_0, x], 1), None
    m_x: Tensor | float
    absorbing, table = p.noise.absorbing, p.noise.m
    if table is None:  # m_x is the same for all rows that are read: r and q are numbers of an object
        m_x = 1.0 if absorbing else 1 / p.noise.num_classes
        m_0 = apart * (0.0 if absorbing else m_x)
        A, N, stay, r, q, *w = numbers_of_rows(_with_r_and_q(numbers, m_x), p.elements, rows, p.first)
    else:
        place = places(rows, len(table), x.device, p.first)
        m_x, m_0, m = table[place, x], table[place, x_0] * apart, table if len(table) == 1 else table[place]
        A, N, stay, r, q, *w = _with_r_and_q(numbers_of_rows(numbers, p.elements, rows, p.first), m_x)
    w_vlb, w_ce, w_l2 = weights[:, rows] if weights_by_row else w
    return _RowConstants(absorbing, at, same, apart, m, m_x, m_0, A, N, stay, r, q, w_vlb, w_ce, w_l2)


def _with_r_and_q(numbers: Tensor, m_x: Tensor | float) -> Tensor:
    """The same rows with r and q in the place of ALPHA_BAR and LOST."""
    alpha_bar, back = numbers[ALPHA_BAR], numbers[LOST] * m_x
    r_and_q = torch.stack([alpha_bar, back]) / (alpha_bar + back)
    return torch.cat([numbers[:ALPHA_BAR], r_and_q, numbers[LOST + 1 :]])


class _Prediction(NamedTuple):
    """What the logits say about each row, (n,) float64; `f_0` is 0 where x = x_0."""

    total: Tensor  # f = e / total
    f_x: Tensor
    not_f_x: Tensor  # 1 - f_x
    f_0: Tensor
    not_f_0: Tensor  # 1 - f_0
    f_others: Tensor  # sum of f over z other than x and x_0
    gap: Tensor  # f_x - [x = x_0]
    c_h: Tensor  # P(x is noise) under the model, (1 - f_x) + q f_x
    c_k: Tensor  # and under the truth, q where x = x_0, else 1
    ce: Tensor  # -log f_x0


def _prediction(logits: Tensor, e: Tensor, c: _RowConstants) -> _Prediction:
    """Numbers of f = softmax(logits). Fills e with exp(logits - maximum), 0 at x and x_0."""
    others, below_top = fill_softmax(logits, e, c.at)
    e_truth, e_x = below_top.exp().T
    e_0 = c.apart * e_truth
    rest_x, rest_0 = others + e_0, others + c.apart * e_x
    total = rest_x + e_x
    f_x, not_f_x, f_0, not_f_0, f_others = torch.stack([e_x, rest_x, e_0, rest_0, others]) / total
    ce = torch.log1p(rest_0 / e_truth)
    if float(below_top.min()) < -600:  # e_truth may underflow
        ce = torch.where(below_top[:, 0] < -600, total.log() - below_top[:, 0], ce).clamp(max=_FAR)
    c_h, c_k = (not_f_x + c.q * f_x).clamp(min=_LEAST), (c.apart + c.same * c.q).clamp(min=_LEAST)
    return _Prediction(total, f_x, not_f_x, f_0, not_f_0, f_others, c.apart * f_x - c.same * not_f_x, c_h, c_k, ce)


def _loss(
    logits: Tensor, e: Tensor, buffers: list[Tensor], p: Problem, c: _RowConstants, with_l2: bool, with_gradient: bool
) -> tuple[Tensor, ...]:
    """vlb, ce, l2 and their weighted sum of n rows, (n,) each. With `with_gradient`, e (n, K) becomes the gradient."""
    f = _prediction(logits, e, c)
    if c.is_mask:  # m = 0 at all others: k = 0, h = A f and the slope is 1
        vlb, f_slope, m_slope = c.A * f.f_others, f.f_others, c.m_0
    else:
        vlb, f_slope, m_slope = _others(e, buffers, c, f)
    # the cell at x_0 != x: k = A + N m_0, h = A f_0 + N c_h m_0
    N_m = c.N * c.m_0
    h_0, diff_0 = c.A * f.f_0 + N_m * f.c_h, -c.apart * (c.A * f.not_f_0 + N_m * c.r * f.f_x)  # diff = h - k
    vlb = vlb + _cell(c.apart * c.A + N_m, h_0, diff_0, f.ce)
    h_0 = h_0.clamp(min=_LEAST)
    G_0 = diff_0 * (1 - N_m * f.c_h / h_0)
    G_x = -c.r * f.f_x * (c.N * m_slope + N_m * diff_0 / h_0)
    if p.is_step:  # the cell at x: h = base + f_x dh/df_x, where base = stay + N m_x
        dh_df, base = c.A + c.N * c.r * (1 - c.m_x), c.stay + c.N * c.m_x
        h_x, diff_x = base + f.f_x * dh_df, f.gap * dh_df
        vlb = vlb + _cell(base + c.same * dh_df, h_x, diff_x, f.ce)
        G_x = G_x + diff_x * (1 - base / h_x.clamp(min=_LEAST))
    loss = c.w_vlb * vlb + c.w_ce * f.ce
    G_x, G_0, E = c.w_vlb * G_x, c.w_vlb * G_0, c.w_vlb * c.A * f_slope
    l2, of_f, shift = torch.zeros_like(vlb), c.w_l2, c.w_l2
    if with_l2:  # d = f - e_x0 + shift (e_x - m), shift = phi gap
        phi = (c.N * c.r / c.A.clamp(min=_LEAST)).clamp(max=1.0)
        shift, of_f = phi * f.gap, 2 * c.w_l2
        f_f, f_m, m_m = _moments(e, buffers[1], c, f)
        d_x, d_0 = f.gap + shift * (1 - c.m_x), -c.apart * f.not_f_0 - shift * c.m_0
        l2 = f_f + shift * (shift * m_m - 2 * f_m) + d_x.square() + d_0.square()
        loss = loss + c.w_l2 * l2
        G_x = G_x + of_f * f.f_x * (d_x * (1 + phi * (1 - c.m_x)) - phi * (f_m - shift * m_m + c.m_0 * d_0))
        G_0 = G_0 + of_f * d_0 * f.f_0
        E = E + of_f * (f_f - shift * f_m)
    if with_gradient:
        E = E + G_0
        constant, of_slope = c.w_ce - G_x - E, c.w_vlb * c.A
        _fill_gradient(e, buffers, c, f, constant, of_slope, of_f if with_l2 else None, of_f * shift)
        g_0 = G_0 - f.f_0 * (G_x + E) - c.w_ce * f.not_f_0
        g_x = f.not_f_x * G_x - f.f_x * E + c.w_ce * f.gap
        g_0 = c.apart * g_0 + c.same * g_x  # both are written, also where x = x_0
        e.scatter_(1, c.at, torch.stack([g_0, g_x], 1).to(e.dtype))
    return vlb, f.ce, l2, loss


def _others(e: Tensor, buffers: list[Tensor], c: _RowConstants, f: _Prediction) -> tuple[Tensor, Tensor, Tensor]:
    """Sums over z other than x and x_0: of the terms k log(k/h) - k + h, of f_z s_z and of m_z s_z, (n,) float64 each.

    k = N c_k m and h = A f + N c_h m = N c_h m (1 + y), y = A f / (N c_h m). The term is h - k - k log(h/k), the slope
    s = 1 - k/h = (y + 1 - c_k/c_h) / (1 + y), or 1 where m_z = 0. The first buffer keeps the slopes.
    """
    (y, v), K = buffers, e.shape[1]  # v = 1 + y
    N_k, m_others = c.N * f.c_k, 1 - c.m_x - c.m_0
    a = c.A / f.total / (c.N * f.c_h).clamp(min=_LEAST)  # y = a e / m
    if c.m is None:
        a = (a * K).clamp(max=_FAR)
        torch.add(torch.mul(e, _column(a, e), out=y), 1.0, out=v)
    else:
        m = c.m.to(e.dtype)
        inverse = (1 / m).masked_fill_(m == 0, 0.0)
        torch.mul(e, _column(a.clamp(max=_FAR / float(inverse.max())), e), out=y).mul_(inverse)
        log_v = torch.log1p(y, out=v).mul_(m).sum(1).double()
        torch.add(y, 1.0, out=v)
    c_diff = -c.r * f.gap  # c_h - c_k
    y.add_(_column(c_diff / f.c_h, e)).div_(v)  # the slopes
    if c.m is not None:
        y.masked_fill_(m == 0, 1.0)
    y.scatter_(1, c.at, torch.zeros_like(c.at, dtype=e.dtype))
    if c.m is None:
        log_v, m_slope = _sum_log(v, 1 + float(a.max())).double() / K, y.sum(1).double() / K
    else:
        m_slope = torch.mul(y, m, out=v).sum(1).double()
    f_slope = torch.mul(y, e, out=v).sum(1).double() / f.total
    A_f, N_m, k_others = c.A * f.f_others, c.N * m_others * c_diff, N_k * m_others
    value = A_f + N_m - k_others * (f.c_h / f.c_k).log() - N_k * log_v
    rough = value < _ROUGH * (A_f + N_m.abs()) + (_FLAT / K**0.5) * k_others
    if bool(rough.any()):
        again = rough.nonzero().squeeze(1)
        m_all = torch.full_like(e[:1], 1 / K) if c.m is None else c.m if len(c.m) == 1 else c.m[again]
        numbers = torch.stack([N_k, c.A / f.total, c_diff / f.c_k])[:, again]
        value[again] = _others_in_float64(e.index_select(0, again).double(), m_all, c.at[again], *numbers)
    return value, f_slope, m_slope


def _others_in_float64(e: Tensor, m: Tensor, at: Tensor, N_k: Tensor, a: Tensor, g: Tensor) -> Tensor:
    """The sum of the terms where it cancels in float32: k (u - log(1 + u)), u = (h - k)/k = a e / (N_k m) + g."""
    no_noise, N_k = m < 1e-37, N_k.clamp(min=_LEAST)  # such an m is 0 in float32, and the term is h
    u = (e * (a / N_k).clamp(max=1e200)[:, None]).div_(m.masked_fill(no_noise, 1.0)).add_(g[:, None])
    u.scatter_(1, at, torch.zeros_like(at, dtype=u.dtype)).clamp_(min=-1 + 1e-15)
    return N_k * u.sub_(u.log1p()).mul_(m).sum(1) + a * e.mul_(no_noise).sum(1)


def _cell(k: Tensor, h: Tensor, diff: Tensor, ce: Tensor) -> Tensor:
    """h - k - k log(h/k) of one cell, diff = h - k. h/k is at least exp(-ce), also where that underflows."""
    safe = k.clamp(min=_LEAST)
    u = diff / safe
    log_v = torch.log1p(u)
    if not float(u.min()) > -1 + 1e-6:
        log_v = torch.where(u > -0.5, log_v, torch.maximum((h / safe).log(), -ce))
    return diff - k * log_v


def _moments(e: Tensor, v: Tensor, c: _RowConstants, f: _Prediction) -> tuple[Tensor, Tensor, Tensor]:
    """Sums of f f, f m and m m over z other than x and x_0, (n,) each. v is scratch memory."""
    f_f = torch.mul(e, e, out=v).sum(1).double() / f.total.square()
    if c.m is not None:
        f_m = torch.mul(e, c.m.to(e.dtype), out=v).sum(1).double() / f.total
        return f_f, f_m, c.m.square().sum(1) - c.m_x * c.m_x - c.m_0.square()
    each = c.m_0 + c.same * c.m_x  # 1/K, or 0 where all noise is the mask
    return f_f, f.f_others * each, each * (1 - c.m_x - c.m_0)


def _fill_gradient(
    e: Tensor,
    buffers: list[Tensor],
    c: _RowConstants,
    f: _Prediction,
    constant: Tensor,
    of_slope: Tensor,
    of_f: Tensor | None,
    of_m: Tensor,
) -> None:
    """e becomes f_z (constant + of_slope s_z + of_f f_z - of_m m_z), the gradient at z other than x and x_0.

    The first buffer holds the slopes s_z. of_f and of_m belong to l2; of_f is None without it.
    """
    y, v = buffers
    if c.is_mask:  # all slopes are 1
        constant = constant + of_slope
    elif c.m is None and of_f is not None:  # m_z is m_x
        constant = constant - of_m * c.m_x
    flat = _column(constant / f.total, e)
    if c.is_mask and of_f is None:
        e.mul_(flat)
        return
    of_e = None if of_f is None else _column(of_f / f.total.square(), e)
    if c.is_mask and of_e is not None:
        torch.mul(e, of_e, out=y).add_(flat)
    else:
        y.mul_(_column(of_slope / f.total, e)).add_(flat)
        if of_e is not None:
            y.add_(torch.mul(e, of_e, out=v))
        if of_e is not None and c.m is not None:
            y.sub_(torch.mul(c.m.to(e.dtype), _column(of_m / f.total, e), out=v))
    e.mul_(y)


def _sum_log(v: Tensor, largest: float) -> Tensor:
    """Sum of log v over the categories, (n,), for 1 <= v <= largest. Overwrites v.

    Multiplies first: log is expensive.
    """
    width = v.shape[1]
    while width > 4 and largest * largest < 1e37:
        half = width // 2
        v[:, :half].mul_(v[:, width - half : width])
        width, largest = width - half, largest * largest
    return v[:, :width].contiguous().log_().sum(1)  # log is slow on memory with gaps


def _column(value: Tensor, like: Tensor) -> Tensor:
    """(n,) as (n, 1), in the precision of the cells."""
    return value.to(like.dtype).unsqueeze(1)
