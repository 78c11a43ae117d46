"""Draws in plain torch, a bounded number of rows at a time. `draw.py` says what is drawn."""

import torch
from torch import Tensor

from usd3.kernels.chunked_common import SCRATCH, data_logits, fill_softmax, numbers_of_rows, rows_at_once
from usd3.kernels.draw import ALPHA_BAR, FORWARD, LOST, TO_DATA, TO_NOISE, Leap

__all__ = ["draw_rows"]


def draw_rows(logits: Tensor, p: Leap, u: Tensor | None, failed: Tensor | None = None) -> Tensor:
    """New categories (R,), x where the logits are bad. Without uniforms u (2, R): the mass that leaves x, float64."""
    R, K = logits.shape
    size = min(R, rows_at_once(K))
    spare = SCRATCH.empty(1 if u is None else 4, size, K, logits)
    parts = [_draw_chunk(logits, p, slice(i, min(i + size, R)), u, failed, spare) for i in range(0, R, size or 1)]
    return torch.cat(parts) if parts else p.x.new_empty(0, dtype=torch.float64 if u is None else torch.int64)


def _draw_chunk(logits: Tensor, p: Leap, rows: slice, u: Tensor | None, failed: Tensor | None, spare: Tensor) -> Tensor:
    """`draw_rows` of n rows; spare (1 or 4, >= n, K) is scratch memory."""
    x, e = p.x[rows], spare[0, : rows.stop - rows.start]
    numbers = numbers_of_rows(p.coefficients, len(p.x) // p.coefficients.shape[1], rows)
    to_data, to_noise, forward = numbers[TO_DATA], numbers[TO_NOISE], numbers[FORWARD]
    alpha_bar, lost = numbers[ALPHA_BAR], numbers[LOST]
    noise = p.noise
    if noise.absorbing:
        m_x = (x == noise.mask).double()
    else:
        m_x = torch.full_like(to_data, 1 / noise.num_classes) if p.m_x is None else p.m_x[rows]
    others, below_top = fill_softmax(data_logits(logits[rows], e, noise, rows), e, x[:, None])
    e_x = below_top.exp().squeeze(1)
    total, back = others + e_x, lost * m_x
    not_f_x, c_f = others / total, (others + e_x * back / (alpha_bar + back)) / total  # 1 - f_x and c(f)
    if noise.absorbing or p.m_x is not None:  # where m_x = 0, f = e_x and x is no noise
        is_certain = m_x == 0
        not_f_x, c_f = not_f_x.masked_fill_(is_certain, 0.0), c_f.masked_fill_(is_certain, 0.0)
    to_f, to_m = to_data * not_f_x, (to_noise * c_f + forward) * (1 - m_x)  # mass that goes to f and to m
    mass: Tensor = to_f + to_m
    if p.damped:
        damp = torch.exp(-mass)
        to_f, to_m, mass = damp * to_f, damp * to_m, damp * mass
    if u is None:
        return mass if p.free is None else mass.masked_fill_(~p.free[rows], 0.0)
    branch, v = u[0, rows] * mass.clamp(min=1.0), u[1, rows].clamp(max=1 - 2.0**-52)
    goes_to_m, goes_to_f = branch < to_m, (branch >= to_m) & (branch < to_m + to_f)  # neither where the mass is NaN
    if p.free is not None:
        goes_to_m, goes_to_f = goes_to_m & p.free[rows], goes_to_f & p.free[rows]
    if failed is not None:
        read = mass if p.free is None else mass.masked_fill(~p.free[rows], 0.0)
        failed.logical_or_(read.sum().isnan())
    if p.noisy is not None:
        noisy = p.noisy[rows]
    elif noise.absorbing:
        noisy = torch.full_like(x, noise.mask)
    else:  # uniform over the K - 1 categories other than x
        noisy = (v * (noise.num_classes - 1)).long()
        noisy += noisy >= x
    new = torch.where(goes_to_m, noisy, x)
    jumping = goes_to_f.nonzero().squeeze(1)
    new[jumping] = _from_e(e, v, jumping, spare)
    return new


def _from_e(e: Tensor, v: Tensor, rows: Tensor, spare: Tensor) -> Tensor:
    """Categories (j,) of these rows (j,): the inverse of the float64 running sum of e at the uniforms v."""
    weights = torch.index_select(e, 0, rows, out=spare[1, : len(rows)])
    upto = spare[2:].flatten().view(torch.float64).view(-1, e.shape[1])[: len(rows)]
    upto.copy_(weights).cumsum_(1)
    target = v[rows, None] * upto[:, -1:]  # less than the last sum, as v < 1 - 2^-53
    return torch.searchsorted(upto, target, right=True).squeeze(1)
