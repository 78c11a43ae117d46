"""The distances as torchmetrics, over batches, runs and processes.

A run is one generated continuation of every song; R runs make arrays (R, N, L).
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

__all__ = ["EditDiversity", "NgramHellinger", "NgramOutliers", "evaluate_continuations"]


class _Mean(Metric):
    """Sums over songs, one for each run (or pair of runs), and the number of songs."""

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
        """Mean over songs and runs; standard deviation of the runs' means, 0 for a single one."""
        count = int(self.count)
        require(count > 0, "count", count, "at least one song (call update first)")
        return summarise(self.total.cpu().numpy() / count)

    def _add(self, values: Floats) -> None:
        """Add values (sums, songs)."""
        self.total = self.total + torch.from_numpy(values.sum(1)).to(self.total.device)
        self.count = self.count + values.shape[1]


class _Ngrams(_Mean):
    def __init__(self, n: int, num_runs: int = 1, skip: int = 0, **kwargs: Any):
        super().__init__(sums=as_count(num_runs, "num_runs", 1), skip=skip, **kwargs)
        self.num_runs = int(num_runs)
        self.n = as_count(n, "n", 1)

    def update(self, generated: Any, truth: Any, pad: Any = None) -> None:
        """Add songs: generated (R, N, L), or (N, L) with one run, true ones (N, L), padding (N, L)."""
        made = _as_runs(generated)
        require(len(made) == self.num_runs, "generated.shape", made.shape, f"{self.num_runs} runs: (R, N, L)")
        counts = _count_runs(made, truth, self.n, self.skip, pad)
        self._add(self._values(counts).reshape(self.num_runs, -1))

    def _values(self, counts: NgramCounts) -> Floats:
        raise NotImplementedError


class NgramHellinger(_Ngrams):
    """Hellinger distance of n-gram frequencies, see `ngram_hellinger`; `compute()` gives a `Summary`.

    Its mean is over songs and runs; its std is the sample standard deviation of the runs' means (0.0 for one run).
    Only n-grams inside the elements after the first `skip` are counted.
    """

    higher_is_better = False

    def _values(self, counts: NgramCounts) -> Floats:
        return counts.hellinger()


class NgramOutliers(_Ngrams):
    """Proportion of new n-grams, see `ngram_outliers`; otherwise as `NgramHellinger`."""

    higher_is_better = False

    def _values(self, counts: NgramCounts) -> Floats:
        return counts.outliers()


class EditDiversity(_Mean):
    """Edit distance between runs, see `edit_diversity`; `compute()` gives a `Summary`.

    Its mean is over songs and pairs of runs; its std is the sample standard deviation of the R (R - 1) / 2 pairs' means
    (0.0 for one pair). R is that of the first update. Name `num_runs` where a process may see no song at all: the sums
    of all processes must have the same shape.
    """

    higher_is_better = True

    def __init__(self, skip: int = 0, num_runs: int | None = None, **kwargs: Any):
        runs = 2 if num_runs is None else as_count(num_runs, "num_runs", 2)
        super().__init__(sums=runs * (runs - 1) // 2, skip=skip, **kwargs)
        self.num_runs = num_runs

    def update(self, samples: Any, pad: Any = None) -> None:
        """Add songs: samples (R, N, L), padding (N, L)."""
        x = as_sequences(samples, "samples", "(R, N, L)")
        hidden = as_pad(pad, x.shape[1:])
        values = pair_edits(_after(x, self.skip, 1), _after(hidden, self.skip, 1))
        fixed = self.num_runs is not None or int(self.count) > 0
        same = len(values) == len(self.total)
        require(same or not fixed, "samples.shape", x.shape, f"{len(self.total)} pairs of runs, as before")
        self._add(values)


def evaluate_continuations(generated: Any, truth: Any, skip: int = 0, pad: Any = None) -> dict[str, Summary]:
    """All distances of R continuations of N songs.

    Args:
        generated: Integers (R, N, L), or (N, L) for one run.
        truth: Integers (N, L).
        skip: Leading elements that are not counted: 0 = the whole sequence, the prefix's length = only what follows it.
        pad: Booleans (N, L), True = padding.

    Returns:
        "1g_hellinger", "2g_hellinger", "3g_hellinger", "1g_outliers", "2g_outliers", "3g_outliers", and with R >= 2
        "edit_diversity".
    """
    made = _as_runs(generated)
    counts = [_count_runs(made, truth, n, as_count(skip, "skip", 0), pad) for n in (1, 2, 3)]
    per_run = {f"{n}g_hellinger": c.hellinger() for n, c in enumerate(counts, 1)}
    per_run |= {f"{n}g_outliers": c.outliers() for n, c in enumerate(counts, 1)}
    result = {key: summarise(values.reshape(len(made), -1).mean(1)) for key, values in per_run.items()}
    if len(made) >= 2:
        edits = pair_edits(_after(made, skip, 1), _after(as_array(pad), skip, 1))
        result["edit_diversity"] = summarise(edits.mean(1))
    return result


def _as_runs(generated: Any) -> Ints:
    """(R, N, L); an array (N, L) is one run."""
    if getattr(generated, "ndim", 3) == 2:
        return as_sequences(generated, "generated", "(N, L)")[None]
    return as_sequences(generated, "generated", "(R, N, L)")


def _count_runs(generated: Ints, truth: Any, n: int, skip: int, pad: Any) -> NgramCounts:
    """Counts for the rows of all runs, (R N,), run by run."""
    true = as_sequences(truth, "truth", "(N, L)")
    require(generated.shape[1] == len(true), "truth.shape", true.shape, f"{generated.shape[1]} songs, as in generated")
    runs = len(generated)
    hidden = as_pad(pad, generated.shape[1:])
    made = _after(generated, skip, n).reshape(runs * len(true), -1)
    true = np.tile(_after(true, skip, n), (runs, 1))
    return count_ngrams(made, true, n, None if hidden is None else np.tile(_after(hidden, skip, n), (runs, 1)))


def _after(x: Any, skip: int, n: int) -> Any:
    """Without the first `skip` elements; n must be left."""
    if x is None:
        return None
    length = x.shape[-1]
    require(skip <= length - n, "skip", skip, f"at most {length - n}, {n} less than the length {length}")
    return x[..., skip:]
