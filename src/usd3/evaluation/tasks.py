"""What an evaluation asks a model to draw: the interface of the tasks, and the draws they share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from usd3._internal.random import seed_of
from usd3.core.coefficients import Times
from usd3.core.samplers import CorrectorMoves, Step
from usd3.evaluation.results import Evaluation
from usd3.evaluation.settings import EvaluationSettings
from usd3.pipeline.pipeline import Pipeline

__all__ = ["Draws", "Task", "draw_runs"]

Draws = dict[str, Tensor]
"""Objects (R, N, ...) of R runs in the categories of the data, by the name of their array in a file of samples.

"tokens" are continuations of held-out objects or sets drawn from nothing, "ratio_tokens" continuations for the
train-to-test ratios, "free_tokens" objects drawn from nothing beside continuations, "filled_tokens" objects whose holes
were filled beside sets drawn from nothing.
"""


class Task(Protocol):
    """What a model draws in an evaluation, and how the draws are measured."""

    @property
    def sizes(self) -> dict[str, int]:
        """Number of objects in a run, N, by the names of `Draws`."""

    def draw(self, corrector: CorrectorMoves | None = None, callback: Callable[[Step], None] | None = None) -> Draws:
        """Draw the objects of all runs."""

    def measure(self, generated: Draws, settings: EvaluationSettings) -> Evaluation:
        """Measure draws."""

    def report(self, generated: Draws, folder: Path) -> list[str]:
        """Write pictures and tables of draws into a folder; the names of the files, if the kind has any."""


def draw_runs(
    pipeline: Pipeline,
    settings: EvaluationSettings,
    corrector: CorrectorMoves | None = None,
    callback: Callable[[Step], None] | None = None,
    times: Times | None = None,
    **arguments: Any,
) -> Tensor:
    """Objects of `settings.runs` runs, each with a seed of its own, (R, N, ...).

    Args:
        pipeline: the model.
        settings: number of runs, sampling steps, sampler, temperature and seed.
        corrector: MCMC corrector.
        callback: called with each step of the sampler.
        times: a grid of times in place of `settings.steps`.
        arguments: further arguments of `Pipeline.sample`: `num`, or `tokens`, `given` and `pad`.
    """
    runs = [
        pipeline.sample(
            num_steps=settings.steps if times is None else times,
            corrector=corrector,
            temperature=settings.temperature,
            sampler=settings.sampler,
            seed=seed_of(settings.seed, run),
            batch_size=settings.batch_size,
            callback=callback,
            **arguments,
        )
        for run in range(settings.runs)
    ]
    return torch.stack(runs)
