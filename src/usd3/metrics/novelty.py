"""Whether strings are copies of others, and how far they are from the nearest."""

from collections.abc import Sequence

import numpy as np
from rapidfuzz import process
from rapidfuzz.distance import Levenshtein

from usd3._internal.checks import as_count, require
from usd3.metrics._arrays import Floats

__all__ = ["copied_share", "nearest_edits"]

_PAIRS_AT_ONCE = 2**20
_WORD = 64  # letters that rapidfuzz compares at once


def copied_share(generated: Sequence[str], train: Sequence[str]) -> float:
    """The share of generated strings that equal a training string."""
    require(len(generated) > 0, "len(generated)", len(generated), "at least one")
    known = set(train)
    return sum(string in known for string in generated) / len(generated)


def nearest_edits(generated: Sequence[str], train: Sequence[str], most_work: int | None = None) -> Floats:
    """(n,) the edit distance of each generated string to the nearest training string, as a share of the longer one.

    The smallest Levenshtein / max(length, length), which is 0 for a copy; two empty strings are equal.

    Args:
        generated: the strings, N.
        train: the training strings, at least one.
        most_work: number of steps of 64 letters, each about 3 nanoseconds on one core. Of more, n < N strings are
            compared, evenly spread, but at least 10. None: no limit.
    """
    require(len(train) > 0, "len(train)", len(train), "at least one")
    require(len(generated) > 0, "len(generated)", len(generated), "at least one")
    if most_work is not None:
        mean = sum(map(len, train)) / len(train)
        work = max(1.0, len(train) * mean * -(-mean // _WORD))  # of one generated string
        num = min(len(generated), max(10, int(as_count(most_work, "most_work", 1) / work)))
        generated = [generated[i * len(generated) // num] for i in range(num)]
    at_once = max(1, _PAIRS_AT_ONCE // len(train))
    parts = [
        process.cdist(generated[i : i + at_once], train, scorer=Levenshtein.normalized_distance, dtype=np.float64)
        for i in range(0, len(generated), at_once)
    ]
    return np.concatenate([part.min(1) for part in parts])
