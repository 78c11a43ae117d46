"""SDDM (Sun et al. 2023): ratio matching with a network that does not see the element it speaks of."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from usd3._internal.checks import as_count, require
from usd3._internal.random import uniform
from usd3.core.belief import NEVER, Level, data_logits
from usd3.core.converters import full_from_hollow
from usd3.core.diffusion import Diffusion
from usd3.core.mixture import safe_log
from usd3.core.model import _keywords
from usd3.core.noisy_batch import Noised
from usd3.core.objectives import LossOutput
from usd3.core.process import flat
from usd3.core.samplers import SAMPLERS, MakePredictor, euler_jumps, leaping, tau_leaping_jumps
from usd3.methods.base import Method
from usd3.nets import Hollow

__all__ = ["SDDM"]

_JUMPS = {"euler": euler_jumps, "tau_leaping": tau_leaping_jumps}


class SDDM(Method):
    """The output is f_h = p(x_0 | the other elements of x_t). The loss is ratio matching, whose target is x_t itself.

        -log p_t(x_t | the others),   p_t = a f_h + (1 - a) m

    Only a hollow network learns from it, as one that sees x_t has nothing to predict: `usd3.nets.HollowTransformer`, or
    `MaskedTransformer`. `ce` mixes in the cross entropy -log f_h of x_0: (1 - ce) of the first, ce of the second.
    `positions=P` asks a network that takes `at` (`MaskedTransformer`) at P random free elements of each object only,
    and weighs them so that the loss stays the same on average.

    The samplers are "exact" (their "analytical"), "euler" (their "lbjf") and "tau_leaping". The last two jump by rates
    in the last step too; with absorbing noise that step draws from f, as no mask may stay.

    With absorbing noise an unmasked element pays -log a f_h of its own category, and a masked one nothing that could be
    learnt: cross entropy at the elements that are seen, which for a hollow network leads to the same posterior.
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

    def loss_of(self, batch: Noised) -> LossOutput:
        """Ratio matching at one time for each object, summed over the free elements."""
        if self.positions is not None:
            model = batch.denoise.model
            asks = f"None for {type(model).__name__}, which takes no argument `at`"
            require("at" in _keywords(model)[0], "positions", self.positions, asks)
            at, weight = _some(batch.x_0, batch.free, self.positions, batch.generator)
            asked = {"denoise": batch.denoise.wrapped(_At(model, at)), "weight": weight}
            batch = _Weighted(**{**vars(batch), **asked})
        logits = batch.output()
        terms = self.terms(logits, batch.x_t, batch.x_0, batch.level)
        full = full_from_hollow(self.diffusion, logits.detach(), batch.x_t, batch.time)
        return batch.finished(terms, full)

    def terms(self, logits: Tensor, x_t: Tensor, x_0: Tensor, level: Level) -> Tensor:
        """The loss of each element, in the precision of the logits or float32."""
        noise, logits = self.diffusion.noise, data_logits(logits, self.diffusion.noise)
        at = torch.stack([x_t, x_0], -1)
        log_f = (logits.gather(-1, at) - logits.logsumexp(-1, keepdim=True)).clamp(min=NEVER)
        kept, renewed = (safe_log(part).to(logits.dtype) for part in (level.alpha_bar, level.lost * noise.at(x_t)))
        matching = -torch.logaddexp(kept + log_f[..., 0], renewed)
        return (1 - self.ce) * matching - self.ce * log_f[..., 1] if self.ce else matching

    def denoiser(self, model: Callable[..., Any]) -> Callable[..., Any]:
        """The network, completed by the element itself: logits of p(x_0 | x_t)."""
        return Hollow(model, self.diffusion)

    def predictor(self, sampler: str) -> MakePredictor:
        """The library's own, but that jumps by rates go on to the end."""
        if sampler == "exact" or self.diffusion.noise.mask is not None:
            return SAMPLERS[sampler]
        return partial(leaping, jumps=_JUMPS[sampler])


def _some(x: Tensor, free: Tensor | None, count: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """`count` free elements of each object, drawn without replacement: where, (B, P), and the weights of all elements.

    A drawn one of n free elements weighs n / P, all others nothing. Where fewer than P are free, all of them are drawn
    and weigh 1; the other places go to elements that weigh nothing.
    """
    flat_x = flat(x)
    key = uniform(flat_x.shape, x.device, generator)
    key = key if free is None else torch.where(flat(free), key, -1.0)
    best, at = key.topk(min(count, key.shape[1]), 1)
    drawn, total = (best >= 0).double(), (key >= 0).double().sum(1, keepdim=True)
    weights = drawn * total / drawn.sum(1, keepdim=True).clamp(min=1.0)
    return at, torch.zeros_like(key).scatter(1, at, weights).reshape(x.shape)


@dataclass(frozen=True)
class _Weighted(Noised):
    """A batch whose elements count with weights."""

    weight: Tensor

    def mean(self, terms: Tensor) -> Tensor:
        """The weighted sum over the elements of each object, the mean over objects."""
        return super().mean(self.weight.to(terms.dtype) * terms)

    def shown(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The same of the VLB and the cross entropy."""
        found = self.diffusion._terms(logits.detach(), self.x_t, self.x_0, self.time, None, self.checks)
        return self.mean(found.vlb), self.mean(found.ce)


class _At:
    """A network that is asked at elements (B, P) of each object; of the others it says nothing, logits 0."""

    def __init__(self, model: Callable[..., Any], at: Tensor):
        self._orig_mod, self.at = model, at

    def __call__(self, x_t: Tensor, t: Tensor, **masks: Tensor) -> Tensor:
        found: Tensor = self._orig_mod(x_t, t, at=self.at, **masks)
        everywhere = found.new_zeros(*flat(x_t).shape, found.shape[-1])
        at = self.at[..., None].expand_as(found)
        return everywhere.scatter(1, at, found).reshape(*x_t.shape, found.shape[-1])
