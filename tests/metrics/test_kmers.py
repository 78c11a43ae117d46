"""Sets of letter sequences compared by their k-mers, compositions, shares and lengths, beside counts by hand."""

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest

from usd3.metrics.kmers import (
    composition_distance,
    kmer_counts,
    kmer_spectrum,
    letter_share,
    position_composition,
    wasserstein,
)

LETTERS = "ACGT"


def tokens(*rows: str) -> np.ndarray:
    return np.array([[LETTERS.index(c) for c in row] for row in rows])


def counted(rows: list[str], k: int) -> Counter:
    return Counter(row[i : i + k] for row in rows for i in range(len(row) - k + 1))


def random_rows(seed: int, num: int = 6, length: int = 9) -> list[str]:
    return ["".join(row) for row in np.random.default_rng(seed).choice(list(LETTERS), (num, length))]


@pytest.mark.parametrize("k", [1, 2, 3])
def test_distance_and_correlation_are_those_of_all_frequencies(k):
    first, second = random_rows(0), random_rows(1)
    words = ["".join(word) for word in product(LETTERS, repeat=k)]
    p, q = (np.array([counted(rows, k)[word] for word in words], float) for rows in (first, second))
    p, q = p / p.sum(), q / q.sum()
    m = (p + q) / 2
    divergence = sum(0.5 * sum(a * math.log2(a / b) for a, b in zip(x, m) if a > 0) for x in (p, q))
    a, b = (kmer_spectrum(tokens(*rows), k, 4) for rows in (first, second))
    assert a.distance(b) == pytest.approx(math.sqrt(divergence))
    assert a.correlation(b) == pytest.approx(np.corrcoef(p, q)[0, 1])
    assert a.distance(a) == 0
    assert a.correlation(a) == pytest.approx(1)


def test_sets_without_a_common_kmer_are_at_distance_one():
    a, b = kmer_spectrum(tokens("AAAA"), 3, 4), kmer_spectrum(tokens("CCCC"), 3, 4)
    assert a.distance(b) == pytest.approx(1)


def test_a_kmer_with_padding_is_not_counted():
    pad = np.array([[False, False, True, False, False, False]])
    spectrum = kmer_spectrum(tokens("ACGTAC"), 2, 4, pad)
    assert dict(zip(spectrum.codes.tolist(), spectrum.frequencies.tolist())) == {
        0 * 4 + 1: pytest.approx(2 / 3),  # AC, twice
        3 * 4 + 0: pytest.approx(1 / 3),  # TA; neither CG nor GT
    }
    rows = np.array([[0, 1, 9], [9, 9, 9]])  # padding may hold any category
    assert kmer_counts(rows, 1, 2, rows == 9).tolist() == [[1, 1], [0, 0]]


def test_kmers_longer_than_the_sequences_do_not_exist():
    empty = kmer_spectrum(tokens("ACG"), 4, 4)
    assert math.isnan(empty.distance(empty))
    assert math.isnan(empty.correlation(empty))
    assert kmer_counts(tokens("ACG"), 4, 4).sum() == 0


def test_counts_are_those_of_each_sequence():
    counts = kmer_counts(tokens("ACAC", "TTTT"), 2, 4)
    assert counts.shape == (2, 16)
    assert {i: n for i, n in enumerate(counts[0]) if n} == {1: 2, 4: 1}
    assert {i: n for i, n in enumerate(counts[1]) if n} == {15: 3}


def test_kmers_of_many_letters_need_no_table():
    """20 amino acids have 64 million 6-mers, of which a sequence has few."""
    rows = np.random.default_rng(0).integers(20, size=(5, 50))
    spectrum = kmer_spectrum(rows, 6, 20)
    assert len(spectrum.codes) == 5 * 45
    assert spectrum.size == 20**6
    with pytest.raises(ValueError, match="k = 6: expected a smaller one for 5000 letters"):
        kmer_spectrum(rows, 6, 5000)
    with pytest.raises(ValueError, match="number of k-mers = 64000000"):
        kmer_counts(rows, 6, 20)


def test_the_composition_is_that_of_each_position():
    pad = np.array([[False, False, True], [False, False, True]])
    table = position_composition(tokens("ACG", "AGT"), 4, pad)
    assert table[0].tolist() == [1, 0, 0, 0]
    assert table[1].tolist() == [0, 0.5, 0.5, 0]
    assert np.isnan(table[2]).all()
    other = position_composition(tokens("CCG", "AGT"), 4)
    assert composition_distance(table, other) == pytest.approx((0.5 + 0) / 2)  # the last position is not known


def test_the_share_of_letters_is_that_of_each_sequence():
    pad = np.array([[False] * 4, [False, True, True, True], [True] * 4])
    share = letter_share(tokens("GCAT", "GAAA", "GGGG"), [2, 1], 4, pad)
    assert share[:2].tolist() == [0.5, 1]
    assert math.isnan(share[2])


def test_wasserstein_is_the_mean_distance_of_sorted_numbers():
    a, b = np.random.default_rng(0).normal(size=(2, 50))
    assert wasserstein(a, b) == pytest.approx(np.abs(np.sort(a) - np.sort(b)).mean())
    assert wasserstein([0.0, 1.0], [0.0, 0.0, 1.0, 1.0]) == 0
    assert wasserstein([0.0], [3.0, np.nan]) == 3
    assert math.isnan(wasserstein([np.nan], [1.0]))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.array([[0, 4]]), r"tokens = 4: expected letters 0\.\.3"),
        (np.array([[0, -1]]), r"tokens.min\(\) = -1"),
        (np.zeros(3, int), r"tokens.shape = \(3,\): expected \(N, L\)"),
    ],
)
def test_what_are_no_letters_is_refused(rows, message):
    with pytest.raises(ValueError, match=message):
        kmer_spectrum(rows, 1, 4)
