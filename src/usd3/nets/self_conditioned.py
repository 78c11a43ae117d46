"""Self-conditioning: a network that is told what it said before."""

from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["SelfConditioned"]


class SelfConditioned(nn.Module):
    """Give a network, besides x_t and t, an earlier belief about x_0: `estimate`, probabilities (B, ..., K).

    A sampler hands over what the network said in the step before, and zeros in the first. In training the network is
    asked twice, first with zeros and without a gradient; half of the objects are told the answer, the others zeros
    again. So it also works without an estimate, which a bound needs: the bound is that of p(x_0 | x_t) alone.
    """

    self_conditioned = True

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, x_t: Tensor, t: Tensor, estimate: Tensor | None = None, **masks: Any) -> Tensor:
        """Logits of p(x_0 | x_t); without an estimate in training, one is made."""
        if estimate is None and self.training:
            with torch.no_grad():
                said: Tensor = self.module(x_t, t, **masks)
            told = torch.rand(len(x_t), device=x_t.device) < 0.5
            estimate = said.softmax(-1) * told.reshape(-1, *[1] * x_t.dim())
        found: Tensor = self.module(x_t, t, estimate=estimate, **masks)
        return found
