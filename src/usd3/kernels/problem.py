"""A loss and a leap as rows, one per element, with what every implementation needs of them."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from usd3.belief import Level
from usd3.mixture import Jumps, Transition
from usd3.noise import Absorbing, Noise, Uniform

__all__ = ["Leap", "Problem", "as_rows", "coefficients_of"]


@dataclass(frozen=True)
class Problem:
    """R = B D rows of logits (R, K), seen from x (R,) with the truth x_0 (R,).

    `coefficients` is float64, (5, B): clean, noise and keep of the `Transition`, alpha_bar and 1 - alpha_bar. The rows
    of an object, `elements` of them, follow one another; `first` is the number of the first, where this is a part of a
    larger problem. `is_step` says whether z = x counts (a step) or not (a rate). `m` is None for uniform noise and
    for the mask alone, else a float64 table (P, K): row i has m[i % P]. `mask` is -1 where there is none. Rows that
    are not `free` are not read: their terms and gradients are 0.
    """

    x: Tensor
    x_0: Tensor
    coefficients: Tensor
    is_step: bool
    num_classes: int
    mask: int = -1
    m: Tensor | None = None
    free: Tensor | None = None
    elements: int = 1
    first: int = 0

    @classmethod
    def of(
        cls,
        noise: Noise,
        coefficients: Tensor,
        is_step: bool,
        x: Tensor,
        x_0: Tensor,
        free: Tensor | None = None,
    ) -> "Problem":
        """From tensors of any shape (B, N1, ..., Nk)."""
        closed_form = isinstance(noise, Uniform | Absorbing)
        return cls(
            x=_dense(x),
            x_0=_dense(x_0),
            coefficients=coefficients,
            is_step=is_step,
            num_classes=noise.num_classes,
            mask=-1 if noise.mask is None else noise.mask,
            m=None if closed_form else noise.table_on(x.device, torch.float64, x.shape),
            free=None if free is None else _dense(free),
            elements=math.prod(x.shape[1:]),
        )

    def part(self, rows: slice) -> "Problem":
        """These rows alone."""
        free = None if self.free is None else self.free[rows]
        return replace(self, x=self.x[rows], x_0=self.x_0[rows], free=free, first=self.first + rows.start)


def coefficients_of(level: Level, to: Transition) -> Tensor:
    """The coefficients of a problem, (5, B)."""
    keep = torch.zeros_like(to.clean) if to.keep is None else to.keep
    return torch.stack([number.flatten() for number in (to.clean, to.noise, keep, level.alpha_bar, level.lost)])


@dataclass(frozen=True)
class Leap:
    """R = B D elements x (R,) that may jump.

    `coefficients` is float64, (5, B): to f, to m where noised, to m anew, alpha_bar and 1 - alpha_bar. `m_x` and
    `noisy`, what becomes of x where it jumps to m, are None for uniform noise and for the mask alone.
    """

    x: Tensor
    coefficients: Tensor
    num_classes: int
    mask: int = -1
    m_x: Tensor | None = None
    noisy: Tensor | None = None
    free: Tensor | None = None
    damped: bool = False

    @classmethod
    def of(
        cls, noise: Noise, level: Level, jumps: Jumps, x: Tensor, v: Tensor | None, free: Tensor | None = None
    ) -> "Leap":
        """From tensors of any shape (B, N1, ..., Nk), with weights per object; v are uniforms for the jumps to m."""
        anew = torch.zeros_like(jumps.clean) if jumps.anew is None else jumps.anew
        numbers = (jumps.clean, jumps.noise, anew, level.alpha_bar, level.lost)
        closed_form = isinstance(noise, Uniform | Absorbing)
        return cls(
            x=_dense(x),
            coefficients=torch.stack([number.reshape(-1) for number in torch.broadcast_tensors(*numbers)]),
            num_classes=noise.num_classes,
            mask=-1 if noise.mask is None else noise.mask,
            m_x=None if closed_form else _dense(noise.at(x)),
            noisy=None if closed_form or v is None else _dense(noise.other(x, v)),
            free=None if free is None else _dense(free),
            damped=jumps.damped,
        )


def _dense(x: Tensor) -> Tensor:
    """In one dimension, without gaps."""
    return x.reshape(-1).contiguous()


def as_rows(logits: Tensor) -> Tensor:
    """(..., K) as (R, K) with adjacent categories; a view where that is possible."""
    rows = logits.reshape(-1, logits.shape[-1])
    return rows if rows.stride(-1) == 1 or rows.numel() == 0 else rows.contiguous()
