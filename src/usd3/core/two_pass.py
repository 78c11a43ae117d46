"""Losses that call the network twice.

`two_pass_loss` is the continuous-time VLB of Prop. 5: one pass at x ~ q_t, one at an auxiliary z that differs from x in
one element, drawn from any unnormalised S(z|x) = sum_d S^d(z^d|x^d). Its expectation is that of the single pass
(Prop. 6), whatever S is, since z has density q(z) M_S(z). tauLDR trains with it, S being the forward rate, for which
`ForwardRate` knows closed forms.

`partial_time_loss` is the VLB where only times s < t are observed: one pass at x_t, one at x_s.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from usd3._internal.checks import Checks, require
from usd3._internal.random import uniform
from usd3.core.belief import Belief, Level, true_belief
from usd3.core.coefficients import flat, total
from usd3.core.diffusion import Diffusion
from usd3.core.mixture import Transition
from usd3.core.model import Denoiser
from usd3.core.noise import Noise
from usd3.core.objectives import LossOutput
from usd3.core.schedules import Time
from usd3.core.terms import cross_entropy, divergence

__all__ = [
    "ForwardRate",
    "auxiliary",
    "auxiliary_weight",
    "importance_weighted",
    "partial_time_loss",
    "two_pass_loss",
    "two_pass_terms",
]

_TINY = 1e-300


def auxiliary(x: Tensor, jumps: Tensor, free: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Draw z ~ S(.|x) (eq. 82): one free element jumps, with rates `jumps` (..., K, K), [x, z] -> S(z|x), no diagonal.

    An object whose exit rate is 0 stays.
    """
    rows = _off_diagonal_rows(x, jumps).cumsum(-1)  # (B, ..., K)
    u = uniform((2, len(x), 1), x.device, generator)
    element, can = _leaving(rows[..., -1], free, u[0])
    row = rows.reshape(len(x), -1, rows.shape[-1]).gather(1, element[..., None].expand(-1, -1, rows.shape[-1]))[:, 0]
    target = torch.searchsorted(row, u[1] * row[:, -1:], right=True)
    moved = flat(x).scatter(1, element, target.clamp(max=rows.shape[-1] - 1))
    return torch.where(can, moved, flat(x)).reshape(x.shape)


def auxiliary_weight(z: Tensor, q: Tensor, jumps: Tensor, free: Tensor) -> Tensor:
    """M_S(z | x_0), (B,), eq. 86: the density of auxiliaries at z over that of q(. | x_0), which is `q` (..., K)."""
    exits = jumps.sum(-1) - jumps.diagonal(dim1=-2, dim2=-1)  # (..., K)
    exits = exits.expand(*z.shape, -1)
    exit_z = exits.gather(-1, z[..., None])
    all_exits = total(exit_z.squeeze(-1), free).reshape(-1, *[1] * z.dim())
    into_z = jumps.transpose(-1, -2).expand(*z.shape, -1, -1)
    into_z = into_z.gather(-2, z[..., None, None].expand(*z.shape, 1, q.shape[-1])).squeeze(-2)  # S(z | y) for each y
    into_z = into_z.scatter(-1, z[..., None], 0.0)
    from_y = (all_exits - exit_z + exits).clamp(min=_TINY)
    terms = torch.where(into_z > 0, q / q.gather(-1, z[..., None]) * into_z / from_y, 0.0)
    return total(terms.sum(-1), free)


class ForwardRate:
    """S(z|x) = m_z: `auxiliary` and `auxiliary_weight` without a K x K tensor. With e_y = 1 - m_y, the exit rate of y,

        M(z | x_0) = sum_d m_z / q(z) sum_{y != z} q(y | x_0) / (sum of e over z - e_z + e_y)

    The inner sum has equal terms for all y that are equally likely as noise, so it runs over the distinct values of m:
    one for uniform noise, two for absorbing and mixed noise. Where each element has its own m it runs over all
    categories.
    """

    def __init__(self, noise: Noise):
        self.noise, m = noise, noise.probs
        if m.dim() == 1:
            values, group, counts = m.unique(return_inverse=True, return_counts=True)
        else:
            values, group, counts = m, torch.arange(m.shape[-1]), torch.ones_like(m)
        groups = values, counts.double(), group  # distinct values of m, their counts, and the value of each category
        self._groups = {values.device: groups}

    def pair(
        self, x: Tensor, x_0: Tensor, level: Level, free: Tensor, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        """An auxiliary z of x, in its shape, and its weight (B,); the weight is 0 for an object that cannot jump."""
        z = self.draw(x, free, generator)
        return z, self.weight(z, x_0, level, free) * flat(z != x).any(1)

    def draw(self, x: Tensor, free: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """z ~ S(.|x): one free element jumps; an object whose exit rate is 0 stays."""
        u = uniform((2, len(x), 1), x.device, generator)
        element, can = _leaving(1 - self.noise.at(x), free, u[0])
        target = flat(self.noise.other(x, u[1].reshape(-1, *[1] * (x.dim() - 1)).expand(x.shape)))
        chosen = torch.arange(target.shape[1], device=x.device) == element
        return torch.where(chosen & can, target, flat(x)).reshape(x.shape)

    def weight(self, z: Tensor, x_0: Tensor, level: Level, free: Tensor) -> Tensor:
        """M(z | x_0), (B,)."""
        values, counts, group = self._grouped(z.device)
        m_z, m_0, same = self.noise.at(z), self.noise.at(x_0), z == x_0
        whole = total(1 - m_z, free).reshape(-1, *[1] * (z.dim() - 1)) + m_z  # e_y is 1 - m_y: `whole` - m_y leave y
        of_z = (group[z] if values.dim() == 1 else z)[..., None]
        others = counts.expand(*z.shape, -1).scatter_add(-1, of_z, -torch.ones_like(of_z, dtype=torch.float64))
        from_noise = (others * values / (whole[..., None] - values).clamp(min=_TINY)).sum(-1)
        from_0 = torch.where(same, 0.0, level.alpha_bar / (whole - m_0).clamp(min=_TINY))
        q_z = torch.where(same, level.alpha_bar, 0.0) + level.lost * m_z
        into_z = m_z / q_z.clamp(min=_TINY) * (from_0 + level.lost * from_noise)
        return total(torch.where(m_z > 0, into_z, 0.0), free)

    def _grouped(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        if device not in self._groups:
            values, counts, group = self._groups[self.noise.probs.device]
            with torch.inference_mode(False):  # the copies outlive this call
                self._groups[device] = values.to(device), counts.to(device), group.to(device)
        return self._groups[device]


def importance_weighted(terms: Tensor, weight: Tensor) -> Tensor:
    """terms / M_S, (B,), for terms at auxiliaries drawn with density q M_S; 0 where the weight is 0 (no auxiliary)."""
    return torch.where(weight > 0, terms / weight.clamp(min=_TINY), 0.0)


def two_pass_terms(
    truth_z: Belief, model_x: Belief, model_z: Belief, x_0: Tensor, to: Transition, weight: Tensor, free: Tensor
) -> Tensor:
    """Prop. 5 per object, (B,), with the constants that make it equal Prop. 6 in expectation.

    At x: the sum of h_y over y != x. At z: the sum of k log(k/h) - k over y != z, divided by M_S(z).
    """
    out_x, out_z = (to.to_data * b.not_f_x + to.to_noise * b.noised * (1 - b.m_x) for b in (model_x, model_z))
    return total(out_x, free) + importance_weighted(total(divergence(truth_z, model_z, x_0, to) - out_z, free), weight)


def two_pass_loss(
    diffusion: Diffusion,
    model: Callable[..., Any],
    x_0: Tensor,
    jumps: Tensor | None = None,
    ce: float = 0.0,
    t: Time | None = None,
    given: Tensor | None = None,
    pad: Tensor | None = None,
    generator: torch.Generator | None = None,
    stratified: bool = False,
) -> LossOutput:
    """Training loss of Prop. 5 (eq. 26) plus `ce` times the cross entropy at x. Other arguments as in `Diffusion.loss`.

    `jumps` is S, (K, K) or (..., K, K), [x, z] -> S(z|x); by default the forward rate, S(z|x) = m_z.
    """
    d, K = diffusion, diffusion.noise.num_classes
    require(d.continuous, "diffusion", d, "continuous time")
    batch = d.noisy_batch(x_0, t, given, pad, generator, stratified)
    x_0, x_t, time, checks = batch.x_0, batch.x_t, batch.time, batch.checks
    free = torch.ones_like(x_0, dtype=torch.bool) if batch.free is None else batch.free
    if jumps is not None:
        require(jumps.shape[-2:] == (K, K), "jumps.shape", tuple(jumps.shape), f"(..., {K}, {K})")
        jumps = jumps.to(x_0.device, torch.float64)
        diagonal = torch.eye(K, dtype=torch.bool, device=x_0.device)
        checks.refuse("jumps", jumps, lambda v: ~((v >= 0) | diagonal), "rates >= 0 off the diagonal")
        checks.raise_early(x_0.device)

    level = d.level(time, x_0)
    if jumps is None:
        z, weight = ForwardRate(d.noise).pair(x_t, x_0, level, free, generator)
    else:
        z = auxiliary(x_t, jumps, free, generator)
        weight = auxiliary_weight(z, d.forward_probs(x_0, time), jumps, free)
        weight = weight * flat(z != x_t).any(1)  # an object that could not jump has no auxiliary
    denoise = Denoiser(model, K, batch.given, batch.pad)
    at_x, at_z = (d.belief(denoise(v, time), v, time, checks, free) for v in (x_t, z))
    truth = true_belief(x_0, z, d.noise, level)
    vlb = two_pass_terms(truth, at_x, at_z, x_0, d.rate_weights(time, x_t), weight, free).mean()
    entropy = total(cross_entropy(at_x, x_0), free).mean()
    checks.raise_first()
    return LossOutput(vlb + ce * entropy, d.vlb_scale * vlb.detach(), entropy.detach())


def partial_time_loss(
    diffusion: Diffusion,
    model: Callable[..., Any],
    x_0: Tensor,
    t: Time | None = None,
    s: Time | None = None,
    given: Tensor | None = None,
    pad: Tensor | None = None,
    generator: torch.Generator | None = None,
    stratified: bool = False,
) -> LossOutput:
    """KL(q(x_s|x_t,x_0) || p(x_s|x_t)) + CE at s: the model's part of the partial-time VLB (eq. 15), in either time.

    By default t is drawn as in `Diffusion.loss`, and s uniformly below it. `diffusion.prior(x_0, t)` is the rest of the
    bound. The output has the KL as `vlb`, and as `ce` the cross entropy at s (0 at s = 0, which is clean data).
    """
    d, checks = diffusion, Checks(diffusion.validate)
    x_0, given, pad, free = d.masked_data(x_0, given, pad, checks)
    require(len(x_0) > 0, "x_0.shape", tuple(x_0.shape), "at least one object")
    t = d.draw_times(len(x_0), stratified, x_0.device, generator) if t is None else t
    if s is None:
        below = uniform(x_0.shape[:1], x_0.device, generator) * t
        s = below if d.continuous else below.long()
    time, before = d.times(t, s, x_0, checks)
    checks.raise_early(x_0.device)
    denoise = Denoiser(model, d.noise.num_classes, given, pad)
    x_t, x_s = (d.draw_noisy(x_0, v, free, generator) for v in (time, before))
    kl = total(d.element_terms(denoise(x_t, time), x_t, x_0, time, before, checks, free).vlb, free).mean()
    at_s = cross_entropy(d.belief(denoise(x_s, before), x_s, before, checks, free), x_0)
    ce = torch.where(before > 0, total(at_s, free), 0.0).mean()
    checks.raise_first()
    return LossOutput(kl + ce, kl.detach(), ce.detach())


def _leaving(exits: Tensor, free: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """The free element that leaves its category, drawn by exit rates with u (B, 1), and whether any can, (B, 1)."""
    upto = flat(torch.where(free, exits, 0.0)).cumsum(-1)
    passed = (upto <= u * upto[:, -1:]).sum(-1, keepdim=True)  # searchsorted, which torch 2.11 cannot compile here
    element = passed.clamp(max=upto.shape[1] - 1)
    return element, upto[:, -1:] > 0


def _off_diagonal_rows(x: Tensor, jumps: Tensor) -> Tensor:
    """S(. | x), (..., K), with 0 at x."""
    rows = jumps.expand(*x.shape, *jumps.shape[-2:]).gather(-2, x[..., None, None].expand(*x.shape, 1, jumps.shape[-1]))
    return rows.squeeze(-2).scatter(-1, x[..., None], 0.0)
