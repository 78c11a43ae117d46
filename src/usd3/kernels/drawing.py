"""One jump of every element, from logits: the exact step, the Euler step, tau-leaping and the corrector."""

import torch
from torch import Tensor

from usd3._checks import Checks, require_logits
from usd3.belief import Level, predicted
from usd3.kernels.choice import chosen
from usd3.mixture import Jumps, jump_mixture
from usd3.noise import Noise

__all__ = ["draw", "jump_mass"]


@torch.no_grad()
def draw(
    logits: Tensor,
    x: Tensor,
    noise: Noise,
    level: Level,
    jumps: Jumps,
    u: Tensor,
    free: Tensor | None,
    impl: str,
    checks: Checks,
) -> Tensor:
    """Let the free elements of x jump. `u`, (2, *x.shape) float64 uniforms, chooses the branch and the category."""
    require_logits(logits, x, noise.num_classes, "logits")
    chosen(impl, x.device)
    drawn = jump_mixture(predicted(logits, x, noise, level, checks), jumps).drawn(*u)
    return drawn if free is None else torch.where(free, drawn, x)


@torch.no_grad()
def jump_mass(logits: Tensor, x: Tensor, noise: Noise, level: Level, jumps: Jumps, impl: str, checks: Checks) -> Tensor:
    """The probability of leaving x, per element, float64."""
    require_logits(logits, x, noise.num_classes, "logits")
    chosen(impl, x.device)
    return jump_mixture(predicted(logits, x, noise, level, checks), jumps).jump_mass()
