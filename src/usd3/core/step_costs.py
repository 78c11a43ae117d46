"""Best grids: the times of a sampler with few steps that lose least.

A step t -> s of the exact sampler loses KL(q(x_s | x_t, x_0) || p(x_s | x_t)) nats, a term of the bound of the sampler
with those steps, `Diffusion.bound(times=...)`. The bound is the sum over the steps, so the grid with the lowest bound
among all that take their times from a fine one is a shortest path. Dynamic programming finds it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from usd3._internal.checks import Checks, as_count, require
from usd3._internal.threads import waiting_asleep
from usd3.core.coefficients import Process, Times, constant, total
from usd3.core.model import Denoiser

if TYPE_CHECKING:
    from usd3.core.diffusion import Diffusion

__all__ = ["StepCosts", "fine_times", "step_costs"]

_TIMES = 64  # steps of the fine grid, unless discrete time has fewer


@dataclass(frozen=True)
class StepCosts:
    """What each step between two times of a fine grid loses.

    Args:
        times: the G + 1 times of the fine grid, decreasing to 0, as users write them: integers in discrete time.
        nats: (G + 1, G + 1) float64; `nats[i, j]`, i < j, is the mean over objects of the KL of the step
            times[i] -> times[j].
    """

    times: tuple[float, ...]
    nats: Tensor

    def __post_init__(self) -> None:
        size = len(self.times)
        fits = tuple(self.nats.shape) == (size, size) and size > 1
        require(fits, "nats.shape", tuple(self.nats.shape), f"({size}, {size}), a row for each of at least two times")

    @property
    def most_steps(self) -> int:
        """G, the number of steps of the fine grid."""
        return len(self.times) - 1

    def best_grid(self, num_steps: int) -> list[float]:
        """The `num_steps` + 1 times, from the first of the fine grid down to 0, whose steps lose least."""
        n, last = as_count(num_steps, "num_steps", 1, self.most_steps), self.most_steps
        forward = torch.ones_like(self.nats, dtype=torch.bool).triu(1)
        costs = torch.where(forward, self.nats.double(), torch.inf)
        least = costs[0]  # (G + 1,) of reaching each time in one step
        came_from = []
        for _ in range(n - 1):
            least, before = (least[:, None] + costs).min(0)
            came_from.append(before)
        path = [last]
        for before in reversed(came_from):
            path.append(int(before[path[-1]]))
        return [self.times[i] for i in (0, *reversed(path))]

    def loss_of(self, grid: Times) -> float:
        """The nats that the steps of a grid lose together; its times must be times of the fine grid."""
        places = {time: i for i, time in enumerate(self.times)}
        values = [float(time) for time in grid]
        for time in values:
            require(time in places, "time", time, "times of the fine grid")
        path = [places[time] for time in values]
        return math.fsum(float(self.nats[i, j]) for i, j in pairwise(path))


@waiting_asleep()
@torch.no_grad()
def step_costs(
    diffusion: "Diffusion",
    model: Callable[..., Any],
    x_0: Tensor,
    times: int | Times | None = None,
    given: Tensor | None = None,
    pad: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> StepCosts:
    """What each step between two times of a fine grid loses, on average over objects; one network call for each time.

    All times get the same uniforms: the differences between their costs choose a grid, and so they have less noise.

    Args:
        diffusion: the forward process.
        model: see `Diffusion.loss`. Call its `eval()` first.
        x_0: clean objects, integers (B, N1, ..., Nk), best ones that the model has not seen.
        times: the fine grid, a number of steps or times that decrease to 0; None: 64 steps, or T if that is less.
        given: mask of elements that are given and have no loss.
        pad: mask of padding, which has no loss.
        generator: makes the draws reproducible.
    """
    d, checks = diffusion, Checks(diffusion.validate)
    x_0, given, pad, free = d.masked_data(x_0, given, pad, checks)
    checks.raise_early(x_0.device)
    require(len(x_0) > 0, "x_0.shape", tuple(x_0.shape), "at least one object")
    fine = fine_times(d, times)
    grid = d.grid(fine)
    denoise = Denoiser(model, d.noise.num_classes, given, pad)
    if generator is None:
        generator = torch.Generator(x_0.device).manual_seed(int(torch.randint(2**62, ())))
    same = generator.get_state()
    nats = torch.zeros(len(grid), len(grid), dtype=torch.float64)
    for i, t in enumerate(grid[:-1]):
        time = constant(t, x_0)
        generator.set_state(same)
        x_t = d.draw_noisy(x_0, time, free, generator)
        logits = denoise(x_t, time)
        for j, s in enumerate(grid[i + 1 :], start=i + 1):
            terms = d.element_terms(logits, x_t, x_0, time, constant(s, x_0), checks, free)
            nats[i, j] = float(total(terms.vlb, free).mean())
        checks.raise_early(x_0.device)
    checks.raise_first()
    return StepCosts(tuple(fine), nats)


def fine_times(process: Process, times: int | Times | None = None) -> list[float]:
    """The times of the fine grid as users write them: of a number of steps, by default 64, or T if that is less."""
    number = min(_TIMES, process.num_steps or _TIMES)
    grid, T = process.grid(number if times is None else times), process.num_steps
    return grid if T is None else [float(round(t * T)) for t in grid]
