"""The values of a method for each held-out object, as the results of an evaluation keep them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from usd3.metrics._arrays import Floats, Ints

__all__ = ["PerObject"]

_ABOUT = ("nats", "elements", "group")  # what `Evaluation.per_object` has besides metrics


@dataclass(frozen=True)
class PerObject:
    """The values of a method for each object, in each of its trainings.

    Args:
        values: (T, N) for each metric, by its key.
        groups: (N,) integers, equal for objects that belong together.
        weights: (N,) for the metrics whose means weigh the objects.
    """

    values: Mapping[str, Floats]
    groups: Ints
    weights: Mapping[str, Floats] = field(default_factory=dict)

    @classmethod
    def of(cls, results: Mapping[str, Any]) -> "PerObject | None":
        """Those of one training, from the results that `usd3 evaluate` wrote; None: they have none, as older ones."""
        stored = results.get("per_object") or {}
        arrays = {key: np.array([values], dtype=np.float64) for key, values in stored.items() if key not in _ABOUT}
        weights = {}
        if "nats" in stored:
            elements = np.array(stored["elements"], dtype=np.float64)
            weights["bits_per_element"] = elements
            arrays["bits_per_element"] = np.array([stored["nats"]], dtype=np.float64) / elements / math.log(2)
        known = {key: values for key, values in arrays.items() if np.isfinite(values).all()}  # None is read as nan
        if not known:
            return None
        groups = stored.get("group", range(next(iter(known.values())).shape[1]))
        return cls(known, np.array(groups, dtype=np.int64), weights)

    def fits(self, other: "PerObject") -> bool:
        """Whether these are values of the same objects."""
        return np.array_equal(self.groups, other.groups) and all(
            np.array_equal(weight, other.weights.get(key, weight)) for key, weight in self.weights.items()
        )

    @classmethod
    def joined(cls, trainings: Sequence["PerObject | None"]) -> "PerObject | None":
        """All trainings of a method; None if one has no values, or those of other objects."""
        known = [one for one in trainings if one is not None]
        if len(known) < len(trainings) or not all(known[0].fits(other) for other in known):
            return None
        common = [key for key in known[0].values if all(key in one.values for one in known)]
        stacked = {key: np.concatenate([one.values[key] for one in known]) for key in common}
        return cls(stacked, known[0].groups, known[0].weights)
