"""USD3, the method of the paper."""

from usd3.core.diffusion import Diffusion
from usd3.core.model import Denoiser
from usd3.core.noisy_batch import NoisyBatch
from usd3.core.objectives import LossOutput, Objective, resolve, weighted_loss
from usd3.methods.base import Method

__all__ = ["USD3"]


class USD3(Method):
    """One of the paper's objectives ("usd3", "usd3*", "vlb", "ce", or an `Objective`), and exact backward steps."""

    fuses = True

    def __init__(self, diffusion: Diffusion, objective: str | Objective = "usd3"):
        super().__init__(diffusion)
        self.objective, self._weights = objective, resolve(objective, diffusion.continuous)

    @property
    def nat_weight(self) -> float:
        """What one nat of an object counts in the loss: the VLB of one drawn step, cross entropy and L2."""
        weights = self._weights
        return weights.vlb * super().nat_weight + weights.ce + weights.l2

    def loss_of(self, denoise: Denoiser, batch: NoisyBatch) -> LossOutput:
        """Training loss weighted by `objective`, as `Diffusion.loss`."""
        return weighted_loss(self.diffusion, denoise.output(batch.x_t, batch.time), batch, self._weights)
