"""How the n-grams of generated sequences differ from those of true ones.

An n-gram is n neighbouring elements. A sequence of length L has L - n + 1 of them, which overlap. Only n-grams that
occur are stored, never all K^n possible ones.
"""

from typing import Any, NamedTuple

import numpy as np

from usd3._internal.checks import as_count, require
from usd3.metrics._arrays import Bools, Floats, Ints, as_pad, as_sequences, require_categories

__all__ = ["NgramCounts", "count_distinct", "count_ngrams", "ngram_hellinger", "ngram_outliers"]


class NgramCounts(NamedTuple):
    """Counts of the n-grams that occur in N pairs of a generated and a true row.

    Each entry of `row`, `generated` and `truth` is about one n-gram in one pair of rows.

    Attributes:
        row: The number of the pair.
        generated: How often the n-gram occurs in the generated row.
        truth: How often it occurs in the true row.
        generated_total: The number of n-grams of each generated row, (N,).
        truth_total: The number of n-grams of each true row, (N,).
    """

    row: Ints
    generated: Ints
    truth: Ints
    generated_total: Ints
    truth_total: Ints

    def hellinger(self) -> Floats:
        """sqrt(1/2) || sqrt p - sqrt q ||_2 of each pair, (N,)."""
        p = self.generated / self.generated_total[self.row]
        q = self.truth / self.truth_total[self.row]
        squares = np.bincount(self.row, (np.sqrt(p) - np.sqrt(q)) ** 2, len(self.generated_total))
        return np.minimum(np.sqrt(squares / 2), 1.0)

    def outliers(self) -> Floats:
        """The share of the n-grams of each generated row that never occur in its true row, (N,)."""
        new = np.bincount(self.row, np.where(self.truth == 0, self.generated, 0), len(self.generated_total))
        return np.asarray(new / self.generated_total)


def ngram_hellinger(generated: Any, truth: Any, n: int, pad: Any = None) -> Floats:
    """Hellinger distance of the n-gram frequencies of each row: sqrt(1/2) || sqrt p - sqrt q ||_2 in [0, 1].

    p and q are the relative frequencies of the n-grams in a generated row and in its true row.

    Args:
        generated: Integers (N, L), an array or a tensor.
        truth: Integers (N, L'); without padding L' may differ from L.
        n: Number of elements of an n-gram.
        pad: Booleans (N, L), True = padding in both rows; an n-gram that contains padding is not counted.

    Returns:
        (N,) float64.
    """
    return count_ngrams(generated, truth, n, pad).hellinger()


def ngram_outliers(generated: Any, truth: Any, n: int, pad: Any = None) -> Floats:
    """Proportion of a generated row's n-grams that never occur in its true row, (N,) float64.

    The denominator is the number of n-grams without padding, L - n + 1 if there is none. Arguments as in
    `ngram_hellinger`.
    """
    return count_ngrams(generated, truth, n, pad).outliers()


def count_ngrams(generated: Any, truth: Any, n: int, pad: Any = None) -> NgramCounts:
    """The counts from which both distances are computed. Arguments as in `ngram_hellinger`."""
    n = as_count(n, "n", 1)
    x, true = as_sequences(generated, "generated", "(N, L)"), as_sequences(truth, "truth", "(N, L)")
    require(len(x) == len(true), "truth.shape", true.shape, f"as many rows as generated, {len(x)}")
    shortest = min(x.shape[1], true.shape[1])
    require(n <= shortest, "n", n, f"at most the length of the sequences, {shortest}")
    if pad is not None:
        require(x.shape == true.shape, "truth.shape", true.shape, f"{x.shape}, that of generated, with pad")
    padding = as_pad(pad, x.shape)
    require_categories(x, padding, "generated")
    require_categories(true, padding, "truth")
    return _count(x, true, n, padding)


def count_distinct(sequences: Ints, n: int, pad: Bools) -> tuple[int, int]:
    """How many different n-grams without padding occur in sequences (N, L), and how many n-grams there are."""
    if n > sequences.shape[1]:
        return 0, 0
    (labels,), _ = _label_ngrams([sequences], n)
    whole = labels[_whole_ngrams(pad, n)]
    return len(np.unique(whole)), whole.size


def _count(generated: Ints, truth: Ints, n: int, pad: Bools | None) -> NgramCounts:
    """The counts of checked arguments."""
    rows = len(generated)
    labels, num_labels = _label_ngrams([generated, truth], n)
    keys = [np.arange(rows)[:, None] * num_labels + g for g in labels]  # one number for a row and an n-gram
    if pad is None:
        totals = [np.full(rows, k.shape[1], dtype=np.int64) for k in keys]
    else:
        whole = _whole_ngrams(pad, n)
        totals = [whole.sum(1)] * 2
        row = int(totals[0].argmin())
        require(totals[0][row] > 0, f"pad[{row}]", pad[row], f"at least one {n}-gram free of padding in each row")
        keys = [k[whole] for k in keys]
    (generated_keys, true_keys), occurring = _relabel(keys)
    return NgramCounts(
        row=occurring // num_labels,
        generated=np.bincount(generated_keys.ravel(), minlength=len(occurring)),
        truth=np.bincount(true_keys.ravel(), minlength=len(occurring)),
        generated_total=totals[0],
        truth_total=totals[1],
    )


def _label_ngrams(sequences: list[Ints], n: int) -> tuple[list[Ints], int]:
    """A label 0, 1, ... for each n-gram, equal for equal n-grams, and the number of different labels.

    An n-gram is an (n-1)-gram and one more element. The labels are assigned again after each element, so that they stay
    below (elements in the data)^2 for any K and n.
    """
    tokens, values = _relabel(sequences)
    labels, base = tokens, len(values)
    for m in range(1, n):
        labels, values = _relabel([shorter[:, :-1] * base + t[:, m:] for shorter, t in zip(labels, tokens)])
    return labels, len(values)


def _relabel(arrays: list[Ints]) -> tuple[list[Ints], Ints]:
    """The arrays with each value replaced by its rank among all values, and the sorted values."""
    flat = np.concatenate([a.ravel() for a in arrays])
    values, ranks = np.unique(flat, return_inverse=True)
    parts = np.split(ranks, np.cumsum([a.size for a in arrays])[:-1])
    return [part.reshape(a.shape) for part, a in zip(parts, arrays)], values


def _whole_ngrams(pad: Bools, n: int) -> Bools:
    """Whether each n-gram contains no padding, (N, L - n + 1)."""
    windows = np.lib.stride_tricks.sliding_window_view(pad, n, axis=1)
    return np.asarray(~windows.any(-1))
