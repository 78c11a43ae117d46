"""A loss and a leap as rows, one per element, with what every implementation needs of them."""

from dataclasses import dataclass, replace

from torch import Tensor

__all__ = ["Leap", "Problem", "as_rows"]


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

    def part(self, rows: slice) -> "Problem":
        """These rows alone."""
        free = None if self.free is None else self.free[rows]
        return replace(self, x=self.x[rows], x_0=self.x_0[rows], free=free, first=self.first + rows.start)


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


def as_rows(logits: Tensor) -> Tensor:
    """(..., K) as (R, K) with adjacent categories; a view where that is possible."""
    rows = logits.reshape(-1, logits.shape[-1])
    return rows if rows.stride(-1) == 1 or rows.numel() == 0 else rows.contiguous()
