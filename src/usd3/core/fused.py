"""The one door from the core to `usd3.kernels`.

The kernels take plain tensors, one row per element. The rest of the core imports what it needs of them from here. For
draws this module turns noise, levels and jumps into these tensors, and the results back into the shape of x; for losses
`Process.problem` does. The eager code, `usd3.core.terms` and `usd3.core.mixture`, defines what the kernels compute;
tests compare the two.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from usd3 import kernels
from usd3._internal.checks import Checks, require_logits
from usd3.core.belief import FINITE, Level, model_belief
from usd3.core.mixture import Jumps, jump_mixture
from usd3.core.noise import Noise
from usd3.core.terms import LossTerms
from usd3.kernels import (
    COSINE,
    EXPONENTIAL,
    IMPLEMENTATIONS,
    LOST,
    POWER,
    TO_NOISE,
    ClosedForm,
    Leap,
    NoiseTables,
    Problem,
    Projection,
    chosen,
    coefficients_at,
    constants,
    cpp_runs,
    drawn_coefficients,
    flattened,
    rows_read,
    weighted_loss,
)

if TYPE_CHECKING:
    from usd3.kernels import RowsRead

__all__ = [
    "COSINE",
    "EXPONENTIAL",
    "IMPLEMENTATIONS",
    "LOST",
    "POWER",
    "TO_NOISE",
    "ClosedForm",
    "FusedTerms",
    "NoiseTables",
    "Problem",
    "Projection",
    "RowsRead",
    "chosen",
    "coefficients_at",
    "constants",
    "cpp_runs",
    "draw",
    "drawn_coefficients",
    "jump_mass",
    "leap_of",
    "rows_read",
    "weighted_loss",
]


# ---- losses -------------------------------------------------------------------------------------------------------


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
    failed = checks.flag("logits", x.device, math.nan, FINITE)
    return kernels.draw(logits, leap_of(noise, level, jumps, x, u[1], free), u, kind, failed).reshape(x.shape)


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
    checks.refuse_nan("logits", mass.sum(), FINITE)
    return mass


def leap_of(noise: Noise, level: Level, jumps: Jumps, x: Tensor, v: Tensor | None, free: Tensor | None = None) -> Leap:
    """The elements of x as rows that may jump, with weights per object; v are uniforms for the jumps to m."""
    forward = torch.zeros_like(jumps.to_data) if jumps.forward is None else jumps.forward
    numbers = (jumps.to_data, jumps.to_noise, forward, level.alpha_bar, level.lost)
    closed_form = noise.has_closed_form
    return Leap(
        x=flattened(x),
        coefficients=torch.stack(torch.broadcast_tensors(*numbers)).reshape(len(numbers), -1),
        noise=NoiseTables(*noise.tables(x)),
        m_x=None if closed_form else flattened(noise.at(x)),
        noisy=None if closed_form or v is None else flattened(noise.other(x, v)),
        free=None if free is None else flattened(free),
        damped=jumps.damped,
    )
