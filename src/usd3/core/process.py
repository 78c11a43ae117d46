"""Noise, schedule and kind of time, and the coefficients they give. `Diffusion` builds on this.

Inside, a time is float64 in [0, 1], one per object; users write integers 1..T in discrete time. Coefficients are
float64, shape (B, 1, ..., 1), and formed without cancellation. Time 0 is clean data, whatever the schedule says.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeGuard

import torch
from torch import Tensor

from usd3._internal.checks import (
    Checks,
    as_categories,
    as_count,
    as_number,
    is_integral,
    require,
    require_logits,
    require_type,
)
from usd3._internal.graphs import GraphCache
from usd3.core.belief import Belief, Level, predicted
from usd3.core.fused import IMPLEMENTATIONS
from usd3.core.mixture import Transition
from usd3.core.noise import Noise
from usd3.core.schedules import Schedule, Time

__all__ = ["SMALLEST", "Process", "Times", "column", "constant", "flat", "free_elements", "is_grid", "total"]

Times = Sequence[float] | Tensor
SMALLEST = 1e-12  # beta = decay / alpha_bar is taken at this alpha_bar or above: the losses are at their limit there


class Process:
    """The forward process and its coefficients."""

    def __init__(
        self,
        noise: Noise,
        schedule: Schedule,
        num_steps: int | None = None,
        t_min: float = 1e-3,
        validate: bool = True,
        impl: str = "auto",
    ):
        require_type(isinstance(noise, Noise), "noise", noise, "a usd3 noise such as usd3.Uniform(K)")
        require_type(isinstance(schedule, Schedule), "schedule", schedule, "a usd3 schedule such as usd3.Cosine()")
        self.noise, self.schedule, self.validate = noise, schedule, validate
        self.num_steps = None if num_steps is None else as_count(num_steps, "num_steps", 1)
        self.t_min = as_number(t_min, "t_min", 0, 1)
        require(impl in IMPLEMENTATIONS, "impl", impl, f"one of {', '.join(IMPLEMENTATIONS)}")
        self.impl = impl
        self._replays, self._tables, self._learning = GraphCache(), dict[Any, Tensor](), dict[Schedule, bool]()

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_replays": GraphCache(), "_tables": {}, "_learning": {}}  # of this process alone

    @property
    def continuous(self) -> bool:
        """Whether time is continuous."""
        return self.num_steps is None

    @property
    def span(self) -> float:
        """What turns one sampled term of the VLB into nats per object: T, or the length of [t_min, 1]."""
        return 1 - self.t_min if self.num_steps is None else self.num_steps

    # ---- time ---------------------------------------------------------------------------------------------------

    def time(self, t: Time, x: Tensor, name: str, checks: Checks, positive: bool = False) -> Tensor:
        """A user's t as float64 (B,) in [0, 1]."""
        last = self.num_steps or 1
        allowed = f"{'numbers' if self.continuous else 'integers'} in {'(' if positive else '['}0, {last}]"
        require_type(isinstance(t, Tensor | int | float) or hasattr(t, "__float__"), name, t, allowed)
        tensor = t if isinstance(t, Tensor) else torch.tensor(t, dtype=torch.float64 if isinstance(t, float) else None)
        require_type(is_integral(tensor) or (self.continuous and tensor.is_floating_point()), name, t, allowed)
        require(tensor.shape in ((), x.shape[:1]), f"{name}.shape", tuple(tensor.shape), f"() or {tuple(x.shape[:1])}")
        steps = tensor.to(x.device, torch.float64)
        checks.refuse(name, steps, lambda v: ~((v > 0 if positive else v >= 0) & (v <= last)), allowed)
        return (steps / last).expand(x.shape[:1])

    def times(self, t: Time, s: Time, x: Tensor, checks: Checks) -> tuple[Tensor, Tensor]:
        """A user's t and s < t."""
        time, before = self.time(t, x, "t", checks, positive=True), self.time(s, x, "s", checks)
        checks.refuse("s", before * (self.num_steps or 1), lambda _: before >= time, "less than t")
        return time, before

    def grid(self, times: int | Times) -> list[float]:
        """A sampler's times in [0, 1], from a number of steps or a decreasing grid that ends at 0."""
        last = self.num_steps or 1
        if is_grid(times):
            values = [float(v) for v in times]
        elif self.num_steps is None:  # rounded to the dtype in which a model sees them
            values = torch.linspace(1, 0, as_count(times, "num_steps", 1) + 1, dtype=torch.get_default_dtype()).tolist()
        else:
            count = as_count(times, "num_steps", 1, self.num_steps)
            values = torch.linspace(self.num_steps, 0, count + 1, dtype=torch.float64).round().tolist()
        require(all(s < t for t, s in pairwise(values)), "time grid", values, "decreasing times")
        require(len(values) >= 2 and values[-1] == 0, "time grid", values, "at least two times, the last of them 0")
        require(0 < values[0] <= last, "time grid", values, f"a first time in (0, {last}]")
        require(
            self.continuous or all(v.is_integer() for v in values), "time grid", values, "integers in discrete time"
        )
        return [v / last for v in values]

    def spread(self, u: Tensor) -> Tensor:
        """Uniforms u as training times: on [t_min, 1], or on 1..T.

        Continuous times are rounded to the default dtype, so that a model sees exactly the time that is meant.
        """
        if self.num_steps is not None:
            return 1 + (u * self.num_steps).long().clamp(max=self.num_steps - 1)
        return (self.t_min + (1 - self.t_min) * u).to(torch.get_default_dtype())

    # ---- coefficients -------------------------------------------------------------------------------------------

    def level(self, time: Tensor, x: Tensor) -> Level:
        """alpha_bar and 1 - alpha_bar at `time`."""
        at_0 = time == 0
        alpha_bar = torch.where(at_0, 1.0, self.schedule._kept(time))
        return Level(column(alpha_bar, x), column(torch.where(at_0, 0.0, self.schedule._lost(time)), x))

    def levels(self, time: Tensor, before: Tensor, x: Tensor) -> tuple[Level, Level]:
        """Those of t and s, at once: on the CPU each operation on a few numbers costs as much as one on thousands."""
        both, B = self.level(torch.cat([time, before]), x), len(time)
        return Level(both.alpha_bar[:B], both.lost[:B]), Level(both.alpha_bar[B:], both.lost[B:])

    def step(self, time: Tensor, before: Tensor, x: Tensor, levels: tuple[Level, Level] | None = None) -> Transition:
        """Weights of the backward step t -> s: 1 - mu to f, mu (1 - a_ts) to m, mu a_ts stays."""
        t, s = levels = levels or self.levels(time, before, x)
        a_ts, lost_ts = self.between(time, before, x, levels)
        lost_t = torch.where(t.lost > 0, t.lost, 1.0)
        mu = torch.where(t.lost > 0, s.lost / lost_t, 1.0)
        return Transition(clean=s.alpha_bar * lost_ts / lost_t, noise=mu * lost_ts, keep=mu * a_ts)

    def between(self, time: Tensor, before: Tensor, x: Tensor, levels: tuple[Level, Level] | None = None) -> Level:
        """a_ts = alpha_bar(t, s), what survives from s until t, and 1 - a_ts: exactly 1 where nothing survives."""
        t, s = levels or self.levels(time, before, x)
        a_ts = torch.where(s.lost == 0, t.alpha_bar, column(self.schedule._kept(time, before), x))
        lost_ts = torch.where(s.lost == 0, t.lost, column(self.schedule._lost(time, before), x))
        return Level(a_ts, torch.where(a_ts < 0.5, 1 - a_ts, lost_ts))

    def rate_weights(self, time: Tensor, x: Tensor, level: Level | None = None) -> Transition:
        """Weights of the reverse rate beta H: beta abar / (1 - abar) to f, beta to m."""
        level, decay = level or self.level(time, x), column(self.schedule._decay(time), x)
        return Transition(clean=decay / level.lost, noise=decay / level.alpha_bar.clamp(min=SMALLEST))

    # ---- checked inputs -----------------------------------------------------------------------------------------

    def categories(self, x: Tensor, name: str, checks: Checks, like: Tensor | None = None) -> Tensor:
        """Categories 0..K-1, int64, in the shape of `like` where it is given."""
        x = as_categories(x, self.noise.num_classes, name, checks)
        if like is not None:
            require(x.shape == like.shape, f"{name}.shape", tuple(x.shape), f"that of x_0, {tuple(like.shape)}")
        self.noise.require_fits(x.shape)
        return x

    def data(self, x_0: Tensor, checks: Checks, name: str = "x_0", except_at: Tensor | None = None) -> Tensor:
        """Clean categories: no mask among them."""
        x_0, mask = self.categories(x_0, name, checks), self.noise.mask
        if mask is not None:
            read = True if except_at is None else ~except_at
            checks.refuse(
                name,
                x_0,
                lambda v: (v == mask) & read,
                f"data categories ({mask} is the mask, which num_classes counts)",
            )
        return x_0

    def believe(self, logits: Tensor, x_t: Tensor, time: Tensor, checks: Checks, free: Tensor | None = None) -> Belief:
        """f = softmax(logits) seen from x_t."""
        require_logits(logits, x_t, self.noise.num_classes, "logits")
        return predicted(logits, x_t, self.noise, self.level(time, x_t), checks, free)


def is_grid(times: int | Times) -> TypeGuard[Times]:
    """Whether these are times, and not how many."""
    return not isinstance(times, int) and hasattr(times, "__len__")


def constant(time: float, x: Tensor) -> Tensor:
    """One time for all objects of x, float64 (B,)."""
    return torch.full(x.shape[:1], time, dtype=torch.float64, device=x.device)


def free_elements(given: Tensor | None, pad: Tensor | None) -> Tensor | None:
    """Which elements are neither given nor padding; None: all."""
    fixed = [mask for mask in (given, pad) if mask is not None]
    return ~torch.stack(fixed).any(0) if fixed else None


def column(value: Tensor, x: Tensor) -> Tensor:
    """(B,) as (B, 1, ..., 1), to go with x."""
    return value.reshape(-1, *[1] * (x.dim() - 1))


def flat(x: Tensor) -> Tensor:
    """(B, N1, ..., Nk) as (B, N1 ... Nk), also where there is nothing."""
    return x.reshape(len(x), math.prod(x.shape[1:]))


def total(terms: Tensor, free: Tensor | None) -> Tensor:
    """Sum over the free elements of each object, (B,)."""
    return flat(terms if free is None else torch.where(free, terms, 0.0)).sum(1)
