"""Guidance without a classifier: draws that follow a condition y more closely than p(x | y) asks for.

The condition is a set of given elements, or a label beside the object. One network knows p(x | y) and, with the
condition left out, p(x). With scale g, either f or the whole step is tilted,

    f_g        ~ p(x_0 | x_t, y)^g p(x_0 | x_t)^(1 - g)          `Guided`, for every sampler
    p_g(x_s)   ~ p(x_s | x_t, y)^g p(x_s | x_t)^(1 - g)          the sampler `StepGuided`

for each element by itself. g = 1 is plain conditioning, g = 0 none. Both calls of the network are one batch.

With a classifier p(y | x_t) instead: `usd3.core.classifier_guidance`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from usd3._internal.checks import as_bool_mask, as_number, require, require_type
from usd3._internal.random import drawn_from
from usd3.core.belief import FINITE, data_logits, model_belief
from usd3.core.coefficients import Process
from usd3.core.mixture import backward_mixture
from usd3.core.model import Denoiser, Wrapper, keywords_of, logits_of, nested_models, remembered
from usd3.core.samplers.run import Run, StepFunction

__all__ = ["LARGEST_SCALE", "Guided", "StepGuided", "tilted"]

ABSENT = -1
"""The label of an object that has none."""
LARGEST_SCALE = 1e6
"""A scale of guidance is below this: tilted logits are finite."""


def tilted(conditional: Tensor, unconditional: Tensor, scale: float) -> Tensor:
    """scale log p(. | y) + (1 - scale) log p(.), up to a constant, from logits of both; -inf where either is -inf.

    A category that p(x) excludes cannot be in p(x | y), whatever a network says.
    """
    never = (conditional == -torch.inf) | (unconditional == -torch.inf)
    return torch.where(never, -torch.inf, scale * conditional + (1 - scale) * unconditional)


class Guided(Wrapper):
    """A model with logits scale log p(x_0 | x_t, y) + (1 - scale) log p(x_0 | x_t).

    The condition y is left out in one of three ways. A network with the keyword `absent`, unless its attribute
    `knows_absence` is False, gets the mask of the elements to be treated as absent. Otherwise these elements are not
    given, and they are the mask of absorbing noise, which is exact for masked diffusion; or, with other noise, drawn
    from q(x_t | x_0) at the time of the step. The latter is an approximation: what is left of the elements at that time
    is seen.

    A label comes with every call as the keyword `label` (B, J), -1 for no label: from here, or from the caller.

    Args:
        model: `model(x_t, t, ...) -> logits` of p(x_0 | x_t).
        process: the diffusion.
        scale: g. 1 and 0 ask the network once for each object, any other scale twice, in one call.
        condition: (B, ...) which of the given elements are the condition; None: none of them.
        label: (B, J) int64, the label of each object; None: none, or that of the caller.
        generator: of the draws of elements that are left out.
    """

    ignores_time = False
    self_conditioned = False

    def __init__(
        self,
        model: Callable[..., Any],
        process: Process,
        scale: float,
        condition: Tensor | None = None,
        label: Tensor | None = None,
        generator: torch.Generator | None = None,
    ):
        names, any_keyword = keywords_of(model)
        expected = "None for a model without the keyword `label`"
        require(label is None or any_keyword or "label" in names, "label", "a tensor", expected)
        super().__init__(remembered(model, process.noise.num_classes))  # each of the two has its own last estimate
        self._plain_model = model
        self.process, self.scale = process, as_number(scale, "guidance_scale", 0, LARGEST_SCALE, closed=True)
        self.condition, self.label = condition, label
        self.generator = generator
        told = all(getattr(inner, "knows_absence", True) for inner in nested_models(model))
        self.knows_absence = told and "absent" in names

    def fresh(self) -> "Guided":
        """The same guidance for a new sampling run: nothing is kept of earlier calls."""
        return Guided(self._plain_model, self.process, self.scale, self.condition, self.label, self.generator)

    @property
    def draws(self) -> bool:
        """Whether a call draws random numbers."""
        no_draw = self.condition is None or self.knows_absence or self.process.noise.is_absorbing
        return self.scale != 1 and not no_draw

    def __call__(self, x_t: Tensor, t: Tensor, **masks: Tensor) -> Tensor:
        """The tilted logits at x_t, (..., K)."""
        if self.scale == 1:
            return self._asked(x_t, t, self._with_condition(x_t, masks))
        if self.scale == 0:
            without, masks = self._without_condition(x_t, t, masks)
            return self._asked(without, t, masks)
        conditional, unconditional = (data_logits(logits, self.process.noise) for logits in self.both(x_t, t, **masks))
        return tilted(conditional, unconditional, self.scale)  # logits, so constants do not matter

    def both(self, x_t: Tensor, t: Tensor, **masks: Tensor) -> tuple[Tensor, Tensor]:
        """Logits with and without the condition, (..., K) each, from one call with 2 B rows."""
        with_it = self._with_condition(x_t, masks)
        x_u, without = self._without_condition(x_t, t, masks)
        batch = {name: torch.cat([with_it[name], without[name]]) for name in with_it}
        conditional, unconditional = self._asked(torch.cat([x_t, x_u]), torch.cat([t, t]), batch).chunk(2)
        return conditional, unconditional

    def _move_to(self, x_t: Tensor) -> None:
        """Have condition and label on the device of x_t; only the first call copies."""
        self.condition = None if self.condition is None else self.condition.to(x_t.device)
        self.label = None if self.label is None else self.label.to(x_t.device)

    def _asked(self, x_t: Tensor, t: Tensor, masks: dict[str, Tensor]) -> Tensor:
        return logits_of(self.model(x_t, t, **masks), x_t)

    def _with_condition(self, x_t: Tensor, masks: dict[str, Tensor]) -> dict[str, Tensor]:
        self._move_to(x_t)
        masks = dict(masks) if self.label is None else masks | {"label": self.label}
        if self.knows_absence and self.condition is not None:
            masks.setdefault("absent", torch.zeros_like(x_t, dtype=torch.bool))
        return masks

    def _without_condition(self, x_t: Tensor, t: Tensor, masks: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """x_t and the masks of the call without the condition, with the same keywords."""
        masks = self._with_condition(x_t, masks)
        if "label" in masks:
            masks["label"] = torch.full_like(masks["label"], ABSENT)
        out = as_bool_mask(self.condition, x_t.shape, "condition", x_t.device)
        if out is None:
            return x_t, masks
        if self.knows_absence:
            return x_t, masks | {"absent": masks["absent"] | out}
        if "given" in masks:
            masks["given"] = masks["given"] & ~out
        noise = self.process.noise
        if noise.is_absorbing:
            return torch.where(out, noise.sample(x_t), x_t), masks
        noisy = noise.corrupt(x_t, self.process.level(t.double(), x_t).lost, self.generator)
        return torch.where(out, noisy, x_t), masks


@dataclass(frozen=True)
class StepGuided:
    """The sampler of p_g(x_s | x_t, y) ~ p(x_s | x_t, y)^g p(x_s | x_t)^(1 - g), normalised for each element.

    Both steps are the exact ones, B(f) with and without the condition. The model must be a `Guided` one, which knows g
    and both f: `diffusion.sample(Guided(...), ..., sampler=StepGuided())`. Temperature, `top_k` and `top_p` act on both
    f; what the conditional one leaves out, the other leaves out, too.
    """

    takes_corrector: ClassVar[bool] = False

    def __call__(self, run: Run, grid: list[float]) -> StepFunction:
        """`step(x, i)`: x_s from x = x_t, one network call."""
        model = run.denoise.model if isinstance(run.denoise, Denoiser) else None
        require_type(isinstance(model, Guided), "model", model, "a Guided model for the sampler StepGuided")
        t, s = run.steps(grid)

        def drawn(x: Tensor, time: Tensor, before: Tensor, u: Tensor) -> Tensor:
            log_p = guided_step(run, x, time.expand(len(x)), before.expand(len(x)))
            run.checks.refuse("logits", torch.where(run.free, log_p.amax(-1), 0.0), lambda v: ~v.isfinite(), FINITE)
            return torch.where(run.free, drawn_from(log_p.exp(), u[0]), x)

        replayed = run.replayed(drawn)

        def step(x: Tensor, i: int) -> Tensor:
            x = replayed(x, t[i], s[i], run.uniforms(x))
            run.checks.raise_early(x.device)
            return x

        return step


def guided_step(run: Run, x: Tensor, time: Tensor, before: Tensor) -> Tensor:
    """log p_g(x_s | x_t, y) of all categories, (..., K), normalised; times float64 (B,)."""
    process, denoise = run.process, run.denoise
    assert isinstance(denoise, Denoiser)
    assert isinstance(denoise.model, Guided)
    level, to = process.level(time, x), process.step(time, before, x)

    def log_step(logits: Tensor) -> Tensor:
        belief = model_belief(logits, x, process.noise, level, run.checks, run.free)
        return backward_mixture(belief, to).probs().log()

    if denoise.model.scale in (0, 1):
        return torch.log_softmax(log_step(run.shaped(denoise(x, time))), -1)
    both = denoise.asked(denoise.model.both, x, time)
    conditional, unconditional = (denoise.adjusted(logits, x, time) for logits in both)
    conditional = run.shaped(conditional)
    unconditional = replace(run.logit_options, top_k=None, top_p=1.0).drawn(unconditional, process.noise)
    unconditional = unconditional.masked_fill(conditional == -torch.inf, -torch.inf)
    return torch.log_softmax(tilted(log_step(conditional), log_step(unconditional), denoise.model.scale), -1)
