"""What all samplers share: one sampling run, and moves whose coefficients are computed up front."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from usd3._internal.checks import Checks
from usd3._internal.graphs import Replayed
from usd3._internal.random import uniform
from usd3.core import fused
from usd3.core.belief import FINITE, Level, data_logits
from usd3.core.coefficients import Process
from usd3.core.mixture import Jumps

__all__ = ["Move", "Run", "Sampler", "StepFunction", "likeliest", "network_time"]

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
        denoise: `denoise(x, time) -> logits` (B, N1, ..., Nk, K).
        free: mask of the elements that are drawn, (B, N1, ..., Nk); all others must stay as they are.
        checks: value checks of all steps.
        generator: makes the draws reproducible.
        graph: whether steps are replayed as CUDA graphs.
    """

    process: Process
    denoise: Callable[[Tensor, Tensor], Tensor]
    free: Tensor
    checks: Checks
    generator: torch.Generator | None
    graph: bool = False

    def steps(self, grid: list[float]) -> tuple[Tensor, Tensor]:
        """The times t and s of the S steps of a grid, float64 (S,) each."""
        times = torch.tensor(grid, dtype=torch.float64, device=self.free.device)
        return times[:-1], times[1:]

    def network_times(self, time: Tensor) -> Tensor:
        """Times (S,) as the network gets them, (S, B) in the default dtype."""
        return time.to(torch.get_default_dtype())[:, None].repeat(1, len(self.free))

    def uniforms(self, x: Tensor) -> Tensor:
        """Two uniforms for each element, float64 (2, *x.shape)."""
        return uniform((2, *x.shape), x.device, self.generator)

    def draw(self, logits: Tensor, x: Tensor, level: Level, jumps: Jumps, u: Tensor) -> Tensor:
        """Let the free elements of x jump to f = softmax(logits) and to m."""
        process = self.process
        return fused.draw(logits, x, process.noise, level, jumps, u, self.free, process.impl, self.checks)

    def replayed(self, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """A function of tensors on the device that every step calls: a CUDA graph where `graph` is on."""
        return Replayed(function) if self.graph else function

    def moves(self, time: Tensor, jumps: Jumps, move: Move) -> StepFunction:
        """`step(x, i)`: the move at the i-th of S times, with all coefficients computed now.

        Args:
            time: float64 (S,).
            jumps: weights (S, 1, ..., 1).
            move: asks the network and draws, for example `ask_and_draw` of `exact`.
        """
        level = self.process.level(time, self.free)  # (S, 1, ..., 1)
        forward = [] if jumps.forward is None else [jumps.forward]
        numbers = torch.stack([*level, jumps.to_data, jumps.to_noise, *forward], 1)  # (S, 4 or 5, 1, ..., 1)
        times = self.network_times(time)  # (S, B)

        def moved(x: Tensor, time: Tensor, numbers: Tensor, u: Tensor) -> Tensor:
            alpha_bar, lost, to_data, to_noise, *forward = numbers.unbind(1)
            now = Jumps(to_data, to_noise, forward[0] if forward else None, jumps.damped)
            return move(self, x, time, Level(alpha_bar, lost), now, u)

        replayed = self.replayed(moved)

        def step(x: Tensor, i: int) -> Tensor:
            x = replayed(x, times[i], numbers[i : i + 1], self.uniforms(x))
            self.checks.raise_early(x.device)
            return x

        return step


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
