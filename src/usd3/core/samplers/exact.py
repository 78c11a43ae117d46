"""Algorithm 2 of the paper: exact backward steps x_s ~ p(x_s | x_t) = B(f; x_t, t -> s), in closed form (Prop. 2).

For each step t -> s of the grid, from noise x_1 ~ m:

    f   = softmax(network(x_t, t))
    x_s ~ (1 - mu) Cat(f) + mu (1 - a_ts) noised Cat(m) + the rest on e_x        mu = (1 - abar_s) / (1 - abar_t)

At s = 0 this is a draw from f. Given x_t, each element is drawn independently of the others.
"""

from torch import Tensor

from usd3.core.belief import Level
from usd3.core.coefficients import Process
from usd3.core.mixture import Jumps
from usd3.core.samplers.run import Run, StepFunction

__all__ = ["ask_and_draw", "ending_exactly", "exact", "exact_jumps"]


def exact(run: Run, grid: list[float]) -> StepFunction:
    """The paper's sampler: an exact backward step for each step of the grid."""
    t, s = run.steps(grid)  # (S,)
    level, jumps = exact_jumps(run.process, t, s, run.free)  # (S, 1, ..., 1)
    return run.moves(t, jumps, ask_and_draw, level)


def exact_jumps(process: Process, t: Tensor, s: Tensor, x: Tensor) -> tuple[Level, Jumps]:
    """The level at t, and the weights of the step t -> s: 1 - mu to f, mu (1 - a_ts) P(noised | x) to m."""
    level, to = process.unpacked(process.coefficients(t, s), x)
    return level, Jumps(to.to_data, to.to_noise)


def ask_and_draw(run: Run, x: Tensor, time: Tensor, level: Level, jumps: Jumps, u: Tensor) -> Tensor:
    """x_s from x = x_t: one network call, one draw."""
    logits = run.denoise(x, time)  # f = softmax(logits), (B, N1, ..., Nk, K)
    return run.draw(logits, x, level, jumps, u)


def ending_exactly(run: Run, grid: list[float], step: StepFunction) -> StepFunction:
    """The same steps, but the last one, to time 0, draws from f."""
    last = exact(run, grid[-2:])
    return lambda x, i: last(x, 0) if grid[i + 1] == 0 else step(x, i)
