"""The hollow head: combine a prediction from the other elements with the element's own noisy value."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from usd3.core.coefficients import Process
from usd3.core.converters import full_from_hollow, hollow_shift
from usd3.core.model import ignores_time
from usd3.kernels import Projection

__all__ = ["Hollow"]


class Hollow(nn.Module):
    """Read a network's output as p(x_0 | the other elements), and turn it into p(x_0 | x_t) by Bayes' rule.

        f_k  proportional to  f_hollow,k q(x_t | x_0 = k)

    In logits only the entry at x_t changes, by log(1 + abar / ((1 - abar) m_x)). Near t = 0 an element is almost surely
    clean. The head knows this from the start; a plain network has to learn it, under a loss whose weight grows like
    1/t there. No shift is needed where m_x = 0, as the element is certainly clean, nor with absorbing noise: only the
    entry of the mask would change, and the mask is not a data category.
    """

    def __init__(self, module: Callable[..., Any], diffusion: Process):
        super().__init__()
        self.module, self.diffusion = module, diffusion

    @property
    def ignores_time(self) -> bool:
        """Whether the output does not depend on t: the network ignores it, and the head shifts no logit."""
        return self.diffusion.noise.is_absorbing and ignores_time(self.module)

    def forward(self, x_t: Tensor, t: Tensor, **masks: Any) -> Tensor | Projection:
        """Logits (B, ..., K) of p(x_0 | x_t); if the network returns a `Projection`, a `Projection`."""
        logits: Tensor | Projection = self.module(x_t, t, **masks)
        if self.diffusion.noise.is_absorbing:
            return logits
        if isinstance(logits, Projection):
            return logits.shifted(hollow_shift(self.diffusion, x_t, t))
        return full_from_hollow(self.diffusion, logits, x_t, t)
