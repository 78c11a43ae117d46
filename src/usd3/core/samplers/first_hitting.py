"""First hitting: one element a call, in a random order, for absorbing noise.

Going back in time, each masked element is unmasked at a random time of its own. With n elements masked, the next of
these times is the largest of n: 1 - abar falls by the factor u^(1/n), u uniform. So the times can be drawn exactly, and
one element, each equally likely, is drawn from f at each of them. The law of the samples is that of the exact sampler
with infinitely many steps, in as many calls as there are elements to draw. No two elements are drawn as if they were
independent. With fewer steps than elements, a step draws several elements in one call.
"""

import torch
from torch import Tensor

from usd3._internal.checks import require
from usd3._internal.random import uniform
from usd3.core.coefficients import flat
from usd3.core.samplers.run import Run, StepFunction

__all__ = ["first_hitting"]


def first_hitting(run: Run, grid: list[float]) -> StepFunction:
    """One call for each element to draw, but no more than the grid has steps; its times do not matter."""
    process, free = run.process, flat(run.free)  # (B, L)
    require(process.noise.is_absorbing, "sampler", "first_hitting", f"another one for {process.noise!r}, not absorbing")
    count, steps = free.sum(1), len(grid) - 1  # (B,) elements to draw
    keys = torch.where(free, uniform(free.shape, free.device, run.generator), 2.0)
    rank = keys.argsort(1).argsort(1)  # the order of the elements; given ones come last
    most = int(count.max()) if len(count) else 0
    calls = min(steps, most)
    size = (count / max(1, calls)).clamp(min=1)  # (B,) elements of a call
    call_of = (rank / size[:, None]).floor().reshape(run.free.shape)  # when each element is drawn
    first = (torch.arange(calls, device=free.device)[:, None] * size).ceil().long()  # (calls, B)
    times = _hitting_times(run, count, most).gather(0, first.clamp(max=max(0, most - 1)))  # of the first element

    def drawn(x: Tensor, time: Tensor, number: Tensor, u: Tensor) -> Tensor:
        return run.draw_from_f(run.denoise(x, time), x, u, run.free & (call_of == number))

    replayed, numbers = run.replayed(drawn), torch.arange(calls, device=free.device)

    def step(x: Tensor, i: int) -> Tensor:
        for call in range(i * calls // steps, (i + 1) * calls // steps):
            x = replayed(x, times[call], numbers[call], run.uniforms(x))
            run.checks.raise_early(x.device)
        return x

    return step


first_hitting.takes_corrector = False  # type: ignore[attr-defined]  # it draws each element once


def _hitting_times(run: Run, count: Tensor, most: int) -> Tensor:
    """The time of each element in turn for each object, as the network gets it, (most, B); discrete times round up."""
    left = (count - torch.arange(most, device=count.device)[:, None]).clamp(min=0)  # masked elements before each
    factors = uniform(left.shape, left.device, run.generator) ** (1 / left.clamp(min=1))
    return run.time_of(1 - torch.where(left > 0, factors.cumprod(0), 0.0))
