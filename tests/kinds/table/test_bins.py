"""Bins of numbers: their edges, what lies within them, and parts of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from usd3.kinds.table.bins import Pieces, number_of_bins, quantile_bins, single_values


def counted(values):
    return np.unique(values, return_counts=True)


@pytest.mark.parametrize(("rows", "bins"), [(2, 8), (100, 10), (1000, 32), (32561, 180), (10**7, 200)])
def test_more_rows_have_more_bins_up_to_a_limit(rows, bins):
    assert number_of_bins(rows) == bins


def test_bins_have_about_the_same_mass():
    values, counts = counted(np.random.default_rng(0).normal(size=10_000))
    pieces = quantile_bins(values, counts, 50)
    assert pieces.num_bins == 50
    assert pieces.mass.sum() == 10_000
    assert 195 <= pieces.mass.min() <= pieces.mass.max() <= 205


def test_every_value_is_inside_its_own_bin():
    values, counts = counted(np.random.default_rng(1).integers(0, 5000, size=4000))
    pieces = quantile_bins(values, counts, 30)
    low, high = pieces.ends
    bins = pieces.bins(values)
    assert ((low[bins] <= values) & (values <= high[bins])).all()
    assert np.array_equal(np.bincount(bins, counts), pieces.mass)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-1000, 1000), st.integers(1, 50)), min_size=1, max_size=60),
    st.integers(2, 20),
    st.booleans(),
)
def test_bins_keep_the_mass_and_never_are_too_many(data, most, whole):
    values, counts = counted(np.repeat([v for v, _ in data], [c for _, c in data]))
    values = values if whole else values / 8
    pieces = quantile_bins(values, counts, most)
    assert 1 <= pieces.num_bins <= most
    assert pieces.mass.sum() == counts.sum()
    assert (pieces.low <= pieces.high).all()
    assert (pieces.high[:-1] <= pieces.low[1:]).all()  # in order, without overlap
    assert np.array_equal(np.bincount(pieces.bins(values), counts, pieces.num_bins), pieces.mass)
    drawn = pieces.at(np.repeat(np.arange(pieces.num_bins), 20), np.tile(np.linspace(0, 0.999, 20), pieces.num_bins))
    assert values[0] <= drawn.min() <= drawn.max() <= values[-1]
    assert np.array_equal(pieces.bins(drawn), np.repeat(np.arange(pieces.num_bins), 20))


def test_a_frequent_value_has_a_bin_of_its_own():
    values, counts = counted(np.concatenate([np.zeros(700, int), np.arange(1, 301)]))
    pieces = quantile_bins(values, counts, 10)
    low, high = pieces.ends
    assert (low[0], high[0], pieces.mass[0]) == (0, 0, 700)
    assert pieces.num_bins == 10
    assert pieces.mass[1:].max() <= 35


def test_a_frequent_value_in_the_middle_divides_the_others():
    values, counts = counted(np.concatenate([np.full(300, 50), np.arange(100)]))
    pieces = quantile_bins(values, counts, 8)
    low, high = pieces.ends
    alone = int(pieces.bins(np.array([50]))[0])
    assert (low[alone], high[alone]) == (50, 50)
    assert pieces.bins(np.array([49, 51])).tolist() == [alone - 1, alone + 1]


def test_quantiles_within_a_bin_are_those_of_the_data():
    """Kolmogorov-Smirnov distance of 20,000 draws to the data: above 0.0138 once in 1,000 times for equal laws."""
    rng = np.random.default_rng(2)
    data = rng.lognormal(size=5000)
    pieces = quantile_bins(*counted(data), 20)
    drawn = np.sort(pieces.at(rng.choice(20, size=20_000, p=pieces.mass / pieces.mass.sum()), rng.random(20_000)))
    data.sort()
    gap = np.abs(np.searchsorted(drawn, data, side="right") / 20_000 - np.arange(1, 5001) / 5000).max()
    assert gap < 0.0138


def test_a_wide_gap_between_two_clusters_stays_empty():
    values = np.concatenate([np.arange(100, 120), np.arange(900, 920)])
    pieces = quantile_bins(values, np.full(40, 3), 2)
    both = quantile_bins(values, np.full(40, 3), 3)  # one bin has parts of both clusters
    for found in (pieces, both):
        bins = np.repeat(np.arange(found.num_bins), 1000)
        drawn = found.at(bins, np.tile(np.linspace(0, 0.999, 1000), found.num_bins))
        assert not ((drawn > 119) & (drawn < 900)).any()


def test_single_outliers_are_not_repeated_exactly():
    """A piece has two rows or more: a value that one row has is the end of a range."""
    values = np.concatenate([np.arange(100.0), [1e6]])
    pieces = quantile_bins(values, np.ones(101, int), 8)
    assert (pieces.weight >= 2).all()
    assert not ((pieces.low == 1e6) & (pieces.high == 1e6)).any()


def test_the_number_of_pieces_is_bounded():
    rng = np.random.default_rng(3)
    pieces = quantile_bins(*counted(rng.pareto(0.5, size=60_000)), 200)
    assert len(pieces.low) <= 1024


# ---- parts of a distribution --------------------------------------------------------------------------------------


def test_a_part_of_a_bin_has_its_share_of_the_mass_by_enumeration():
    pieces = quantile_bins(np.arange(40), np.ones(40, int), 2)
    part = pieces.within([(5, 12), (30, 100)])
    every = np.concatenate([pieces.at(np.full(20, b), np.arange(20) / 20) for b in (0, 1)])
    assert sorted(every) == list(range(40))
    inside = ((every >= 5) & (every <= 12)) | (every >= 30)
    expected = [inside[:20].sum(), inside[20:].sum()]
    assert part.mass == pytest.approx(expected)
    drawn = part.at(np.repeat([0, 1], 1000), np.tile(np.linspace(0, 0.9999, 1000), 2))
    assert set(drawn.tolist()) == set(every[inside].tolist())


def test_a_part_of_real_numbers_has_its_length():
    pieces = Pieces(np.array([0.0, 2.0]), np.array([2.0, 2.0]), np.array([3.0, 1.0]), np.array([0, 1]), 2)
    assert pieces.within([(0.5, 1.0)]).mass.tolist() == [0.75, 0.0]
    assert pieces.within([(2.0, 9.0)]).mass.tolist() == [0.0, 1.0]  # a single number of its own has mass
    assert pieces.within([]).mass.tolist() == [0.0, 0.0]


def test_single_values_go_to_the_nearest():
    pieces = single_values(np.array([1, 4, 10]), np.array([1, 1, 1]))
    assert pieces.bins(np.array([-5, 1, 2, 3, 4, 8, 99])).tolist() == [0, 0, 0, 1, 1, 2, 2]
