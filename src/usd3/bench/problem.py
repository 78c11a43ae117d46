"""A problem to measure: a size, a diffusion, an objective, and random inputs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from usd3._internal.checks import as_count, require
from usd3._internal.random import seed_of
from usd3.core.diffusion import Diffusion
from usd3.core.noise import Absorbing, Marginal, Noise, Uniform
from usd3.core.objectives import NAMED
from usd3.core.schedules import Cosine, Schedule

__all__ = ["DTYPES", "NOISES", "TIMES", "Inputs", "Problem", "Size"]

NOISES = ("uniform", "absorbing", "marginal")
TIMES: dict[str, int | None] = {"continuous": None, "discrete": 1000}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
_FOOTPRINT = {"cuda": 256 << 20, "cpu": 64 << 20}  # bytes of all sets of inputs: more than a cache holds
_MOST_SETS = 32


class Size(NamedTuple):
    """B objects of D elements with K categories."""

    B: int
    D: int
    K: int

    @classmethod
    def parse(cls, text: str) -> "Size":
        """From "B,D,K"."""
        parts = text.split(",")
        right = len(parts) == 3 and all(part.strip().isdecimal() for part in parts)
        require(right, "size", text, '"B,D,K", three whole numbers')
        B, D, K = (int(part) for part in parts)
        return cls(as_count(B, "B", 1), as_count(D, "D", 1), as_count(K, "K", 2))

    def __str__(self) -> str:
        return ",".join(map(str, self))


class Inputs(NamedTuple):
    """One set of random inputs; a sampling step goes from time `t` to `s`."""

    logits: Tensor
    x_t: Tensor
    x_0: Tensor
    t: Tensor
    s: Tensor


@dataclass(frozen=True)
class Problem:
    """A problem to measure. An implementation of your own gets this object, too.

    Args:
        size: B objects of D elements with K categories.
        noise: "uniform", "absorbing" (K counts the mask, the last category) or "marginal".
        time: "continuous", t and s in [0, 1], or "discrete", integers 0..num_steps.
        objective: "usd3", "usd3*", "vlb" or "ce".
        dtype: "fp32" or "bf16", of the logits.
        device: where the inputs are.
    """

    size: Size
    noise: str = "uniform"
    time: str = "continuous"
    objective: str = "usd3"
    dtype: str = "fp32"
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def __post_init__(self) -> None:
        choices = {"noise": NOISES, "time": TIMES, "objective": NAMED, "dtype": DTYPES}
        for name, allowed in choices.items():
            value = getattr(self, name)
            require(value in allowed, name, value, f"one of {', '.join(allowed)}")

    @property
    def num_classes(self) -> int:
        """K."""
        return self.size.K

    @property
    def num_steps(self) -> int | None:
        """T of discrete time; None for continuous time."""
        return TIMES[self.time]

    @cached_property
    def schedule(self) -> Schedule:
        """The cosine schedule."""
        return Cosine()

    def alpha_bar(self, t: Tensor) -> Tensor:
        """alpha_bar(t) of the schedule, with t in the units of `time`."""
        return self.schedule.alpha_bar(t.double() / (self.num_steps or 1))

    @cached_property
    def m(self) -> Tensor:
        """The noise distribution (K,), float32 on the device."""
        return self._noise.probs_on(self.device, torch.float32)

    @cached_property
    def _noise(self) -> Noise:
        if self.noise == "marginal":  # a few frequent categories and many rare ones, as in text
            weights = 1 / (1 + torch.arange(self.size.K, dtype=torch.float64))
            return Marginal(weights / weights.sum())
        return Uniform(self.size.K) if self.noise == "uniform" else Absorbing(self.size.K)

    def diffusion(self, impl: str = "auto") -> Diffusion:
        """The diffusion with this implementation."""
        return Diffusion(self._noise, self.schedule, num_steps=self.num_steps, validate=False, impl=impl)

    @property
    def logits_bytes(self) -> int:
        """Bytes of the logits."""
        return math.prod(self.size) * DTYPES[self.dtype].itemsize

    def inputs(self, seed: int = 0) -> Inputs:
        """Random inputs, in which x_t is drawn from q(x_t | x_0)."""
        B, D, K = self.size
        chance = torch.Generator(self.device).manual_seed(seed_of(seed, *self.size))
        diffusion = self.diffusion()
        x_0 = torch.randint(K - (self.noise == "absorbing"), (B, D), generator=chance, device=self.device)
        t = diffusion.draw_times(B, stratified=True, device=self.device, generator=chance)
        s = t * 0.9 if self.num_steps is None else t - 1
        x_t = diffusion.q_sample(x_0, t, generator=chance)
        logits = torch.randn(B, D, K, generator=chance, device=self.device, dtype=DTYPES[self.dtype])
        return Inputs(logits.requires_grad_(), x_t, x_0, t, s)

    def sets(self) -> Sequence[Inputs]:
        """So many sets of inputs that no cache holds them all, but at most 32."""
        count = math.ceil(_FOOTPRINT[self.device.type] / self.logits_bytes)
        return [self.inputs(seed) for seed in range(min(count, _MOST_SETS))]

    def resized(self, **sizes: int) -> "Problem":
        """The same problem with another B, D or K."""
        return replace(self, size=self.size._replace(**sizes))
