"""Distances to the closest records, by hand and by brute force."""

import numpy as np
import pytest
import torch

from usd3.metrics import closest
from usd3.metrics.closest import RowFeatures, equal_rows, nearest_distances, share_nearer, standardised


def features(numbers, categories):
    return RowFeatures(torch.tensor(numbers, dtype=torch.float32), torch.tensor(categories))


def test_a_distance_adds_numbers_and_two_for_each_other_category():
    rows = features([[0.0, 1.0]], [[0, 5, 7]])
    others = features([[0.5, -1.0], [3.0, 1.0]], [[0, 5, 8], [0, 5, 7]])
    assert nearest_distances(rows, others).tolist() == [3.0]
    assert nearest_distances(rows, features([[0.5, -1.0]], [[0, 5, 8]])).tolist() == [4.5]


def test_chunks_change_nothing(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    a, b = (
        RowFeatures(torch.randn(n, 3, generator=generator), torch.randint(4, (n, 5), generator=generator))
        for n in (40, 33)
    )
    brute = (a.numbers[:, None] - b.numbers).abs().sum(-1) + 2 * (a.categories[:, None] != b.categories).sum(-1)
    monkeypatch.setattr(closest, "_CELLS", 100)
    assert torch.allclose(nearest_distances(a, b), brute.amin(1), atol=1e-5)


def test_copies_are_nearer_to_training_and_ties_count_half():
    rows = features([[0.0], [10.0], [5.0], [1.0]], [[0]] * 4)
    train, held_out = features([[0.0], [4.0]], [[0]] * 2), features([[10.0], [6.0]], [[0]] * 2)
    # to train, to held-out: 0, 6; 6, 0; 1, 1; 1, 5
    assert share_nearer(rows, train, held_out) == (1 + 0 + 0.5 + 1) / 4


def test_numbers_are_standardised_by_the_others():
    like = np.array([[0.0, 5.0], [2.0, 5.0], [np.nan, 5.0]])
    assert standardised(np.array([[3.0, 6.0], [np.nan, 5.0]]), like).tolist() == [[2.0, 1.0], [0.0, 0.0]]


def test_rows_of_one_distribution_are_nearer_to_training_half_of_the_time():
    """2,000 coin tosses that share neighbours: off by 0.06 less than once in 1,000 times."""
    generator = torch.Generator().manual_seed(1)
    a, b, c = (RowFeatures(torch.randn(2000, 3, generator=generator), torch.zeros(2000, 0).long()) for _ in range(3))
    assert abs(share_nearer(a, b, c) - 0.5) < 0.06
    assert share_nearer(b, b, c) == 1.0


def test_equal_rows_are_equal_in_all_columns():
    others = np.array([[1, 2, 3], [4, 5, 6]])
    rows = np.array([[1, 2, 3], [1, 2, 6], [4, 5, 6], [0, 0, 0]])
    assert equal_rows(rows, others).tolist() == [True, False, True, False]
    wide = np.random.default_rng(0).integers(0, 10**6, size=(50, 40))
    assert equal_rows(wide, wide[::2]).tolist() == [True, False] * 25


def test_rows_of_other_columns_are_refused():
    with pytest.raises(ValueError, match="columns of others = 2: expected 1, as rows have"):
        nearest_distances(features([[0.0]], [[0]]), features([[0.0, 1.0]], [[0]]))
    with pytest.raises(ValueError, match="others = no rows"):
        nearest_distances(features([[0.0]], [[0]]), RowFeatures(torch.zeros(0, 1), torch.zeros(0, 1).long()))
