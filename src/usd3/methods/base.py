"""A method: a training loss and a sampler on one `Diffusion`. USD3 is one of them.

A method of your own derives from `Method` and writes the parts that differ:

    loss_of(denoise, batch)     the loss of a batch whose noise is drawn
    predictor(name)             its sampler, if it is not one of USD3's

The network, the data, the training, the metrics and the command line are the same for all methods.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from usd3._internal.checks import require, require_type
from usd3._internal.messages import suggestion
from usd3.core.coefficients import Times
from usd3.core.diffusion import Diffusion
from usd3.core.guidance import Guided, StepGuided
from usd3.core.logits import Adjust, LogitOptions
from usd3.core.model import Cached, Denoiser, bound_keywords
from usd3.core.noisy_batch import NoisyBatch
from usd3.core.objectives import LossOutput
from usd3.core.samplers import (
    FOR_ABSORBING_NOISE,
    SAMPLERS,
    CorrectorMoves,
    Sampler,
    Step,
    base_name,
    sample,
    shown_name,
    with_options,
)
from usd3.core.schedules import Time

__all__ = ["Method", "NoisyBatch"]


class Method(ABC):
    """A loss and a sampler on one diffusion.

    Attributes:
        reads: the meaning of the network's output, see `usd3.core.converters`.
        time: the kind of time it needs.
        samplers: the names of its samplers, the default first; an object has those that its noise allows.
        corrects: whether MCMC corrector moves may follow its steps.
        needs_hollow: whether the network must not see the element that it predicts.
        fuses: whether the loss takes a `Projection` without forming the logits.
    """

    reads: Literal["full", "hollow", "ratio"] = "full"
    time: ClassVar[Literal["discrete", "continuous", "either"]] = "either"
    samplers: tuple[str, ...] = tuple(SAMPLERS)
    corrects: ClassVar[bool] = True
    needs_hollow: ClassVar[bool] = False
    fuses: bool = False

    def __init__(self, diffusion: Diffusion):
        require_type(isinstance(diffusion, Diffusion), "diffusion", diffusion, "a usd3.Diffusion")
        kind = "continuous" if diffusion.continuous else "discrete"
        expected = f"{self.time} time for {type(self).__name__}"
        require(self.time in (kind, "either"), "diffusion.num_steps", diffusion.num_steps, expected)
        self.diffusion = diffusion
        if not diffusion.noise.is_absorbing:
            self.samplers = tuple(name for name in self.samplers if name not in FOR_ABSORBING_NOISE)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.diffusion!r})"

    @property
    def takes_any_sampler(self) -> bool:
        """Whether the network says p(x_0 | x_t) of `diffusion`, so that any sampler of it can be used."""
        return self.reads != "ratio"

    # ---- training -----------------------------------------------------------------------------------------------

    @property
    def nat_weight(self) -> float:
        """What one nat of an object counts in the loss: 1, or 1/T where a step of discrete time is drawn."""
        return 1 / (self.diffusion.num_steps or 1)

    def loss(
        self,
        model: Callable[..., Any],
        x_0: Tensor,
        t: Time | None = None,
        given: Tensor | None = None,
        pad: Tensor | None = None,
        generator: torch.Generator | None = None,
        stratified: bool = False,
    ) -> LossOutput:
        """Training loss of clean objects x_0: draw t and x_t, then `loss_of`. Arguments as in `Diffusion.loss`."""
        d = self.diffusion
        batch = d.noisy_batch(x_0, t, self.given_in_training(given), pad, generator, stratified)
        denoise = Denoiser(self.model_in_training(model), d.noise.num_classes, batch.given, batch.pad)
        out = self.loss_of(denoise, batch)
        batch.checks.raise_first()
        return out

    def given_in_training(self, given: Tensor | None) -> Tensor | None:
        """Mask of the elements that stay clean in training and have no loss: by default the given ones."""
        return given

    @abstractmethod
    def loss_of(self, denoise: Denoiser, batch: NoisyBatch) -> LossOutput:
        """Training loss of a batch: sum over the free elements, mean over objects.

        `denoise(batch.x_t, batch.time)` asks the network for its output (..., K). `usd3.core.objectives` has
        `element_loss`, which makes a `LossOutput` from the loss of each element.
        """

    def model_in_training(self, model: Callable[..., Any]) -> Callable[..., Any]:
        """The model as `loss_of` asks it."""
        return model

    # ---- use ----------------------------------------------------------------------------------------------------

    def denoiser(self, model: Callable[..., Any]) -> Callable[..., Any]:
        """The model as samplers and `bound` ask it: its output is logits of p(x_0 | x_t)."""
        return model

    def grid(self, num_steps: int | Times, sampler: str) -> int | Times:
        """The times of a sampler, from 1 (or T) down to 0, or a number of equal steps."""
        return num_steps

    def predictor(self, sampler: str) -> Sampler:
        """The sampler of that name: a function `(run, grid) -> step`, see `usd3.core.samplers`."""
        return SAMPLERS[sampler]

    def sample(
        self,
        model: Callable[..., Any],
        shape: Any,
        num_steps: int | Times,
        corrector: CorrectorMoves | None = None,
        given: Tensor | None = None,
        given_tokens: Tensor | None = None,
        pad: Tensor | None = None,
        generator: torch.Generator | None = None,
        callback: Callable[[Step], None] | None = None,
        sampler: str | Sampler | None = None,
        device: torch.device | str | None = None,
        graph: bool = False,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        bias: Tensor | None = None,
        adjust: Adjust | None = None,
        guidance_scale: float = 1.0,
        guidance: Literal["f", "step"] = "f",
    ) -> Tensor:
        """Draw objects of `shape`, as `Diffusion.sample`; `sampler` is one of `samplers`, by default the first.

        It may also be a function `(run, grid) -> step`. `temperature`, `top_k`, `top_p`, `bias` and `adjust` change the
        logits of p(x_0 | x_t), as `usd3.LogitOptions` says. `guidance_scale` is the exponent of guidance by the
        given elements, on f or on the step: `usd3.core.guidance`.
        """
        options = LogitOptions(temperature, top_k, top_p, bias, adjust)
        self.require_logits(**options.changed(), **({} if guidance_scale == 1 else {"guidance_scale": guidance_scale}))
        require(guidance in ("f", "step"), "guidance", guidance, 'one of "f", "step"')
        denoise = self.denoiser(model)
        if guidance_scale != 1:
            denoise = Guided(denoise, self.diffusion, guidance_scale, given, generator=generator)
            follows = given is not None or "label" in bound_keywords(model)
            expected = "1 where nothing is given and no label is set: there is no condition to follow"
            require(follows, "guidance_scale", guidance_scale, expected)
            graph = graph and not denoise.draws and not isinstance(denoise.model, Cached)
            if guidance == "step":
                self._require_step_guidance(sampler, corrector)
                sampler = StepGuided()
        name = self.samplers[0] if sampler is None else sampler
        expected = (
            f"one of {', '.join(map(base_name, self.samplers))} for {type(self).__name__}, whose steps are its own"
        )
        require(not callable(name) or self.takes_any_sampler, "sampler", name, expected)
        make_step = name if callable(name) else self.sampler_named(name)
        fits = self.corrects or corrector is None
        require(fits, "corrector", corrector, f"None for {type(self).__name__}, which has no place for one")
        fits = corrector is None or getattr(make_step, "takes_corrector", True)
        require(
            fits,
            "corrector",
            type(corrector).__name__,
            f"None with the sampler {shown_name(name)}; sampler exact takes one",
        )
        return sample(
            self.diffusion,
            denoise,
            shape,
            num_steps if callable(name) else self.grid(num_steps, name),
            corrector,
            given,
            given_tokens,
            pad,
            generator,
            callback,
            make_step,
            device,
            graph,
            options,
        )

    def _require_step_guidance(self, sampler: str | Sampler | None, corrector: CorrectorMoves | None) -> None:
        """Refuse guidance of the step where other steps than the exact ones are taken."""
        name, own = sampler or self.samplers[0], [base_name(known) for known in self.samplers]
        require("exact" in own, "guidance", "step", f"f for {type(self).__name__}, whose steps are its own")
        expected = 'None or "exact" for guidance "step", which tilts exact steps'
        require(sampler is None or name == "exact", "sampler", sampler, expected)
        require(corrector is None, "corrector", corrector, 'None for guidance "step"')

    def sampler_named(self, sampler: str, option: str = "sampler") -> Sampler:
        """The sampler of a name, with options as in "revision:eta=0.1" where it has some; errors name `option`."""
        own, name = [base_name(known) for known in self.samplers], base_name(sampler)
        expected = f"one of {', '.join(own)} for {type(self).__name__}{suggestion(name, own)}"
        require(name in own, option, sampler, expected)
        return with_options(self.predictor(name), sampler)

    def prefer(self, sampler: str, option: str) -> None:
        """Make one of its samplers the default of this object; errors name `option`."""
        self.sampler_named(sampler, option)
        self.samplers = (sampler, *(name for name in self.samplers if name != base_name(sampler)))

    def require_logits(self, **changes: Any) -> None:
        """Refuse arguments that change logits where the network's output is none."""
        for name, value in changes.items():
            usual = {"temperature": "1", "top_p": "1", "guidance_scale": "1"}.get(name, "None")
            expected = f"{usual} for {type(self).__name__}, whose outputs are no logits"
            require(self.reads != "ratio", name, value, expected)

    def bound(
        self,
        model: Callable[..., Any],
        x_0: Tensor,
        num_samples: int | None = None,
        given: Tensor | None = None,
        pad: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Upper bound on -log p(x_0), or on -log p(free | given), (B,) in nats, as `Diffusion.bound`."""
        d = self.diffusion
        return d.bound(self.denoiser(model), x_0, num_samples, given=given, pad=pad, generator=generator)
