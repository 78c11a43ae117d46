"""Draws in plain torch, a bounded number of rows at a time: the companion of `chunked`."""

import torch
from torch import Tensor

from usd3.kernels.cells import SCRATCH, fill_softmax, rows_at_once, spread
from usd3.kernels.problem import Leap

__all__ = ["draw_rows"]


def draw_rows(logits: Tensor, p: Leap, u: Tensor | None) -> Tensor:
    """New categories (R,), -1 where the logits are bad. Without uniforms u (2, R): the mass that leaves x, float64."""
    R, K = logits.shape
    size = min(R, rows_at_once(K))
    spare = SCRATCH.empty(1 if u is None else 4, size, K, logits)
    parts = [_drawn(logits, p, slice(i, min(i + size, R)), u, spare) for i in range(0, R, size or 1)]
    return torch.cat(parts) if parts else p.x.new_empty(0, dtype=torch.float64 if u is None else torch.int64)


def _drawn(logits: Tensor, p: Leap, rows: slice, u: Tensor | None, spare: Tensor) -> Tensor:
    x, e = p.x[rows], spare[0, : rows.stop - rows.start]
    to_f, to_m, anew, alpha_bar, lost = spread(p.coefficients, len(p.x) // p.coefficients.shape[1], rows)
    if p.mask >= 0:
        m_x = (x == p.mask).double()
    else:
        m_x = torch.full_like(to_f, 1 / p.num_classes) if p.m_x is None else p.m_x[rows]
    others, below = fill_softmax(logits[rows], e, x[:, None], p.mask)
    e_x = below.exp().squeeze(1)
    total, back = others + e_x, lost * m_x
    not_f_x, noised = others / total, (others + e_x * back / (alpha_bar + back)) / total
    clean = None
    if p.mask >= 0 or p.m_x is not None:  # f = e_x and nothing was noised where m_x = 0
        clean = m_x == 0
        not_f_x, noised = not_f_x.masked_fill_(clean, 0.0), noised.masked_fill_(clean, 0.0)
    to_f, to_m = to_f * not_f_x, (to_m * noised + anew) * (1 - m_x)
    mass: Tensor = to_f + to_m
    if p.damped:
        damp = torch.exp(-mass)
        to_f, to_m, mass = damp * to_f, damp * to_m, damp * mass
    if u is None:
        return mass if p.free is None else mass.masked_fill_(~p.free[rows], 0.0)
    branch, v = u[0, rows] * mass.clamp(min=1.0), u[1, rows].clamp(max=1 - 2.0**-52)
    to_noise, to_clean, bad = branch < to_m, (branch >= to_m) & (branch < to_m + to_f), mass.isnan()
    if p.free is not None:
        to_noise, to_clean, bad = (which & p.free[rows] for which in (to_noise, to_clean, bad))
    if p.noisy is not None:
        noisy = p.noisy[rows]
    elif p.mask >= 0:
        noisy = torch.full_like(x, p.mask)
    else:
        noisy = (v * (p.num_classes - 1)).long()
        noisy += noisy >= x
    drawn = torch.where(to_noise, noisy, x)
    jumping = to_clean.nonzero().squeeze(1)
    drawn[jumping] = _from_e(e, v, jumping, spare)
    return drawn.masked_fill_(bad, -1)


def _from_e(e: Tensor, v: Tensor, rows: Tensor, spare: Tensor) -> Tensor:
    """Categories for these rows, by the float64 running sum of e."""
    own = torch.index_select(e, 0, rows, out=spare[1, : len(rows)])
    upto = spare[2:].flatten().view(torch.float64).view(-1, e.shape[1])[: len(rows)]
    upto.copy_(own).cumsum_(1)
    target = v[rows, None] * upto[:, -1:]  # less than the last sum, as v < 1 - 2^-53
    return torch.searchsorted(upto, target, right=True).squeeze(1)
