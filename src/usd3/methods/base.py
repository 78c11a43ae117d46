"""A method: how a network is trained and how objects are drawn from it, on one `Diffusion`. USD3 is one of them.

A method owns its loss and its sampler, `loss(model, x_0, ...)` and `sample(model, shape, num_steps, ...)`. One of your
own derives from `Method` and gives the part that differs:

    loss_of(batch)       the loss of a batch whose noise is drawn
    predictor(name)      the steps of its sampler, if they are not those of USD3

The network, the data, the training, the metrics and the command line are the same for all.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from usd3._internal.checks import as_number, require, require_type
from usd3.core.diffusion import Diffusion
from usd3.core.noisy_batch import Noised
from usd3.core.objectives import LossOutput
from usd3.core.process import Times
from usd3.core.samplers import SAMPLERS, Corrector, MakePredictor, Step, sample
from usd3.core.schedules import Time
from usd3.kernels import Projection

__all__ = ["Method", "Noised"]


class Method(ABC):
    """A loss and a sampler on one diffusion.

    `reads` says what it takes the network's output for (see `usd3.core.converters`); `time` which kind of time it
    needs; `samplers` which it has, its own first; `corrects` whether MCMC corrector moves may come between its steps;
    `needs_hollow` whether its network must not see the element it speaks of; `fuses` whether its loss takes a
    `Projection` without forming the logits.
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
        """The training loss of clean objects, as `Diffusion.loss`."""
        given = self.given_in_training(given)
        return self.loss_of(self.diffusion.noised(self.trained(model), x_0, t, given, pad, generator, stratified))

    def given_in_training(self, given: Tensor | None) -> Tensor | None:
        """Which elements stay clean in training and have no loss: those that are given."""
        return given

    @abstractmethod
    def loss_of(self, batch: Noised) -> LossOutput:
        """Ask the network, `batch.output()`, and weigh its answer; sums over elements, means over objects."""

    def trained(self, model: Callable[..., Any]) -> Callable[..., Any]:
        """The model as the loss sees it."""
        return model

    # ---- use ----------------------------------------------------------------------------------------------------

    def denoiser(self, model: Callable[..., Any]) -> Callable[..., Any]:
        """The model as `predictor` and `bound` see it: by default its output is taken as logits of p(x_0 | x_t)."""
        return model

    def grid(self, num_steps: int | Times, sampler: str) -> int | Times:
        """The times of a sampler, from 1 (or T) to 0; a number of steps is spread evenly."""
        return num_steps

    def predictor(self, sampler: str) -> MakePredictor:
        """How the sampler of that name makes its steps: a function of (run, grid), see `usd3.core.samplers`."""
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
        denoise = denoise if temperature == 1 else _Tempered(denoise, temperature)
        name = self.samplers[0] if sampler is None else sampler
        require(name in self.samplers, "sampler", name, f"one of {', '.join(self.samplers)} for {type(self).__name__}")
        possible = self.corrects or corrector is None
        require(possible, "corrector", corrector, f"None for {type(self).__name__}, which has no place for one")
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
        """Make one of its samplers the default of this object; `option` is what a refusal names."""
        known = type(self).samplers
        require(sampler in known, option, sampler, f"one of {', '.join(known)}")
        self.samplers = (sampler, *(name for name in known if name != sampler))

    def require_temperature(self, temperature: float) -> None:
        """Refuse a temperature where the network's output is no logits."""
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
        """An upper bound on -log p(x_0), or on -log p(free | given), (B,) in nats, as `Diffusion.bound`."""
        d = self.diffusion
        return d.bound(self.denoiser(model), x_0, num_samples, given=given, pad=pad, generator=generator)


class _Tempered:
    """A denoiser whose logits are divided by a temperature."""

    def __init__(self, model: Callable[..., Any], temperature: float):
        self._orig_mod, self.temperature = model, temperature

    def __call__(self, x_t: Tensor, t: Tensor, **masks: Any) -> Tensor:
        found: Tensor | Projection = self._orig_mod(x_t, t, **masks)
        return (found.logits(x_t) if isinstance(found, Projection) else found) / self.temperature
