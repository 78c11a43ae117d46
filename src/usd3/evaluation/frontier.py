"""Quality, diversity and network calls of one model at many ways to draw: the points of `usd3 frontier`.

The metrics are those of `usd3 evaluate`: of the kind's judge, or of continuations of held-out objects.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from usd3._internal.checks import require
from usd3._internal.threads import waiting_asleep
from usd3.core.samplers import Step
from usd3.evaluation.counting import CountingPipeline
from usd3.evaluation.evaluate import evaluate, evaluate_references
from usd3.evaluation.held_out import HeldOut, require_same_shape
from usd3.evaluation.results import Rows
from usd3.evaluation.settings import EvaluationSettings
from usd3.evaluation.tasks import draw_runs
from usd3.kinds.base import Judge
from usd3.kinds.dataset import Dataset
from usd3.metrics.summary import Summary, summarise
from usd3.pipeline.pipeline import Pipeline

__all__ = [
    "ENTROPIES",
    "DrawnObjects",
    "Point",
    "Sets",
    "Way",
    "WholeObjects",
    "entropies",
    "measured_point",
    "task_of",
]

ENTROPIES = {"element_entropy": "entropy of an element, bits", "sample_entropy": "entropy in a sample, bits"}
"""The measures of diversity by key; see `entropies`."""


class Way(NamedTuple):
    """One way to draw.

    Args:
        sampler: one of the method's samplers.
        steps: number of sampling steps.
        temperature: divides the logits.
        top_p: draw from the likeliest categories that have this probability together; None: from all.
        top_k: draw from the k likeliest categories; None: from all.
        guidance: the guidance scale; None: no guidance.
        grid: "even", or "best", the one of `Pipeline.best_grid`.
    """

    sampler: str
    steps: int
    temperature: float = 1.0
    top_p: float | None = None
    top_k: int | None = None
    guidance: float | None = None
    grid: str = "even"


class Point(NamedTuple):
    """What one way to draw gives.

    Args:
        way: how it was drawn.
        calls: network calls for each object: rows that the network was asked about, divided by the objects drawn.
        seconds: seconds for each object, with all others of its batch beside it.
        metrics: mean and standard deviation over the runs of each metric and of each measure in `ENTROPIES`.
    """

    way: Way
    calls: float
    seconds: float
    metrics: dict[str, Summary]


# ---- what is drawn and how it is measured ---------------------------------------------------------------------------


class DrawnObjects(Protocol):
    """What is drawn at every point, and how it is measured.

    Attributes:
        prompt: the arguments of `Pipeline.sample` that say what to draw.
        num: number of objects in a run.
        truth: (N, ...) held-out objects, for the diversity of data.
        fixed: (N, ...) True where an element is not drawn, in `truth` and in what is drawn; None: all are drawn.
    """

    prompt: dict[str, Any]
    num: int
    truth: Tensor
    fixed: Tensor | None

    def metrics(self, tokens: Tensor) -> dict[str, Summary]:
        """The metrics of draws (R, N, ...), by key."""

    def references(self, runs: int) -> Rows:
        """The same metrics of the reference rows."""


class WholeObjects:
    """Objects of a kind without a judge: continuations of held-out objects, or with prefix 0 whole objects."""

    def __init__(self, pipeline: Pipeline, dataset: Dataset, settings: EvaluationSettings):
        self.pipeline, self.dataset = pipeline, dataset
        self.settings = replace(settings.known_for(pipeline), baselines=False, bound_samples=0)
        self.held_out = held_out = HeldOut.of(pipeline, dataset, settings)
        self.prompt = {"tokens": held_out.truth, "given": held_out.given, "pad": held_out.pad}
        self.num, self.truth = len(held_out.truth), held_out.truth
        given = held_out.given.expand(held_out.truth.shape)
        self.fixed: Tensor | None = given if held_out.pad is None else given | held_out.pad

    def metrics(self, tokens: Tensor) -> dict[str, Summary]:
        """The metrics of `usd3 evaluate`."""
        return evaluate(self.pipeline, self.dataset, self.held_out, self.settings, tokens).rows["model"]

    def references(self, runs: int) -> Rows:
        """A Markov chain or the simple models of the kind, and other held-out objects."""
        return evaluate_references(self.dataset, self.held_out, replace(self.settings, runs=runs)).rows


class Sets:
    """Sets of objects that a judge scores: drawn from nothing, or filled."""

    def __init__(self, dataset: Dataset, judge: Judge, is_filled: bool):
        prompts = judge.prompts
        self.judge, self.is_filled = judge, is_filled
        self.fixed: Tensor | None = None
        test = dataset.decoded(dataset.test.take(torch.arange(min(len(dataset.test), judge.num)))[0].long())
        self.prompt: dict[str, Any] = {"num": judge.num}
        self.num, self.truth = judge.num, test
        if is_filled:
            plural = dataset.kind.plural
            expected = f"null, as there are no {plural} with holes to fill"
            require(prompts is not None, "prompt", "test", expected)
            assert prompts is not None
            self.prompt, self.num = prompts._asdict(), len(prompts.tokens)
            self.fixed = prompts.given
            every = torch.arange(self.num) % len(dataset.test)
            self.truth = dataset.decoded(dataset.test.take(every)[0].long())

    def metrics(self, tokens: Tensor) -> dict[str, Summary]:
        """The judge's scores of each run, summarised."""
        scored = self.judge.filled_scores if self.is_filled else self.judge.scores
        scores = [scored(run) for run in tokens]
        return {key: summarise(np.array([score[key] for score in scores])) for key in scores[0]}

    def references(self, runs: int) -> Rows:
        """The judge's reference rows."""
        return self.judge.references(self.judge.num)


def task_of(pipeline: Pipeline, dataset: Dataset, settings: EvaluationSettings, is_prompted: bool) -> DrawnObjects:
    """What a model draws: with a prompt its conditional task, else whole objects from nothing."""
    require_same_shape(pipeline, dataset)
    if not pipeline.kind.is_judged:
        return WholeObjects(pipeline, dataset, settings if is_prompted else replace(settings, prefix=0))
    pipeline.kind.require_same(dataset.kind.as_dict(), "data")
    judge = dataset.kind.judge(dataset, settings, str(pipeline.device), "")
    return Sets(dataset, judge, is_prompted)


# ---- points ---------------------------------------------------------------------------------------------------------


def measured_point(
    pipeline: Pipeline,
    task: DrawnObjects,
    settings: EvaluationSettings,
    way: Way,
    more: dict[str, Any] | None = None,
    callback: Callable[[Step], None] | None = None,
) -> Point:
    """Draw in one way, count the network calls and measure.

    Args:
        pipeline: the model.
        task: what to draw.
        settings: number of runs, seed and batch size.
        way: how to draw.
        more: further arguments of `Pipeline.sample`, such as `where`.
        callback: called with each step of the sampler.
    """
    counting = CountingPipeline(pipeline)
    settings = replace(settings, sampler=way.sampler, steps=way.steps, temperature=way.temperature)
    times = pipeline.best_grid(way.steps) if way.grid == "best" else None
    began = time.monotonic()
    tokens = draw_runs(counting, settings, None, callback, times, **task.prompt, **(more or {}))
    drawn = tokens.shape[0] * tokens.shape[1]
    seconds = (time.monotonic() - began) / drawn
    spread = [entropies(run, task.fixed) for run in tokens]
    diversity = {key: summarise(np.array([found[key] for found in spread])) for key in ENTROPIES}
    return Point(way, counting.rows / drawn, seconds, task.metrics(tokens) | diversity)


@waiting_asleep()
def entropies(tokens: Tensor, fixed: Tensor | None = None) -> dict[str, float]:
    """How diverse objects (N, ...) are, in bits.

    `element_entropy` is the entropy of an element's categories over the objects, mean over the elements: 0 if all
    objects are equal. It is at most log2 N, so sets are comparable at the same N. `sample_entropy` is the entropy of
    the categories inside one object, mean over the objects: 0 if an object repeats one category.

    Args:
        tokens: the objects.
        fixed: (N, ...) True where an element does not count, as it was not drawn.
    """
    x = tokens.flatten(1).numpy()
    free = np.ones(x.shape, dtype=bool) if fixed is None else ~fixed.expand(tokens.shape).flatten(1).numpy()
    by_element, by_sample = (_mean_entropy(zip(a, b)) for a, b in ((x.T, free.T), (x, free)))
    return {"element_entropy": by_element, "sample_entropy": by_sample}


def _mean_entropy(rows: Iterable[tuple[Any, Any]]) -> float:
    """Mean entropy in bits of the values of each row where its mask is True; rows without any do not count."""
    found = []
    for values, counted in rows:
        if counted.any():
            share = np.unique(values[counted], return_counts=True)[1] / counted.sum()
            found.append(-(share * np.log2(share)).sum())
    return float(np.mean(found)) + 0.0 if found else 0.0
