"""The loss from hidden states and the output layer, without the logits of the whole batch.

A network for many categories spends most of its memory on logits (B, D, K) and their gradient. It can return a
`Projection` in their place: `Diffusion.loss` then forms a bounded number of logits at a time.
`chunked_projection.py` has the loop.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from usd3._internal.checks import require
from usd3.kernels.loss import NoiseTables, Problem
from usd3.kernels.padding import padded_linear

if TYPE_CHECKING:
    from usd3.kernels.read_rows import RowsRead

__all__ = ["Projection", "projected_loss", "rows_read"]


@dataclass(frozen=True)
class Projection:
    """Logits hidden @ weight.T + bias that need not be formed: hidden (..., H), weight (K, H), bias (K,).

    `at_x` (...) is added to the logit of each element's current category, as the `Hollow` head does, and gets no
    gradient.
    """

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None = None
    at_x: Tensor | None = None

    def __post_init__(self) -> None:
        H, K = self.hidden.shape[-1], len(self.weight)
        require(self.weight.shape == (K, H), "weight.shape", tuple(self.weight.shape), f"(K, {H}), as hidden has {H}")
        if self.bias is not None:
            require(self.bias.shape == (K,), "bias.shape", tuple(self.bias.shape), f"({K},)")

    @property
    def shape(self) -> torch.Size:
        """Shape of the logits, (..., K)."""
        return torch.Size((*self.hidden.shape[:-1], len(self.weight)))

    @property
    def device(self) -> torch.device:
        """Device of the hidden states."""
        return self.hidden.device

    def logits(self, x: Tensor) -> Tensor:
        """All logits (..., K), with autograd, for the current categories x (...)."""
        logits = padded_linear(self.hidden, self.weight, self.bias)
        if self.at_x is None:
            return logits
        return logits.scatter_add(-1, x[..., None], self.at_x.detach().to(logits.dtype)[..., None])

    def shifted(self, at_x: Tensor) -> "Projection":
        """The same projection with `at_x` (...) added at the current categories."""
        return Projection(self.hidden, self.weight, self.bias, at_x if self.at_x is None else self.at_x + at_x)


def projected_loss(logits: Projection, p: Problem, weights: Tensor, with_l2: bool, impl: str) -> tuple[Tensor, Tensor]:
    """`weighted_loss` of these logits: sums (3,) of vlb, ce and l2, and the weighted loss, which alone has a gradient.

    Hidden states, weight and bias get gradients, formed in the forward pass. The arguments are those of
    `weighted_loss`.
    """
    # the module uses torch.compiler.disable, which loads torch's compiler: that takes a second
    from usd3.kernels.chunked_projection import projected_loss_in_chunks

    sums: tuple[Tensor, Tensor] = projected_loss_in_chunks(logits, p, weights, with_l2, impl)
    return sums


def rows_read(x: Tensor, noise: NoiseTables, free: Tensor | None) -> "RowsRead | None":
    """The rows of elements x whose logits a projection forms, counted from now on; None: all. See `read_rows.py`."""
    from usd3.kernels import read_rows  # like the loop, it loads torch's compiler

    read: RowsRead | None = read_rows.rows_read(x, noise, free)
    return read
