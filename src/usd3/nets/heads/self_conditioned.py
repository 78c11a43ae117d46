"""Self-conditioning: a network that also sees its own previous prediction."""

from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["SelfConditioned"]


class SelfConditioned(nn.Module):
    """Call a network with x_t, t and an earlier prediction of x_0: `estimate`, probabilities (B, ..., K).

    A sampler passes the prediction of the previous step, and zeros in the first step. In training the network runs
    twice: first with zeros and without a gradient, then half of the objects get that prediction as their estimate and
    the others get zeros again. So the network also works without an estimate. A bound needs this: it is the bound of
    p(x_0 | x_t) alone.
    """

    self_conditioned = True

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, x_t: Tensor, t: Tensor, estimate: Tensor | None = None, **masks: Any) -> Tensor:
        """Logits (B, ..., K) of p(x_0 | x_t). In training, a missing estimate is computed first."""
        if estimate is None and self.training:
            with torch.no_grad():
                first: Tensor = self.module(x_t, t, **masks)
            gets_estimate = torch.rand(len(x_t), device=x_t.device) < 0.5
            estimate = first.softmax(-1) * gets_estimate.reshape(-1, *[1] * x_t.dim())
        logits: Tensor = self.module(x_t, t, estimate=estimate, **masks)
        return logits
