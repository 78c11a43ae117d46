"""How good are sets of objects drawn from nothing, beside real ones? For kinds that have a judge, such as images."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from usd3._internal.checks import require
from usd3._internal.progress import say
from usd3._internal.threads import waiting_asleep
from usd3.core.samplers import Corrector, Step
from usd3.evaluation.evaluate import Draws, Evaluation, draw_runs, require_same_shape
from usd3.evaluation.settings import EvaluationSettings
from usd3.kinds.base import Judge
from usd3.kinds.dataset import Dataset
from usd3.metrics.summary import Summary, format_table, summarise
from usd3.pipeline.pipeline import Pipeline

__all__ = ["FreeSets", "SetEvaluation", "references_alone", "require_free_settings"]


@dataclass
class SetEvaluation(Evaluation):
    """The rows of the table, the likelihood of held-out objects, and what the sets were compared with.

    `title` says in one line what was measured, `columns` what the metrics are called; `plural` what the objects are.
    """

    compared_with: dict[str, Any] = field(default_factory=dict)
    title: str = ""
    columns: dict[str, str] = field(default_factory=dict)
    plural: str = "objects"

    def heading(self) -> str:
        """What was measured, in one line."""
        return self.title

    def as_text(self) -> str:
        """Tables to read."""
        measured = {key for row in self.rows.values() for key in row}
        lines = [format_table(self.rows, {key: title for key, title in self.columns.items() if key in measured})]
        for name, bits in self.bits_per_element.items():
            lines += ["", f"bits per element of held-out {self.plural}, {name}: "]
            lines[-1] += f"{bits:.3f} ({bits * math.log(2):.3f} nats)"
        return "\n".join(lines)


def require_free_settings(settings: EvaluationSettings) -> None:
    """Refuse settings that mean nothing for objects drawn from nothing."""
    drawn = "as objects are drawn from nothing"
    require(settings.prefix in (None, 0), "prefix", settings.prefix, f"null or 0, {drawn}")
    require(settings.include_prefix, "include_prefix", settings.include_prefix, f"true, {drawn}")
    require(settings.ratios is None, "ratios", settings.ratios, f"null, {drawn}")


@dataclass(frozen=True)
class FreeSets:
    """The task of kinds with a judge: draw sets of objects from nothing."""

    pipeline: Pipeline
    dataset: Dataset
    judge: Judge
    settings: EvaluationSettings

    @classmethod
    def of(cls, pipeline: Pipeline, dataset: Dataset, settings: EvaluationSettings) -> "FreeSets":
        """Beside the real objects of the data."""
        require_free_settings(settings)
        require_same_shape(pipeline, dataset)
        pipeline.kind.require_same(dataset.kind.as_dict(), "data")
        return cls(pipeline, dataset, dataset.kind.judge(dataset, settings, str(pipeline.device), ""), settings)

    @property
    def sizes(self) -> dict[str, int]:
        """Objects of a run."""
        return {"tokens": self.judge.num}

    def draw(self, corrector: Corrector | None = None, callback: Callable[[Step], None] | None = None) -> Draws:
        """Draw `runs` sets of objects."""
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
            evaluation.bits_per_element["model (upper bound)"] = self._bits(settings)
        return evaluation

    def _bits(self, settings: EvaluationSettings) -> float:
        tokens = self.dataset.decoded(self.dataset.test.tokens[: settings.limit].long())
        nats = self.pipeline.bound(
            tokens, num_samples=settings.bound_samples, seed=settings.seed, batch_size=settings.batch_size
        )
        return float(nats.sum() / tokens.numel() / math.log(2))


def references_alone(dataset: Dataset, judge: Judge, settings: EvaluationSettings) -> SetEvaluation:
    """The reference rows without a model."""
    return _evaluation(dataset, judge, asdict(settings), judge.num, judge.references(judge.num))


def _evaluation(
    dataset: Dataset, judge: Judge, settings: dict[str, Any], num: int, rows: dict[str, dict[str, Summary]]
) -> SetEvaluation:
    kind, columns = dataset.kind, {key: metric.titled for key, metric in dataset.kind.columns.items()}
    title = kind.describe_sets(settings, judge.about)
    return SetEvaluation(
        settings, num, 0, rows, compared_with=judge.about, title=title, columns=columns, plural=kind.plural
    )


def _summaries(scores: Sequence[dict[str, float]]) -> dict[str, Summary]:
    """Mean and standard deviation of each metric over the sets."""
    return {key: summarise(np.array([score[key] for score in scores])) for key in scores[0]}
