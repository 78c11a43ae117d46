"""Masked diffusion (MDLM, Sahoo et al. 2024; MD4, Shi et al. 2024): cross entropy at masked elements, weighted."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from usd3._checks import require
from usd3.diffusion import Diffusion
from usd3.method import Method
from usd3.objectives import LossOutput
from usd3.schedules import Time

__all__ = ["MDLM"]


class MDLM(Method):
    """loss = -alpha_bar'(t) / (1 - alpha_bar(t)) [x_t = mask] (-log f(x_0)), the exact continuous-time bound.

    The sampler is the exact backward step: a masked element is drawn from f with probability 1 - mu, or stays. Its
    network needs no time (`model.timeless`), and sampling then calls it only for objects that changed.
    """

    time = "continuous"

    def __init__(self, diffusion: Diffusion):
        super().__init__(diffusion)
        require(diffusion.noise.mask is not None, "diffusion.noise", diffusion.noise, "absorbing noise for MDLM")

    def loss(
        self,
        model: Callable[..., Any],
        x_0: Tensor,
        t: Time | None = None,
        given: Tensor | None = None,
        pad: Tensor | None = None,
        generator: torch.Generator | None = None,
        stratified: bool = False,
    ) -> LossOutput:
        """The weighted cross entropy; `stratified` times are recommended."""
        noised = self.noised(model, x_0, t, given, pad, generator, stratified)
        logits = noised.output()
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        is_mask = self.diffusion.noise.probs_on(logits.device) > 0
        log_f = logits.masked_fill(is_mask, -torch.inf).movedim(-1, 1)  # the mask is no data category
        ce = F.cross_entropy(log_f, noised.x_0, reduction="none")
        weight = self.diffusion.rate_weights(noised.time, noised.x_t, noised.level).clean
        terms = torch.where(is_mask[noised.x_t], weight * ce, 0.0).to(ce.dtype)
        return noised.finished(terms, logits, vlb=terms)
