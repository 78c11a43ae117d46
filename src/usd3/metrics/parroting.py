"""Whether generated sequences copy the training data.

Take test sequences whose prefix is also the prefix of training sequences. A model that memorised the training data
continues like the training sequence, not like the test sequence.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from usd3._internal.checks import as_count, require
from usd3.metrics._arrays import Floats, Ints, as_sequences

__all__ = ["Ratio", "distances_to_matches", "matching_rows", "train_to_test_ratio"]


_AT_ONCE = 2**22  # elements that are compared together


class Ratio(NamedTuple):
    """The train-to-test ratio as the paper prints it (`literal`), and with its distances swapped (`swapped`)."""

    literal: Any
    swapped: Any


def train_to_test_ratio(distance_to_test: Any, distance_to_train: Any) -> Ratio:
    """Train-to-test ratio of a = distance to test and b = distance to train, numbers or arrays, elementwise.

    literal = a / (b (a + b)), the formula as printed in the paper; swapped = b / (a (a + b)). A ratio is inf if the
    distance in its denominator is 0, and nan if both distances are 0. When a model copies the training data (b -> 0),
    the literal ratio grows, although the paper calls it higher-is-better; the swapped ratio falls. Always report a
    and b too.
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
    """For each test sequence (N, L), the indices of the training sequences with the same first elements.

    Args:
        prefixes: Test sequences, integers (N, L).
        train: Training sequences, integers (M, L').
        prefix_length: How many first elements must be equal.
    """
    test, training = as_sequences(prefixes, "prefixes", "(N, L)"), as_sequences(train, "train", "(N, L)")
    length = as_count(prefix_length, "prefix_length", 1, min(test.shape[1], training.shape[1]))
    heads = np.concatenate([test[:, :length], training[:, :length]])
    labels = np.unique(heads, axis=0, return_inverse=True)[1].reshape(-1)
    test_labels, train_labels = labels[: len(test)], labels[len(test) :]
    order = np.argsort(train_labels, kind="stable")
    first, last = (np.searchsorted(train_labels[order], test_labels, side) for side in ("left", "right"))
    return [order[i:j] for i, j in zip(first, last)]


def distances_to_matches(
    distance: Callable[[Any, Any], Floats],
    generated: Any,
    train: Any,
    matches: Sequence[Ints],
    reduce: str = "mean",
) -> Floats:
    """Mean or smallest distance of each generated row to its matching training rows, (N,); nan if none matches.

    Args:
        distance: A function of two arrays (P, L) that returns (P,), such as `partial(ngram_hellinger, n=2)`.
        generated: Integers (N, L).
        train: Integers (M, L).
        matches: The indices of training rows for each generated row, from `matching_rows`.
        reduce: "mean" or "min".
    """
    x, training = as_sequences(generated, "generated", "(N, L)"), as_sequences(train, "train", "(N, L)")
    require(len(matches) == len(x), "len(matches)", len(matches), f"one entry for each generated row, {len(x)}")
    require(reduce in ("mean", "min"), "reduce", repr(reduce), "'mean' or 'min'")
    counts = np.array([len(m) for m in matches])
    result = np.full(len(x), np.nan)
    if counts.any():
        rows, matched = np.repeat(np.arange(len(x)), counts), np.concatenate(list(matches)).astype(np.int64)
        valid = matched.min() >= 0 and matched.max() < len(training)
        require(valid, "matches", matched, f"indices of training rows, 0..{len(training) - 1}")
        pairs = max(1, _AT_ONCE // x.shape[1])
        parts = [slice(first, first + pairs) for first in range(0, len(rows), pairs)]
        values = np.concatenate([distance(x[rows[part]], training[matched[part]]) for part in parts])
        has_match = counts > 0
        starts = (np.cumsum(counts) - counts)[has_match]
        result[has_match] = np.add.reduceat(values, starts) / counts[has_match]
        if reduce == "min":
            result[has_match] = np.minimum.reduceat(values, starts)
    return result
