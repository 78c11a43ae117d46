"""A training batch with its noise drawn: where every loss begins."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from usd3._internal.checks import Checks
from usd3.core.belief import FINITE, Level
from usd3.core.model import Denoiser
from usd3.core.objectives import LossOutput, Objective
from usd3.core.process import total

if TYPE_CHECKING:
    from usd3.core.diffusion import Diffusion

__all__ = ["Noised"]


@dataclass(frozen=True)
class Noised:
    """A training batch with its noise drawn.

    `time` is in [0, 1], float64 (B,), in both kinds of time. `free` elements count, all where it is None. `generator`
    is for further draws.
    """

    diffusion: "Diffusion"
    x_0: Tensor
    x_t: Tensor
    time: Tensor
    free: Tensor | None
    denoise: Denoiser
    checks: Checks
    generator: torch.Generator | None

    @property
    def level(self) -> Level:
        """alpha_bar and 1 - alpha_bar, float64 (B, 1, ..., 1)."""
        return self.diffusion.level(self.time, self.x_0)

    def output(self) -> Tensor:
        """What the network says of x_t, (..., K)."""
        return self.denoise(self.x_t, self.time)

    def mean(self, terms: Tensor) -> Tensor:
        """Terms of elements (B, ...): the sum over the free ones of each object, the mean over objects."""
        return total(terms, self.free).mean()

    def finished(self, terms: Tensor, logits: Tensor | None = None, ce: Tensor | None = None) -> LossOutput:
        """The loss of these terms, with what the log shows: the VLB and the cross entropy.

        They are computed from `logits` of p(x_0 | x_t). Without these the terms are taken for the VLB, and the cross
        entropy is `ce`, per element, if it is known.
        """
        loss = self.mean(terms)
        with torch.no_grad():
            if logits is not None:
                bound, entropy = self.shown(logits)
            else:
                bound = loss.detach()
                entropy = torch.full_like(bound, torch.nan) if ce is None else self.mean(ce.detach())
        self.checks.refuse("logits", loss.detach(), torch.isnan, FINITE)
        self.checks.raise_first()
        return LossOutput(loss, self.diffusion.span * bound, entropy)

    def shown(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The VLB's term at this time and the cross entropy, means over objects, without gradient."""
        d, nothing = self.diffusion, Checks(False)
        out = d._weighted(logits.detach(), self.x_t, self.x_0, self.time, Objective(vlb=1), self.free, nothing)
        return out.vlb / d.span, out.ce

    def weighed(self, objective: Objective) -> LossOutput:
        """One of USD3's objectives, by the fused code."""
        d, output = self.diffusion, self.denoise.output(self.x_t, self.time)
        out = d._weighted(output, self.x_t, self.x_0, self.time, objective, self.free, self.checks)
        self.checks.raise_first()
        return out
