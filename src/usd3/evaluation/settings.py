"""What an evaluation measures, as its options say it."""

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
        prefix: elements of each held-out object that are given; null: as in training. Images are drawn from nothing.
        runs: continuations of each object, or sets of images; the table shows their mean and standard deviation.
        steps: sampling steps; null: 100, or all of a model with fewer in discrete time.
        limit: use only the first so many held-out objects, of `ratios` likewise; null: all. Few of them may all be of
            one piece, and then other objects are closer than they usually are. Of images, for the bound alone.
        include_prefix: whether the given elements count in the n-grams and edit distances, as in the paper.
        ratios: another array of the .npz, whose objects begin like training ones: these are continued too, for the
            train-to-test ratios; null: where held-out prefixes occur in the training data, those.
        baselines: compare with a Markov chain and with other held-out objects; images with real ones.
        from_nothing: of melodies, draw as many more from nothing, and show their metre, rests and repeated bars too.
        bound_samples: times at which the likelihood bound is estimated; 0: no bound.
        temperature: divide the logits by this.
        sampler: one of the method's; null: its own.
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
        """With the sampling steps that this model usually has, where none are set."""
        return self if self.steps is not None else replace(self, steps=pipeline.config.diffusion.usual_steps)
