"""A training batch with its noise drawn: where every loss begins."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from usd3._internal.checks import Checks

if TYPE_CHECKING:
    from usd3.core.fused import RowsRead

__all__ = ["NoisyBatch"]


@dataclass(frozen=True)
class NoisyBatch:
    """Clean objects, their noisy versions and their times. `Diffusion.noisy_batch` draws one.

    Args:
        x_0: clean categories, int64 (B, N1, ..., Nk).
        x_t: noisy categories, a draw from q(x_t | x_0), in the shape of x_0.
        time: float64 (B,) in [0, 1], in both kinds of time.
        free: mask of the elements that have a loss, in the shape of x_0; None: all. The others are clean in x_t.
        given: mask of the given elements, for the network; None: nothing is given.
        pad: mask of the padding, for the network; None: no padding.
        checks: value checks of this call. A loss adds the check of its logits; the caller raises the first failure.
        generator: for further draws.
        coefficients: `Process.coefficients` at these times, float64 (5, B); None: not computed yet.
        read: the rows of x_t that have a loss, where they are counted, see `usd3.kernels.read_rows`.
    """

    x_0: Tensor
    x_t: Tensor
    time: Tensor
    free: Tensor | None
    given: Tensor | None
    pad: Tensor | None
    checks: Checks
    generator: torch.Generator | None
    coefficients: Tensor | None = None
    read: "RowsRead | None" = None
