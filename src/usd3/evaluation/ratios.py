"""Do continuations repeat the training data? The train-to-test ratios of the paper, with their spread over runs.

They are measured on objects that begin like training ones: a model that learnt by heart continues them like those.
"""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from usd3._internal.checks import require
from usd3.kinds.dataset import Dataset
from usd3.kinds.options import DataConfig
from usd3.metrics import distances_to_matches, matching_rows, ngram_hellinger, ngram_outliers, train_to_test_ratio
from usd3.metrics._arrays import Ints
from usd3.metrics.summary import Summary, summarise

__all__ = ["Ratios", "SharedPrefixes", "as_columns", "as_numbers", "named_objects"]

Ratios = dict[str, dict[str, Summary]]
"""By distance, as in "3g outliers", that to the truth and to the training objects, and both readings of their ratio."""

_DISTANCES = {
    f"{n}g {name}": partial(distance, n=n)
    for n in (1, 2, 3)
    for name, distance in (("Hellinger", ngram_hellinger), ("outliers", ngram_outliers))
}


@dataclass(frozen=True)
class SharedPrefixes:
    """Objects of which the first `prefix` elements also begin training objects.

    Args:
        rows: where they are among the objects they were chosen from.
        truth: the objects (N, ...), in the categories of the data.
        train: the training objects (M, L).
        matches: for each of the N, which of the M begin like it.
        prefix: elements that are the same.
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
        """The first `limit` such of the objects (N, ...); objects with padding are left out, on both sides."""
        train = dataset.decoded(dataset.train.tokens.long()).flatten(1)[_whole(len(dataset.train), dataset.train.pad)]
        matches = matching_rows(truth.flatten(1), train, prefix) if prefix and len(train) else []
        whole = _whole(len(truth), pad).tolist()
        rows = [i for i, match in enumerate(matches) if len(match) and whole[i]][:limit]
        return cls(rows, truth[rows], train, [matches[i] for i in rows], prefix)

    def __len__(self) -> int:
        return len(self.truth)

    def measured(self, generated: Tensor, include_prefix: bool = True) -> Ratios:
        """Distances and ratios of continuations (R, N, ...).

        The formula is applied to the mean distances of each run; means and standard deviations are over the runs.
        """
        shape = self.truth.shape
        fits = generated.shape[1:] == shape
        require(fits, "shape of the samples", tuple(generated.shape), f"(runs, {', '.join(map(str, shape))})")
        skip = 0 if include_prefix else self.prefix
        truth, train = self.truth.flatten(1)[:, skip:], self.train[:, skip:]
        runs, found = generated.flatten(2)[:, :, skip:], {}
        for name, distance in _DISTANCES.items():
            a = np.array([distance(run, truth).mean() for run in runs])
            b = np.array([distances_to_matches(distance, run, train, self.matches).mean() for run in runs])
            values = {"to_test": a, "to_train": b} | train_to_test_ratio(a, b)._asdict()
            with np.errstate(invalid="ignore"):  # a ratio may be infinite
                found[name] = {key: summarise(of_runs) for key, of_runs in values.items()}
        return found


def named_objects(
    name: str, data: DataConfig, dataset: Dataset, prefix: int, limit: int | None = None, option: str = "ratios"
) -> SharedPrefixes:
    """Those of the array `name` of the .npz of the data; refuses an array without any. `option` is what named it."""
    require(name != data.train_key, option, name, "another array than that of training")
    require(prefix > 0, "prefix", prefix, f"1 or more for {option} {name}")
    named = replace(data.with_test(name, option), num_classes=dataset.num_classes)
    try:
        objects = named.load().test
    except ValueError as error:  # it speaks of test
        raise ValueError(f"{option} = {name}: {error}") from None
    shared = SharedPrefixes.among(dataset.decoded(objects.tokens), objects.pad, dataset, prefix, limit)
    expected = f"an array with objects, without padding, whose first {prefix} elements also begin training objects"
    require(len(shared) > 0, option, name, expected)
    return shared


def as_columns(ratios: Ratios) -> dict[str, Summary]:
    """The printed formula, for the tables."""
    return {f"ratio_{name.lower().replace(' ', '_')}": values["literal"] for name, values in ratios.items()}


def as_numbers(ratios: Ratios, objects: int) -> dict[str, dict[str, float]]:
    """Everything, for JSON: the mean of x is called x, its standard deviation x_std."""
    return {
        name: {key: value.mean for key, value in values.items()}
        | {f"{key}_std": value.std for key, value in values.items()}
        | {"objects": objects}
        for name, values in ratios.items()
    }


def _whole(num: int, pad: Tensor | None) -> Tensor:
    """Which of the objects have no padding."""
    return torch.ones(num, dtype=torch.bool) if pad is None else ~pad.flatten(1).any(1)
