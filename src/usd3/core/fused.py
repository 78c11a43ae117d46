"""The one door to the kernels: noise, levels and jumps become plain tensors here.

What the kernels compute is defined by the eager code, `usd3.core.mixture` and `usd3.core.objectives`; the tests compare
the two.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from usd3 import kernels
from usd3._internal.checks import Checks, require, require_logits
from usd3.core.belief import FINITE, Level, predicted
from usd3.core.mixture import Jumps, Transition, jump_mixture
from usd3.core.noise import Absorbing, Noise, Uniform
from usd3.core.objectives import LossTerms
from usd3.kernels import IMPLEMENTATIONS, Leap, Problem, Projection, chosen

__all__ = [
    "IMPLEMENTATIONS",
    "FusedTerms",
    "Projection",
    "chosen",
    "coefficients_of",
    "draw",
    "jump_mass",
    "leap_of",
    "problem_of",
    "weighted_sums",
]


# ---- losses -------------------------------------------------------------------------------------------------------


def coefficients_of(level: Level, to: Transition) -> Tensor:
    """The coefficients of a problem, (5, B)."""
    keep = torch.zeros_like(to.clean) if to.keep is None else to.keep
    return torch.stack([number.flatten() for number in (to.clean, to.noise, keep, level.alpha_bar, level.lost)])


def problem_of(
    noise: Noise, coefficients: Tensor, is_step: bool, x: Tensor, x_0: Tensor, free: Tensor | None = None
) -> Problem:
    """The rows of a loss, from tensors of any shape (B, N1, ..., Nk)."""
    return Problem(
        x=_dense(x),
        x_0=_dense(x_0),
        coefficients=coefficients,
        is_step=is_step,
        num_classes=noise.num_classes,
        mask=-1 if noise.mask is None else noise.mask,
        m=None if _has_closed_form(noise) else noise.table_on(x.device, torch.float64, x.shape),
        free=None if free is None else _dense(free),
        elements=math.prod(x.shape[1:]),
    )


def weighted_sums(
    logits: Tensor | Projection, x: Tensor, problem: Problem, weights: Tensor, with_l2: bool, impl: str, inplace: bool
) -> Tensor:
    """Sums over all elements of the batch, (4,): vlb, ce, l2, and their sum with `weights`, which alone has a gradient.

    Args:
        logits: (*x.shape, K), or hidden states and the output layer.
        x: x_t, (B, N1, ..., Nk).
        problem: the same elements as rows.
        weights: of vlb, ce and l2 for each object, float64 (3, B).
        with_l2: whether l2 is computed.
        impl: which implementation runs, see `usd3.kernels.chosen`.
        inplace: let the gradient overwrite the logits.
    """
    if not isinstance(logits, Projection):
        require_logits(logits, x, problem.num_classes, "logits")
        return kernels.weighted_loss(logits, problem, weights, with_l2, impl, inplace)
    shape = (*x.shape, problem.num_classes)
    require(logits.shape == shape, "logits.shape", tuple(logits.shape), f"{shape}, (*x_t.shape, K)")
    from usd3.kernels.projection import projected_loss  # it brings torch's compiler, which is slow to import

    sums: Tensor = projected_loss(logits, problem, weights, with_l2, impl)
    return sums


class FusedTerms(LossTerms):
    """The same terms from the fused code: nothing of size (..., K) but the logits and, in the end, their gradient."""

    def __init__(self, logits: Tensor, problem: kernels.Problem, impl: str, eager: Callable[[], LossTerms]):
        self._logits, self._problem, self._impl, self._eager = logits, problem, impl, eager
        self._found: Tensor | None = None

    @property
    def vlb(self) -> Tensor:
        """KL(q(x_s|x_t,x_0) || p(x_s|x_t)), or the continuous-time integrand."""
        return self._rows()[0]

    @property
    def ce(self) -> Tensor:
        """-log f_x0."""
        return self._rows()[1]

    @property
    def l2(self) -> Tensor | None:
        """|| f - e_x0 + min(1, phi) (f_x - [x = x_0]) (e_x - m) ||^2."""
        if not self._problem.is_step:
            return None
        return kernels.terms(self._logits, self._problem, True, self._impl)[2]

    @property
    def kl2(self) -> Tensor | None:
        """1/2 sum (p - q)^2 / q, by the eager code."""
        return self._eager().kl2

    def _rows(self) -> Tensor:
        if self._found is None:
            self._found = kernels.terms(self._logits, self._problem, False, self._impl)
        return self._found


# ---- draws --------------------------------------------------------------------------------------------------------


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
    drawn = kernels.draw(logits, leap_of(noise, level, jumps, x, u[1], free), u, kind).reshape(x.shape)
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
    mass = kernels.draw(logits, leap_of(noise, level, jumps, x, None, free), None, kind).reshape(x.shape)
    checks.refuse("logits", mass.sum(), torch.isnan, FINITE)
    return mass


def leap_of(noise: Noise, level: Level, jumps: Jumps, x: Tensor, v: Tensor | None, free: Tensor | None = None) -> Leap:
    """The elements that may jump as rows, with weights per object; v are uniforms for the jumps to m."""
    anew = torch.zeros_like(jumps.clean) if jumps.anew is None else jumps.anew
    numbers = (jumps.clean, jumps.noise, anew, level.alpha_bar, level.lost)
    closed_form = _has_closed_form(noise)
    return Leap(
        x=_dense(x),
        coefficients=torch.stack([number.reshape(-1) for number in torch.broadcast_tensors(*numbers)]),
        num_classes=noise.num_classes,
        mask=-1 if noise.mask is None else noise.mask,
        m_x=None if closed_form else _dense(noise.at(x)),
        noisy=None if closed_form or v is None else _dense(noise.other(x, v)),
        free=None if free is None else _dense(free),
        damped=jumps.damped,
    )


def _has_closed_form(noise: Noise) -> bool:
    """Whether a kernel knows m without a table: it is uniform, or the mask alone."""
    return isinstance(noise, Uniform | Absorbing)


def _dense(x: Tensor) -> Tensor:
    """In one dimension, without gaps."""
    return x.reshape(-1).contiguous()
