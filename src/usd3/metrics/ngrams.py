"""How the n-grams of generated sequences differ from those of the true ones.

An n-gram is n neighbouring elements; a sequence of length L has L - n + 1 of them, overlapping. Only those that occur
are counted: the K^n possible ones are never listed.
"""

from typing import Any, NamedTuple

import numpy as np

from usd3._internal.checks import as_count, require
from usd3.metrics._arrays import Bools, Floats, Ints, as_pad, as_sequences, require_categories

__all__ = ["NgramCounts", "count_ngrams", "ngram_hellinger", "ngram_outliers"]


class NgramCounts(NamedTuple):
    """Every n-gram that occurs in a pair of rows: its row, and how often it is in the generated and the true one."""

    row: Ints
    generated: Ints
    truth: Ints
    generated_total: Ints
    truth_total: Ints

    def hellinger(self) -> Floats:
        """sqrt(1/2) || sqrt p - sqrt q ||_2 of each row."""
        p = self.generated / self.generated_total[self.row]
        q = self.truth / self.truth_total[self.row]
        squares = np.bincount(self.row, (np.sqrt(p) - np.sqrt(q)) ** 2, len(self.generated_total))
        return np.minimum(np.sqrt(squares / 2), 1.0)

    def outliers(self) -> Floats:
        """The generated n-grams of each row that its true row never has, divided by all its generated ones."""
        new = np.bincount(self.row, np.where(self.truth == 0, self.generated, 0), len(self.generated_total))
        return np.asarray(new / self.generated_total)


def ngram_hellinger(generated: Any, truth: Any, n: int, pad: Any = None) -> Floats:
    """Hellinger distance of the n-gram frequencies, row by row: sqrt(1/2) || sqrt p - sqrt q ||_2 in [0, 1].

    p and q are the relative frequencies of the n-grams in a generated row and in its true row.

    Args:
        generated: Integers (N, L), an array or a tensor.
        truth: Integers (N, L'); without padding L' may differ from L.
        n: How many neighbours an n-gram has.
        pad: Booleans (N, L), True = padding in both; an n-gram that touches it is not counted.

    Returns:
        (N,) float64.
    """
    return count_ngrams(generated, truth, n, pad).hellinger()


def ngram_outliers(generated: Any, truth: Any, n: int, pad: Any = None) -> Floats:
    """Proportion of a generated row's n-grams that never occur in its true row, (N,) float64.

    The denominator is L - n + 1, less the n-grams that touch padding. Arguments as in `ngram_hellinger`.
    """
    return count_ngrams(generated, truth, n, pad).outliers()


def count_ngrams(generated: Any, truth: Any, n: int, pad: Any = None) -> NgramCounts:
    """The counts behind both distances. Arguments as in `ngram_hellinger`."""
    n = as_count(n, "n", 1)
    made, true = as_sequences(generated, "generated", "(N, L)"), as_sequences(truth, "truth", "(N, L)")
    require(len(made) == len(true), "truth.shape", true.shape, f"as many rows as generated, {len(made)}")
    shortest = min(made.shape[1], true.shape[1])
    require(n <= shortest, "n", n, f"at most the length of the sequences, {shortest}")
    if pad is not None:
        require(made.shape == true.shape, "truth.shape", true.shape, f"{made.shape}, that of generated, with pad")
    hidden = as_pad(pad, made.shape)
    require_categories(made, hidden, "generated")
    require_categories(true, hidden, "truth")
    return _count(made, true, n, hidden)


def _count(generated: Ints, truth: Ints, n: int, pad: Bools | None) -> NgramCounts:
    rows = len(generated)
    grams, kinds = _label_ngrams([generated, truth], n)
    keys = [np.arange(rows)[:, None] * kinds + g for g in grams]
    if pad is None:
        totals = [np.full(rows, k.shape[1], dtype=np.int64) for k in keys]
    else:
        whole = _whole_ngrams(pad, n)
        totals = [whole.sum(1)] * 2
        row = int(totals[0].argmin())
        require(totals[0][row] > 0, f"pad[{row}]", pad[row], f"at least one {n}-gram free of padding in each row")
        keys = [k[whole] for k in keys]
    (made, true), occurring = _relabel(keys)
    return NgramCounts(
        row=occurring // kinds,
        generated=np.bincount(made.ravel(), minlength=len(occurring)),
        truth=np.bincount(true.ravel(), minlength=len(occurring)),
        generated_total=totals[0],
        truth_total=totals[1],
    )


def _label_ngrams(sequences: list[Ints], n: int) -> tuple[list[Ints], int]:
    """A number 0, 1, ... for each n-gram, the same for equal ones, and how many there are.

    An n-gram is a shorter one plus an element; numbering them anew after each element keeps the numbers below
    (elements in the data)^2, whatever K and n are.
    """
    tokens, kinds = _relabel(sequences)
    grams, base = tokens, len(kinds)
    for m in range(1, n):
        grams, kinds = _relabel([g[:, :-1] * base + t[:, m:] for g, t in zip(grams, tokens)])
    return grams, len(kinds)


def _relabel(arrays: list[Ints]) -> tuple[list[Ints], Ints]:
    """The arrays with values replaced by their rank, and the values."""
    flat = np.concatenate([a.ravel() for a in arrays])
    values, ranks = np.unique(flat, return_inverse=True)
    parts = np.split(ranks, np.cumsum([a.size for a in arrays])[:-1])
    return [part.reshape(a.shape) for part, a in zip(parts, arrays)], values


def _whole_ngrams(pad: Bools, n: int) -> Bools:
    """Whether each n-gram is free of padding, (N, L - n + 1)."""
    windows = np.lib.stride_tricks.sliding_window_view(pad, n, axis=1)
    return np.asarray(~windows.any(-1))
