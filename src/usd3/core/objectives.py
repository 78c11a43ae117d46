"""The losses, each a comparison of one closed form at e_x0 (the truth) and at f (the model), per element.

With A, N of a `Transition` and c(.) = P(noised | x) of a `Belief`, leaving x for z != x has

    under the truth   k_z = A [z = x_0] + N c(e_x0) m_z
    under the model   h_z = A f_z       + N c(f)    m_z

and every VLB is the sum over z of the Bregman term k log(k/h) - k + h. With the probabilities of a step t -> s, and
z = x included, it is KL(q(x_s|x_t,x_0) || p(x_s|x_t)); with rates it is Prop. 6 with its constants.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from usd3._internal.checks import as_number, require, require_type
from usd3.core.belief import Belief
from usd3.core.mixture import Transition, backward_mixture, safe_log

__all__ = ["NAMED", "LossOutput", "LossTerms", "Objective", "cross_entropy", "divergence", "resolve"]

_TINY = 1e-25  # a target below this is taken as 0


def divergence(truth: Belief, model: Belief, x_0: Tensor, to: Transition) -> Tensor:
    """Sum over z of k log(k/h) - k + h (over z != x for rates), per element, float64."""
    N_k, N_h, m_0 = to.noise * truth.noised, to.noise * model.noised, model.noise.at(x_0)
    at_x_0 = _cell(to.clean + N_k * m_0, to.clean, model.log_f_at(x_0), N_h * m_0)
    total = _other_cells(truth, model, x_0, to) + torch.where(model.x == x_0, 0.0, at_x_0)
    if to.keep is not None:
        k_x, h_x = (to.keep + to.noise * (b.untouched + b.noised * b.m_x) for b in (truth, model))
        total = total + _cell(to.clean * truth.f_x + k_x, to.clean, model.log_f_x, h_x)
    return torch.where(model.clean, 0.0, total)


def _cell(k: Tensor, clean: Tensor, log_f: Tensor, rest: Tensor) -> Tensor:
    """k log(k/h) - k + h at h = clean f + rest, right even where f underflows; h where k = 0."""
    log_h = torch.logaddexp(safe_log(clean) + log_f, safe_log(rest))
    gap = torch.where(k > 0, log_h - safe_log(k), 0.0)
    return torch.where(k > 0, k * (torch.expm1(gap) - gap), log_h.exp())


def _other_cells(truth: Belief, model: Belief, x_0: Tensor, to: Transition) -> Tensor:
    """The Bregman terms of all z but x and x_0, summed in the precision of the logits."""
    dtype = model.log_f.dtype
    c_gap = -model.r * _f_gap(truth, model)  # c(f) - c(e_x0)
    weights = (to.clean, to.noise * truth.noised, to.noise * model.noised, to.noise * c_gap)
    A, N_k, N_h, N_gap = (w.expand(x_0.shape).to(dtype)[..., None] for w in weights)
    m = model.noise.probs_on(model.x.device, dtype)
    skip = torch.stack([model.x, x_0], -1)
    terms: Tensor = _BregmanSum.apply(model.log_f.exp(), N_h, N_gap.detach(), A, N_k, m, skip)
    return terms.double()


class _BregmanSum(torch.autograd.Function):
    """Sum of k log(k/h) - k + h over z not in `skip`, for k = N_k m and h = A f + N_h m.

    h - k = A f + N_gap m is formed without cancellation. The derivative with respect to h is 1 - k/h: writing it down
    saves autograd a dozen tensors of size (..., K).
    """

    @staticmethod
    def forward(
        ctx: Any, f: Tensor, N_h: Tensor, N_gap: Tensor, A: Tensor, N_k: Tensor, m: Tensor, skip: Tensor
    ) -> Tensor:
        k = N_k * m
        possible, safe_k = k > _TINY, k.clamp(min=_TINY)
        gap = A * f
        ratio = ((gap + N_h * m) / safe_k).clamp(min=_TINY)
        u = gap.add_(N_gap * m) / safe_k  # ratio = 1 + u
        size = u.abs()
        series = u * u * (1 / 2 - u * (1 / 3 - u / 4))  # of u - log(1 + u), where the two cancel
        rest = u - torch.where(size < 0.5, torch.log1p(u), ratio.log())
        cells = torch.where(possible, k * torch.where(size < torch.finfo(u.dtype).eps ** 0.25, series, rest), gap)
        slope = torch.where(possible, u / ratio, 1.0).scatter_(-1, skip, 0.0)
        ctx.save_for_backward(slope, A, m)
        return cells.scatter_(-1, skip, 0.0).sum(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        slope, A, m = ctx.saved_tensors
        grad = grad[..., None]
        return grad * A * slope, grad * (slope * m).sum(-1, keepdim=True), None, None, None, None, None


def _f_gap(truth: Belief, model: Belief) -> Tensor:
    """f_x - [x = x_0]."""
    return torch.where(truth.f_x > 0, -model.not_f_x, model.f_x)


def _difference(truth: Belief, model: Belief, x_0: Tensor, clean: Tensor, to_x: Tensor) -> Tensor:
    """clean (f - e_x0) + to_x (f_x - [x = x_0]) (e_x - m), (..., K): Prop. 3 for the right weights."""
    dtype = model.log_f.dtype
    clean, moved = (w.expand(x_0.shape).to(dtype)[..., None] for w in (clean, to_x * _f_gap(truth, model)))
    gap = clean * model.log_f.exp() - moved * model.noise.probs_on(x_0.device, dtype)
    return gap.scatter_add(-1, x_0[..., None], -clean).scatter_add(-1, model.x[..., None], moved)


def cross_entropy(model: Belief, x_0: Tensor) -> Tensor:
    """-log f_x0 per element; 0 where x is certainly clean."""
    return -torch.where(model.clean, 0.0, model.log_f_at(x_0)).to(model.log_f.dtype)


class LossTerms:
    """The terms of one batch, per element; each is computed when asked for.

    vlb   the exact term: KL of the step t -> s, or the integrand of the continuous-time bound (Prop. 6)
    ce    cross entropy, -log f_x0
    l2    the simplified loss, phi clipped at 1; None for the continuous-time integrand
    kl2   the second-order approximation of the KL; None for the continuous-time integrand

    Where m is 0 at x_t the element is known to be clean, and every term is 0.
    """

    def __init__(self, truth: Belief, model: Belief, x_0: Tensor, to: Transition):
        self._truth, self._model, self._x_0, self._to = truth, model, x_0, to
        self._vlb: Tensor | None = None

    @property
    def vlb(self) -> Tensor:
        """KL(q(x_s|x_t,x_0) || p(x_s|x_t)), or the continuous-time integrand."""
        if self._vlb is None:
            self._vlb = divergence(self._truth, self._model, self._x_0, self._to).to(self._model.log_f.dtype)
        return self._vlb

    @property
    def ce(self) -> Tensor:
        """-log f_x0."""
        return cross_entropy(self._model, self._x_0)

    @property
    def l2(self) -> Tensor | None:
        """|| f - e_x0 + min(1, phi) (f_x - [x = x_0]) (e_x - m) ||^2."""
        if self._to.keep is None:
            return None
        phi = self._to.noise * self._model.r / self._to.clean.clamp(min=1e-300)
        gap = _difference(self._truth, self._model, self._x_0, torch.ones_like(phi), phi.clamp(max=1.0))
        return torch.where(self._model.clean, 0.0, gap.square().sum(-1))

    @property
    def kl2(self) -> Tensor | None:
        """1/2 sum (p - q)^2 / q; where q = 0 the term of the KL is p, and exact."""
        if self._to.keep is None:
            return None
        to, truth, model, x_0 = self._to, self._truth, self._model, self._x_0
        gap = _difference(truth, model, x_0, to.clean, to.noise * model.r)
        q = backward_mixture(truth, to, x_0).probs().to(gap.dtype)
        cells = torch.where(q > _TINY, gap.square() / (2 * q.clamp(min=_TINY)), gap)
        return torch.where(model.clean, 0.0, cells.sum(-1))


@dataclass(frozen=True)
class Objective:
    """A training loss: weights of the terms at one sampled time. `max_beta` clips the rate of the continuous VLB.

    `kl2` approximates the KL near the truth only. Its minimum is the harmonic mean of the posteriors over x_0, not
    their mean, so alone it does not lead to the right model.
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
        """The weighted sum of the terms, per element; `clip`, (B, 1, ..., 1), multiplies the VLB."""
        names = [name for name in ("vlb", "ce", "l2", "kl2") if getattr(self, name)]
        parts = {name: getattr(self, name) * getattr(terms, name) for name in names}
        if "vlb" in parts and clip is not None:
            parts["vlb"] = parts["vlb"] * clip.to(parts["vlb"].dtype)
        return torch.stack(list(parts.values())).sum(0)

    def weights(self, like: Tensor, clip: Tensor | None) -> Tensor:
        """The weights of vlb, ce and l2 for each object, float64 (3, B); `like` is (n, B)."""
        weights = torch.stack([torch.full_like(like[0], weight) for weight in (self.vlb, self.ce, self.l2)])
        return weights if clip is None else torch.cat([weights[:1] * clip, weights[1:]])

    def clip(self, beta: Callable[[], Tensor]) -> Tensor | None:
        """What clipping the rate makes of beta(t), as a factor."""
        return None if self.max_beta is None else (self.max_beta / beta()).clamp(max=1.0)


@dataclass(frozen=True)
class LossOutput:
    """`loss` carries the gradient; `vlb` and `ce`, in nats per object, are for the log."""

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
    """The objective of that name in this time mode."""
    if isinstance(objective, str):
        require(objective in NAMED, "objective", objective, f"one of {sorted(NAMED)} or an Objective")
        return NAMED[objective][int(continuous)]
    require_type(isinstance(objective, Objective), "objective", objective, "a name or an Objective")
    if continuous:
        require(not (objective.l2 or objective.kl2), "objective", objective, "no l2 and no kl2 in continuous time")
    else:
        require(objective.max_beta is None, "objective", objective, "no max_beta in discrete time")
    return objective
