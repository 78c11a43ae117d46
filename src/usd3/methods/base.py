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

from usd3._internal.checks import as_number, require, require_type
from usd3.core.coefficients import Times
from usd3.core.diffusion import Diffusion
from usd3.core.model import Denoiser, Tempered
from usd3.core.noisy_batch import NoisyBatch
from usd3.core.objectives import LossOutput
from usd3.core.samplers import FOR_ABSORBING_NOISE, SAMPLERS, Corrector, Sampler, Step, sample
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

    # ---- training -----------------------------------------------------------------------------------------------

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
        corrector: Corrector | None = None,
        given: Tensor | None = None,
        given_tokens: Tensor | None = None,
        pad: Tensor | None = None,
        generator: torch.Generator | None = None,
        callback: Callable[[Step], None] | None = None,
        sampler: str | None = None,
        device: torch.device | str | None = None,
        graph: bool = False,
        temperature: float = 1.0,
    ) -> Tensor:
        """Draw objects of `shape`, as `Diffusion.sample`; `sampler` is one of `samplers`, by default the first.

        `temperature` divides the logits of p(x_0 | x_t).
        """
        self.require_temperature(temperature)
        denoise = self.denoiser(model)
        denoise = denoise if temperature == 1 else Tempered(denoise, temperature)
        name = self.samplers[0] if sampler is None else sampler
        require(name in self.samplers, "sampler", name, f"one of {', '.join(self.samplers)} for {type(self).__name__}")
        fits = self.corrects or corrector is None
        require(fits, "corrector", corrector, f"None for {type(self).__name__}, which has no place for one")
        return sample(
            self.diffusion,
            denoise,
            shape,
            self.grid(num_steps, name),
            corrector,
            given,
            given_tokens,
            pad,
            generator,
            callback,
            self.predictor(name),
            device,
            graph,
        )

    def prefer(self, sampler: str, option: str) -> None:
        """Make one of its samplers the default of this object; errors name `option`."""
        names = self.samplers
        require(sampler in names, option, sampler, f"one of {', '.join(names)}")
        self.samplers = (sampler, *(name for name in names if name != sampler))

    def require_temperature(self, temperature: float) -> None:
        """Refuse a temperature other than 1 where the network's output is not logits."""
        as_number(temperature, "temperature", 0)
        fits = temperature == 1 or self.reads != "ratio"
        require(fits, "temperature", temperature, f"1 for {type(self).__name__}, whose outputs are no logits")

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
