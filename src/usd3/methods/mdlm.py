"""Masked diffusion (MDLM, Sahoo et al. 2024; MD4, Shi et al. 2024): cross entropy at masked elements, weighted."""

import torch
import torch.nn.functional as F

from usd3._internal.checks import require
from usd3.core.belief import data_logits
from usd3.core.diffusion import Diffusion
from usd3.core.noisy_batch import Noised
from usd3.core.objectives import LossOutput
from usd3.methods.base import Method

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

    def loss_of(self, batch: Noised) -> LossOutput:
        """The weighted cross entropy; stratified times are recommended."""
        noise = self.diffusion.noise
        ce = F.cross_entropy(data_logits(batch.output(), noise).movedim(-1, 1), batch.x_0, reduction="none")
        weight = self.diffusion.rate_weights(batch.time, batch.x_t).clean
        ce = torch.where(noise.at(batch.x_t) > 0, ce, 0.0)
        return batch.finished((weight * ce).to(ce.dtype), ce=ce)
