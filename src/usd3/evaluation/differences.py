"""Which differences between methods are more than chance? Paired intervals of all pairs, metric by metric."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from usd3._internal.tables import BOLD, Table, exact
from usd3.evaluation.comparison import Row, metrics_of
from usd3.metrics.paired import Difference, paired_differences

__all__ = ["Intervals", "Pairs", "differences_csv", "paired"]

Pairs = dict[str, dict[tuple[str, str], Difference]]
"""The differences of pairs of methods, by the key of the metric and the labels of both: first minus second."""

_HEAD = (
    *("metric", "first", "second", "first_mean", "second_mean", "difference", "low", "high", "other_side"),
    *("first_trainings", "second_trainings", "over_trainings", "objects", "groups"),
)


def paired(rows: Sequence[Row]) -> Pairs:
    """The differences of all pairs of methods that have values of the same objects."""
    known = [(row.label, row.per_object) for row in rows if row.per_object is not None]
    if not known:
        return {}
    first = known[0][1]
    comparable = {label: values for label, values in known if first.fits(values)}
    pairs = {}
    for key in metrics_of(rows):
        methods = {label: one for label, one in comparable.items() if key in one.values}
        if len(methods) > 1:
            labels, known_values = list(methods), [one.values[key] for one in methods.values()]
            found = paired_differences(known_values, first.groups, methods[labels[0]].weights.get(key))
            pairs[key] = {(labels[i], labels[j]): difference for (i, j), difference in found.items()}
    return pairs


def differences_csv(pairs: Pairs, rows: Sequence[Row]) -> str:
    """A line for each metric and pair of methods: the difference and its interval, with all digits."""
    means = {row.label: row for row in rows}
    lines = []
    for key, found in pairs.items():
        for (first, second), difference in found.items():
            numbers = [means[first].mean(key), means[second].mean(key), *difference[:4]]
            counts = [*difference.trainings, int(difference.over_trainings), difference.objects, difference.groups]
            lines.append([key, first, second, *map(exact, numbers), *map(str, counts)])
    return Table(_HEAD, [lines]).csv()


@dataclass(frozen=True)
class Intervals:
    """What the intervals of a comparison show, for the marks of its tables. It is stored as plain data.

    Args:
        worse: for each metric and each method, by its label, the methods that it is shown to be worse than. It has the
            metrics with a better direction for which each method of the table has values of each object.
        objects: number of objects.
        groups: number of groups of objects.
        over_trainings: of how many pairs the interval is over trainings too: "all", "some" or "none".
    """

    worse: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    objects: int = 0
    groups: int = 0
    over_trainings: str = "none"

    @classmethod
    def of(cls, rows: Sequence[Row], pairs: Pairs) -> "Intervals":
        """What the pairs of these methods show."""
        worse, metrics = {}, metrics_of(rows)
        for key, found in pairs.items():
            measured = {row.label for row in rows if math.isfinite(row.mean(key))}
            whole = measured == {label for pair in found for label in pair}
            if whole and metrics[key].better and all(math.isfinite(difference.low) for difference in found.values()):
                worse[key] = _worse(found, metrics[key].better == "higher")
        differences = [difference for key in worse for difference in pairs[key].values()]
        if not differences:
            return cls()
        with_trainings = [difference.over_trainings for difference in differences]
        over = "all" if all(with_trainings) else "some" if any(with_trainings) else "none"
        return cls(worse, differences[0].objects, differences[0].groups, over)

    def note(self) -> str:
        """What a mark means, in one sentence without its full stop."""
        objects = f"the {self.objects} objects"
        drawn = objects if self.groups == self.objects else f"{self.groups} groups of {objects}"
        trainings = {
            "all": ", and trainings",
            "some": ", and trainings where both methods have several",
            "none": ", not trainings, though another may differ by more",
        }[self.over_trainings]
        shown = "the 95 % interval of the paired difference contains 0"
        return f"{BOLD}: not shown to be worse than the best ({shown}; resampled are {drawn}{trainings})"


def _worse(found: Mapping[tuple[str, str], Difference], higher: bool) -> dict[str, list[str]]:
    """For each method those that it is shown to be worse than."""
    worse: dict[str, list[str]] = {label: [] for pair in found for label in pair}
    for (first, second), difference in found.items():
        if difference.is_clear:
            first_is_better = (difference.low > 0) == higher
            better, other = (first, second) if first_is_better else (second, first)
            worse[other].append(better)
    return worse
