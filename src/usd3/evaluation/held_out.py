"""The held-out objects that a model continues."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from usd3._internal.checks import as_count, require
from usd3.core.given import prefix_given
from usd3.evaluation.settings import EvaluationSettings
from usd3.kinds.dataset import Dataset
from usd3.kinds.rows import PIECE, Rows, in_chunks
from usd3.pipeline.pipeline import Pipeline

__all__ = ["HeldOut", "number_used", "require_same_shape"]

_MOST_ELEMENTS = 2**26  # of the objects of an evaluation
_LARGEST_N = 3  # of the n-grams: an object needs so many elements after the prefix


@dataclass(frozen=True)
class HeldOut:
    """Held-out objects, each with at least 3 elements after the prefix.

    Args:
        truth: (N, ...) the objects, in the categories of the data.
        pad: (N, ...) True where an element is padding; None: there is no padding.
        prefix: number of elements at the beginning that are given.
        skipped: number of held-out objects that are left out, as they are too short.
        groups: (N,) integers, equal for objects that belong together; None: none are known to.
    """

    truth: Tensor
    pad: Tensor | None
    prefix: int
    skipped: int
    groups: Tensor | None = None

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
        used = number_used(limit, len(test), test.shape)
        rows, skipped = _long_enough(test, prefix, used)
        expected = f"held-out objects with {_LARGEST_N} elements or more after the prefix of {prefix}"
        require(len(rows) > 0, "test", f"{len(test)} objects", expected)
        tokens, pad = test.take(rows)
        groups = None if test.groups is None else test.groups[rows]
        return cls(dataset.decoded(tokens.long()), pad, prefix, skipped, groups)

    @property
    def given(self) -> Tensor:
        """(...) True where an element is given, the same for all objects."""
        return prefix_given(self.truth[0].numel(), self.prefix).reshape(self.truth.shape[1:])


def _long_enough(test: Rows, prefix: int, most: int) -> tuple[Tensor, int]:
    """The numbers of the first `most` objects that go on long enough after the prefix, and how many do not."""
    if len(test) == 0 or test.take(torch.tensor([0]))[1] is None:
        enough = math.prod(test.shape) - prefix >= _LARGEST_N
        return (torch.arange(most), 0) if enough else (torch.arange(0), len(test))
    found, skipped = torch.empty(0, dtype=torch.int64), 0
    for part in in_chunks(len(test), max(1, PIECE // math.prod(test.shape))):
        pad = test.take(part)[1]
        is_long = (~pad.flatten(1)[:, prefix:]).sum(1) >= _LARGEST_N  # type: ignore[union-attr]
        found, skipped = torch.cat([found, part[is_long]])[:most], skipped + int((~is_long).sum())
    return found, skipped


def number_used(limit: int | None, count: int, shape: Sequence[int]) -> int:
    """How many of `count` held-out objects to use: without a limit all, but no more than memory holds easily."""
    if limit is not None:
        return min(limit, count)
    most = max(1, _MOST_ELEMENTS // math.prod(shape))
    if count > most:
        warnings.warn(
            f"of {count:,} held-out objects the first {most:,} are used (--limit says how many)", stacklevel=2
        )
    return min(most, count)


def require_same_shape(pipeline: Pipeline, dataset: Dataset) -> None:
    """Raise an error unless the objects of the data have the shape of the model's objects."""
    shape, expected = tuple(dataset.shape), tuple(pipeline.config.shape)
    require(shape == expected, "shape of the data", shape, f"{expected}")
