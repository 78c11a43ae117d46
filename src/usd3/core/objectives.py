"""Training objectives: how the terms of one sampled time add up to a loss.

All losses are sums over the free elements of an object and means over the objects of a batch.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from usd3._internal.checks import Checks, as_number, require, require_type
from usd3.core import fused
from usd3.core.belief import FINITE
from usd3.core.coefficients import column, total
from usd3.core.fused import TO_NOISE, Projection
from usd3.core.model import logits_of
from usd3.core.noisy_batch import NoisyBatch
from usd3.core.terms import LossTerms

if TYPE_CHECKING:
    from usd3.core.diffusion import Diffusion

__all__ = ["NAMED", "LossOutput", "Objective", "element_loss", "resolve", "weighted_loss"]


@dataclass(frozen=True)
class Objective:
    """Weights of the terms at one sampled time, see `LossTerms`. `max_beta` clips beta(t) in the continuous VLB.

    `kl2` approximates the KL near the truth only. Its minimum is the harmonic mean of the posteriors over x_0, not
    their mean, so `kl2` alone trains a wrong model.
    """

    vlb: float = 0.0
    ce: float = 0.0
    l2: float = 0.0
    kl2: float = 0.0
    max_beta: float | None = None

    def __post_init__(self) -> None:
        weights = (self.vlb, self.ce, self.l2, self.kl2)
        require(min(weights) >= 0 and max(weights) > 0, "weights", weights, "none negative and at least one positive")
        if self.max_beta is not None:
            as_number(self.max_beta, "max_beta", 0)

    def combine(self, terms: LossTerms, clip: Tensor | None) -> Tensor:
        """Weighted sum of the terms, per element; `clip` (B, 1, ..., 1) multiplies the VLB."""
        names = [name for name in ("vlb", "ce", "l2", "kl2") if getattr(self, name)]
        parts = {name: getattr(self, name) * getattr(terms, name) for name in names}
        if "vlb" in parts and clip is not None:
            parts["vlb"] = parts["vlb"] * clip.to(parts["vlb"].dtype)
        return torch.stack(list(parts.values())).sum(0)

    def weights(self, batch: int, device: torch.device) -> Tensor:
        """Weights of vlb, ce and l2 in the mean over `batch` objects, float64 (3, batch), without `max_beta`."""
        weights = (self.vlb, self.ce, self.l2)  # no copy from the host, which cannot be captured in a CUDA graph
        return torch.stack([torch.full((batch,), w, dtype=torch.float64, device=device) for w in weights]) / batch

    def clip(self, beta: Tensor) -> Tensor:
        """The factor min(1, max_beta / beta), in the shape of beta; 1 without `max_beta`."""
        return torch.ones_like(beta) if self.max_beta is None else (self.max_beta / beta).clamp(max=1.0)


@dataclass(frozen=True)
class LossOutput:
    """`loss` carries the gradient; `vlb` and `ce`, in nats per object, are for logging. All three are scalars."""

    loss: Tensor
    vlb: Tensor
    ce: Tensor


NAMED: dict[str, tuple[Objective, Objective]] = {  # name: (discrete time, continuous time)
    "usd3": (Objective(vlb=1, ce=0.001), Objective(vlb=1, ce=0.001)),
    "usd3*": (Objective(l2=1, ce=1), Objective(vlb=1, ce=1, max_beta=1)),
    "vlb": (Objective(vlb=1), Objective(vlb=1)),
    "ce": (Objective(ce=1), Objective(ce=1)),
}


def resolve(objective: str | Objective, continuous: bool) -> Objective:
    """The objective of that name in continuous or discrete time; an `Objective` is checked and returned."""
    if isinstance(objective, str):
        require(objective in NAMED, "objective", objective, f"one of {sorted(NAMED)} or an Objective")
        return NAMED[objective][int(continuous)]
    require_type(isinstance(objective, Objective), "objective", objective, "a name or an Objective")
    if continuous:
        require(not (objective.l2 or objective.kl2), "objective", objective, "no l2 and no kl2 in continuous time")
    else:
        require(objective.max_beta is None, "objective", objective, "no max_beta in discrete time")
    return objective


def weighted_loss(
    diffusion: "Diffusion", logits: Tensor | Projection, batch: NoisyBatch, objective: Objective, inplace: bool = False
) -> LossOutput:
    """Training loss weighted by `objective`, from logits (B, N1, ..., Nk, K) or a `Projection`.

    The fused code computes the loss and its gradient in one pass over the logits. With `inplace` the gradient
    overwrites them.
    """
    d, (x_0, x_t, free) = diffusion, (batch.x_0, batch.x_t, batch.free)
    if d.is_eager(x_t.device) or objective.kl2:
        return _eager_loss(d, logits_of(logits, x_t), batch, objective)

    coefficients = d.training_coefficients(batch.time) if batch.coefficients is None else batch.coefficients
    B, device = len(x_0), x_0.device
    weights = d.computed_once((objective, B), device, lambda: objective.weights(B, device))
    if objective.max_beta is not None:  # beta is the rate to noise
        weights = torch.cat([weights[:1] * objective.clip(coefficients[TO_NOISE]), weights[1:]])
    read, d.has_projection = batch.read, isinstance(logits, Projection)
    if read is None and d.has_projection and batch.checks.enabled:  # the checks of this call wait for the device anyway
        read = d.rows_read(x_t, free)
    problem = d.problem(x_t, x_0, coefficients, d.num_steps is not None, free, read)
    sums, loss = fused.weighted_loss(logits, problem, weights, objective.l2 > 0, d.impl, inplace)  # of vlb, ce, l2
    vlb, ce, _ = (sums / B).unbind()
    batch.checks.refuse_nan("logits", ce, FINITE)
    return LossOutput(loss, d.vlb_scale * vlb, ce)


def _eager_loss(diffusion: "Diffusion", logits: Tensor, batch: NoisyBatch, objective: Objective) -> LossOutput:
    """The same by the eager code, which defines it."""
    d, b = diffusion, batch
    terms = d.element_terms(logits, b.x_t, b.x_0, b.time, None, b.checks, b.free)
    clip = None if objective.max_beta is None else column(objective.clip(d.schedule.rate(b.time)), b.x_0)
    loss = total(objective.combine(terms, clip), b.free).mean()
    with torch.no_grad():
        vlb, ce = (total(term.detach(), b.free).mean() for term in (terms.vlb, terms.ce))
    return LossOutput(loss, d.vlb_scale * vlb, ce)


def element_loss(
    diffusion: "Diffusion",
    terms: Tensor,
    batch: NoisyBatch,
    logits: Tensor | None = None,
    ce: Tensor | None = None,
) -> LossOutput:
    """Training loss from a loss of each element, for methods with formulas of their own.

    Args:
        diffusion: the diffusion that drew the batch.
        terms: loss of each element, in the shape of x_0; only free elements count.
        batch: the batch.
        logits: of p(x_0 | x_t), (..., K): the logged VLB and cross entropy are computed from them. Without logits
            `terms` is logged as the VLB.
        ce: cross entropy of each element for the log, where there are no logits; NaN is logged by default.
    """
    loss = total(terms, batch.free).mean()
    with torch.no_grad():
        if logits is not None:
            unchecked = replace(batch, checks=Checks(False))
            logged = weighted_loss(diffusion, logits.detach(), unchecked, Objective(vlb=1))
            vlb, entropy = logged.vlb, logged.ce
        else:
            vlb = diffusion.vlb_scale * loss.detach()
            entropy = torch.full_like(vlb, torch.nan) if ce is None else total(ce.detach(), batch.free).mean()
    batch.checks.refuse_nan("logits", loss.detach(), FINITE)
    return LossOutput(loss, vlb, entropy)
