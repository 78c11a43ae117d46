"""How good are sets of objects drawn from nothing, compared with real ones? For kinds with a judge, such as images."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from usd3._internal.checks import require
from usd3._internal.progress import say
from usd3._internal.threads import waiting_asleep
from usd3.core.samplers import Corrector, Step
from usd3.evaluation.held_out import require_same_shape
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
    """

    compared_with: dict[str, Any] = field(default_factory=dict)
    title: str = ""
    plural: str = "objects"

    def heading(self) -> str:
        """A line that says what was measured."""
        return self.title

    def as_text(self) -> str:
        """The tables as plain text."""
        measured = {key for row in self.rows.values() for key in row}
        titles = {key: metric.titled for key, metric in self.columns.items() if key in measured}
        lines = [format_table(self.rows, titles)]
        for name, bits in self.bits_per_element.items():
            lines += ["", f"bits per element of held-out {self.plural}, {name}: "]
            lines[-1] += f"{bits:.3f} ({bits * math.log(2):.3f} nats)"
        return "\n".join(lines)


def require_free_settings(settings: EvaluationSettings) -> None:
    """Raise an error for settings of continuations: objects drawn from nothing have no prefix."""
    reason = "as objects are drawn from nothing"
    require(settings.prefix in (None, 0), "prefix", settings.prefix, f"null or 0, {reason}")
    require(settings.include_prefix, "include_prefix", settings.include_prefix, f"true, {reason}")
    require(settings.ratios is None, "ratios", settings.ratios, f"null, {reason}")


@dataclass(frozen=True)
class FreeSets:
    """The task for kinds with a judge: draw sets of objects from nothing.

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
        return {"tokens": self.judge.num}

    def draw(self, corrector: Corrector | None = None, callback: Callable[[Step], None] | None = None) -> Draws:
        """Draw a set of objects in every run."""
        return {"tokens": draw_runs(self.pipeline, self.settings, corrector, callback, num=self.judge.num)}

    @waiting_asleep()
    def measure(self, generated: Draws, settings: EvaluationSettings) -> SetEvaluation:
        """Score the sets (R, N, ...)."""
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
        evaluation = _evaluation(self.dataset, self.judge, used, num, {"model": _summaries(scores)})
        if settings.baselines:
            evaluation.rows |= self.judge.references(num)
        if settings.bound_samples:
            say(f"measuring bits per element of held-out {plural}")
            evaluation.bits_per_element["model (upper bound)"] = self._bound_in_bits(settings)
        return evaluation

    def _bound_in_bits(self, settings: EvaluationSettings) -> float:
        """Upper bound on -log2 p of the held-out objects, per element."""
        tokens = self.dataset.decoded(self.dataset.test.tokens[: settings.limit].long())
        nats = self.pipeline.bound(
            tokens, num_samples=settings.bound_samples, seed=settings.seed, batch_size=settings.batch_size
        )
        return float(nats.sum() / tokens.numel() / math.log(2))


def evaluate_real_sets(dataset: Dataset, judge: Judge, settings: EvaluationSettings) -> SetEvaluation:
    """The reference rows alone, without a model."""
    return _evaluation(dataset, judge, asdict(settings), judge.num, judge.references(judge.num))


def _evaluation(dataset: Dataset, judge: Judge, settings: dict[str, Any], num: int, rows: Rows) -> SetEvaluation:
    kind, columns = dataset.kind, dict(dataset.kind.columns)
    title = kind.describe_sets(settings, judge.about)
    return SetEvaluation(
        settings, num, 0, rows, compared_with=judge.about, title=title, columns=columns, plural=kind.plural
    )


def _summaries(scores: Sequence[dict[str, float]]) -> dict[str, Summary]:
    """Mean and standard deviation of each metric over the sets."""
    return {key: summarise(np.array([score[key] for score in scores])) for key in scores[0]}
