"""Losses and their gradient in plain torch, a bounded number of rows at a time and without autograd.

For the CPU, and for GPUs without Triton. The Triton kernel does the same arithmetic; docs/kernels.md derives it. With
f = softmax(logits) and G_z = f_z dL/df_z, two numbers of a row are needed beside the slopes, G_x and E, the sum of G_z
over z != x:

    dL/dlogit_z = f_z (dL/df_z - G_x - E)        dL/dlogit_x = (1 - f_x) G_x - f_x E

Numbers of a row are float64 vectors, and 1 - f and h - k are never formed by subtraction. Cells, one per row and
category, are in the precision of the logits and live in a few buffers that all chunks share: fresh memory costs more
than the arithmetic. In cells exp2 is a third of the time of exp, and columns (n, 1) are as fast as scalars.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from usd3.kernels.cells import SCRATCH, column, fill_softmax, rows_at_once, spread, sum_log
from usd3.kernels.problem import Problem

__all__ = ["loss_rows"]

_FAR = 1e30  # -log f is at most this
_LEAST = 1e-290  # a denominator is at least this
_ROUGH, _FLAT = 0.01, 3e-3  # where the mean of u - log(1 + u) is less than this part of |u|, or this / sqrt(K), it is
#                             formed anew: float32 would leave less than four and a half digits


def loss_rows(logits: Tensor, p: Problem, weights: Tensor, with_l2: bool, gradient: Tensor | None) -> Tensor:
    """Terms (4, R) of each row: vlb, ce, l2 (0 unless asked for), and their sum with `weights`.

    The weights are float64, (3, B) or (3, R). `gradient`, (R, K), receives the gradient of that sum; it may be the
    logits themselves. Rows that are not free, or certainly clean (m_x = 0), are not read and get 0.
    """
    logits = logits.detach()
    R, K = logits.shape
    dtype = torch.promote_types(logits.dtype, torch.float32)
    terms = torch.zeros(4, R, dtype=dtype, device=logits.device)
    read = _read(p)
    rows = None if read is None else read.nonzero().squeeze(1)
    if gradient is not None and read is not None:
        gradient.index_fill_(0, (~read).nonzero().squeeze(1), 0)
    count, size = R if rows is None else len(rows), rows_at_once(K)
    direct = rows is None and gradient is not None and gradient.dtype == dtype
    spare = SCRATCH.buffers(2 if direct else 3, min(count, size), K, logits)
    for start in range(0, count, size):
        part = slice(start, min(start + size, count))
        own = part if rows is None else rows[part]
        buffers = [buffer[: part.stop - start] for buffer in spare]
        e = gradient[part] if direct and gradient is not None else buffers.pop()
        n = _known(p, own, weights)
        found = _loss(_taken(logits, own, e), e, buffers, p, n, with_l2, gradient is not None)
        terms[:, own] = torch.stack(found) if rows is None else torch.stack(found).to(dtype)
        if gradient is not None and not direct:
            gradient[own] = e.to(gradient.dtype)
    return terms


def _taken(logits: Tensor, own: slice | Tensor, e: Tensor) -> Tensor:
    """These rows, a view of the logits or of e."""
    if isinstance(own, slice):
        return logits[own]
    return torch.index_select(logits, 0, own, out=e if e.dtype == logits.dtype else None)


def _read(p: Problem) -> Tensor | None:
    """Which rows are read; None: all."""
    if p.mask >= 0:
        noisy = p.x == p.mask
    elif p.m is not None and not bool((p.m > 0).all()):
        number = torch.arange(p.first, p.first + len(p.x), device=p.x.device)
        noisy = p.m[number % len(p.m), p.x] > 0
    else:
        return p.free
    return noisy if p.free is None else noisy & p.free


class _Known(NamedTuple):
    """What is known of each row before its logits are read: numbers (n,) float64."""

    is_mask: bool  # all noise is the mask, and x is the mask
    at: Tensor  # x_0 and x, (n, 2)
    same: Tensor  # x = x_0, as 0 or 1
    apart: Tensor  # the contrary
    m: Tensor | None  # of every category, (n, K) or (1, K); None: the same for all, or the mask
    m_x: Tensor | float
    m_0: Tensor  # 0 where x = x_0: that cell is x's
    A: Tensor
    N: Tensor
    keep: Tensor
    r: Tensor
    q: Tensor  # 1 - r
    w_vlb: Tensor
    w_ce: Tensor
    w_l2: Tensor


def _known(p: Problem, own: slice | Tensor, weights: Tensor) -> _Known:
    x, x_0 = p.x[own], p.x_0[own]
    by_row = weights.shape[1] != p.coefficients.shape[1]
    numbers = p.coefficients if by_row else torch.cat([p.coefficients, weights])
    same = (x == x_0).double()
    apart, at, m = 1 - same, torch.stack([x_0, x], 1), None
    m_x: Tensor | float
    if p.m is None:  # one m_x for all: r and q are numbers of an object
        m_x = 1 / p.num_classes if p.mask < 0 else 1.0
        m_0 = apart * (m_x if p.mask < 0 else 0.0)
        A, N, keep, r, q, *w = spread(_untouched(numbers, m_x), p.elements, own, p.first)
    else:
        rows = torch.arange(own.start, own.stop, device=x.device) if isinstance(own, slice) else own
        place = (rows + p.first) % len(p.m)
        m_x, m_0, m = p.m[place, x], p.m[place, x_0] * apart, p.m if len(p.m) == 1 else p.m[place]
        A, N, keep, r, q, *w = _untouched(spread(numbers, p.elements, own, p.first), m_x)
    w_vlb, w_ce, w_l2 = weights[:, own] if by_row else w
    return _Known(p.mask >= 0, at, same, apart, m, m_x, m_0, A, N, keep, r, q, w_vlb, w_ce, w_l2)


def _untouched(numbers: Tensor, m_x: Tensor | float) -> Tensor:
    """r and q in the place of alpha_bar and 1 - alpha_bar."""
    alpha_bar, back = numbers[3], numbers[4] * m_x
    return torch.cat([numbers[:3], torch.stack([alpha_bar, back]) / (alpha_bar + back), numbers[5:]])


class _Seen(NamedTuple):
    """What the logits say of each row, (n,) float64; `f_0` is 0 where x = x_0."""

    total: Tensor  # f = e / total
    f_x: Tensor
    not_f_x: Tensor
    f_0: Tensor
    not_f_0: Tensor
    f_others: Tensor
    gap: Tensor  # f_x - [x = x_0]
    c_h: Tensor  # P(noised), by f
    c_k: Tensor  # and by x_0
    ce: Tensor


def _seen(logits: Tensor, e: Tensor, n: _Known, mask: int) -> _Seen:
    """Fill e with the other categories' share."""
    others, below = fill_softmax(logits, e, n.at, mask)
    e_t, e_x = below.exp().T
    e_0 = n.apart * e_t
    rest_x, rest_0 = others + e_0, others + n.apart * e_x
    total = rest_x + e_x
    f_x, not_f_x, f_0, not_f_0, f_others = torch.stack([e_x, rest_x, e_0, rest_0, others]) / total
    ce = torch.log1p(rest_0 / e_t)
    if float(below.min()) < -600:  # e_t is at its end
        ce = torch.where(below[:, 0] < -600, total.log() - below[:, 0], ce).clamp(max=_FAR)
    c_h, c_k = (not_f_x + n.q * f_x).clamp(min=_LEAST), (n.apart + n.same * n.q).clamp(min=_LEAST)
    return _Seen(total, f_x, not_f_x, f_0, not_f_0, f_others, n.apart * f_x - n.same * not_f_x, c_h, c_k, ce)


def _loss(
    logits: Tensor, e: Tensor, buffers: list[Tensor], p: Problem, n: _Known, with_l2: bool, with_gradient: bool
) -> tuple[Tensor, ...]:
    """vlb, ce, l2 and their weighted sum; the gradient in e."""
    s = _seen(logits, e, n, p.mask)
    if n.is_mask:  # k = 0 and h = A f
        vlb, f_slope, m_slope = n.A * s.f_others, s.f_others, n.m_0
    else:
        vlb, f_slope, m_slope = _others(e, buffers, n, s)
    # the cell at x_0 != x
    N_m = n.N * n.m_0
    h_0, more_0 = n.A * s.f_0 + N_m * s.c_h, -n.apart * (n.A * s.not_f_0 + N_m * n.r * s.f_x)
    vlb = vlb + _cell(n.apart * n.A + N_m, h_0, more_0, s.ce)
    h_0 = h_0.clamp(min=_LEAST)
    G_0 = more_0 * (1 - N_m * s.c_h / h_0)
    G_x = -n.r * s.f_x * (n.N * m_slope + N_m * more_0 / h_0)
    if p.is_step:  # the cell at x
        pull, stay = n.A + n.N * n.r * (1 - n.m_x), n.keep + n.N * n.m_x
        h_x, more_x = stay + s.f_x * pull, s.gap * pull
        vlb = vlb + _cell(stay + n.same * pull, h_x, more_x, s.ce)
        G_x = G_x + more_x * (1 - stay / h_x.clamp(min=_LEAST))
    loss = n.w_vlb * vlb + n.w_ce * s.ce
    G_x, G_0, E = n.w_vlb * G_x, n.w_vlb * G_0, n.w_vlb * n.A * f_slope
    l2, bend, shift = torch.zeros_like(vlb), n.w_l2, n.w_l2
    if with_l2:  # d = f - e_x0 + phi gap (e_x - m)
        phi = (n.N * n.r / n.A.clamp(min=_LEAST)).clamp(max=1.0)
        shift, bend = phi * s.gap, 2 * n.w_l2
        f_f, f_m, m_m = _moments(e, buffers[1], n, s)
        d_x, d_0 = s.gap + shift * (1 - n.m_x), -n.apart * s.not_f_0 - shift * n.m_0
        l2 = f_f + shift * (shift * m_m - 2 * f_m) + d_x.square() + d_0.square()
        loss = loss + n.w_l2 * l2
        G_x = G_x + bend * s.f_x * (d_x * (1 + phi * (1 - n.m_x)) - phi * (f_m - shift * m_m + n.m_0 * d_0))
        G_0 = G_0 + bend * d_0 * s.f_0
        E = E + bend * (f_f - shift * f_m)
    if with_gradient:
        E = E + G_0
        level, steep = n.w_ce - G_x - E, n.w_vlb * n.A
        _fill_gradient(e, buffers, n, s, level, steep, bend if with_l2 else None, bend * shift)
        g_0 = G_0 - s.f_0 * (G_x + E) - n.w_ce * s.not_f_0
        g_x = s.not_f_x * G_x - s.f_x * E + n.w_ce * s.gap
        g_0 = n.apart * g_0 + n.same * g_x  # x and x_0 may be one
        e.scatter_(1, n.at, torch.stack([g_0, g_x], 1).to(e.dtype))
    return vlb, s.ce, l2, loss


def _others(e: Tensor, buffers: list[Tensor], n: _Known, s: _Seen) -> tuple[Tensor, Tensor, Tensor]:
    """The terms of all z but x and x_0, summed; the sums of f and m times their slopes, which a buffer keeps.

    k = N c_k m and h = A f + N c_h m = N c_h m (1 + y), y = A f / (N c_h m). The term is h - k - k log(h/k), the slope
    1 - k/h = (y + 1 - c_k/c_h) / (1 + y).
    """
    (y, v), K = buffers, e.shape[1]
    N_k, m_others = n.N * s.c_k, 1 - n.m_x - n.m_0
    a = n.A / s.total / (n.N * s.c_h).clamp(min=_LEAST)
    if n.m is None:
        a = (a * K).clamp(max=_FAR)
        torch.add(torch.mul(e, column(a, e), out=y), 1.0, out=v)
    else:
        m = n.m.to(e.dtype)
        inverse = (1 / m).masked_fill_(m == 0, 0.0)
        torch.mul(e, column(a.clamp(max=_FAR / float(inverse.max())), e), out=y).mul_(inverse)
        log_v = torch.log1p(y, out=v).mul_(m).sum(1).double()
        torch.add(y, 1.0, out=v)
    more = -n.r * s.gap  # c_h - c_k
    y.add_(column(more / s.c_h, e)).div_(v)
    if n.m is not None:
        y.masked_fill_(m == 0, 1.0)
    y.scatter_(1, n.at, torch.zeros_like(n.at, dtype=e.dtype))
    if n.m is None:
        log_v, m_slope = sum_log(v, 1 + float(a.max())).double() / K, y.sum(1).double() / K
    else:
        m_slope = torch.mul(y, m, out=v).sum(1).double()
    f_slope = torch.mul(y, e, out=v).sum(1).double() / s.total
    A_f, N_m, k_others = n.A * s.f_others, n.N * m_others * more, N_k * m_others
    value = A_f + N_m - k_others * (s.c_h / s.c_k).log() - N_k * log_v
    rough = value < _ROUGH * (A_f + N_m.abs()) + (_FLAT / K**0.5) * k_others
    if bool(rough.any()):
        again = rough.nonzero().squeeze(1)
        m_all = torch.full_like(e[:1], 1 / K) if n.m is None else n.m if len(n.m) == 1 else n.m[again]
        numbers = torch.stack([N_k, n.A / s.total, more / s.c_k])[:, again]
        value[again] = _others_again(e.index_select(0, again).double(), m_all, n.at[again], *numbers)
    return value, f_slope, m_slope


def _others_again(e: Tensor, m: Tensor, at: Tensor, N_k: Tensor, a: Tensor, g: Tensor) -> Tensor:
    """The same sum where it cancels: k (u - log(1 + u)) with u = (h - k)/k, in float64."""
    dead, N_k = m < 1e-37, N_k.clamp(min=_LEAST)  # as in float32
    u = (e * (a / N_k).clamp(max=1e200)[:, None]).div_(m.masked_fill(dead, 1.0)).add_(g[:, None])
    u.scatter_(1, at, torch.zeros_like(at, dtype=u.dtype)).clamp_(min=-1 + 1e-15)
    return N_k * u.sub_(u.log1p()).mul_(m).sum(1) + a * e.mul_(dead).sum(1)


def _cell(k: Tensor, h: Tensor, more: Tensor, ce: Tensor) -> Tensor:
    """h - k - k log(h/k), more = h - k; h/k is at least exp(-ce), also where that underflows."""
    safe = k.clamp(min=_LEAST)
    u = more / safe
    log_v = torch.log1p(u)
    if not float(u.min()) > -1 + 1e-6:
        log_v = torch.where(u > -0.5, log_v, torch.maximum((h / safe).log(), -ce))
    return more - k * log_v


def _moments(e: Tensor, v: Tensor, n: _Known, s: _Seen) -> tuple[Tensor, Tensor, Tensor]:
    """Sums of f f, f m and m m over all z but x and x_0."""
    f_f = torch.mul(e, e, out=v).sum(1).double() / s.total.square()
    if n.m is not None:
        f_m = torch.mul(e, n.m.to(e.dtype), out=v).sum(1).double() / s.total
        return f_f, f_m, n.m.square().sum(1) - n.m_x * n.m_x - n.m_0.square()
    each = n.m_0 + n.same * n.m_x  # 1/K, or 0 where all noise is the mask
    return f_f, s.f_others * each, each * (1 - n.m_x - n.m_0)


def _fill_gradient(
    e: Tensor,
    buffers: list[Tensor],
    n: _Known,
    s: _Seen,
    level: Tensor,
    steep: Tensor,
    bend: Tensor | None,
    to_m: Tensor,
) -> None:
    """e becomes f (steep slope + bend f - to_m m + level); without bend there is no l2. The slopes are in a buffer."""
    y, v = buffers
    if n.is_mask:  # all slopes are 1
        level = level + steep
    elif n.m is None and bend is not None:
        level = level - to_m * n.m_x
    flat = column(level / s.total, e)
    if n.is_mask and bend is None:
        e.mul_(flat)
        return
    bent = None if bend is None else column(bend / s.total.square(), e)
    if n.is_mask and bent is not None:
        torch.mul(e, bent, out=y).add_(flat)
    else:
        y.mul_(column(steep / s.total, e)).add_(flat)
        if bent is not None:
            y.add_(torch.mul(e, bent, out=v))
        if bent is not None and n.m is not None:
            y.sub_(torch.mul(n.m.to(e.dtype), column(to_m / s.total, e), out=v))
    e.mul_(y)
