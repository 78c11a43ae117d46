"""Gillespie's algorithm: an exact simulation of the reverse chain, one jump per object at a time."""

import torch
from torch import Tensor

from usd3._internal.random import uniform
from usd3.core.coefficients import constant, flat
from usd3.core.mixture import Jumps
from usd3.core.samplers.exact import exact
from usd3.core.samplers.run import Run, StepFunction

__all__ = ["gillespie"]

_FIRST = 1e-6  # smallest alpha_bar at which the simulation starts: below it the chain is still at its noise


def gillespie(run: Run, grid: list[float]) -> StepFunction:
    """Simulate the reverse chain from t to s; the last step goes to t_min, and then draws from f.

    An element leaves x at a rate below beta / (1 - abar), which is 1 per unit of logit(abar). So candidates come as a
    Poisson process of unit rate per element on that scale, and each is accepted with its share of that rate (thinning).
    """
    t_min = run.process.t_min
    last = exact(run, [min(grid[-2], t_min), 0.0])

    def step(x: Tensor, i: int) -> Tensor:
        t, s = grid[i], grid[i + 1]
        x = _thinned_jumps(run, x, t, max(s, t_min)) if t > max(s, t_min) else x
        return last(x, 0) if s == 0 else x

    return step


gillespie.can_replay = False  # type: ignore[attr-defined]  # the number of its calls is random


def _thinned_jumps(run: Run, x: Tensor, t: float, s: float) -> Tensor:
    """The reverse chain from t down to s, one candidate per object at a time."""
    process, elements = run.process, flat(run.free)
    times = (constant(v, x) for v in (t, s))
    position, end = (torch.logit(process.level(time, time).alpha_bar.clamp(min=_FIRST)) for time in times)  # (B,)
    while True:
        u = uniform((2, len(x)), x.device, run.generator)
        position = position - torch.log1p(-u[0]) / elements.sum(1)  # of the next candidate; inf where nothing is free
        active = position < end
        if not bool(active.any()):
            return x
        time = process.schedule.time(torch.sigmoid(torch.where(active, position, end))).clamp(0, 1)
        level = process.level(time, x)
        rank = (u[1] * elements.sum(1)).long()  # the candidate among the free elements
        candidate = elements & (elements.cumsum(1) - 1 == rank[:, None]) & active[:, None]
        jumps, candidate, u = Jumps(level.alpha_bar, level.lost), candidate.reshape(x.shape), run.uniforms(x)
        logits = run.denoise(x, time)
        x = run.draw(logits, x, level, jumps, u, candidate)
        run.checks.raise_early(x.device)
