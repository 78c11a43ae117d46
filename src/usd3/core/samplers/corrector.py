"""Algorithm 3 of the paper: MCMC corrector moves, which leave the distribution of x_s as it is."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from usd3._internal.checks import as_count, as_number, require
from usd3.core import fused
from usd3.core.belief import Level
from usd3.core.coefficients import Process, column, flat
from usd3.core.mixture import Jumps
from usd3.core.samplers.exact import ask_and_draw
from usd3.core.samplers.run import Run, StepFunction

__all__ = ["Corrector", "CorrectorMoves", "corrector_jumps"]

_AUTO = 1e-3  # the step size of "auto"
_MOST = 0.8  # largest probability with which one move takes an element away


class CorrectorMoves(ABC):
    """What correctors share: `num_steps` moves after each of the last `last` steps that end before time 0.

    `last=None` corrects after every step. Nothing is corrected at time 0, which is clean data. A corrector is called
    with a run and its grid, and returns `correct(x, i)`: x after the moves that follow step i.
    """

    num_steps: int
    last: int | None

    def __post_init__(self) -> None:
        as_count(self.num_steps, "num_steps", 1)
        if self.last is not None:
            as_count(self.last, "last", 1)

    def __call__(self, run: Run, grid: list[float]) -> StepFunction:
        """`correct(x, i)`: x after the moves that follow step i of the grid; x itself where none are due."""
        first = 0 if self.last is None else len(grid) - 2 - self.last
        due = [i for i, end in enumerate(grid[1:]) if i >= first and end > 0]
        move = self.moves(run, grid, due)

        def correct(x: Tensor, i: int) -> Tensor:
            for _ in range(self.num_steps if i in due else 0):
                x = move(x, i)
            return x

        return correct

    @abstractmethod
    def moves(self, run: Run, grid: list[float], due: list[int]) -> StepFunction:
        """`move(x, i)`: x after one move at the end of step i; only the steps `due` are asked for."""


@dataclass(frozen=True)
class Corrector(CorrectorMoves):
    """MCMC corrector: `num_steps` moves of `step_size` after each of the last `last` steps that end before time 0.

    `last=None` corrects after every step. Nothing is corrected at time 0, which is clean data.
    Where an element of an object would jump with a probability above 0.8, all jumps of that object are scaled down, so
    that none does. `step_size="auto"` is 1e-3. Long moves do harm, because all elements move at once, each as if the
    others stood still (docs/samplers.md has numbers): 0.05 can be too long.
    """

    num_steps: int = 5
    step_size: float | str = _AUTO
    last: int | None = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.step_size, str):
            require(self.step_size == "auto", "step_size", self.step_size, 'a number > 0 or "auto"')
        else:
            as_number(self.step_size, "step_size", 0)

    def moves(self, run: Run, grid: list[float], due: list[int]) -> StepFunction:
        """Jumps by the reverse and the forward rate, capped where they could be likelier than 0.8."""
        _, s = run.steps(grid)  # (S,)
        size = _AUTO if isinstance(self.step_size, str) else self.step_size
        jumps = corrector_jumps(run.process, s, run.free).scaled(size)  # (S, 1, ..., 1)
        most = (jumps.to_data + 2 * jumps.to_noise).flatten().tolist()  # no network makes a jump likelier than that
        capped = {i: most[i] > _MOST for i in due}
        moves = {cap: run.moves(s, jumps, ask_and_draw_capped if cap else ask_and_draw) for cap in set(capped.values())}
        return lambda x, i: moves[capped[i]](x, i)


def corrector_jumps(process: Process, s: Tensor, x: Tensor) -> Jumps:
    """Reverse rate plus forward rate at time s, eq. 97: the chain with these rates leaves q_s invariant."""
    rate = process.rate_weights(s, x)
    return Jumps(rate.to_data, rate.to_noise, forward=rate.to_noise)


def ask_and_draw_capped(run: Run, x: Tensor, time: Tensor, level: Level, jumps: Jumps, u: Tensor) -> Tensor:
    """One network call and one draw, with the jumps of an object scaled so that the likeliest has at most 0.8."""
    logits, process = run.denoise(x, time), run.process
    mass = fused.jump_mass(run.shaped(logits), x, process.noise, level, jumps, run.free, process.impl, run.checks)
    largest = torch.cat([flat(mass), mass.new_full((len(x), 1), _MOST)], 1).amax(1)  # (B,)
    return run.draw(logits, x, level, jumps.scaled(column(_MOST / largest, x)), u)
