"""The settings of an evaluation: what it measures."""

from dataclasses import dataclass, replace
from typing import Self

from usd3._internal.checks import as_count, as_number
from usd3._internal.fields import require_fields
from usd3.kinds.registry import KindSettings
from usd3.pipeline.pipeline import Pipeline

__all__ = ["EvaluationSettings"]


@dataclass
class _Settings:
    """What to measure.

    Args:
        prefix: number of given elements of each held-out object; null: as in training. Images and
            boards are drawn from nothing.
        runs: number of continuations of each object, or of sets of images; the table has their mean and standard
            deviation.
        steps: sampling steps; null: 100, or all of a model with fewer in discrete time.
        limit: use only this many held-out objects, the first ones, and as many of `ratios`; null: all. Few objects may
            all belong to one piece; then the row of other objects looks better than it should. For images, only the
            bound is limited.
        include_prefix: whether the given elements count in the n-grams and edit distances, as in the paper.
        ratios: another array of the .npz file, whose objects begin like training objects; they are also continued, for
            the train-to-test ratios. null: the ratios use held-out objects whose prefix occurs in the training data.
        baselines: also measure the reference rows: a Markov chain and other held-out objects; for images, real images.
        from_nothing: also draw as many melodies from nothing, and show their metre, rests, repeated bars, key and
            range.
        bound_samples: times at which the likelihood bound is estimated; 0: no bound.
        temperature: divide the logits by this.
        sampler: one of the method's samplers; null: its default.
        seed: seed of all draws.
        batch_size: objects at once; null: chosen by memory.
    """

    prefix: int | None = None
    runs: int = 3
    steps: int | None = None
    limit: int | None = None
    include_prefix: bool = True
    ratios: str | None = None
    baselines: bool = True
    from_nothing: bool = False
    bound_samples: int = 64
    temperature: float = 1.0
    sampler: str | None = None
    seed: int = 0
    batch_size: int | None = None


@dataclass
class EvaluationSettings(KindSettings, _Settings):
    """What to measure, with the settings that only some kinds of data have."""

    def __post_init__(self) -> None:
        require_fields(self)
        as_count(self.runs, "runs", 1)
        for name in ("steps", "limit", "batch_size"):
            as_count(1 if getattr(self, name) is None else getattr(self, name), name, 1)
        as_count(self.bound_samples, "bound_samples", 0)
        as_number(self.temperature, "temperature", 0)

    def known_for(self, pipeline: Pipeline) -> Self:
        """The settings with the model's default number of sampling steps, if none is set."""
        return self if self.steps is not None else replace(self, steps=pipeline.config.diffusion.usual_steps)
