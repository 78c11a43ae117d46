"""Texts in numbers."""

import numpy as np
import pytest

from usd3.metrics import distinct_ngrams, known_words, unigram_entropy, words_of


def test_entropy_is_that_of_the_frequencies_of_a_set():
    runs = np.array([[[0, 1, 2, 3], [0, 1, 2, 3]], [[0, 0, 0, 0], [0, 0, 0, 1]]])
    expected = -(7 / 8 * np.log2(7 / 8) + 1 / 8 * np.log2(1 / 8))
    assert unigram_entropy(runs).tolist() == pytest.approx([2.0, expected])


def test_padding_does_not_count():
    runs, pad = np.array([[[0, 1, 5, 5], [0, 1, 0, 1]]]), np.array([[False, False, True, True], [False] * 4])
    assert unigram_entropy(runs, pad).tolist() == [1.0]
    assert distinct_ngrams(runs, 2, pad).tolist() == [2 / 4]  # 01, and 01 10 01


def test_repeated_ngrams_count_once_in_a_set():
    runs = np.array([[[0, 1, 2, 0, 1, 2]], [[0, 1, 2, 3, 4, 5]]])
    assert distinct_ngrams(runs, 3).tolist() == [3 / 4, 1.0]
    assert np.isnan(distinct_ngrams(runs, 7)).all()


def test_words_at_the_ends_may_be_cut():
    assert words_of("ut the Cat's café, don\u2019t 42 end") == ["the", "cat's", "café", "don\u2019t"]
    assert words_of("word") == []


def test_the_share_of_known_words_is_that_of_a_set():
    found = known_words([[". the cat .", ". the dog ."], ["12"]], {"the", "cat"})
    assert found[0] == 3 / 4
    assert np.isnan(found[1])
