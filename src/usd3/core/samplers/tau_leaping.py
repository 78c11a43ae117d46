"""Tau-leaping (Campbell et al., 2022): Poisson jumps at the rates of t over the whole step t -> s."""

from dataclasses import replace

from torch import Tensor

from usd3.core.coefficients import Process
from usd3.core.mixture import Jumps
from usd3.core.samplers.euler import euler_jumps
from usd3.core.samplers.exact import ask_and_draw, ending_exactly
from usd3.core.samplers.run import Run, StepFunction

__all__ = ["tau_leaping", "tau_leaping_jumps"]


def tau_leaping(run: Run, grid: list[float]) -> StepFunction:
    """Tau-leaping; the last step draws from f."""
    t, s = run.steps(grid)  # (S,)
    jumps = tau_leaping_jumps(run.process, t, s, run.free)  # (S, 1, ..., 1)
    return ending_exactly(run, grid, run.moves(t, jumps, ask_and_draw))


def tau_leaping_jumps(process: Process, t: Tensor, s: Tensor, x: Tensor) -> Jumps:
    """P(x -> z) = l_z exp(-L) with l_z = (t - s) rate_z and L their sum: exactly one Poisson jump.

    An element with more than one jump stays, because categories cannot be added.
    """
    return replace(euler_jumps(process, t, s, x), damped=True)
