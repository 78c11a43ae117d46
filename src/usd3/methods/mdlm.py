"""Masked diffusion (MDLM, Sahoo et al. 2024; MD4, Shi et al. 2024): cross entropy at masked elements, weighted."""

import torch
import torch.nn.functional as F

from usd3._internal.checks import require
from usd3.core.belief import data_logits
from usd3.core.diffusion import Diffusion
from usd3.core.model import Denoiser
from usd3.core.noisy_batch import NoisyBatch
from usd3.core.objectives import LossOutput, element_loss
from usd3.methods.base import Method

__all__ = ["MDLM"]


class MDLM(Method):
    """loss = -alpha_bar'(t) / (1 - alpha_bar(t)) [x_t = mask] (-log f(x_0)), the exact continuous-time bound.

    The sampler takes exact backward steps: a masked element is drawn from f with probability 1 - mu, or stays masked.
    The network needs no time (`model.timeless`); sampling then calls it only for the objects that changed.
    """

    time = "continuous"

    def __init__(self, diffusion: Diffusion):
        super().__init__(diffusion)
        require(diffusion.noise.is_absorbing, "diffusion.noise", diffusion.noise, "absorbing noise for MDLM")

    def loss_of(self, denoise: Denoiser, batch: NoisyBatch) -> LossOutput:
        """Weighted cross entropy at the masked elements; stratified times are recommended."""
        d, x_0, x_t = self.diffusion, batch.x_0, batch.x_t
        logits = data_logits(denoise(x_t, batch.time), d.noise)  # (B, N1, ..., Nk, K)
        ce = F.cross_entropy(logits.movedim(-1, 1), x_0, reduction="none")
        ce = torch.where(d.noise.at(x_t) > 0, ce, 0.0)  # m_x = 0: not masked
        weight = d.rate_weights(batch.time, x_t).to_data  # (B, 1, ..., 1)
        return element_loss(d, (weight * ce).to(ce.dtype), batch, ce=ce)
