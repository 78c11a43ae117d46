"""How often do paired intervals of equal methods miss 0? For `usd3.metrics.paired_difference` and the plain bootstrap.

    python benchmarks/false_alarms.py

Both methods have values around 0 that differ by group, by training and by object, normal and of the spreads that a row
names. An interval of 95 % should miss 0 in 5 of 100 repetitions. The groups have 1 to 11 objects, at random.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from shared import write_rows

from usd3.bench.machine import machine
from usd3.metrics import paired_difference

__all__ = ["made", "plain_interval", "share_of_misses"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
SPREADS = {  # standard deviations by group, by training and by object
    "groups": (1.0, 0.0, 0.0),
    "trainings": (0.0, 1.0, 0.0),
    "objects": (0.0, 0.0, 1.0),
    "all": (0.3, 0.03, 1.0),
}
MOST_OBJECTS = 11  # of a group


def made(rng: np.random.Generator, groups: Ints, trainings: int, spread: tuple[float, float, float]) -> Floats:
    """Values (T, N) of a method; `groups` (N,) are numbers 0, 1, ..."""
    by_group, by_training, by_object = spread
    values = rng.normal(0, by_group, groups.max() + 1)[groups] + rng.normal(0, by_training, (trainings, 1))
    return np.asarray(values + rng.normal(0, by_object, (trainings, len(groups))))


def our_interval(first: Floats, second: Floats, groups: Ints, resamples: int, seed: int) -> tuple[float, float]:
    """The interval of the package."""
    found = paired_difference(first, second, groups, resamples=resamples, seed=seed)
    return found.low, found.high


def plain_interval(first: Floats, second: Floats, groups: Ints, resamples: int, seed: int) -> tuple[float, float]:
    """The interval of a bootstrap without corrections: groups are drawn for both, trainings for each."""
    rng, num = np.random.default_rng(seed), int(groups.max()) + 1
    counts = rng.multinomial(num, np.full(num, 1 / num), resamples)
    sizes = counts @ np.bincount(groups)
    means = []
    for values in (first, second):
        sums = np.stack([np.bincount(groups, one) for one in values], 1)
        drawn = rng.multinomial(len(values), np.full(len(values), 1 / len(values)), resamples)
        means.append((counts @ sums * drawn).mean(1) / sizes)
    low, high = np.quantile(means[0] - means[1], [0.025, 0.975])
    return float(low), float(high)


def share_of_misses(
    interval: Callable[..., tuple[float, float]],
    num: int,
    trainings: int,
    spread: tuple[float, float, float],
    repetitions: int,
    resamples: int,
) -> float:
    """The share of repetitions in which the interval of two equal methods with `num` groups does not contain 0."""
    rng, misses = np.random.default_rng(0), 0
    for seed in range(repetitions):
        groups = np.repeat(np.arange(num), rng.integers(1, MOST_OBJECTS + 1, num))
        first, second = (made(rng, groups, trainings, spread) for _ in range(2))
        low, high = interval(first, second, groups, resamples, seed)
        misses += low > 0 or high < 0
    return misses / repetitions


def main() -> None:
    """Measure all rows, print them and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, nargs="+", default=[5, 10, 20, 146])
    parser.add_argument("--trainings", type=int, nargs="+", default=[1, 2, 3, 5])
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--csv", type=Path, default=Path(__file__).parent / "results" / "false_alarms.csv")
    given = parser.parse_args()
    about, rows = machine("cpu"), []
    for num in given.groups:
        for trainings in given.trainings:
            for name, spread in SPREADS.items():
                if trainings == 1 and spread[1]:
                    continue  # one training says nothing of how trainings differ
                settings = (num, trainings, spread, given.repetitions, given.resamples)
                shares = {
                    way: share_of_misses(interval, *settings)
                    for way, interval in (("ours", our_interval), ("plain", plain_interval))
                }
                row: dict[str, Any] = {"groups": num, "trainings": trainings, "chance_in": name}
                rows.append(row | shares | {"repetitions": given.repetitions, "resamples": given.resamples} | about)
                print(*row.values(), *shares.values(), sep="\t", flush=True)
                write_rows(given.csv, rows)


if __name__ == "__main__":
    main()
