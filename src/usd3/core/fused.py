"""The one door from the core to `usd3.kernels`.

The kernels take plain tensors, one row per element. This module turns noise, levels, transitions and jumps into these
tensors, and the results back into the shape of x. The eager code, `usd3.core.terms` and `usd3.core.mixture`, defines
what the kernels compute; tests compare the two.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from usd3 import kernels
from usd3._internal.checks import Checks, require, require_logits
from usd3.core.belief import FINITE, Level, model_belief
from usd3.core.mixture import Jumps, Transition, jump_mixture
from usd3.core.noise import Absorbing, Noise, Uniform
from usd3.core.terms import LossTerms
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
    """The coefficients of a `Problem`, float64 (5, B): to_data, to_noise, stay (0 for a rate), alpha_bar, lost."""
    stay = torch.zeros_like(to.to_data) if to.stay is None else to.stay
    return torch.stack([number.flatten() for number in (to.to_data, to.to_noise, stay, level.alpha_bar, level.lost)])


def problem_of(
    noise: Noise, coefficients: Tensor, is_step: bool, x: Tensor, x_0: Tensor, free: Tensor | None = None
) -> Problem:
    """The loss of x = x_t, x_0 and `free`, each (B, N1, ..., Nk), as rows.

    Args:
        noise: m.
        coefficients: see `coefficients_of`, (5, B).
        is_step: whether they are those of a step (z = x counts) or of a rate.
        x: x_t.
        x_0: clean categories.
        free: mask of the elements that have a loss; None: all.
    """
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
    """Sums over all elements of the batch, (4,): vlb, ce, l2, and the weighted sum. Only the last has a gradient.

    Args:
        logits: (*x.shape, K), or a `Projection`.
        x: x_t, (B, N1, ..., Nk).
        problem: the same elements as rows.
        weights: weights of vlb, ce and l2 for each object, float64 (3, B).
        with_l2: compute l2; 0 otherwise.
        impl: the implementation, see `usd3.kernels.chosen`.
        inplace: let the gradient overwrite the logits.
    """
    if not isinstance(logits, Projection):
        require_logits(logits, x, problem.num_classes, "logits")
        return kernels.weighted_loss(logits, problem, weights, with_l2, impl, inplace)
    shape = (*x.shape, problem.num_classes)
    require(logits.shape == shape, "logits.shape", tuple(logits.shape), f"{shape}, (*x_t.shape, K)")
    from usd3.kernels.projection import projected_loss  # imports torch's compiler, which is slow

    sums: Tensor = projected_loss(logits, problem, weights, with_l2, impl)
    return sums


class FusedTerms(LossTerms):
    """The same terms from the fused code, which allocates nothing of size (..., K) but the gradient."""

    def __init__(self, logits: Tensor, problem: kernels.Problem, impl: str, eager: Callable[[], LossTerms]):
        self._logits, self._problem, self._impl, self._eager = logits, problem, impl, eager
        self._cached_rows: Tensor | None = None

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
        if self._cached_rows is None:
            self._cached_rows = kernels.terms(self._logits, self._problem, False, self._impl)
        return self._cached_rows


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
    """x after one jump of its free elements, int64 in the shape of x.

    Args:
        logits: f = softmax(logits), (*x.shape, K).
        x: current categories.
        noise: m.
        level: alpha_bar and 1 - alpha_bar, one per object.
        jumps: weights of the jumps.
        u: float64 uniforms (2, *x.shape); they choose the branch and the category.
        free: mask of the elements that may jump; None: all.
        impl: the implementation, see `usd3.kernels.chosen`.
        checks: receives the check of the logits.
    """
    require_logits(logits, x, noise.num_classes, "logits")
    kind = chosen(impl, x.device)
    if kind == "eager":
        drawn = jump_mixture(model_belief(logits, x, noise, level, checks, free), jumps).drawn(*u)
        return drawn if free is None else torch.where(free, drawn, x)
    drawn = kernels.draw(logits, leap_of(noise, level, jumps, x, u[1], free), u, kind).reshape(x.shape)
    if checks.enabled:
        checks.refuse("logits", torch.where(drawn < 0, torch.nan, 0.0), torch.isnan, FINITE)
    return torch.where(drawn < 0, x, drawn)  # no index is out of range before the checks raise


@torch.no_grad()
def jump_mass(
    logits: Tensor, x: Tensor, noise: Noise, level: Level, jumps: Jumps, free: Tensor | None, impl: str, checks: Checks
) -> Tensor:
    """Probability of leaving x, float64 in the shape of x; 0 for elements that are not free."""
    require_logits(logits, x, noise.num_classes, "logits")
    kind = chosen(impl, x.device)
    if kind == "eager":
        mass = jump_mixture(model_belief(logits, x, noise, level, checks, free), jumps).jump_mass()
        return mass if free is None else torch.where(free, mass, 0.0)
    mass = kernels.draw(logits, leap_of(noise, level, jumps, x, None, free), None, kind).reshape(x.shape)
    checks.refuse("logits", mass.sum(), torch.isnan, FINITE)
    return mass


def leap_of(noise: Noise, level: Level, jumps: Jumps, x: Tensor, v: Tensor | None, free: Tensor | None = None) -> Leap:
    """The elements of x as rows that may jump, with weights per object; v are uniforms for the jumps to m."""
    forward = torch.zeros_like(jumps.to_data) if jumps.forward is None else jumps.forward
    numbers = (jumps.to_data, jumps.to_noise, forward, level.alpha_bar, level.lost)
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
    """Whether the kernels know m without a table: uniform noise, or the mask alone."""
    return isinstance(noise, Uniform | Absorbing)


def _dense(x: Tensor) -> Tensor:
    """(R,), contiguous."""
    return x.reshape(-1).contiguous()
