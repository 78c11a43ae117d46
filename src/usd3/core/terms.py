"""Loss terms of each element: every one compares the same closed form at e_x0 (the truth) and at f (the model).

With A, N of a `Transition` and c(.) = P(noised | x) of a `Belief`, the jump from x to z != x has the weight

    under the truth   k_z = A [z = x_0] + N c(e_x0) m_z
    under the model   h_z = A f_z       + N c(f)    m_z

and the VLB term is the sum over z of k log(k/h) - k + h. For the probabilities of a step t -> s, z = x included, that
is KL(q(x_s|x_t,x_0) || p(x_s|x_t)), eq. 11. For rates it is Prop. 6 with its constants, eq. 27.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from usd3.core.belief import Belief
from usd3.core.mixture import Transition, backward_mixture, safe_log

__all__ = ["LossTerms", "cross_entropy", "difference", "divergence"]

_TINY = 1e-25  # a target below this is taken as 0


def divergence(truth: Belief, model: Belief, x_0: Tensor, to: Transition) -> Tensor:
    """Sum over z of k log(k/h) - k + h (over z != x for rates), float64 in the shape of x_0."""
    N_k, N_h, m_0 = to.to_noise * truth.noised, to.to_noise * model.noised, model.noise.at(x_0)
    at_x_0 = _cell(to.to_data + N_k * m_0, to.to_data, model.log_f_at(x_0), N_h * m_0)
    total = _other_cells(truth, model, x_0, to) + torch.where(model.x == x_0, 0.0, at_x_0)
    if to.stay is not None:
        k_x, h_x = (to.stay + to.to_noise * (b.untouched + b.noised * b.m_x) for b in (truth, model))
        total = total + _cell(to.to_data * truth.f_x + k_x, to.to_data, model.log_f_x, h_x)
    return torch.where(model.is_certain, 0.0, total)


def _cell(k: Tensor, to_data: Tensor, log_f: Tensor, rest: Tensor) -> Tensor:
    """k log(k/h) - k + h at h = to_data f + rest, accurate even where f underflows; h where k = 0."""
    log_h = torch.logaddexp(safe_log(to_data) + log_f, safe_log(rest))
    gap = torch.where(k > 0, log_h - safe_log(k), 0.0)
    return torch.where(k > 0, k * (torch.expm1(gap) - gap), log_h.exp())


def _other_cells(truth: Belief, model: Belief, x_0: Tensor, to: Transition) -> Tensor:
    """Sum of the same over all z but x and x_0, computed in the precision of the logits."""
    dtype = model.log_f.dtype
    c_gap = -model.r * _f_gap(truth, model)  # c(f) - c(e_x0)
    weights = (to.to_data, to.to_noise * truth.noised, to.to_noise * model.noised, to.to_noise * c_gap)
    A, N_k, N_h, N_gap = (w.expand(x_0.shape).to(dtype)[..., None] for w in weights)
    m = model.noise.probs_on(model.x.device, dtype)
    skip = torch.stack([model.x, x_0], -1)
    terms: Tensor = _BregmanSum.apply(model.log_f.exp(), N_h, N_gap.detach(), A, N_k, m, skip)
    return terms.double()


class _BregmanSum(torch.autograd.Function):
    """Sum of k log(k/h) - k + h over z not in `skip`, for k = N_k m and h = A f + N_h m.

    h - k = A f + N_gap m is formed without cancellation. The derivative with respect to h is 1 - k/h: an explicit
    backward pass saves autograd a dozen tensors of size (..., K).
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


def difference(truth: Belief, model: Belief, x_0: Tensor, to_data: Tensor, to_x: Tensor) -> Tensor:
    """to_data (f - e_x0) + to_x (f_x - [x = x_0]) (e_x - m), (..., K): Prop. 3, the difference of two steps."""
    dtype = model.log_f.dtype
    to_data, moved = (w.expand(x_0.shape).to(dtype)[..., None] for w in (to_data, to_x * _f_gap(truth, model)))
    gap = to_data * model.log_f.exp() - moved * model.noise.probs_on(x_0.device, dtype)
    return gap.scatter_add(-1, x_0[..., None], -to_data).scatter_add(-1, model.x[..., None], moved)


def cross_entropy(model: Belief, x_0: Tensor) -> Tensor:
    """-log f_x0 in the shape of x_0, eq. 12; 0 where x is certainly clean."""
    return -torch.where(model.is_certain, 0.0, model.log_f_at(x_0)).to(model.log_f.dtype)


class LossTerms:
    """The terms of one batch, each in the shape of x_0 and computed on first access.

    vlb   KL of the step t -> s (eq. 11), or the integrand of the continuous-time bound (Prop. 6)
    ce    cross entropy -log f_x0 (eq. 12)
    l2    simplified loss with phi clipped at 1 (eq. 16); None for the continuous-time integrand
    kl2   second-order approximation of the KL (eq. 14); None for the continuous-time integrand

    Where m is 0 at x_t the element is certainly clean, and every term is 0.
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
        if self._to.stay is None:
            return None
        phi = self._to.to_noise * self._model.r / self._to.to_data.clamp(min=1e-300)
        gap = difference(self._truth, self._model, self._x_0, torch.ones_like(phi), phi.clamp(max=1.0))
        return torch.where(self._model.is_certain, 0.0, gap.square().sum(-1))

    @property
    def kl2(self) -> Tensor | None:
        """1/2 sum (p - q)^2 / q; where q = 0 the exact KL term is p."""
        if self._to.stay is None:
            return None
        to, truth, model, x_0 = self._to, self._truth, self._model, self._x_0
        gap = difference(truth, model, x_0, to.to_data, to.to_noise * model.r)
        q = backward_mixture(truth, to, x_0).probs().to(gap.dtype)
        cells = torch.where(q > _TINY, gap.square() / (2 * q.clamp(min=_TINY)), gap)
        return torch.where(model.is_certain, 0.0, cells.sum(-1))
