"""The section `diffusion` of a recipe: noise, schedule and kind of time."""

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from usd3._internal.checks import as_count, require
from usd3._internal.fields import require_fields
from usd3.core import schedules
from usd3.core.diffusion import Diffusion
from usd3.core.noise import Absorbing, Marginal, Mixed, Noise, Uniform

__all__ = ["SCHEDULES", "DiffusionConfig"]

_MOST_STEPS = 1_000_000  # of discrete time
_USUAL_STEPS = 100
SCHEDULES: dict[str, type[schedules.Schedule]] = {
    "cosine": schedules.Cosine,
    "linear": schedules.Linear,
    "loglinear": schedules.LogLinear,
    "constant": schedules.Constant,
    "exponential": schedules.Exponential,
    "geometric": schedules.Geometric,
    "power": schedules.Power,
}


@dataclass
class DiffusionConfig:
    """Noise, schedule and kind of time.

    Args:
        noise: "uniform", "absorbing" (masked diffusion: one more category, the mask), "mixed" (mask and uniform noise)
            or "marginal" (the frequencies of the training data).
        schedule: how fast the noise comes in.
        schedule_options: arguments of the schedule, for example {"beta": 3.87} for "constant".
        num_steps: null: continuous time; a number, for example 1000: discrete time.
        t_min: lower cut of continuous time.
        uniform: the uniform share of "mixed" noise, in (0, 1); the rest is the mask.
    """

    noise: Literal["uniform", "absorbing", "mixed", "marginal"] = "uniform"
    schedule: Literal["cosine", "linear", "loglinear", "constant", "exponential", "geometric", "power"] = "cosine"
    schedule_options: dict[str, float] = field(default_factory=dict)
    num_steps: int | None = None
    t_min: float = 1e-3
    uniform: float = 0.1

    def __post_init__(self) -> None:
        require_fields(self, "diffusion")
        as_count(self.num_steps or 1, "diffusion.num_steps", 1, _MOST_STEPS)
        require(0 < self.uniform < 1, "diffusion.uniform", self.uniform, "a number in (0, 1)")

    @property
    def has_mask(self) -> bool:
        """Whether the noise has one category more than the data, the mask."""
        return self.noise in ("absorbing", "mixed")

    @property
    def usual_steps(self) -> int:
        """Default number of sampling steps: 100, or T where T is smaller."""
        return min(_USUAL_STEPS, self.num_steps or _USUAL_STEPS)

    def build(self, num_classes: int, marginal: Any = None, support: Tensor | None = None) -> Diffusion:
        """The diffusion on K = `num_classes` data categories.

        Args:
            num_classes: K.
            marginal: frequencies of the categories, (K,) or (..., K) for each element, for marginal noise.
            support: the categories that data can have, bool (..., K); None: all.
        """
        noise: Noise
        if self.noise == "uniform":
            noise = Uniform(num_classes)
        elif self.noise == "absorbing":
            noise = Absorbing(num_classes + 1)
        elif self.noise == "mixed":
            noise = Mixed(num_classes + 1, self.uniform)
        else:
            require(marginal is not None, "marginal", marginal, "the frequencies of the categories")
            noise = Marginal(torch.as_tensor(marginal, dtype=torch.float64))
        if support is not None and noise.num_classes > num_classes:  # the mask is no data
            support = F.pad(support, (0, noise.num_classes - num_classes))
        try:
            schedule = SCHEDULES[self.schedule](**self.schedule_options)
        except TypeError as error:
            raise ValueError(f"diffusion.schedule_options = {self.schedule_options}: {error}") from None
        ends = float(schedule.alpha_bar(torch.tensor(1.0, dtype=torch.float64))) == 0
        inside = noise if support is None else noise.within(support)
        fits = ends or not inside.has_zeros
        require(fits, "diffusion.schedule", self.schedule, f"cosine or linear, which end at 0, with {self.noise} noise")
        return Diffusion(noise, schedule, num_steps=self.num_steps, t_min=self.t_min, support=support)
