"""Euler steps of the reverse chain: jump with probability (t - s) times the reverse rate at t (eq. 22)."""

from torch import Tensor

from usd3.core.coefficients import Process, column
from usd3.core.mixture import Jumps
from usd3.core.samplers.exact import ask_and_draw, ending_exactly
from usd3.core.samplers.run import Run, StepFunction

__all__ = ["euler", "euler_jumps"]


def euler(run: Run, grid: list[float]) -> StepFunction:
    """Euler steps; the last step draws from f."""
    t, s = run.steps(grid)  # (S,)
    jumps = euler_jumps(run.process, t, s, run.free)  # (S, 1, ..., 1)
    return ending_exactly(run, grid, run.moves(t, jumps, ask_and_draw))


def euler_jumps(process: Process, t: Tensor, s: Tensor, x: Tensor) -> Jumps:
    """(t - s) beta H(f): (t - s) beta abar / (1 - abar) to f, (t - s) beta P(noised | x) to m."""
    rate = process.rate_weights(t, x)
    return Jumps(rate.to_data, rate.to_noise).scaled(column(t - s, x))
