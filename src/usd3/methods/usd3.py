"""USD3, the paper's own method."""

from usd3.core.diffusion import Diffusion
from usd3.core.noisy_batch import Noised
from usd3.core.objectives import LossOutput, Objective, resolve
from usd3.methods.base import Method

__all__ = ["USD3"]


class USD3(Method):
    """The paper's own: one of its objectives, and the exact backward step."""

    fuses = True

    def __init__(self, diffusion: Diffusion, objective: str | Objective = "usd3"):
        super().__init__(diffusion)
        self.objective, self._weights = objective, resolve(objective, diffusion.continuous)

    def loss_of(self, batch: Noised) -> LossOutput:
        """That of `Diffusion.loss` with the objective."""
        return batch.weighed(self._weights)
