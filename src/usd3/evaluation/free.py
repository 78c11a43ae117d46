"""How good are sets of objects drawn from nothing, compared with real ones? For kinds with a judge, such as images."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from usd3._internal.checks import require
from usd3._internal.progress import say
from usd3._internal.threads import waiting_asleep
from usd3.core.samplers import CorrectorMoves, Step
from usd3.evaluation.held_out import number_used, require_same_shape
from usd3.evaluation.results import Evaluation, Rows
from usd3.evaluation.settings import EvaluationSettings
from usd3.evaluation.tasks import Draws, draw_runs
from usd3.kinds.base import Judge
from usd3.kinds.dataset import Dataset
from usd3.metrics.summary import Summary, format_table, summarise
from usd3.pipeline.pipeline import Pipeline

__all__ = ["FreeSets", "SetEvaluation", "evaluate_real_sets", "require_free_settings"]


@dataclass
class SetEvaluation(Evaluation):
    """The results of an evaluation of sets.

    Args:
        compared_with: the objects and networks that the sets were compared with.
        title: a line that says what was measured.
        plural: what the objects are called, such as "images".
        elements: number of elements of an object.
    """

    compared_with: dict[str, Any] = field(default_factory=dict)
    title: str = ""
    plural: str = "objects"
    elements: int = 0

    def heading(self) -> str:
        """A line that says what was measured."""
        return self.title

    def as_text(self) -> str:
        """The tables as plain text."""
        measured = {key for row in self.rows.values() for key in row}
        titles = {key: metric.titled for key, metric in self.columns.items() if key in measured}
        lines = [format_table(self.rows, titles)]
        if self.bits_per_element:
            lines.append("")
        for name, bits in self.bits_per_element.items():
            lines.append(f"bits per element of held-out {self.plural}, {name}: ")
            lines[-1] += f"{bits:.3f} ({bits * math.log(2):.3f} nats)"
            if self.elements:
                whole = bits * self.elements
                lines[-1] += f"; of all {self.elements} elements: {whole:.2f} ({whole * math.log(2):.2f} nats)"
        return "\n".join(lines)


def require_free_settings(settings: EvaluationSettings) -> None:
    """Raise an error for settings of continuations: objects drawn from nothing have no prefix."""
    reason = "as objects are drawn from nothing"
    require(settings.prefix in (None, 0), "prefix", settings.prefix, f"null or 0, {reason}")
    require(settings.include_prefix, "include_prefix", settings.include_prefix, f"true, {reason}")
    require(settings.ratios is None, "ratios", settings.ratios, f"null, {reason}")


@dataclass(frozen=True)
class FreeSets:
    """The task for kinds with a judge: draw sets of objects from nothing, and fill the judge's objects with holes.

    Args:
        pipeline: the model.
        dataset: the data.
        judge: scores the sets.
        settings: what to measure and how.
    """

    pipeline: Pipeline
    dataset: Dataset
    judge: Judge
    settings: EvaluationSettings

    @classmethod
    def of(cls, pipeline: Pipeline, dataset: Dataset, settings: EvaluationSettings) -> "FreeSets":
        """The task for a model; raises an error if the data are of another kind than the model."""
        require_free_settings(settings)
        require_same_shape(pipeline, dataset)
        pipeline.kind.require_same(dataset.kind.as_dict(), "data")
        return cls(pipeline, dataset, dataset.kind.judge(dataset, settings, str(pipeline.device), ""), settings)

    @property
    def sizes(self) -> dict[str, int]:
        """Number of objects in a run, by the names of `Draws`."""
        prompts = self.judge.prompts
        return {"tokens": self.judge.num} | ({} if prompts is None else {"filled_tokens": len(prompts.tokens)})

    def draw(self, corrector: CorrectorMoves | None = None, callback: Callable[[Step], None] | None = None) -> Draws:
        """Draw a set of objects in every run, and fill the judge's objects with holes."""
        draws = {"tokens": draw_runs(self.pipeline, self.settings, corrector, callback, num=self.judge.num)}
        if self.judge.prompts is not None:
            prompt = self.judge.prompts._asdict()
            draws["filled_tokens"] = draw_runs(self.pipeline, self.settings, corrector, callback, **prompt)
        return draws

    @waiting_asleep()
    def measure(self, generated: Draws, settings: EvaluationSettings) -> SetEvaluation:
        """Score the sets (R, N, ...) and what was filled (R, M, ...)."""
        tokens, shape = generated["tokens"], self.dataset.shape
        fits = tuple(tokens.shape[2:]) == shape and tokens.shape[1] >= 2
        plural = self.dataset.kind.plural
        expected = f"(runs, {plural}, {', '.join(map(str, shape))}), two or more a run"
        require(fits, "shape of the samples", tuple(tokens.shape), expected)
        runs, num = tokens.shape[:2]
        used = asdict(settings) | {"prefix": 0, "runs": runs} | self.judge.settings_with(num)
        scores = []
        for run, one_set in enumerate(tokens, start=1):
            say(f"measuring set {run} of {runs}")
            scores.append(self.judge.scores(one_set))
        row = _summaries(scores)
        if "filled_tokens" in generated:
            row |= _summaries(
                [self.judge.filled_scores(filled) for filled in self._checked(generated["filled_tokens"])]
            )
        evaluation = _evaluation(self.dataset, self.judge, used, num, {"model": row})
        if settings.bound_samples:
            say(f"measuring bits per element of held-out {plural}")
            evaluation.bits_per_element["model (upper bound)"] = self._bound_in_bits(settings)
        if settings.baselines:
            _add_references(evaluation, self.judge.references(num))
        return evaluation

    def report(self, generated: Draws, folder: Path) -> list[str]:
        """The files that the judge writes about the first set."""
        return self.judge.report(generated["tokens"][0], folder)

    def _checked(self, filled: Tensor) -> Tensor:
        """The filled objects; an error unless they are as many as the judge's."""
        shape = None if self.judge.prompts is None else self.judge.prompts.tokens.shape
        expected = "none, as there is nothing to fill" if shape is None else f"(runs, {', '.join(map(str, shape))})"
        require(filled.shape[1:] == shape, "shape of the filled samples", tuple(filled.shape), expected)
        return filled

    def _bound_in_bits(self, settings: EvaluationSettings) -> float:
        """Upper bound on -log2 p of the held-out objects, per element."""
        test = self.dataset.test
        own, pad = test.take(torch.arange(number_used(settings.limit, len(test), test.shape)))
        tokens = self.dataset.decoded(own.long())
        nats = self.pipeline.bound(
            tokens, pad=pad, num_samples=settings.bound_samples, seed=settings.seed, batch_size=settings.batch_size
        )
        return float(nats.sum() / self.dataset.kind.num_counted(tokens, pad) / math.log(2))


def evaluate_real_sets(dataset: Dataset, judge: Judge, settings: EvaluationSettings) -> SetEvaluation:
    """The reference rows alone, without a model."""
    evaluation = _evaluation(dataset, judge, asdict(settings), judge.num, {})
    _add_references(evaluation, judge.references(judge.num))
    return evaluation


def _add_references(evaluation: SetEvaluation, rows: Rows) -> None:
    """Add reference rows, and the bits per element of those that have some."""
    for name, row in rows.items():
        evaluation.rows[name] = {key: value for key, value in row.items() if key != "bits_per_element"}
        if "bits_per_element" in row:
            evaluation.bits_per_element[name] = row["bits_per_element"].mean


def _evaluation(dataset: Dataset, judge: Judge, settings: dict[str, Any], num: int, rows: Rows) -> SetEvaluation:
    kind, columns = dataset.kind, dict(dataset.kind.columns)
    title, elements = kind.describe_sets(settings, judge.about), math.prod(kind.shape)
    about: dict[str, Any] = {"compared_with": judge.about, "title": title, "plural": kind.plural, "elements": elements}
    return SetEvaluation(settings, num, 0, rows, columns=columns, **about)


def _summaries(scores: Sequence[dict[str, float]]) -> dict[str, Summary]:
    """Mean and standard deviation of each metric over the sets."""
    return {key: summarise(np.array([score[key] for score in scores])) for key in scores[0]}
