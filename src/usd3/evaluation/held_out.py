"""The held-out objects that a model continues."""

from dataclasses import dataclass

import torch
from torch import Tensor

from usd3._internal.checks import as_count, require
from usd3.core.given import prefix_given
from usd3.evaluation.settings import EvaluationSettings
from usd3.kinds.dataset import Dataset
from usd3.pipeline.pipeline import Pipeline

__all__ = ["HeldOut", "require_same_shape"]

_LARGEST_N = 3  # of the n-grams: an object needs so many elements after the prefix


@dataclass(frozen=True)
class HeldOut:
    """Held-out objects, each with at least 3 elements after the prefix.

    Args:
        truth: (N, ...) the objects, in the categories of the data.
        pad: (N, ...) True where an element is padding; None: there is no padding.
        prefix: number of elements at the beginning that are given.
        skipped: number of held-out objects that are left out, as they are too short.
    """

    truth: Tensor
    pad: Tensor | None
    prefix: int
    skipped: int

    @classmethod
    def of(cls, pipeline: Pipeline, dataset: Dataset, settings: EvaluationSettings) -> "HeldOut":
        """The first `settings.limit` objects for a model; the default prefix is the one of training."""
        require_same_shape(pipeline, dataset)
        prefix = pipeline.config.prefix if settings.prefix is None else settings.prefix
        return cls.after(prefix, dataset, settings.limit)

    @classmethod
    def after(cls, prefix: int, dataset: Dataset, limit: int | None = None) -> "HeldOut":
        """The first `limit` objects that go on long enough after the prefix; None: all of them."""
        test, length = dataset.test, torch.Size(dataset.shape).numel()
        as_count(prefix, "prefix", 0, max(0, length - _LARGEST_N))
        real = torch.ones(len(test), length, dtype=torch.bool) if test.pad is None else ~test.pad.flatten(1)
        rows = (real[:, prefix:].sum(1) >= _LARGEST_N).nonzero().squeeze(1)
        expected = f"held-out objects with {_LARGEST_N} elements or more after the prefix of {prefix}"
        require(len(rows) > 0, "test", f"{len(test)} objects", expected)
        skipped, rows = len(test) - len(rows), rows[:limit]
        pad = None if test.pad is None else test.pad[rows]
        return cls(dataset.decoded(test.tokens[rows].long()), pad, prefix, skipped)

    @property
    def given(self) -> Tensor:
        """(...) True where an element is given, the same for all objects."""
        return prefix_given(self.truth[0].numel(), self.prefix).reshape(self.truth.shape[1:])


def require_same_shape(pipeline: Pipeline, dataset: Dataset) -> None:
    """Raise an error unless the objects of the data have the shape of the model's objects."""
    shape, expected = tuple(dataset.shape), tuple(pipeline.config.shape)
    require(shape == expected, "shape of the data", shape, f"{expected}")
