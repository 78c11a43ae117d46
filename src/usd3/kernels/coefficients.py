"""The numbers of each object that losses and draws read, from its time, in one kernel.

They are the rows TO_DATA, TO_NOISE, STAY, ALPHA_BAR and LOST of `usd3.kernels.loss`. `Process.transition` of the core
defines them, with the formulas of a schedule: with `Cosine` 20 operations on (B,) numbers for a rate, 58 for a step. On
a GPU each of these is a launch, which takes longer than its arithmetic. `triton_coefficients.py` computes all of it
in one launch, for the schedules that have a `ClosedForm`: those of the package.
"""

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["COSINE", "EXPONENTIAL", "POWER", "ClosedForm", "coefficients_at", "constants", "drawn_coefficients"]

COSINE, POWER, EXPONENTIAL = range(3)


class ClosedForm(NamedTuple):
    """alpha_bar(t) of a schedule, as one of three families with its numbers.

    | family | alpha_bar(t) | a | b |
    |---|---|---|---|
    | COSINE | sin(a (1 - t)) / sin a | below pi / 2 | pi / 2 - a |
    | POWER | (1 - t + a t)^b | | at least 1 |
    | EXPONENTIAL | exp(-offset - a (e^(b t) - 1)), or exp(-offset - a t) where b = 0 | positive | not negative |
    """

    family: int
    a: float
    b: float = 0.0
    offset: float = 0.0


def constants(form: ClosedForm, t_min: float, smallest: float, device: torch.device) -> Tensor:
    """What the kernel reads of a schedule, float64 (5,): a, b, offset, t_min, and the smallest alpha_bar in a rate.

    A number among the arguments of a Triton kernel would be rounded to float32.
    """
    numbers = (form.a, form.b, form.offset, t_min, smallest)  # no copy from the host: a CUDA graph cannot contain one
    return torch.stack([torch.full((), number, dtype=torch.float64, device=device) for number in numbers])


def coefficients_at(
    form: ClosedForm, numbers: Tensor, time: Tensor, before: Tensor | None, num_steps: int | None
) -> Tensor:
    """The five rows for each of B objects, float64 (5, B).

    Args:
        form: the schedule.
        numbers: its `constants`.
        time: t of each object, float64 (B,) in [0, 1].
        before: s of the step t -> s, as `time`. None: the step t -> t - 1 in discrete time, the reverse rate else.
        num_steps: T of discrete time; None: time is continuous.
    """
    from usd3.kernels.triton_coefficients import launch  # needs Triton

    return launch(form, numbers, time, before, num_steps, drawn=False)


def drawn_coefficients(form: ClosedForm, numbers: Tensor, u: Tensor, num_steps: int | None) -> tuple[Tensor, Tensor]:
    """Training times of uniforms u, float64 (B,) in [0, 1], and their five rows.

    The times are those of `Process.times_from_uniform`; continuous ones are rounded to float32.
    """
    from usd3.kernels.triton_coefficients import launch

    rows = launch(form, numbers, u, None, num_steps, drawn=True)
    return rows[5], rows[:5]
