"""Losses, their gradient and draws in plain torch, a bounded number of rows at a time and without autograd.

For the CPU, and for GPUs without Triton. The Triton kernel does the same arithmetic; docs/kernels.md derives it. With
f = softmax(logits) and G_z = f_z dL/df_z, two numbers of a row are needed beside the slopes, G_x and E, the sum of G_z
over z != x:

    dL/dlogit_z = f_z (dL/df_z - G_x - E)        dL/dlogit_x = (1 - f_x) G_x - f_x E
"""

from typing import NamedTuple

import torch
from torch import Tensor

from usd3.kernels.problem import Leap, Problem

__all__ = ["CELLS", "draw_rows", "loss_rows"]

CELLS = 1 << 18
"""Logits that are worked on at once: a few temporaries of this size fit into a core's cache."""

NOTHING = 1e-30  # a target below this is taken as 0
NEVER = -1e30  # its log
_ROUGH = 0.01  # where u - log(1 + u) loses more than this to cancellation,
_SMALL = 0.05  # its series is taken for all |u| below this


def loss_rows(logits: Tensor, p: Problem, weights: Tensor, with_l2: bool, gradient: Tensor | None) -> Tensor:
    """Terms (4, R) of each row: vlb, ce, l2 (0 unless asked for), and their sum with `weights`.

    The weights are float64, (3, B) or (3, R). `gradient`, (R, K), receives the gradient of that sum; it may be the
    logits themselves. Rows that are not free get 0.
    """
    R, K = logits.shape
    dtype = torch.promote_types(logits.dtype, torch.float32)
    terms = torch.zeros(4, R, dtype=dtype, device=logits.device)
    rows = torch.arange(R, device=logits.device) if p.free is None else p.free.nonzero().squeeze(-1)
    if gradient is not None and p.free is not None:
        gradient[~p.free] = 0
    for chunk in rows.split(max(1, CELLS // K)) if len(rows) else ():
        own = slice(int(chunk[0]), int(chunk[-1]) + 1) if p.free is None else chunk
        number = chunk + p.first
        objects = number // p.elements
        w = weights[:, objects if weights.shape[1] == p.coefficients.shape[1] else own]
        numbers = _Numbers.of(p, own, number, objects)
        found, slopes = _rows(logits[own].to(dtype), p, numbers, w, with_l2, gradient is not None)
        terms[:, own] = torch.cat([found, (found * w).sum(0, keepdim=True)]).to(dtype)
        if gradient is not None and slopes is not None:
            gradient[own] = slopes.to(gradient.dtype)
    return terms


class _Numbers(NamedTuple):
    """What is known of each row before its logits are read, float64."""

    x: Tensor
    x_0: Tensor
    same: Tensor  # x = x_0
    A: Tensor
    N: Tensor
    keep: Tensor
    m_x: Tensor
    m_0: Tensor  # 0 where x = x_0: that cell is x's
    r: Tensor
    q: Tensor  # 1 - r
    m: Tensor | float  # of every category, (n, K) or (1, K), or one number for all

    @classmethod
    def of(cls, p: Problem, own: slice | Tensor, rows: Tensor, objects: Tensor) -> "_Numbers":
        x, x_0 = p.x[own], p.x_0[own]
        A, N, keep, alpha_bar, lost = p.coefficients[:, objects]
        same, m = x == x_0, 1 / p.num_classes
        m_x = m_0 = torch.full_like(A, m)
        table: Tensor | float = m
        if p.mask >= 0:
            m_x, m_0, table = (x == p.mask).double(), (x_0 == p.mask).double(), 0.0
        elif p.m is not None:
            place = rows % len(p.m)
            m_x, m_0 = p.m[place, x], p.m[place, x_0]
            table = p.m if len(p.m) == 1 else p.m[place]
        here = torch.where(m_x > 0, alpha_bar + lost * m_x, 1.0)
        r = torch.where(m_x > 0, alpha_bar / here, 1.0)
        return cls(x, x_0, same, A, N, keep, m_x, torch.where(same, 0.0, m_0), r, lost * m_x / here, table)


def _rows(
    logits: Tensor, p: Problem, n: _Numbers, weights: Tensor, with_l2: bool, with_gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """Terms (3, n) and gradient (n, K) of these rows."""
    at_x, at_0 = n.x[:, None], n.x_0[:, None]
    l_x, l_0 = (logits.gather(1, at).squeeze(1).double() for at in (at_x, at_0))
    top = _largest(logits, p.mask)
    e = (logits - top[:, None]).exp_()
    if p.mask >= 0:
        e[:, p.mask] = 0
    e.scatter_(1, at_x, 0.0).scatter_(1, at_0, 0.0)  # from here on e holds the other categories
    others, top = e.sum(1).double(), top.double()
    e_x = torch.where(n.x == p.mask, 0.0, torch.exp(l_x - top))
    e_0 = torch.where(n.same, 0.0, torch.exp(l_0 - top))
    total = others + e_0 + e_x
    f_x, f_0, not_f_x, f_others = e_x / total, e_0 / total, (others + e_0) / total, others / total
    log_total = top + total.log()
    log_f_x = torch.where(not_f_x < 0.5, torch.log1p(-not_f_x), l_x - log_total)
    log_f_0 = l_0 - log_total
    if p.mask >= 0:
        log_f_x = torch.where(n.x == p.mask, NEVER, log_f_x)
    log_f_x, log_f_0 = log_f_x.clamp(min=NEVER), log_f_0.clamp(min=NEVER)

    clean = n.m_x == 0
    w_vlb, w_ce, w_l2 = torch.where(clean, 0.0, weights)
    gap = torch.where(n.same, -not_f_x, f_x)  # f_x - [x = x_0]
    c_k, c_h = torch.where(n.same, n.q, 1.0), not_f_x + n.q * f_x
    cells = _bregman_cells(e, total, n, p, c_k, c_h, gap, f_others)
    apart = ~n.same
    k_0, rest_0 = n.A + n.N * n.m_0, n.N * c_h * n.m_0
    cell_0, gap_0, A_f_0, k_t_0 = _cell(k_0, n.A, log_f_0, rest_0)
    vlb = cells.value + torch.where(apart, cell_0, 0.0)
    slope_0 = -torch.expm1((-gap_0).clamp(max=600.0))
    G_x = -n.r * f_x * n.N * (cells.m_slope + n.m_0 * slope_0)
    if p.is_step:
        k_x = n.A * n.same + n.keep + n.N * (n.r * n.same + c_k * n.m_x)
        rest_x = n.keep + n.N * (n.r * f_x + c_h * n.m_x)
        cell_x, *_ = _cell(k_x, n.A, log_f_x, rest_x)
        vlb = vlb + cell_x
        G_x = G_x + _pull(k_x, n.A, log_f_x, rest_x, n.A + n.N * n.r * (1 - n.m_x))
    ce = -torch.where(n.same, log_f_x, log_f_0)
    l2 = torch.zeros_like(ce)
    G_0 = w_vlb * (A_f_0 - k_t_0)
    G_x, E = w_vlb * G_x, w_vlb * n.A * cells.f_slope
    if with_l2:
        phi = (n.N * n.r / n.A.clamp(min=1e-300)).clamp(max=1.0)
        d = e * _column(1 / total, e) - _column(phi * gap, e) * _as(n.m, e)
        d.scatter_(1, at_x, 0.0).scatter_(1, at_0, 0.0)
        d_x, d_0 = gap * (1 + phi * (1 - n.m_x)), torch.where(apart, -(others + e_x) / total - phi * gap * n.m_0, 0.0)
        l2 = d.square().sum(1).double() + d_x.square() + d_0.square()
        m_d = (d * _as(n.m, e)).sum(1).double() + n.m_0 * d_0
        G_x = G_x + w_l2 * f_x * 2 * (d_x * (1 + phi * (1 - n.m_x)) - phi * m_d)
        G_0 = G_0 + w_l2 * 2 * d_0 * f_0
        E = E + w_l2 * 2 * (e * d).sum(1).double() / total
    terms = torch.where(clean, 0.0, torch.stack([vlb, ce, l2]))
    if not with_gradient:
        return terms, None
    E = E + torch.where(apart, G_0, 0.0)
    slopes = cells.slopes
    if slopes is None:  # 1 everywhere
        slopes = _column(w_vlb * n.A + w_ce - G_x - E, e)
    else:
        slopes = slopes.mul_(_column(w_vlb * n.A, e)).add_(_column(w_ce - G_x - E, e))
    if with_l2:
        slopes = slopes + d.mul_(_column(2 * w_l2, e))
    gradient = e.mul_(_column(1 / total, e)).mul_(slopes)
    g_0 = G_0 - f_0 * (G_x + E) - w_ce * (others + e_x) / total
    g_x = not_f_x * G_x - f_x * E + w_ce * gap
    gradient.scatter_(1, at_0, _column(g_0, e)).scatter_(1, at_x, _column(g_x, e))
    return terms, torch.where(clean[:, None], 0.0, gradient) if p.mask >= 0 or p.m is not None else gradient


class _Cells(NamedTuple):
    """The Bregman terms of all z but x and x_0, and their slopes s = 1 - k/h; `slopes` None: all 1."""

    value: Tensor
    f_slope: Tensor  # sum of f s
    m_slope: Tensor  # sum of m s
    slopes: Tensor | None


def _bregman_cells(
    e: Tensor, total: Tensor, n: _Numbers, p: Problem, c_k: Tensor, c_h: Tensor, gap: Tensor, f_others: Tensor
) -> _Cells:
    """k = N c_k m and h = A f + N c_h m: with u = (h - k)/k the term is k (u - log(1 + u)), the slope u / (1 + u)."""
    m, N_k = n.m, n.N * c_k
    m_others = 1 - n.m_x - n.m_0
    if p.mask >= 0:  # k = 0 and h = A f
        return _Cells(n.A * f_others, f_others, torch.zeros_like(f_others), None)
    table = m if isinstance(m, Tensor) else None
    smallest = 1 / p.num_classes if table is None else torch.where(table > 0, table, 1.0).amin(1)
    live = N_k * smallest > NOTHING
    safe_k, safe_c = torch.where(live, N_k, 1.0), torch.where(live, c_k, 1.0)
    a, g = (n.A / safe_k / total).clamp(max=1e30), -n.r * gap / safe_c
    if table is None:
        u = (e * _column(a * p.num_classes, e)).add_(_column(g, e))
    else:
        inverse = torch.where(table > 0, 1 / torch.where(table > 0, table, 1.0), 0.0).to(e.dtype)
        u = (e * _column(a, e)).mul_(inverse).add_(_column(g, e) * (inverse > 0))
    u.scatter_(1, n.x[:, None], 0.0).scatter_(1, n.x_0[:, None], 0.0)
    v = u + 1
    deep = g < -0.9  # 1 + g cancels: there 1 + u is formed anew
    if bool(deep.any()):
        v[deep] = _ratios(e, a, c_h / safe_c, table, n, deep, p.num_classes)
    weight = 1 / p.num_classes if table is None else table.to(e.dtype)
    cells = u - torch.log1p(u)
    if bool(deep.any()):
        cells[deep] = u[deep] - v[deep].log()
    value, size = _weighted_sum(cells, weight), _weighted_sum(u.abs(), weight)
    rough = value < _ROUGH * size  # u and log(1 + u) cancel
    if bool(rough.any()):
        near = u[rough]
        cells = torch.where(near.abs() < _SMALL, _series(near), cells[rough])
        value[rough] = _weighted_sum(cells, weight if table is None or len(table) == 1 else weight[rough])
    slopes = u.div_(v)
    m_slope = _weighted_sum(slopes, weight)
    if table is None:
        f_slope = (slopes * e).sum(1).double() / total
    else:
        dead = (table == 0).to(e.dtype)
        slopes += dead
        f_slope = (slopes * e).sum(1).double() / total
        value = value + n.A / safe_k * (e * dead).sum(1).double() / total
    value = N_k * value
    if not bool(live.all()):  # k = 0: the term is h, and the slope 1
        value = torch.where(live, value, n.A * f_others + n.N * c_h * m_others)
        f_slope, m_slope = torch.where(live, f_slope, f_others), torch.where(live, m_slope, m_others)
        slopes[~live] = 1
    return _Cells(value, f_slope, m_slope, slopes)


def _ratios(
    e: Tensor, a: Tensor, ratio: Tensor, table: Tensor | None, n: _Numbers, rows: Tensor, num_classes: int
) -> Tensor:
    """h / k of these rows, without going through 1 + u; 1 at x and x_0."""
    own = e[rows]
    if table is None:
        v = own * _column(a[rows] * num_classes, e)
    else:
        m = table if len(table) == 1 else table[rows]
        v = own * _column(a[rows], e) * torch.where(m > 0, 1 / torch.where(m > 0, m, 1.0), 0.0).to(e.dtype)
    v += _column(ratio[rows], e)
    v.clamp_(min=1e-30)
    return v.scatter_(1, n.x[rows][:, None], 1.0).scatter_(1, n.x_0[rows][:, None], 1.0)


def _weighted_sum(cells: Tensor, weight: Tensor | float) -> Tensor:
    """Sum over the categories, float64."""
    return (cells * weight).sum(1).double() if isinstance(weight, Tensor) else cells.sum(1).double() * weight


def _series(u: Tensor) -> Tensor:
    """u - log(1 + u) for small u."""
    return u * u * (1 / 2 - u * (1 / 3 - u * (1 / 4 - u * (1 / 5 - u * (1 / 6 - u / 7)))))


def _cell(k: Tensor, A: Tensor, log_f: Tensor, rest: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """k log(k/h) - k + h at h = A f + rest; log(h/k); A f; k A f / h. Right also where f underflows."""
    log_A_f = _log(A) + log_f
    log_h = torch.logaddexp(log_A_f, _log(rest))
    gap = torch.where(k > 0, log_h - _log(k), 0.0)
    value = torch.where(k > 0, k * (torch.expm1(gap) - gap), log_h.exp())
    return value, gap, log_A_f.exp(), k * torch.exp((log_A_f - log_h).clamp(max=0.0))


def _pull(k: Tensor, A: Tensor, log_f: Tensor, rest: Tensor, slope: Tensor) -> Tensor:
    """f dh/df (1 - k/h) at h = A f + rest, with dh/df = slope."""
    log_h = torch.logaddexp(_log(A) + log_f, _log(rest))
    return slope * log_f.exp() - k * torch.exp((_log(slope) + log_f - log_h).clamp(max=0.0))


def _log(value: Tensor) -> Tensor:
    """log, with NEVER for 0."""
    return torch.where(value > 0, value, 1.0).log() + torch.where(value > 0, 0.0, NEVER)


def _largest(logits: Tensor, mask: int) -> Tensor:
    """The largest logit of each row; the mask does not count."""
    if mask < 0:
        return logits.amax(1)
    parts = [part.amax(1) for part in (logits[:, :mask], logits[:, mask + 1 :]) if part.shape[1]]
    return torch.stack(parts).amax(0)


def _column(value: Tensor, like: Tensor) -> Tensor:
    return value.to(like.dtype)[:, None]


def _as(m: Tensor | float, like: Tensor) -> Tensor | float:
    return m.to(like.dtype) if isinstance(m, Tensor) else m


def draw_rows(logits: Tensor, p: Leap, u: Tensor | None) -> Tensor:
    """New categories (R,), -1 where the logits are NaN. Without uniforms u (2, R): the mass that leaves x, float64."""
    size = max(1, CELLS // p.num_classes)
    parts = [_drawn(logits, p, slice(i, min(i + size, len(logits))), u) for i in range(0, len(logits), size)]
    return torch.cat(parts) if parts else p.x.new_empty(0, dtype=torch.float64 if u is None else torch.int64)


def _drawn(logits: Tensor, p: Leap, rows: slice, u: Tensor | None) -> Tensor:
    x, logits = p.x[rows], logits[rows].to(torch.promote_types(logits.dtype, torch.float32))
    elements = len(p.x) // p.coefficients.shape[1]
    objects = torch.arange(rows.start, rows.stop, device=x.device) // elements
    to_f, to_m, anew, alpha_bar, lost = p.coefficients[:, objects]
    m_x = torch.full_like(to_f, 1 / p.num_classes) if p.m_x is None else p.m_x[rows]
    if p.mask >= 0:
        m_x = (x == p.mask).double()
    top = _largest(logits, p.mask)
    e = (logits - top[:, None]).exp_()
    if p.mask >= 0:
        e[:, p.mask] = 0
    e_x = e.gather(1, x[:, None]).squeeze(1).double()
    others = e.scatter_(1, x[:, None], 0.0).sum(1).double()
    clean = m_x == 0
    f_x = torch.where(clean, 1.0, e_x / (others + e_x))
    not_f_x = torch.where(clean, 0.0, others / (others + e_x))
    q = torch.where(clean, 0.0, lost * m_x / torch.where(clean, 1.0, alpha_bar + lost * m_x))
    to_f = to_f * not_f_x
    to_m = (to_m * (not_f_x + q * f_x) + anew) * (1 - m_x)
    mass = to_f + to_m
    if p.damped:
        to_f, to_m, mass = (torch.exp(-mass) * part for part in (to_f, to_m, mass))
    if u is None:
        return mass
    branch, v = u[0, rows] * mass.clamp(min=1.0), u[1, rows].clamp(max=1 - 2.0**-53)
    to_noise, to_clean = branch < to_m, (branch >= to_m) & (branch < to_m + to_f)
    if p.free is not None:
        to_noise, to_clean = to_noise & p.free[rows], to_clean & p.free[rows]
    if p.noisy is not None:
        noisy = p.noisy[rows]
    elif p.mask >= 0:
        noisy = torch.full_like(x, p.mask)
    else:
        noisy = (v * (p.num_classes - 1)).long()
        noisy = noisy + (noisy >= x)
    drawn, jumping = torch.where(to_noise, noisy, x), to_clean.nonzero().squeeze(-1)
    if len(jumping):
        upto = e[jumping].cumsum(1, dtype=torch.float64)
        upto /= upto[:, -1:].clone()
        drawn[jumping] = torch.searchsorted(upto, v[jumping, None], right=True).squeeze(1)
    bad = torch.isnan(mass) & ~clean
    return torch.where(bad if p.free is None else bad & p.free[rows], -1, drawn)
