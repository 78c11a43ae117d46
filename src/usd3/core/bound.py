"""The variational bound on -log p(x_0): prior, VLB terms, and in continuous time the decoder at t_min (eq. 2).

With absorbing noise, continuous time and a network that ignores the time, the integral over times has a closed form in
the number k of masked elements: L/k times the cross entropy of k random elements, averaged over k = 1..L. That is
-log p of the object drawn one element after the other, averaged over all orders. Its variance is much smaller than
that of times, where the same network output counts with the weight 1/t.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from usd3._internal.checks import Checks, as_count, require
from usd3._internal.random import uniform
from usd3._internal.threads import waiting_asleep
from usd3.core.belief import Level
from usd3.core.coefficients import Times, column, constant, flat, total
from usd3.core.model import Denoiser, ignores_time
from usd3.core.noise import Noise
from usd3.core.terms import LossTerms

if TYPE_CHECKING:
    from usd3.core.diffusion import Diffusion

__all__ = ["bound", "prior_kl"]


@waiting_asleep()
@torch.no_grad()
def bound(
    diffusion: "Diffusion",
    model: Callable[..., Any],
    x_0: Tensor,
    num_samples: int | None = None,
    times: Times | None = None,
    given: Tensor | None = None,
    pad: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Upper bound on -log p(x_0), or on -log p(free | given), (B,) in nats, with one draw of x_t per time.

    Where a network ignores the time of absorbing noise in continuous time, the numbers of masked elements take the
    place of times, and t_min is 0.

    Args:
        diffusion: the forward process.
        model: see `Diffusion.loss`. Call its `eval()` first.
        x_0: clean objects, integers (B, N1, ..., Nk).
        num_samples: number of stratified times, or numbers of masked elements; by default every t once in discrete
            time, 128 in continuous time.
        times: a decreasing grid that ends at 0, in place of `num_samples`: the bound of the sampler with those steps.
        given: mask of elements that are given and have no loss.
        pad: mask of padding, which has no loss.
        generator: makes the draws reproducible.
    """
    d, checks = diffusion, Checks(diffusion.validate)
    x_0, given, pad, free = d.masked_data(x_0, given, pad, checks)
    checks.raise_early(x_0.device)
    require(num_samples is None or times is None, "num_samples", num_samples, "None where `times` is given")
    num_samples = (d.num_steps or 128) if num_samples is None else as_count(num_samples, "num_samples", 1)
    grid = [1.0] if times is None else d.grid(times)
    denoise = Denoiser(model, d.noise.num_classes, given, pad)

    def terms_at(time: Tensor, before: Tensor | None) -> LossTerms:
        x_t = d.draw_noisy(x_0, time, free, generator)
        terms = d.element_terms(denoise(x_t, time), x_t, x_0, time, before, checks, free)
        checks.raise_early(x_0.device)
        return terms

    nll = total(d.prior_terms(x_0, constant(grid[0], x_0), checks), free)  # (B,)
    checks.raise_early(x_0.device)
    if times is not None:
        for t, s in pairwise(grid):
            nll = nll + total(terms_at(constant(t, x_0), constant(s, x_0)).vlb, free)
    elif d.continuous and d.noise.is_absorbing and ignores_time(model):
        for i in range(num_samples):
            x_t, scale = _masked(d.noise, x_0, free, (i, num_samples), generator)
            time = constant(1.0, x_0)  # any one does
            terms = d.element_terms(denoise(x_t, time), x_t, x_0, time, None, checks, free)
            checks.raise_early(x_0.device)
            nll = nll + scale / num_samples * total(terms.ce, free)
    else:
        for i in range(num_samples):
            u = (i + uniform(x_0.shape[:1], x_0.device, generator)) / num_samples
            time = d.time(d.times_from_uniform(u), x_0, "t", Checks(False))
            nll = nll + d.vlb_scale / num_samples * total(terms_at(time, None).vlb, free)
        if d.continuous:
            nll = nll + total(terms_at(constant(d.t_min, x_0), None).ce, free)
    checks.raise_first()
    return nll


def _masked(
    noise: Noise, x_0: Tensor, free: Tensor | None, stratum: tuple[int, int], generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Objects with k of their L free elements masked at random, and L/k, (B,); k is uniform in the i-th of n strata."""
    open_ = torch.ones_like(x_0, dtype=torch.bool) if free is None else free.expand(x_0.shape)
    count, (i, n) = flat(open_).sum(1), stratum
    u = (i + uniform(count.shape, x_0.device, generator)) / n
    k = (u * count).floor().clamp(max=count - 1).clamp(min=0) + 1  # (B,)
    keys = torch.where(flat(open_), uniform(flat(x_0).shape, x_0.device, generator), 2.0)
    rank = keys.argsort(1).argsort(1).reshape(x_0.shape)
    masked = open_ & (rank < column(k, x_0))
    return torch.where(masked, noise.mask, x_0), count / k  # type: ignore[arg-type]


def prior_kl(x_0: Tensor, noise: Noise, level: Level, checks: Checks) -> Tensor:
    """KL(q(x_t | x_0) || m), float64 in the shape of x_0, at the level of t. Infinite, and refused, where m has zeros
    and alpha_bar > 0.
    """
    (alpha_bar, lost), m_0 = level, noise.at(x_0)
    if noise.has_zeros:
        expected = "0, as the prior is infinite where the noise has zeros (Cosine and Linear end at 0)"
        checks.refuse("alpha_bar at the last time", alpha_bar, lambda v: v > 0, expected)
    q_0 = alpha_bar + lost * m_0  # q(x_t = x_0 | x_0)
    kl = torch.xlogy(q_0, q_0) - torch.xlogy(q_0, m_0) + (1 - m_0) * torch.xlogy(lost, lost)
    return kl.clamp(min=0.0)
