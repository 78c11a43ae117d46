"""One jump of every element, from logits: the exact step, the Euler step, tau-leaping and the corrector."""

import torch
from torch import Tensor

from usd3._checks import Checks, require_logits
from usd3.belief import FINITE, Level, predicted
from usd3.kernels.choice import chosen, run_rows
from usd3.kernels.problem import Leap, as_rows
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
    kind = chosen(impl, x.device)
    if kind == "eager":
        drawn = jump_mixture(predicted(logits, x, noise, level, checks, free), jumps).drawn(*u)
        return drawn if free is None else torch.where(free, drawn, x)
    leap = Leap.of(noise, level, jumps, x, u[1], free)
    drawn = run_rows("draw_rows", kind, as_rows(logits), leap, u.reshape(2, -1)).reshape(x.shape)
    if checks.enabled:
        checks.refuse("logits", torch.where(drawn < 0, torch.nan, 0.0), torch.isnan, FINITE)
    return torch.where(drawn < 0, x, drawn)  # no index runs out of range before the checks are asked


@torch.no_grad()
def jump_mass(
    logits: Tensor, x: Tensor, noise: Noise, level: Level, jumps: Jumps, free: Tensor | None, impl: str, checks: Checks
) -> Tensor:
    """The probability of leaving x, per element, float64; 0 where elements are not free."""
    require_logits(logits, x, noise.num_classes, "logits")
    kind = chosen(impl, x.device)
    if kind == "eager":
        mass = jump_mixture(predicted(logits, x, noise, level, checks, free), jumps).jump_mass()
        return mass if free is None else torch.where(free, mass, 0.0)
    leap = Leap.of(noise, level, jumps, x, None, free)
    mass = run_rows("draw_rows", kind, as_rows(logits), leap, None).reshape(x.shape)
    checks.refuse("logits", mass.sum(), torch.isnan, FINITE)
    return mass
