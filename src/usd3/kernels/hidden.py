"""Logits that are not formed: hidden states and the output layer in their place."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from usd3._internal.checks import require

__all__ = ["Projection"]


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
        """That of the logits."""
        return torch.Size((*self.hidden.shape[:-1], len(self.weight)))

    @property
    def device(self) -> torch.device:
        """Where it lives."""
        return self.hidden.device

    def logits(self, x: Tensor) -> Tensor:
        """All of them, with autograd."""
        logits = F.linear(self.hidden, self.weight, self.bias)
        if self.at_x is None:
            return logits
        return logits.scatter_add(-1, x[..., None], self.at_x.detach().to(logits.dtype)[..., None])

    def shifted(self, at_x: Tensor) -> "Projection":
        """With `at_x` added at the current category."""
        return Projection(self.hidden, self.weight, self.bias, at_x if self.at_x is None else self.at_x + at_x)
