"""What all samplers share: one sampling run, and moves whose coefficients are computed up front."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from usd3._internal.checks import Checks
from usd3._internal.graphs import GraphedFunction, Output
from usd3._internal.random import uniform
from usd3.core import fused
from usd3.core.belief import FINITE, Level, data_logits
from usd3.core.coefficients import Process
from usd3.core.logits import LogitOptions
from usd3.core.mixture import Jumps
from usd3.core.noise import Noise

__all__ = [
    "Move",
    "Run",
    "Sampler",
    "StepFunction",
    "best_first",
    "by_objects",
    "data_of",
    "likeliest",
    "network_time",
    "read_logits",
]

_CELLS = 1 << 24  # of a table (..., K) that is formed at once, but at least one object
_ROUNDING = 1e-6  # of a step in discrete time: 8.000000000000002 is step 8

StepFunction = Callable[[Tensor, int], Tensor]
"""`step(x, i)`: x_s from x = x_t, for step i of the grid."""

Sampler = Callable[["Run", list[float]], StepFunction]
"""`sampler(run, grid)`: the steps of a grid of times in [0, 1], from 1 down to 0."""

Move = Callable[["Run", Tensor, Tensor, Level, Jumps, Tensor], Tensor]
"""`move(run, x, time, level, jumps, u)`: x after one network call and one draw with uniforms u, (2, *x.shape)."""


@dataclass(frozen=True)
class Run:
    """One sampling run.

    Args:
        process: the forward process, with its coefficients.
        denoise: `denoise(x, time) -> logits` of f, (B, N1, ..., Nk, K).
        free: mask of the elements that are drawn, (B, N1, ..., Nk); all others must stay as they are.
        checks: value checks of all steps.
        generator: makes the draws reproducible.
        graph: whether steps are replayed as CUDA graphs.
        logit_options: temperature, top_k and top_p of the draws.
    """

    process: Process
    denoise: Callable[[Tensor, Tensor], Tensor]
    free: Tensor
    checks: Checks
    generator: torch.Generator | None
    graph: bool = False
    logit_options: LogitOptions = field(default_factory=LogitOptions)

    def steps(self, grid: list[float]) -> tuple[Tensor, Tensor]:
        """The times t and s of the S steps of a grid, float64 (S,) each."""
        times = torch.tensor(grid, dtype=torch.float64, device=self.free.device)
        return times[:-1], times[1:]

    def network_times(self, time: Tensor) -> Tensor:
        """Times (S,) as the network gets them, (S, B) in the default dtype."""
        return time.to(torch.get_default_dtype())[:, None].repeat(1, len(self.free))

    def time_of(self, alpha_bar: Tensor) -> Tensor:
        """The times at which networks saw this alpha_bar in training, in its shape and the default dtype.

        Times below t_min become t_min; discrete times round up.
        """
        schedule, T = self.process.schedule, self.process.num_steps
        most = schedule.kept(torch.zeros((), dtype=torch.float64, device=alpha_bar.device))
        time = schedule.time(alpha_bar.minimum(most)).clamp(0, 1)
        time = time.clamp(min=self.process.t_min) if T is None else (time * T - _ROUNDING).ceil().clamp(min=1) / T
        return time.to(torch.get_default_dtype())

    def uniforms(self, x: Tensor) -> Tensor:
        """Two uniforms for each element, float64 (2, *x.shape)."""
        return uniform((2, *x.shape), x.device, self.generator)

    def shaped(self, logits: Tensor) -> Tensor:
        """The logits that an element is drawn from, given those of f: with temperature, top_k and top_p."""
        return self.logit_options.drawn(logits, self.process.noise)

    def draw(
        self, logits: Tensor, x: Tensor, level: Level, jumps: Jumps, u: Tensor, chosen: Tensor | None = None
    ) -> Tensor:
        """Let elements of x, all free ones or those `chosen`, jump to m and to f, the softmax of the shaped logits."""
        process, at = self.process, self.free if chosen is None else chosen
        return fused.draw(self.shaped(logits), x, process.noise, level, jumps, u, at, process.impl, self.checks)

    def draw_from_f(self, logits: Tensor, x: Tensor, u: Tensor, chosen: Tensor) -> Tensor:
        """x with the chosen elements drawn from f, the softmax of the shaped logits; those where m_x = 0 stay."""
        one = torch.ones(1, dtype=torch.float64, device=x.device).reshape([1] * x.dim())
        level, jumps = Level(torch.zeros_like(one), one), Jumps(one, torch.zeros_like(one))
        return self.draw(logits, x, level, jumps, u, chosen)

    def replayed(self, function: Callable[..., Output]) -> Callable[..., Output]:
        """A function of tensors on the device that every step calls: a CUDA graph where `graph` is on."""
        return GraphedFunction(function) if self.graph else function

    def moves(self, time: Tensor, jumps: Jumps, move: Move, level: Level | None = None) -> StepFunction:
        """`step(x, i)`: the move at the i-th of S times, with all coefficients computed now.

        Args:
            time: float64 (S,).
            jumps: weights (S, 1, ..., 1).
            move: asks the network and draws, for example `ask_and_draw` of `exact`.
            level: alpha_bar and 1 - alpha_bar at these times, (S, 1, ..., 1); None: they are computed.
        """
        level = level or self.process.level(time, self.free)
        forward = torch.zeros_like(jumps.to_data) if jumps.forward is None else jumps.forward
        numbers = torch.stack([*level, jumps.to_data, jumps.to_noise, forward], 1)  # (S, 5, 1, ..., 1)
        times = self.network_times(time)  # (S, B)

        def moved(x: Tensor, time: Tensor, numbers: Tensor, u: Tensor) -> Tensor:
            alpha_bar, lost, to_data, to_noise, forward = numbers.unbind(1)
            return move(self, x, time, Level(alpha_bar, lost), Jumps(to_data, to_noise, forward, jumps.damped), u)

        replayed = self.replayed(moved)

        def step(x: Tensor, i: int) -> Tensor:
            x = replayed(x, times[i], numbers[i : i + 1], self.uniforms(x))
            self.checks.raise_early(x.device)
            return x

        return step


def best_first(score: Tensor, keys: Tensor) -> Tensor:
    """The rank of each element in its object, (B, L); 0 has the highest score. Equal scores rank by the keys."""
    shuffled = keys.argsort(1)
    order = score.gather(1, shuffled).argsort(stable=True, dim=1, descending=True)
    return shuffled.gather(1, order).argsort(1)


def by_objects(function: Callable[..., Tensor], *tables: Tensor) -> Tensor:
    """function(*tables) for tables (B, ..., K) and (B, ...), a few objects at a time: bounded memory for any B."""
    size = max(1, _CELLS // max(1, tables[0][:1].numel()))
    parts = [function(*rows) for rows in zip(*(table.split(size) for table in tables))]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def data_of(noise: Noise, logits: Tensor) -> tuple[Tensor, ...]:
    """The categories that data can have, a mask in the shape of the logits; nothing where they can have all."""
    data = noise.data_on(logits.device)
    return () if data is None else (data.expand(logits.shape),)


def read_logits(logits: Tensor, *data: Tensor) -> Tensor:
    """Logits in float32 or better, -inf outside the mask of `data_of`: `data_logits` for some of the objects."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return torch.where(data[0], logits, -torch.inf) if data else logits


def likeliest(run: Run, x: Tensor, t: float) -> Tensor:
    """argmax of f at x and t for the free elements, the last step of some methods. Certain elements stay."""
    noise = run.process.noise
    highest, best = data_logits(run.denoise(x, network_time(t, x)), noise).max(-1)
    read = run.free & (noise.at(x) > 0)
    run.checks.refuse("logits", torch.where(read, highest, 0.0), lambda v: ~v.isfinite(), FINITE)
    return torch.where(read, best, x)


def network_time(t: float, x: Tensor) -> Tensor:
    """One time for all objects of x, in the default dtype, (B,)."""
    return torch.full(x.shape[:1], t, dtype=torch.get_default_dtype(), device=x.device)
