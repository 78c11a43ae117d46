"""A head for any network: what it says of an element is completed by what the element itself shows."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from usd3.core.coefficients import Process
from usd3.core.converters import full_from_hollow, hollow_shift
from usd3.core.model import ignores_time
from usd3.kernels import Projection

__all__ = ["Hollow"]


class Hollow(nn.Module):
    """Read a network's output as p(x_0 | the other elements), and complete it with the element's own value.

        f_k  proportional to  f_hollow,k q(x_t | x_0 = k)

    In logits only the entry at x_t moves, by log(1 + abar / ((1 - abar) m_x)). Near t = 0 an element is almost surely
    clean, and the head knows it from the start; a plain network has to learn it, under a loss whose weight grows like
    1/t there. Where m_x = 0 the element is certainly clean, and nothing needs to be added; nor with absorbing noise,
    where the one entry that would move is that of the mask, which is no data category.
    """

    def __init__(self, module: Callable[..., Any], diffusion: Process):
        super().__init__()
        self.module, self.diffusion = module, diffusion

    @property
    def ignores_time(self) -> bool:
        """Whether the time does not matter: the network inside ignores it, and nothing is added to its logits."""
        return self.diffusion.noise.mask is not None and ignores_time(self.module)

    def forward(self, x_t: Tensor, t: Tensor, **masks: Any) -> Tensor | Projection:
        """Logits of p(x_0 | x_t); a `Projection` stays one."""
        logits: Tensor | Projection = self.module(x_t, t, **masks)
        if self.diffusion.noise.mask is not None:
            return logits
        if isinstance(logits, Projection):
            return logits.shifted(hollow_shift(self.diffusion, x_t, t))
        return full_from_hollow(self.diffusion, logits, x_t, t)
