"""The distances as torchmetrics, which collect batches, runs and processes.

A run generates one continuation of every song, so R runs give arrays (R, N, L).
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torchmetrics import Metric

from usd3._internal.checks import as_count, require
from usd3.metrics._arrays import Floats, Ints, as_array, as_pad, as_sequences
from usd3.metrics.edits import pair_edits
from usd3.metrics.ngrams import NgramCounts, count_ngrams
from usd3.metrics.summary import Summary, summarise

__all__ = ["EditDiversity", "NgramHellinger", "NgramOutliers", "continuation_distances", "evaluate_continuations"]


class _Mean(Metric):
    """Sums over songs, one for each run or pair of runs, and the number of songs."""

    full_state_update = False
    is_differentiable = False
    total: Tensor
    count: Tensor

    def __init__(self, sums: int, skip: int, **kwargs: Any):
        super().__init__(**kwargs)
        self.skip = as_count(skip, "skip", 0)
        self.add_state("total", torch.zeros(sums, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def compute(self) -> Summary:
        """Mean over songs and runs, and standard deviation of the runs' means, 0 for a single run."""
        count = int(self.count)
        require(count > 0, "count", count, "at least one song (call update first)")
        return summarise(self.total.cpu().numpy() / count)

    def _add(self, values: Floats) -> None:
        """Add the values of some songs, (sums, songs)."""
        self.total = self.total + torch.from_numpy(values.sum(1)).to(self.total.device)
        self.count = self.count + values.shape[1]


class _Ngrams(_Mean):
    """A mean of a function of n-gram counts; `skip` leading elements of each song are not counted."""

    def __init__(self, n: int, num_runs: int = 1, skip: int = 0, **kwargs: Any):
        super().__init__(sums=as_count(num_runs, "num_runs", 1), skip=skip, **kwargs)
        self.num_runs = int(num_runs)
        self.n = as_count(n, "n", 1)

    def update(self, generated: Any, truth: Any, pad: Any = None) -> None:
        """Add N songs.

        Args:
            generated: Integers (R, N, L), or (N, L) for one run.
            truth: Integers (N, L).
            pad: Booleans (N, L), True = padding.
        """
        runs = _as_runs(generated)
        require(len(runs) == self.num_runs, "generated.shape", runs.shape, f"{self.num_runs} runs: (R, N, L)")
        counts = _count_runs(runs, truth, self.n, self.skip, pad)
        self._add(self._values(counts).reshape(self.num_runs, -1))

    def _values(self, counts: NgramCounts) -> Floats:
        raise NotImplementedError


class NgramHellinger(_Ngrams):
    """Hellinger distance of n-gram frequencies, see `ngram_hellinger`; `compute()` returns a `Summary`.

    The mean is over songs and runs; the std is the sample standard deviation of the runs' means (0.0 for one run).
    The first `skip` elements of each song are not counted.
    """

    higher_is_better = False

    def _values(self, counts: NgramCounts) -> Floats:
        return counts.hellinger()


class NgramOutliers(_Ngrams):
    """Proportion of n-grams that the true song does not have, see `ngram_outliers`; `compute()` as `NgramHellinger`."""

    higher_is_better = False

    def _values(self, counts: NgramCounts) -> Floats:
        return counts.outliers()


class EditDiversity(_Mean):
    """Edit distance between runs, see `edit_diversity`; `compute()` returns a `Summary`.

    The mean is over songs and pairs of runs; the std is the sample standard deviation of the R (R - 1) / 2 pairs' means
    (0.0 for one pair). The first update sets R. Pass `num_runs` if a process may see no song at all: the sums of all
    processes must have the same shape.
    """

    higher_is_better = True

    def __init__(self, skip: int = 0, num_runs: int | None = None, **kwargs: Any):
        runs = 2 if num_runs is None else as_count(num_runs, "num_runs", 2)
        super().__init__(sums=runs * (runs - 1) // 2, skip=skip, **kwargs)
        self.num_runs = num_runs

    def update(self, samples: Any, pad: Any = None) -> None:
        """Add N songs: samples (R, N, L) and padding (N, L)."""
        x = as_sequences(samples, "samples", "(R, N, L)")
        padding = as_pad(pad, x.shape[1:])
        values = pair_edits(_after(x, self.skip, 1), _after(padding, self.skip, 1))
        runs_are_fixed = self.num_runs is not None or int(self.count) > 0
        same = len(values) == len(self.total)
        require(same or not runs_are_fixed, "samples.shape", x.shape, f"{len(self.total)} pairs of runs, as before")
        self._add(values)


def evaluate_continuations(generated: Any, truth: Any, skip: int = 0, pad: Any = None) -> dict[str, Summary]:
    """All distances of R continuations of N songs.

    Args:
        generated: Integers (R, N, L), or (N, L) for one run.
        truth: Integers (N, L).
        skip: Leading elements that are not counted: 0, or the length of a prefix to measure only what follows it.
        pad: Booleans (N, L), True = padding.

    Returns:
        "1g_hellinger", "2g_hellinger", "3g_hellinger", "1g_outliers", "2g_outliers", "3g_outliers", and with R >= 2
        "edit_diversity".
    """
    distances = continuation_distances(generated, truth, skip, pad)
    return {key: summarise(values.mean(1)) for key, values in distances.items()}


def continuation_distances(generated: Any, truth: Any, skip: int = 0, pad: Any = None) -> dict[str, Floats]:
    """The same distances of each song: (R, N) of each run; "edit_diversity" (R (R - 1) / 2, N) of each pair of runs.

    Arguments as in `evaluate_continuations`.
    """
    runs = _as_runs(generated)
    counts = [_count_runs(runs, truth, n, as_count(skip, "skip", 0), pad) for n in (1, 2, 3)]
    result = {f"{n}g_hellinger": c.hellinger() for n, c in enumerate(counts, 1)}
    result |= {f"{n}g_outliers": c.outliers() for n, c in enumerate(counts, 1)}
    result = {key: values.reshape(len(runs), -1) for key, values in result.items()}
    if len(runs) >= 2:
        result["edit_diversity"] = pair_edits(_after(runs, skip, 1), _after(as_array(pad), skip, 1))
    return result


def _as_runs(generated: Any) -> Ints:
    """`generated` as an array (R, N, L); (N, L) is one run."""
    if getattr(generated, "ndim", 3) == 2:
        return as_sequences(generated, "generated", "(N, L)")[None]
    return as_sequences(generated, "generated", "(R, N, L)")


def _count_runs(generated: Ints, truth: Any, n: int, skip: int, pad: Any) -> NgramCounts:
    """N-gram counts of all R N rows, run by run."""
    true = as_sequences(truth, "truth", "(N, L)")
    require(generated.shape[1] == len(true), "truth.shape", true.shape, f"{generated.shape[1]} songs, as in generated")
    runs = len(generated)
    padding = as_pad(pad, generated.shape[1:])
    rows = _after(generated, skip, n).reshape(runs * len(true), -1)
    true = np.tile(_after(true, skip, n), (runs, 1))
    return count_ngrams(rows, true, n, None if padding is None else np.tile(_after(padding, skip, n), (runs, 1)))


def _after(x: Any, skip: int, n: int) -> Any:
    """`x` without its first `skip` elements; at least n must remain. None stays None."""
    if x is None:
        return None
    length = x.shape[-1]
    require(skip <= length - n, "skip", skip, f"at most {length - n}, {n} less than the length {length}")
    return x[..., skip:]
