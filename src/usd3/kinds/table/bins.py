"""Numbers in bins, and how they lie within a bin: the inverse of a piecewise linear distribution function."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Interval", "Pieces", "number_of_bins", "quantile_bins", "single_values"]

Interval = tuple[float, float]
"""The numbers from one to another, both included; the ends may be infinite."""
Numbers = NDArray[Any]  # int64 or float64

_FEWEST_BINS, _MOST_BINS = 8, 200
_PIECES = 512  # of equal mass in a column; gaps may cut them into at most twice as many
_ROWS_OF_PIECE = 8
_BELOW_2_63 = np.nextafter(2.0**63, 0)  # the largest float64 that int64 can hold
_WIDE_GAP = 0.25  # of the width of a piece: such a gap stays empty


def number_of_bins(rows: int) -> int:
    """Bins for numbers of so many rows: the square root, between 8 and 200."""
    return int(min(_MOST_BINS, max(_FEWEST_BINS, round(rows**0.5))))


@dataclass(frozen=True, eq=False)
class Pieces:
    """A distribution of numbers: a sum of uniform distributions, the pieces, in the order of their bins.

    Args:
        low: (S,) the smallest number of each piece, int64 or float64.
        high: (S,) the largest. A piece of integers has high - low + 1 numbers; a piece with high = low is one number.
        weight: (S,) the mass of each piece.
        bin: (S,) the bin of each piece, 0..num_bins-1, not decreasing.
        num_bins: number of bins.
    """

    low: Numbers
    high: Numbers
    weight: NDArray[np.float64]
    bin: NDArray[np.int64]
    num_bins: int

    @property
    def whole(self) -> bool:
        """Whether the numbers are integers."""
        return self.low.dtype.kind == "i"

    @cached_property
    def mass(self) -> NDArray[np.float64]:
        """(num_bins,) the mass of each bin."""
        return np.bincount(self.bin, self.weight, self.num_bins).astype(np.float64)

    @cached_property
    def ends(self) -> tuple[Numbers, Numbers]:
        """(num_bins,) the smallest and the largest number of each bin. Every bin must have a piece."""
        first = np.searchsorted(self.bin, np.arange(self.num_bins))
        last = np.searchsorted(self.bin, np.arange(self.num_bins), side="right") - 1
        return self.low[first], self.high[last]

    @cached_property
    def uppers(self) -> Numbers:
        """(num_bins - 1,) the largest number that belongs to each bin but the last.

        A bin of one number has no other number unless there is none between it and the next such bin.
        """
        low, high = self.ends
        single = low == high
        below = low[1:] - 1 if self.whole else np.nextafter(low[1:], -np.inf)
        between = high[:-1] + (low[1:] - high[:-1]) // 2 if self.whole else high[:-1] / 2 + low[1:] / 2
        alone = np.where(single[:-1], high[:-1], below)
        uppers: Numbers = np.where(single[:-1] ^ single[1:], alone, between)
        return uppers

    def bins(self, numbers: Numbers) -> NDArray[np.int64]:
        """The bin of each number; one outside of all bins belongs to the nearest."""
        return np.searchsorted(self.uppers, numbers, side="left").astype(np.int64)

    def within(self, intervals: Sequence[Interval]) -> "Pieces":
        """The part of the distribution inside intervals that do not overlap. Bins without any mass have no piece."""
        parts = [self._within(interval) for interval in intervals]
        low, high, weight, bin = (np.concatenate(columns) for columns in zip(*parts)) if parts else self._empty
        order = np.argsort(bin, kind="stable")
        return Pieces(low[order], high[order], weight[order], bin[order], self.num_bins)

    def _within(self, interval: Interval) -> tuple[Numbers, Numbers, NDArray[np.float64], NDArray[np.int64]]:
        bounds = [self._bound(end) for end in interval]
        low, high = np.maximum(self.low, bounds[0]), np.minimum(self.high, bounds[1])
        size, left = _size(self.low, self.high), _size(low, high)
        single = size == 0
        share = np.where(single, left >= 0, np.maximum(left, 0) / np.where(single, 1, size))
        some = share > 0
        return low[some], high[some], (self.weight * share)[some], self.bin[some]

    def _bound(self, end: float) -> float:
        """An end of an interval; where the numbers are integers, one that int64 can hold, not far outside of them."""
        if not self.whole:
            return end
        return int(min(max(end, int(self.low.min()) - 1), int(self.high.max()) + 1, 2**63 - 1))

    @property
    def _empty(self) -> tuple[Numbers, Numbers, NDArray[np.float64], NDArray[np.int64]]:
        return self.low[:0], self.high[:0], self.weight[:0], self.bin[:0]

    def at(self, bins: NDArray[np.int64], u: NDArray[np.float64]) -> Numbers:
        """The number at the quantile u (n,) in [0, 1) of each of the bins (n,), which must have mass."""
        cdf = np.concatenate([[0.0], np.cumsum(self.weight)])
        first = np.searchsorted(self.bin, bins)
        last = np.searchsorted(self.bin, bins, side="right")
        aim = cdf[first] + u * (cdf[last] - cdf[first])
        piece = np.clip(np.searchsorted(cdf, aim, side="right") - 1, first, last - 1)
        low, high = self.low[piece], self.high[piece]
        within = np.clip((aim - cdf[piece]) / self.weight[piece], 0.0, 1.0)
        size = _size(low, high)
        if self.whole:
            further = np.minimum(within * size, _BELOW_2_63).astype(np.int64)
            return np.asarray(low + np.minimum(further, high - low))
        return np.asarray(np.clip(2 * (low / 2 + within * size), low, high))


def _size(low: Numbers, high: Numbers) -> NDArray[np.float64]:
    """How many integers an interval has; of real numbers half of its width, as the width may be infinite."""
    size: NDArray[np.float64] = high - low + 1.0 if low.dtype.kind == "i" else high / 2 - low / 2
    return size


def single_values(values: Numbers, counts: NDArray[Any]) -> Pieces:
    """A bin for each of the sorted values."""
    return Pieces(values, values, counts.astype(float), np.arange(len(values)), len(values))


def quantile_bins(values: Numbers, counts: NDArray[Any], most: int) -> Pieces:
    """At most `most` bins of about the same mass; a frequent value has a bin of its own.

    Args:
        values: the different values, sorted, int64 or float64.
        counts: how often each occurs.
        most: most bins.
    """
    bins = _bin_of_values(counts, most)
    cut = _cuts(values if values.dtype.kind == "i" else values / 2, counts, bins)  # no width is infinite
    first = np.flatnonzero(cut)
    last = np.append(first[1:], len(values)) - 1
    low, high = values[first].copy(), values[last].copy()
    _close_gaps(low, high)
    weight = np.add.reduceat(counts.astype(float), first)
    return Pieces(low, high, weight, bins[first], int(bins[-1]) + 1)


def _bin_of_values(counts: NDArray[Any], most: int) -> NDArray[np.int64]:
    """The bin of each value, in order."""
    frequent = np.flatnonzero(counts >= counts.sum() / most)
    frequent = frequent[np.argsort(-counts[frequent], kind="stable")]
    for number in range(len(frequent), -1, -1):  # fewer of them where the bins do not suffice
        alone = np.zeros(len(counts), dtype=bool)
        alone[frequent[:number]] = True
        runs = np.where(alone, -1, np.cumsum(alone))  # values between two frequent ones
        run_ids = np.unique(runs[~alone])
        if number + len(run_ids) <= most:
            break
    label = np.zeros(len(counts), dtype=np.int64)
    shares = _bins_of_runs([int(counts[runs == run].sum()) for run in run_ids], most - number)
    for run, share in zip(run_ids, shares):
        inside = runs == run
        label[inside] = _equal_mass(counts[inside], share)
    change = np.ones(len(counts), dtype=bool)
    change[1:] = (label[1:] != label[:-1]) | (runs[1:] != runs[:-1]) | alone[1:] | alone[:-1]
    return np.cumsum(change) - 1


def _bins_of_runs(masses: Sequence[int], bins: int) -> list[int]:
    """How many bins each run gets, at least one: the next bin goes to the run with the most mass per bin."""
    shares = [1] * len(masses)
    for _ in range(bins - len(masses) if masses else 0):
        fullest = max(range(len(masses)), key=lambda run: masses[run] / shares[run])
        shares[fullest] += 1
    return shares


def _equal_mass(counts: NDArray[Any], parts: int) -> NDArray[np.int64]:
    """The part of each value, 0..parts-1, so that the parts have about the same mass."""
    middle = np.cumsum(counts) - counts / 2
    return np.asarray(np.minimum((middle / counts.sum() * parts).astype(np.int64), parts - 1))


def _cuts(values: Numbers, counts: NDArray[Any], bins: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(n,) True where a piece begins: parts of a bin of equal mass, frequent values, and wide gaps."""
    mass = np.bincount(bins, counts)[bins]
    parts = np.clip(mass // _ROWS_OF_PIECE, 1, max(1, _PIECES // (int(bins[-1]) + 1)))
    start = np.concatenate([[0.0], np.cumsum(counts)])[np.searchsorted(bins, bins)]
    part = ((np.cumsum(counts) - counts / 2 - start) / mass * parts).astype(np.int64)
    alone = (counts >= mass / parts) & (counts >= _ROWS_OF_PIECE)
    cut = np.ones(len(values), dtype=bool)
    cut[1:] = (bins[1:] != bins[:-1]) | (part[1:] != part[:-1]) | alone[1:] | alone[:-1]
    while cut.sum() < 2 * _PIECES:
        further = _widest_gaps(values, counts, cut)
        if not len(further):
            break
        cut[further[: 2 * _PIECES - int(cut.sum())]] = True
    return cut


def _widest_gaps(values: Numbers, counts: NDArray[Any], cut: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The index after the widest gap of each piece where it is wide and has two rows or more on each side."""
    first = np.flatnonzero(cut)
    piece, last = np.cumsum(cut) - 1, np.append(first[1:], len(values)) - 1
    rows = np.concatenate([[0], np.cumsum(counts)])
    before = rows[:-1] - rows[first][piece]
    after = rows[last + 1][piece] - rows[:-1]
    gap = np.where(cut | (before < 2) | (after < 2), 0, np.diff(values, prepend=values[:1]))
    width = (values[last] - values[first])[piece]
    least = 1 if values.dtype.kind == "i" else 0
    gap = np.where((gap > _WIDE_GAP * width) & (gap > least), gap, 0)
    widest = np.maximum.reduceat(gap, first)[piece]
    found = np.flatnonzero((gap > 0) & (gap == widest))
    return found[np.unique(piece[found], return_index=True)[1]]


def _close_gaps(low: Numbers, high: Numbers) -> None:
    """Let neighbouring pieces meet in the middle of the gap between them, in place, unless it is wide."""
    is_whole = low.dtype.kind == "i"
    width, gap = (high - low, low[1:] - high[:-1]) if is_whole else (high / 2 - low / 2, low[1:] / 2 - high[:-1] / 2)
    narrow = (gap <= _WIDE_GAP * np.maximum(width[1:], width[:-1])) & (width[1:] > 0) & (width[:-1] > 0)
    if is_whole:
        middle = high[:-1] + gap // 2
        low[1:], high[:-1] = np.where(narrow, middle + 1, low[1:]), np.where(narrow, middle, high[:-1])
        return
    middle = high[:-1] + gap
    low[1:], high[:-1] = np.where(narrow, middle, low[1:]), np.where(narrow, middle, high[:-1])
