"""Losses that call the network twice.

`two_pass_loss` is the continuous-time VLB of Prop. 5: one pass at x ~ q_t, one at an auxiliary z that differs from x in
one element, drawn from any unnormalised S(z|x) = sum_d S^d(z^d|x^d). Its expectation is that of the single pass
(Prop. 6), whatever S is, since z has density q(z) M_S(z). tauLDR trains with it, S being the forward rate.

`partial_time_loss` is the VLB where only times s < t are observed: one pass at x_t, one at x_s.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from usd3._checks import Checks, require
from usd3._model import Denoiser
from usd3._random import uniform
from usd3.belief import Belief, known
from usd3.diffusion import Diffusion
from usd3.mixture import Transition
from usd3.objectives import LossOutput, cross_entropy, divergence
from usd3.process import flat, total
from usd3.schedules import Time

__all__ = ["auxiliary", "auxiliary_weight", "partial_time_loss", "two_pass_loss", "two_pass_terms"]


def auxiliary(x: Tensor, jumps: Tensor, free: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Draw z ~ S(.|x): one free element jumps, with rates `jumps` (..., K, K), [x, z] -> S(z|x), diagonal ignored.

    An object that has nowhere to jump stays.
    """
    rows = _off_diagonal_rows(x, jumps).cumsum(-1)  # (B, ..., K)
    exits = flat(rows[..., -1] * free).cumsum(-1)  # (B, D)
    u = uniform((2, len(x), 1), x.device, generator)
    element = torch.searchsorted(exits, u[0] * exits[:, -1:], right=True).clamp(max=exits.shape[1] - 1)
    row = rows.reshape(len(x), -1, rows.shape[-1]).gather(1, element[..., None].expand(-1, -1, rows.shape[-1]))[:, 0]
    target = torch.searchsorted(row, u[1] * row[:, -1:], right=True)
    moved = flat(x).scatter(1, element, target.clamp(max=rows.shape[-1] - 1))
    return torch.where(exits[:, -1:] > 0, moved, flat(x)).reshape(x.shape)


def auxiliary_weight(z: Tensor, q: Tensor, jumps: Tensor, free: Tensor) -> Tensor:
    """M_S(z | x_0), (B,): how much likelier z is as an auxiliary than under q. `q` is q(. | x_0), (..., K)."""
    exits = jumps.sum(-1) - jumps.diagonal(dim1=-2, dim2=-1)  # (..., K)
    exits = exits.expand(*z.shape, -1)
    exit_z = exits.gather(-1, z[..., None])
    all_exits = total(exit_z.squeeze(-1), free).reshape(-1, *[1] * z.dim())
    into_z = jumps.transpose(-1, -2).expand(*z.shape, -1, -1)
    into_z = into_z.gather(-2, z[..., None, None].expand(*z.shape, 1, q.shape[-1])).squeeze(-2)  # S(z | y) for each y
    into_z = into_z.scatter(-1, z[..., None], 0.0)
    from_y = (all_exits - exit_z + exits).clamp(min=1e-300)
    terms = torch.where(into_z > 0, q / q.gather(-1, z[..., None]) * into_z / from_y, 0.0)
    return total(terms.sum(-1), free)


def two_pass_terms(
    truth_z: Belief, model_x: Belief, model_z: Belief, x_0: Tensor, to: Transition, weight: Tensor, free: Tensor
) -> Tensor:
    """Prop. 5 per object, (B,), with the constants that make it equal Prop. 6 in expectation.

    At x: sum of h_y over y != x. At z, over M_S(z): sum over y != z of k log(k/h) - k.
    """
    out_x, out_z = (to.clean * b.not_f_x + to.noise * b.noised * (1 - b.m_x) for b in (model_x, model_z))
    at_z = total(divergence(truth_z, model_z, x_0, to) - out_z, free)
    return total(out_x, free) + torch.where(weight > 0, at_z / weight.clamp(min=1e-300), 0.0)


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
    """Training loss of Prop. 5 plus `ce` times the cross entropy at x. `jumps` is S, (K, K) or (..., K, K).

    By default S is the forward rate, S(z|x) = m_z.
    """
    d = diffusion
    require(d.continuous, "diffusion", d, "continuous time")
    checks = Checks(d.validate)
    x_0, given, pad, free = d._masked(x_0, given, pad, checks)
    free = torch.ones_like(x_0, dtype=torch.bool) if free is None else free
    t = d._training_times(x_0, t, stratified, generator)
    time = d.time(t, x_0, "t", checks, positive=True)
    K = d.noise.num_classes
    if jumps is None:
        jumps = d.noise.probs_on(x_0.device)[..., None, :].expand(*d.noise.probs.shape[:-1], K, K)
    require(jumps.shape[-2:] == (K, K), "jumps.shape", tuple(jumps.shape), f"(..., {K}, {K})")
    jumps = jumps.to(x_0.device, torch.float64)
    diagonal = torch.eye(K, dtype=torch.bool, device=x_0.device)
    checks.refuse("jumps", jumps, lambda v: ~((v >= 0) | diagonal), "rates >= 0 off the diagonal")
    checks.raise_early(x_0.device)

    x_t = d._noisy(x_0, time, free, generator)
    z = auxiliary(x_t, jumps, free, generator)
    denoise = Denoiser(model, K, given, pad)
    at_x, at_z = (d.believe(denoise(v, time), v, time, checks) for v in (x_t, z))
    weight = auxiliary_weight(z, d._forward(x_0, time).probs(), jumps, free)
    weight = weight * flat(z != x_t).any(1)  # an object that could not jump has no auxiliary
    truth = known(x_0, z, d.noise, d.level(time, z))
    vlb = two_pass_terms(truth, at_x, at_z, x_0, d.rate_weights(time, x_t), weight, free).mean()
    entropy = total(cross_entropy(at_x, x_0), free).mean()
    checks.raise_first()
    return LossOutput(vlb + ce * entropy, d.span * vlb.detach(), entropy.detach())


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
    """KL(q(x_s|x_t,x_0) || p(x_s|x_t)) + CE at s, the model's part of the VLB that observes s < t; both kinds of time.

    By default t is drawn as in `Diffusion.loss` and s uniformly below it. Adding `diffusion.prior(x_0, t)` gives the
    whole bound. In the output `vlb` is the KL and `ce` the cross entropy at s (nothing at s = 0, which is clean data).
    """
    d, checks = diffusion, Checks(diffusion.validate)
    x_0, given, pad, free = d._masked(x_0, given, pad, checks)
    t = d._training_times(x_0, t, stratified, generator)
    if s is None:
        below = uniform(x_0.shape[:1], x_0.device, generator) * t
        s = below if d.continuous else below.long()
    time, before = d.times(t, s, x_0, checks)
    checks.raise_early(x_0.device)
    denoise = Denoiser(model, d.noise.num_classes, given, pad)
    x_t, x_s = (d._noisy(x_0, v, free, generator) for v in (time, before))
    kl = total(d._terms(denoise(x_t, time), x_t, x_0, time, before, checks).vlb, free).mean()
    at_s = cross_entropy(d.believe(denoise(x_s, before), x_s, before, checks), x_0)
    ce = torch.where(before > 0, total(at_s, free), 0.0).mean()
    checks.raise_first()
    return LossOutput(kl + ce, kl.detach(), ce.detach())


def _off_diagonal_rows(x: Tensor, jumps: Tensor) -> Tensor:
    """S(. | x), (..., K), with 0 at x."""
    rows = jumps.expand(*x.shape, *jumps.shape[-2:]).gather(-2, x[..., None, None].expand(*x.shape, 1, jumps.shape[-1]))
    return rows.squeeze(-2).scatter(-1, x[..., None], 0.0)
