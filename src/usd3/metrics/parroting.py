"""Whether generated sequences copy the training data.

Take test sequences whose prefix also begins training sequences: a model that learnt by heart continues like the
training sequence, not like the test one.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from usd3._internal.checks import as_count, require
from usd3.metrics._arrays import Floats, Ints, as_sequences

__all__ = ["Ratio", "distances_to_matches", "matching_rows", "train_to_test_ratio"]


class Ratio(NamedTuple):
    """The two readings of the train-to-test ratio."""

    literal: Any
    swapped: Any


def train_to_test_ratio(distance_to_test: Any, distance_to_train: Any) -> Ratio:
    """Train-to-test ratio of a = distance to test and b = distance to train, numbers or arrays, elementwise.

    literal = a / (b (a + b)), the formula as printed in the paper; swapped = b / (a (a + b)). They grow to inf where
    the denominator's distance is 0, and are nan where both are. The literal one grows when the output parrots the
    training data (b -> 0), although the paper calls it higher-is-better; the swapped one falls. Always publish a and
    b too.
    """
    a, b = np.asarray(distance_to_test, dtype=np.float64), np.asarray(distance_to_train, dtype=np.float64)
    for name, value in (("distance_to_test", a), ("distance_to_train", b)):
        require(not (value < 0).any(), name, value, "no negative distance")
    try:
        np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        require(False, "distance_to_train.shape", b.shape, f"one that broadcasts with distance_to_test, {a.shape}")
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        total = a + b
        return Ratio(literal=a / total / b, swapped=b / total / a)


def matching_rows(prefixes: Any, train: Any, prefix_length: int) -> list[Ints]:
    """For each of the test sequences (N, L), the indices of training sequences with the same first elements."""
    test, seen = as_sequences(prefixes, "prefixes", "(N, L)"), as_sequences(train, "train", "(N, L)")
    length = as_count(prefix_length, "prefix_length", 1, min(test.shape[1], seen.shape[1]))
    heads = np.concatenate([test[:, :length], seen[:, :length]])
    labels = np.unique(heads, axis=0, return_inverse=True)[1].reshape(-1)
    wanted, present = labels[: len(test)], labels[len(test) :]
    order = np.argsort(present, kind="stable")
    first, last = (np.searchsorted(present[order], wanted, side) for side in ("left", "right"))
    return [order[i:j] for i, j in zip(first, last)]


def distances_to_matches(
    distance: Callable[[Any, Any], Floats],
    generated: Any,
    train: Any,
    matches: Sequence[Ints],
    reduce: str = "mean",
) -> Floats:
    """Mean or smallest distance of each generated row to its matching training rows, (N,); nan where none matches.

    Args:
        distance: A function of two arrays (P, L) that gives (P,), such as `partial(ngram_hellinger, n=2)`.
        generated: Integers (N, L).
        train: Integers (M, L).
        matches: For each generated row the indices of training rows, from `matching_rows`.
        reduce: "mean" or "min".
    """
    made, seen = as_sequences(generated, "generated", "(N, L)"), as_sequences(train, "train", "(N, L)")
    require(len(matches) == len(made), "len(matches)", len(matches), f"one entry for each generated row, {len(made)}")
    require(reduce in ("mean", "min"), "reduce", repr(reduce), "'mean' or 'min'")
    counts = np.array([len(m) for m in matches])
    result = np.full(len(made), np.nan)
    if counts.any():
        rows, columns = np.repeat(np.arange(len(made)), counts), np.concatenate(list(matches)).astype(np.int64)
        inside = columns.min() >= 0 and columns.max() < len(seen)
        require(inside, "matches", columns, f"indices of training rows, 0..{len(seen) - 1}")
        values = distance(made[rows], seen[columns])
        some = counts > 0
        starts = (np.cumsum(counts) - counts)[some]
        result[some] = np.add.reduceat(values, starts) / counts[some]
        if reduce == "min":
            result[some] = np.minimum.reduceat(values, starts)
    return result
