"""Sets of letter sequences compared: k-mers, composition at each position, shares of letters, lengths.

A set is an integer array (N, L) of categories. `pad` (N, L) is True where an element is no letter, or none that is
known, such as what follows the end of a sequence: a k-mer that contains it is not counted.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from usd3._internal.checks import as_count, require
from usd3.metrics._arrays import Bools, Floats, Ints, as_pad, as_sequences, require_categories

__all__ = [
    "Spectrum",
    "composition_distance",
    "kmer_counts",
    "kmer_spectrum",
    "letter_share",
    "position_composition",
    "wasserstein",
]

_MOST_CODES = 2**62
_MOST_FEATURES = 2**16


class Spectrum(NamedTuple):
    """The frequencies of k-mers in a set: only those that occur.

    A k-mer is the number with its letters as digits to the base K, the number of letters.
    """

    codes: Ints
    """(C,) the k-mers that occur, sorted."""
    frequencies: Floats
    """(C,) their frequencies, which sum to 1."""
    size: int
    """Number of all possible k-mers, K^k."""

    def distance(self, other: "Spectrum") -> float:
        """Jensen-Shannon distance to another spectrum, in [0, 1]: the root of the divergence in bits.

        nan if a spectrum is empty.
        """
        p, q = self._aligned(other)
        m = 0.5 * (p + q)
        divergence = max(0.0, 0.5 * _divergence(p, m) + 0.5 * _divergence(q, m))
        return math.sqrt(divergence) if self.codes.size and other.codes.size else math.nan

    def correlation(self, other: "Spectrum") -> float:
        """Pearson correlation of the frequencies of all possible k-mers; nan if one of the spectra is constant."""
        p, q = self._aligned(other)
        mean = 1 / self.size
        covariance, first, second = (float(a @ b) / self.size - mean**2 for a, b in ((p, q), (p, p), (q, q)))
        varies = min(first, second) > 1e-12 * mean**2
        return covariance / math.sqrt(first * second) if varies else math.nan

    def _aligned(self, other: "Spectrum") -> tuple[Floats, Floats]:
        """The frequencies of both spectra for all k-mers that occur in one of them."""
        require(self.size == other.size, "other.size", other.size, f"{self.size}, spectra of the same k and alphabet")
        both = np.union1d(self.codes, other.codes)
        p, q = np.zeros(len(both)), np.zeros(len(both))
        p[np.searchsorted(both, self.codes)] = self.frequencies
        q[np.searchsorted(both, other.codes)] = other.frequencies
        return p, q


def _divergence(p: Floats, m: Floats) -> float:
    """Kullback-Leibler divergence of p from m in bits; m is positive where p is."""
    some = p > 0
    return float((p[some] * np.log2(p[some] / m[some])).sum())


def kmer_spectrum(tokens: Any, k: int, num_letters: int, pad: Any = None) -> Spectrum:
    """The frequencies of all k-mers of a set.

    Args:
        tokens: integers (N, L), below `num_letters` but for padding.
        k: length of a k-mer.
        num_letters: number of letters, K.
        pad: booleans (N, L), True where an element does not count; None: nowhere.
    """
    codes, whole = _codes(tokens, k, num_letters, pad)
    found, times = np.unique(codes[whole], return_counts=True)
    return Spectrum(found, times / max(1, times.sum()), num_letters**k)


def kmer_counts(tokens: Any, k: int, num_letters: int, pad: Any = None) -> Floats:
    """(N, K^k) how often each k-mer occurs in each sequence. Arguments as in `kmer_spectrum`."""
    codes, whole = _codes(tokens, k, num_letters, pad)
    size = num_letters**k
    require(size <= _MOST_FEATURES, "number of k-mers", size, f"at most {_MOST_FEATURES:,}")
    rows = np.broadcast_to(np.arange(len(codes))[:, None], codes.shape)
    flat = np.bincount((rows * size + codes)[whole], minlength=len(codes) * size)
    return flat.reshape(len(codes), size).astype(np.float64)


def _codes(tokens: Any, k: int, num_letters: int, pad: Any) -> tuple[Ints, Bools]:
    """(N, L - k + 1) the k-mer that begins at each element, and whether all its elements count."""
    k, base = as_count(k, "k", 1), as_count(num_letters, "num_letters", 1)
    require(base**k <= _MOST_CODES, "k", k, f"a smaller one for {base} letters")
    x, used = _checked(tokens, pad, base)
    last = x.shape[1] - k + 1
    codes, whole = np.zeros((len(x), max(0, last)), np.int64), np.ones((len(x), max(0, last)), bool)
    for i in range(k if last > 0 else 0):
        codes *= base
        codes += x[:, i : i + last]
        whole &= used[:, i : i + last]
    return codes, whole


def _checked(tokens: Any, pad: Any, num_letters: int) -> tuple[Ints, Bools]:
    """The tokens, 0 where they do not count, and where they do."""
    x = as_sequences(tokens, "tokens", "(N, L)")
    padding = as_pad(pad, x.shape)
    used = np.ones(x.shape, bool) if padding is None else ~padding
    require_categories(x, padding, "tokens")
    x = np.where(used, x, 0)
    require(x.size == 0 or int(x.max()) < num_letters, "tokens", int(x.max(initial=0)), f"letters 0..{num_letters - 1}")
    return x, used


def position_composition(tokens: Any, num_classes: int, pad: Any = None) -> Floats:
    """(L, K) the frequency of each category at each position, nan where nothing counts. Arguments as above."""
    x, used = _checked(tokens, pad, as_count(num_classes, "num_classes", 1))
    places = np.broadcast_to(np.arange(x.shape[1]), x.shape)
    flat = np.bincount((places * num_classes + x)[used], minlength=x.shape[1] * num_classes)
    table = flat.reshape(x.shape[1], num_classes).astype(np.float64)
    total = table.sum(1, keepdims=True)
    return np.asarray(np.divide(table, total, out=np.full_like(table, np.nan), where=total > 0))


def composition_distance(a: Floats, b: Floats) -> float:
    """Mean over the positions of the total variation distance of two `position_composition`s, in [0, 1]."""
    require(a.shape == b.shape, "shape of the second composition", b.shape, f"{a.shape}")
    distances = 0.5 * np.abs(a - b).sum(1)
    known = ~np.isnan(distances)
    return float(distances[known].mean()) if known.any() else math.nan


def letter_share(tokens: Any, letters: Any, num_letters: int, pad: Any = None) -> Floats:
    """(N,) the share of some letters among those of each sequence that count, such as G and C; nan if none counts.

    Args:
        tokens: integers (N, L).
        letters: the categories of these letters.
        num_letters: number of letters, K.
        pad: booleans (N, L), True where an element does not count; None: nowhere.
    """
    x, used = _checked(tokens, pad, as_count(num_letters, "num_letters", 1))
    total = used.sum(1).astype(np.float64)
    found = (np.isin(x, np.asarray(letters)) & used).sum(1).astype(np.float64)
    return np.asarray(np.divide(found, total, out=np.full(len(x), np.nan), where=total > 0))


def wasserstein(a: Any, b: Any) -> float:
    """1-Wasserstein distance of two sets of numbers (N,) and (M,): the area between their distribution functions.

    nan among the numbers does not count; the distance is nan if nothing is left of a set.
    """
    x, y = (np.sort(v[~np.isnan(v)]) for v in (np.asarray(a, np.float64), np.asarray(b, np.float64)))
    if not len(x) or not len(y):
        return math.nan
    both = np.sort(np.concatenate([x, y]))
    below = [np.searchsorted(v, both[:-1], side="right") / len(v) for v in (x, y)]
    return float((np.abs(below[0] - below[1]) * np.diff(both)).sum())
