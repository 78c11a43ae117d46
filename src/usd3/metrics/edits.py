"""How much samples for the same prefix differ from each other."""

from itertools import combinations
from typing import Any

import numpy as np
from rapidfuzz.distance import Levenshtein

from usd3._internal.checks import require
from usd3.metrics._arrays import Floats, as_pad, as_sequences, require_categories

__all__ = ["edit_diversity", "pair_edits"]


def edit_diversity(samples: Any, pad: Any = None) -> Floats:
    """Mean edit distance between the samples for each prefix: the mean of Levenshtein / L over R (R - 1) / 2 pairs.

    Args:
        samples: Integers (R, N, L), R >= 2 samples for each of N prefixes.
        pad: Booleans (N, L), True = padding, the same for all R. Padded elements are removed, and L is the number of
            the others.

    Returns:
        (N,) float64 in [0, 1].
    """
    return np.asarray(pair_edits(samples, pad).mean(0))


def pair_edits(samples: Any, pad: Any = None) -> Floats:
    """Levenshtein / L of each pair of samples, (R (R - 1) / 2, N), pairs in the order (0, 1), (0, 2), ..., (1, 2)."""
    x = as_sequences(samples, "samples", "(R, N, L)")
    require(len(x) >= 2, "samples.shape", x.shape, "(R, N, L) with R >= 2 samples for each prefix")
    padding = as_pad(pad, x.shape[1:])
    require_categories(x, None if padding is None else np.broadcast_to(padding, x.shape), "samples")
    # rapidfuzz compares hashes, which differ for small integers
    ranks = np.unique(x, return_inverse=True)[1].reshape(x.shape)
    distances = np.empty((len(x) * (len(x) - 1) // 2, x.shape[1]))
    for i in range(x.shape[1]):
        song = ranks[:, i] if padding is None else ranks[:, i, ~padding[i]]
        require(song.shape[1] > 0, f"pad[{i}]", "all True", "at least one element free of padding in each row")
        pairs = combinations(song.tolist(), 2)
        distances[:, i] = [Levenshtein.distance(a, b) / song.shape[1] for a, b in pairs]
    return distances
