"""Noise, schedule and kind of time, and the coefficients they give: alpha_bar, a_ts, mu, and the reverse rate.

Inside, a time is float64 in [0, 1], one per object, (B,); users write integers 1..T in discrete time. Coefficients are
float64, (B, 1, ..., 1), and formed without cancellation. Time 0 is clean data for every schedule.
"""

import math
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import Tensor

from usd3._internal.checks import (
    Checks,
    as_bool_mask,
    as_categories,
    as_count,
    as_number,
    is_integral,
    require,
    require_logits,
    require_type,
)
from usd3.core import fused
from usd3.core.belief import Belief, Level, model_belief
from usd3.core.cached import CachedNumbers
from usd3.core.closed_forms import closed_form
from usd3.core.fused import IMPLEMENTATIONS, ClosedForm, NoiseTables, Problem, chosen, cpp_runs, rows_read
from usd3.core.mixture import Transition
from usd3.core.noise import Noise
from usd3.core.schedules import Schedule, Time

if TYPE_CHECKING:
    from usd3.core.fused import RowsRead

__all__ = ["SMALLEST", "Process", "Times", "column", "constant", "flat", "free_elements", "is_grid", "total"]

Times = Sequence[float] | Tensor
SMALLEST = 1e-12
"""Smallest alpha_bar in beta = decay / alpha_bar. The losses are at their limit there."""

_SMALLEST_M = 1e-12  # float32 kernels cannot divide by smaller noise probabilities


class Process(CachedNumbers):
    """The forward process: noise, schedule and kind of time, with the coefficients of its steps and rates.

    `Diffusion` adds the distributions, losses and samplers, and documents the arguments.
    """

    def __init__(
        self,
        noise: Noise,
        schedule: Schedule,
        num_steps: int | None = None,
        t_min: float = 1e-3,
        validate: bool = True,
        impl: str = "auto",
        support: Any = None,
    ):
        require_type(isinstance(noise, Noise), "noise", noise, "a usd3 noise such as usd3.Uniform(K)")
        require_type(isinstance(schedule, Schedule), "schedule", schedule, "a usd3 schedule such as usd3.Cosine()")
        super().__init__(schedule, None if num_steps is None else as_count(num_steps, "num_steps", 1))
        self.noise, self.validate = noise if support is None else noise.within(support), validate
        self.t_min = as_number(t_min, "t_min", 0, 1)
        require(impl in IMPLEMENTATIONS, "impl", impl, f"one of {', '.join(IMPLEMENTATIONS)}")
        self.impl = impl
        cpp_runs()  # looks for a compiler, and remembers: torch.compile could not trace that in a loss
        self.has_projection = False  # in the last loss

    @property
    def continuous(self) -> bool:
        """Whether time is continuous."""
        return self.num_steps is None

    @property
    def vlb_scale(self) -> float:
        """Factor from one sampled VLB term to nats per object: T, or the length of [t_min, 1]."""
        return 1 - self.t_min if self.num_steps is None else self.num_steps

    # ---- time ---------------------------------------------------------------------------------------------------

    def time(self, t: Time, x: Tensor, name: str, checks: Checks, positive: bool = False) -> Tensor:
        """A user's t, a number or (B,), as float64 (B,) in [0, 1]; `positive` refuses 0."""
        last = self.num_steps or 1
        allowed = f"{'numbers' if self.continuous else 'integers'} in {'(' if positive else '['}0, {last}]"
        least = math.ulp(0.0) if positive else 0.0
        if is_number(t):
            require_type(isinstance(t, int) or self.continuous, name, t, allowed)
            checks.refuse_number(name, t, not least <= t <= last, allowed)
            return constant(float(t) / last, x)
        require_type(isinstance(t, Tensor) or hasattr(t, "__float__"), name, t, allowed)
        tensor = t if isinstance(t, Tensor) else torch.tensor(t)
        require_type(is_integral(tensor) or (self.continuous and tensor.is_floating_point()), name, t, allowed)
        require(tensor.shape in ((), x.shape[:1]), f"{name}.shape", tuple(tensor.shape), f"() or {tuple(x.shape[:1])}")
        steps = tensor.to(x.device, torch.float64)
        checks.refuse_outside(name, steps, least, last, allowed)
        return self.unit_time(steps).expand(x.shape[:1])

    def unit_time(self, t: Tensor) -> Tensor:
        """A user's times, of any dtype, as float64 in [0, 1]."""
        time = t.to(torch.float64)
        return time if self.num_steps is None else time / self.num_steps

    def times(self, t: Time, s: Time, x: Tensor, checks: Checks) -> tuple[Tensor, Tensor]:
        """A user's t and s < t, both as float64 (B,) in [0, 1]."""
        time, before = self.time(t, x, "t", checks, positive=True), self.time(s, x, "s", checks)
        if is_number(t) and is_number(s):
            checks.refuse_number("s", s, s >= t, "less than t")
        else:
            seen = before if self.num_steps is None else before * self.num_steps
            checks.refuse("s", seen, lambda _: before >= time, "less than t")
        return time, before

    def grid(self, times: int | Times) -> list[float]:
        """The S + 1 times of a sampler in [0, 1], from a number of steps S or a decreasing grid that ends at 0."""
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
        whole = self.continuous or all(v.is_integer() for v in values)
        require(whole, "time grid", values, "integers in discrete time")
        return [v / last for v in values]

    def times_from_uniform(self, u: Tensor) -> Tensor:
        """Training times from uniforms u on [0, 1): uniform on [t_min, 1], or on the integers 1..T.

        Continuous times are rounded to the default dtype, so that the model sees exactly the time of x_t.
        """
        if self.num_steps is not None:
            return 1 + (u * self.num_steps).long().clamp(max=self.num_steps - 1)
        return (self.t_min + (1 - self.t_min) * u).to(torch.get_default_dtype())

    # ---- coefficients -------------------------------------------------------------------------------------------

    def level(self, time: Tensor, x: Tensor) -> Level:
        """alpha_bar(t) and 1 - alpha_bar(t), (B, 1, ..., 1) to broadcast with x."""
        at_0 = time == 0
        alpha_bar = torch.where(at_0, 1.0, self.schedule.kept(time))
        return Level(column(alpha_bar, x), column(torch.where(at_0, 0.0, self.schedule.lost(time)), x))

    def levels(self, time: Tensor, before: Tensor, x: Tensor) -> tuple[Level, Level]:
        """The levels of t and s in one call: on the CPU an operation on a few numbers costs as much as on thousands."""
        both, B = self.level(torch.cat([time, before]), x), len(time)
        return Level(both.alpha_bar[:B], both.lost[:B]), Level(both.alpha_bar[B:], both.lost[B:])

    def between(self, time: Tensor, before: Tensor, x: Tensor, levels: tuple[Level, Level] | None = None) -> Level:
        """a_ts = alpha_bar(t, s) and 1 - a_ts, (B, 1, ..., 1); the latter is exactly 1 where a_ts = 0."""
        t, s = levels or self.levels(time, before, x)
        a_ts = torch.where(s.lost == 0, t.alpha_bar, column(self.schedule.kept(time, before), x))
        lost_ts = torch.where(s.lost == 0, t.lost, column(self.schedule.lost(time, before), x))
        return Level(a_ts, torch.where(a_ts < 0.5, 1 - a_ts, lost_ts))

    def step(self, time: Tensor, before: Tensor, x: Tensor, levels: tuple[Level, Level] | None = None) -> Transition:
        """Weights of the backward step t -> s, Prop. 1 and 2: 1 - mu to f, mu (1 - a_ts) to m, mu a_ts stays on x.

        mu = (1 - abar_s) / (1 - abar_t), and 1 - mu = abar_s (1 - a_ts) / (1 - abar_t) without cancellation.
        """
        t, s = levels = levels or self.levels(time, before, x)
        a_ts, lost_ts = self.between(time, before, x, levels)
        lost_t = torch.where(t.lost > 0, t.lost, 1.0)
        mu = torch.where(t.lost > 0, s.lost / lost_t, 1.0)
        return Transition(to_data=s.alpha_bar * lost_ts / lost_t, to_noise=mu * lost_ts, stay=mu * a_ts)

    def rate_weights(self, time: Tensor, x: Tensor, level: Level | None = None) -> Transition:
        """Weights of the reverse rate beta H, the limit of `step` over t - s: beta abar / (1 - abar) to f, beta to m.

        With decay = -d abar / dt = beta abar, which stays finite where beta does not (eq. 20 and 22).
        """
        level, decay = level or self.level(time, x), column(self.schedule.decay(time), x)
        return Transition(to_data=decay / level.lost, to_noise=decay / level.alpha_bar.clamp(min=SMALLEST))

    def transition(self, time: Tensor, before: Tensor | None, x: Tensor) -> tuple[Level, Transition]:
        """The level at t and the transition that a VLB term compares.

        That is the step t -> s where `before` is given, the step t -> t - 1 in discrete time, the reverse rate else.
        """
        if before is None and self.num_steps is not None:
            before = (time * self.num_steps - 1).round() / self.num_steps
        if before is None:  # a rate, so time > 0
            level = Level(column(self.schedule.kept(time), x), column(self.schedule.lost(time), x))
            return level, self.rate_weights(time, x, level)
        levels = self.levels(time, before, x)
        return levels[0], self.step(time, before, x, levels)

    def coefficients(self, time: Tensor, before: Tensor | None = None) -> Tensor:
        """The numbers of each object that kernels read, float64 (5, B), for the transition of the same arguments.

        Their rows are to_data, to_noise, stay (0 for a rate), alpha_bar and lost, as `usd3.kernels.loss` names them.
        One kernel computes them where Triton runs and the schedule is of the package.
        """
        times = (time,) if before is None else (time, before)
        if (schedule := self.kernel_schedule(*times)) is not None:
            return fused.coefficients_at(*schedule, time, before, self.num_steps)
        return self.replayed("coefficients", self._coefficients, *times)

    def _coefficients(self, time: Tensor, before: Tensor | None = None) -> Tensor:
        level, to = self.transition(time, before, time)
        stay = torch.zeros_like(to.to_data) if to.stay is None else to.stay
        return torch.stack([to.to_data, to.to_noise, stay, level.alpha_bar, level.lost])

    def unpacked(self, coefficients: Tensor, x: Tensor) -> tuple[Level, Transition]:
        """`coefficients` (5, B) as the level at t and the transition from there, (B, 1, ..., 1) to broadcast with x."""
        to_data, to_noise, stay, alpha_bar, lost = (column(row, x) for row in coefficients)
        return Level(alpha_bar, lost), Transition(to_data, to_noise, stay)

    def training_coefficients(self, time: Tensor) -> Tensor:
        """`coefficients` of training times, float64 (5, B): where no kernel runs, looked up in discrete time."""
        if self.kernel_schedule(time) is None:
            return self.tabulated("training", self.coefficients, time)
        return self.coefficients(time)

    def drawn_coefficients(self, u: Tensor) -> tuple[Tensor, Tensor | None]:
        """Training times of uniforms u, float64 (B,) in [0, 1], and their `coefficients`, (5, B).

        The eager code reads no coefficients: then they are None.
        """
        eager, schedule = self.is_eager(u.device), self.kernel_schedule(u)
        if schedule is not None and not eager and torch.get_default_dtype() == torch.float32:
            return fused.drawn_coefficients(*schedule, u, self.num_steps)
        time = self.unit_time(self.times_from_uniform(u))
        return time, None if eager else self.training_coefficients(time)

    def kernel_schedule(self, *times: Tensor) -> tuple[ClosedForm, Tensor] | None:
        """The schedule as the kernel of `coefficients` reads it; None: no kernel runs, or none knows the schedule."""
        device, has_gradient = times[0].device, any(time.requires_grad for time in times)
        if torch.compiler.is_compiling() or has_gradient or chosen(self.impl, device) != "triton":
            return None
        if (form := closed_form(self.schedule)) is None:
            return None
        make = partial(fused.constants, form, self.t_min, SMALLEST, device)
        return form, self.computed_once((form, self.t_min), device, make)

    def step_coefficients(self, t: Time, s: Time, time: Tensor, before: Tensor) -> Tensor:
        """`coefficients` of a user's step t -> s, float64 (5, B): looked up where t and s are the same for all."""
        if not (is_number(t) and is_number(s)):
            return self.coefficients(time, before)

        def formula() -> Tensor:
            last = self.num_steps or 1
            times = (torch.full((1,), v / last, dtype=torch.float64, device=time.device) for v in (t, s))
            return self.coefficients(*times)  # no copy from the host, which cannot be captured in a CUDA graph

        return self.computed_once(("step", t, s), time.device, formula).expand(5, len(time))

    def problem(
        self,
        x_t: Tensor,
        x_0: Tensor,
        coefficients: Tensor,
        is_step: bool,
        free: Tensor | None = None,
        read: "RowsRead | None" = None,
    ) -> Problem:
        """The loss of x_t, x_0 and the mask `free`, each (B, N1, ..., Nk), in the plain tensors that kernels take.

        `is_step` says whether the `coefficients` are those of a step (then z = x_t counts) or of a rate; `read` are the
        rows with a loss, where they are counted.
        """
        return Problem.of(x_t, x_0, coefficients, is_step, NoiseTables(*self.noise.tables(x_t)), free, read)

    def rows_read(self, x_t: Tensor, free: Tensor | None) -> "RowsRead | None":
        """The elements of x_t whose logits a `Projection` forms, counted from now on; None: all."""
        return rows_read(x_t, NoiseTables(*self.noise.tables(x_t)), free)

    def is_eager(self, device: torch.device) -> bool:
        """Whether losses run the eager code: the user chose it, float32 cannot hold 1 / m, or the schedule learns."""
        if chosen(self.impl, device) == "eager" or self.noise.smallest < _SMALLEST_M:
            return True
        return not torch.compiler.is_compiling() and torch.is_grad_enabled() and self.schedule_learns(device)

    # ---- checked inputs -----------------------------------------------------------------------------------------

    def categories(self, x: Tensor, name: str, checks: Checks) -> Tensor:
        """Categories 0..K-1 as int64, (B, N1, ..., Nk)."""
        x = as_categories(x, self.noise.num_classes, name, checks)
        self.noise.require_fits(x.shape)
        return x

    def noisy(self, x_t: Tensor, checks: Checks, like: Tensor | None = None, except_at: Tensor | None = None) -> Tensor:
        """Noisy categories as int64, in the shape of `like`; those that are neither data nor noise are refused.

        The check leaves elements out where `except_at` is true.
        """
        x_t, noise = self.categories(x_t, "x_t", checks), self.noise
        if like is not None:
            require(x_t.shape == like.shape, "x_t.shape", tuple(x_t.shape), f"that of x_0, {tuple(like.shape)}")
        if noise.support is not None:
            read = True if except_at is None else ~except_at
            expected = "categories of the support, or of the noise, of their elements"
            checks.refuse("x_t", x_t, lambda v: ~noise.is_data(v) & (noise.at(v) == 0) & read, expected)
        return x_t

    def data(self, x_0: Tensor, checks: Checks, name: str = "x_0", except_at: Tensor | None = None) -> Tensor:
        """Clean categories as int64; what data cannot have is refused, except where `except_at` is true."""
        x_0, noise = self.categories(x_0, name, checks), self.noise
        if noise.support is not None:
            read, reason = True if except_at is None else ~except_at, "those of the support of their elements"
            checks.refuse(name, x_0, lambda v: ~noise.is_data(v) & read, f"data categories ({reason})")
        elif (mask := noise.mask) is not None:
            expected = f"data categories ({mask} is the mask, which num_classes counts)"
            read = x_0 if except_at is None else x_0.masked_fill(except_at, 1 if mask == 0 else 0)
            if mask == noise.num_classes - 1:
                checks.refuse_outside(name, read, 0, mask - 1, expected)
            else:
                checks.refuse(name, read, lambda v: v.eq(mask), expected)
        return x_0

    def masked_data(
        self, x_0: Tensor, given: Tensor | None, pad: Tensor | None, checks: Checks
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """x_0, and masks in its shape: `given`, `pad` and the free elements; None stands for no mask, or all free."""
        require_type(isinstance(x_0, Tensor), "x_0", x_0, "an integer tensor")
        given, pad = (as_bool_mask(m, x_0.shape, n, x_0.device) for m, n in ((given, "given"), (pad, "pad")))
        x_0 = self.data(x_0, checks, except_at=pad)
        return x_0, given, pad, free_elements(given, pad)

    def belief(self, logits: Tensor, x_t: Tensor, time: Tensor, checks: Checks, free: Tensor | None = None) -> Belief:
        """Belief with f = softmax(logits), logits (..., K), at x_t."""
        require_logits(logits, x_t, self.noise.num_classes, "logits")
        return model_belief(logits, x_t, self.noise, self.level(time, x_t), checks, free)


def is_grid(times: int | Times) -> TypeGuard[Times]:
    """Whether `times` is a grid of times, not a number of steps."""
    return not isinstance(times, int) and hasattr(times, "__len__")


def is_number(t: Time) -> TypeGuard[float]:
    """Whether a time is a plain number, which is known without asking a device."""
    return isinstance(t, int | float) and not isinstance(t, bool)


def constant(time: float, x: Tensor) -> Tensor:
    """One time for all objects of x, float64 (B,)."""
    return torch.full(x.shape[:1], time, dtype=torch.float64, device=x.device)


def free_elements(given: Tensor | None, pad: Tensor | None) -> Tensor | None:
    """Mask of the elements that are neither given nor padding; None: all."""
    fixed = [mask for mask in (given, pad) if mask is not None]
    return ~torch.stack(fixed).any(0) if fixed else None


def column(value: Tensor, x: Tensor) -> Tensor:
    """(B,) as (B, 1, ..., 1), to broadcast with x."""
    return value.reshape(-1, *[1] * (x.dim() - 1))


def flat(x: Tensor) -> Tensor:
    """(B, N1, ..., Nk) as (B, N1 ... Nk), also for an empty x."""
    return x.reshape(len(x), math.prod(x.shape[1:]))


def total(terms: Tensor, free: Tensor | None) -> Tensor:
    """Sum over the free elements of each object, (B,)."""
    return flat(terms if free is None else torch.where(free, terms, 0.0)).sum(1)
