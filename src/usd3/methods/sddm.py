"""SDDM (Sun et al. 2023): ratio matching with a network that does not see the element it predicts."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from usd3._internal.checks import as_count, require
from usd3._internal.random import uniform
from usd3.core.belief import FINITE, NEVER, Level, data_logits
from usd3.core.coefficients import flat, total
from usd3.core.converters import full_from_hollow
from usd3.core.diffusion import Diffusion
from usd3.core.mixture import Jumps, safe_log
from usd3.core.model import Denoiser, Wrapper, keywords_of
from usd3.core.noisy_batch import NoisyBatch
from usd3.core.objectives import LossOutput, element_loss
from usd3.core.samplers import SAMPLERS, Run, Sampler, StepFunction, ask_and_draw, euler_jumps, tau_leaping_jumps
from usd3.methods.base import Method
from usd3.nets import Hollow

__all__ = ["SDDM"]

_JUMPS = {"euler": euler_jumps, "tau_leaping": tau_leaping_jumps}


class SDDM(Method):
    """The output is f_h = p(x_0 | the other elements of x_t). The loss is ratio matching, whose target is x_t itself:

        -log p_t(x_t | the others),   p_t = a f_h + (1 - a) m

    Only a hollow network learns from it, as one that sees x_t has nothing to predict: `usd3.nets.HollowTransformer` or
    `MaskedTransformer`. `ce` mixes in the cross entropy -log f_h of x_0: (1 - ce) of the first, ce of the second.
    `positions=P` asks a network that takes `at` (`MaskedTransformer`) at P random free elements of each object only,
    and weighs them so that the loss stays the same on average.

    The samplers are "exact" (their "analytical"), "euler" (their "lbjf") and "tau_leaping". The last two jump by rates
    in the last step too; where the noise has a mask that step draws from f, as no mask may stay.

    With absorbing noise the loss of an unmasked element is -log a f_h of its category, and that of a masked one is
    constant: cross entropy at the unmasked elements, which leads a hollow network to the same posterior.
    """

    reads = "hollow"
    needs_hollow = True
    time = "continuous"
    samplers = ("exact", "euler", "tau_leaping")

    def __init__(self, diffusion: Diffusion, ce: float = 0.0, positions: int | None = None):
        super().__init__(diffusion)
        require(0 <= ce <= 1, "ce", ce, "a number in [0, 1]")
        self.ce = float(ce)
        self.positions = None if positions is None else as_count(positions, "positions", 1)

    def loss_of(self, denoise: Denoiser, batch: NoisyBatch) -> LossOutput:
        """Ratio matching at one time for each object, summed over the free elements."""
        if self.positions is not None:
            return self._loss_at_positions(denoise.model, batch, self.positions)
        logits = denoise(batch.x_t, batch.time)  # (B, N1, ..., Nk, K)
        terms = self.terms(logits, batch.x_t, batch.x_0, self.diffusion.level(batch.time, batch.x_0))
        full = full_from_hollow(self.diffusion, logits.detach(), batch.x_t, batch.time)
        return element_loss(self.diffusion, terms, batch, full)

    def _loss_at_positions(self, model: Callable[..., Any], batch: NoisyBatch, positions: int) -> LossOutput:
        """The same from `positions` random free elements of each object, weighted to have the same mean."""
        d, x_0, x_t, time = self.diffusion, batch.x_0, batch.x_t, batch.time
        expected = f"None for {type(model).__name__}, which takes no argument `at`"
        require("at" in keywords_of(model)[0], "positions", positions, expected)
        at, weight = _some(x_0, batch.free, positions, batch.generator)
        logits = Denoiser(_At(model, at), d.noise.num_classes, batch.given, batch.pad)(x_t, time)
        full = full_from_hollow(d, logits.detach(), x_t, time)
        logged = d.element_terms(full, x_t, x_0, time, None, batch.checks)
        terms = (self.terms(logits, x_t, x_0, d.level(time, x_0)), logged.vlb, logged.ce)
        loss, vlb, ce = (total(weight.to(term.dtype) * term, batch.free).mean() for term in terms)
        batch.checks.refuse("logits", loss.detach(), torch.isnan, FINITE)
        return LossOutput(loss, d.vlb_scale * vlb, ce)

    def terms(self, logits: Tensor, x_t: Tensor, x_0: Tensor, level: Level) -> Tensor:
        """The loss of each element, in the shape of x_0, in float32 or the precision of the logits."""
        noise, logits = self.diffusion.noise, data_logits(logits, self.diffusion.noise)
        at = torch.stack([x_t, x_0], -1)
        log_f = (logits.gather(-1, at) - logits.logsumexp(-1, keepdim=True)).clamp(min=NEVER)
        kept, renewed = (safe_log(part).to(logits.dtype) for part in (level.alpha_bar, level.lost * noise.at(x_t)))
        matching = -torch.logaddexp(kept + log_f[..., 0], renewed)
        return (1 - self.ce) * matching - self.ce * log_f[..., 1] if self.ce else matching

    def denoiser(self, model: Callable[..., Any]) -> Callable[..., Any]:
        """The network with the hollow head: logits of p(x_0 | x_t)."""
        return Hollow(model, self.diffusion)

    def predictor(self, sampler: str) -> Sampler:
        """USD3's samplers, except that the last step jumps by rates too where the noise has no mask."""
        if sampler == "exact" or self.diffusion.noise.mask is not None:
            return SAMPLERS[sampler]
        return partial(_jumping_by_rates, jumps=_JUMPS[sampler])


def _jumping_by_rates(run: Run, grid: list[float], jumps: Callable[..., Jumps]) -> StepFunction:
    """Jumps by the rates at the start of every step, also of the last."""
    t, s = run.steps(grid)  # (S,)
    return run.moves(t, jumps(run.process, t, s, run.free), ask_and_draw)


def _some(x: Tensor, free: Tensor | None, count: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """P = `count` free elements of each object, without replacement: indices (B, P), and weights in the shape of x.

    A drawn element weighs n / P where n are free, all others 0. Where fewer than P are free, all of them are drawn and
    weigh 1; the other indices point to elements of weight 0.
    """
    flat_x = flat(x)
    key = uniform(flat_x.shape, x.device, generator)
    key = key if free is None else torch.where(flat(free), key, -1.0)
    best, at = key.topk(min(count, key.shape[1]), 1)
    drawn, num_free = (best >= 0).double(), (key >= 0).double().sum(1, keepdim=True)
    weights = drawn * num_free / drawn.sum(1, keepdim=True).clamp(min=1.0)
    return at, torch.zeros_like(key).scatter(1, at, weights).reshape(x.shape)


class _At(Wrapper):
    """A network that is asked at elements `at` (B, P) of each object only; its logits are 0 elsewhere."""

    def __init__(self, model: Callable[..., Any], at: Tensor):
        super().__init__(model)
        self.at = at

    def __call__(self, x_t: Tensor, t: Tensor, **masks: Tensor) -> Tensor:
        logits: Tensor = self.model(x_t, t, at=self.at, **masks)  # (B, P, K)
        everywhere = logits.new_zeros(*flat(x_t).shape, logits.shape[-1])
        at = self.at[..., None].expand_as(logits)
        return everywhere.scatter(1, at, logits).reshape(*x_t.shape, logits.shape[-1])
