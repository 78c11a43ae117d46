"""Do continuations repeat the training data? The train-to-test ratios of the paper, with their spread over runs.

They are measured on objects that begin like training objects. A model that memorised the training data continues them
as the training objects continue.
"""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from usd3._internal.checks import require
from usd3.evaluation.settings import EvaluationSettings
from usd3.kinds.dataset import Dataset
from usd3.kinds.options import DataConfig
from usd3.metrics import distances_to_matches, matching_rows, ngram_hellinger, ngram_outliers, train_to_test_ratio
from usd3.metrics._arrays import Ints
from usd3.metrics.summary import Summary, summarise

__all__ = ["Ratios", "SharedPrefixes", "as_columns", "as_numbers", "named_objects", "shared_prefixes"]

Ratios = dict[str, dict[str, Summary]]
"""For each distance, such as "3g outliers": `to_test`, the distance to the truth; `to_train`, the distance to the
training objects; and their ratio, as it is printed in the paper (`literal`) and with both swapped (`swapped`)."""

_MOST_MATCHES = 1000  # training objects that one object is compared with
_MOST_ELEMENTS = 2**24  # of the training objects that are searched, evenly spread where there are more
_DISTANCES = {
    f"{n}g {name}": partial(distance, n=n)
    for n in (1, 2, 3)
    for name, distance in (("Hellinger", ngram_hellinger), ("outliers", ngram_outliers))
}


@dataclass(frozen=True)
class SharedPrefixes:
    """Objects whose first `prefix` elements are also the first elements of training objects.

    Args:
        rows: the indices of these objects among the objects that they were chosen from.
        truth: (N, ...) the objects, in the categories of the data.
        train: (M, L) the training objects, flat.
        matches: for each of the N objects, the indices of the training objects that begin like it, at most 1,000.
        prefix: number of elements that are the same.
    """

    rows: list[int]
    truth: Tensor
    train: Tensor
    matches: list[Ints]
    prefix: int

    @classmethod
    def among(
        cls, truth: Tensor, pad: Tensor | None, dataset: Dataset, prefix: int, limit: int | None = None
    ) -> "SharedPrefixes":
        """Those of the objects `truth` (N, ...) that begin like training objects.

        Args:
            truth: the objects, in the categories of the data.
            pad: (N, ...) True where an element is padding. Objects with padding are left out, here and in training.
            dataset: the training data.
            prefix: number of elements that must be the same.
            limit: take the first so many; None: all.
        """
        rows = dataset.train.spread(_MOST_ELEMENTS)
        train = dataset.decoded(rows.tokens.long()).flatten(1)[_is_unpadded(len(rows), rows.pad)]
        matches = matching_rows(truth.flatten(1), train, prefix) if prefix and len(train) else []
        usable = _is_unpadded(len(truth), pad).tolist()
        shared = [i for i, match in enumerate(matches) if len(match) and usable[i]][:limit]
        return cls(shared, truth[shared], train, [_at_most(matches[i]) for i in shared], prefix)

    def __len__(self) -> int:
        return len(self.truth)

    def measured(self, generated: Tensor, include_prefix: bool = True) -> Ratios:
        """Distances and ratios of continuations (R, N, ...) of the objects.

        Each run has one ratio, of its mean distances. Means and standard deviations are over the runs.

        Args:
            generated: the continuations.
            include_prefix: whether the given elements count.
        """
        shape = self.truth.shape
        fits = generated.shape[1:] == shape
        require(fits, "shape of the samples", tuple(generated.shape), f"(runs, {', '.join(map(str, shape))})")
        skip = 0 if include_prefix else self.prefix
        truth, train = self.truth.flatten(1)[:, skip:], self.train[:, skip:]
        runs, ratios = generated.flatten(2)[:, :, skip:], {}
        for name, distance in _DISTANCES.items():
            a = np.array([distance(run, truth).mean() for run in runs])
            b = np.array([distances_to_matches(distance, run, train, self.matches).mean() for run in runs])
            values = {"to_test": a, "to_train": b} | train_to_test_ratio(a, b)._asdict()
            with np.errstate(invalid="ignore"):  # a ratio may be infinite
                ratios[name] = {key: summarise(per_run) for key, per_run in values.items()}
        return ratios


def shared_prefixes(
    data: DataConfig, dataset: Dataset, settings: EvaluationSettings, prefix: int, option: str = "ratios"
) -> SharedPrefixes | None:
    """The objects of the array that `settings.ratios` names; None if it names none.

    Args:
        data: the options that `dataset` was read with.
        dataset: the training data.
        settings: the settings of the evaluation.
        prefix: number of elements that must be the same.
        option: the name of the option, for error messages.
    """
    if settings.ratios is None:
        return None
    return named_objects(settings.ratios, data, dataset, prefix, settings.limit, option)


def named_objects(
    name: str, data: DataConfig, dataset: Dataset, prefix: int, limit: int | None = None, option: str = "ratios"
) -> SharedPrefixes:
    """The objects in the array `name` of the data's .npz file that begin like training objects.

    Raises an error if there are none. The other arguments are those of `shared_prefixes`.
    """
    require(name != data.train_key, option, name, "another array than that of training")
    require(prefix > 0, "prefix", prefix, f"1 or more for {option} {name}")
    named = replace(data.with_test(name, option), num_classes=dataset.num_classes)
    try:
        objects = named.load().test
    except ValueError as error:  # its message is about the test split
        raise ValueError(f"{option} = {name}: {error}") from None
    shared = SharedPrefixes.among(dataset.decoded(objects.tokens), objects.pad, dataset, prefix, limit)
    expected = f"an array with objects, without padding, whose first {prefix} elements also begin training objects"
    require(len(shared) > 0, option, name, expected)
    return shared


def as_columns(ratios: Ratios) -> dict[str, Summary]:
    """The ratios as printed in the paper, for the tables: by the keys of `usd3.metrics.summary.RATIOS`."""
    return {f"ratio_{name.lower().replace(' ', '_')}": values["literal"] for name, values in ratios.items()}


def as_numbers(ratios: Ratios, objects: int) -> dict[str, dict[str, float]]:
    """All numbers, for JSON: the mean of x has the key x, its standard deviation the key x_std."""
    return {
        name: {key: value.mean for key, value in values.items()}
        | {f"{key}_std": value.std for key, value in values.items()}
        | {"objects": objects}
        for name, values in ratios.items()
    }


def _at_most(match: Ints) -> Ints:
    """At most 1,000 of the indices, evenly spread."""
    count = min(_MOST_MATCHES, len(match))
    return match[np.arange(count) * len(match) // count]


def _is_unpadded(num: int, pad: Tensor | None) -> Tensor:
    """(num,) True for objects without padding."""
    return torch.ones(num, dtype=torch.bool) if pad is None else ~pad.flatten(1).any(1)
