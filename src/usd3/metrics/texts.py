"""Texts in numbers: how rich they are, and which of their words are known."""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np

from usd3._internal.checks import as_count
from usd3.metrics._arrays import Bools, Floats, Ints, as_pad, as_sequences
from usd3.metrics.ngrams import count_distinct

__all__ = ["distinct_ngrams", "known_words", "unigram_entropy", "words_of"]

_WORD = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*")


def unigram_entropy(runs: Any, pad: Any = None) -> Floats:
    """Entropy of the frequencies of tokens in each of R sets of sequences (R, N, L), in bits; (R,).

    Compare it with that of true sequences, of the same number: less is more repetitive, more is closer to noise.

    Args:
        runs: integers (R, N, L).
        pad: booleans (N, L), True where an element is padding.
    """
    sets, padding = _checked(runs, pad)
    return np.array([_entropy(np.unique(x[~padding], return_counts=True)[1]) for x in sets])


def distinct_ngrams(runs: Any, n: int = 4, pad: Any = None) -> Floats:
    """The share of n-grams in each of R sets (R, N, L) that are different from all before them; (R,).

    Arguments as in `unigram_entropy`; n-grams with padding do not count.
    """
    n = as_count(n, "n", 1)
    sets, padding = _checked(runs, pad)
    found = [count_distinct(x, n, padding) for x in sets]
    return np.array([different / total if total else np.nan for different, total in found])


def words_of(text: str) -> list[str]:
    """The words of a text in lower case, but for those that touch its ends, where they may be cut."""
    found = _WORD.finditer(text)
    return [word.group().lower() for word in found if word.start() > 0 and word.end() < len(text)]


def known_words(texts: Sequence[Iterable[str]], known: Collection[str]) -> Floats:
    """The share of words in each of R sets of texts that are among the known ones; (R,). nan: a set has no words."""
    shares = []
    for texts_of_a_set in texts:
        words = [word for text in texts_of_a_set for word in words_of(text)]
        shares.append(sum(word in known for word in words) / len(words) if words else np.nan)
    return np.array(shares)


def _entropy(counts: Ints) -> float:
    p = counts / counts.sum()
    return float(-(p * np.log2(p)).sum())


def _checked(runs: Any, pad: Any) -> tuple[Ints, Bools]:
    sets = as_sequences(runs, "runs", "(R, N, L)")
    padding = as_pad(pad, sets.shape[1:])
    return sets, np.zeros(sets.shape[1:], dtype=bool) if padding is None else padding
