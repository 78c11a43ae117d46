"""Markov chains of any order: probabilities by hand, draws that follow them, ends and gaps."""

import math
from itertools import product

import numpy as np
import pytest

from support.statistics import chi_square_p_value
from usd3.metrics.chains import BackoffChain


def by_hand(rows: list[list[int]], context: tuple[int, ...], x: int, K: int) -> float:
    """p(x | context), by the formula of the class."""
    if context == ():
        shorter = 1 / K
        times = rows
        n = sum(row.count(x) for row in times)
        total = sum(map(len, times))
    else:
        shorter = by_hand(rows, context[1:], x, K)
        m = len(context)
        after = [row[i] for row in rows for i in range(m, len(row)) if tuple(row[i - m : i]) == context]
        n, total = after.count(x), len(after)
    return (n + K * shorter) / (total + K)


def test_probabilities_are_those_of_the_formula():
    rows = np.random.default_rng(0).integers(3, size=(4, 8))
    chain = BackoffChain(3, order=2).fit(rows)
    for *context, x in product(range(3), repeat=3):
        code = context[0] * 3 + context[1]
        assert chain.tables[2][code, x] == pytest.approx(by_hand(rows.tolist(), tuple(context), x, 3))
    for table in chain.tables:
        assert np.allclose(table.sum(1), 1)


def test_bits_are_those_of_the_formula_with_shorter_contexts_at_the_beginning():
    rows = np.random.default_rng(0).integers(2, size=(5, 6))
    chain = BackoffChain(2, order=2).fit(rows)
    sequence = [0, 1, 1, 0]
    p = [by_hand(rows.tolist(), tuple(sequence[max(0, i - 2) : i]), x, 2) for i, x in enumerate(sequence)]
    assert chain.bits(np.array([sequence])) == pytest.approx(-np.mean(np.log2(p)))


def test_a_gap_is_neither_counted_nor_a_context():
    pad = np.array([[False, False, True, False, False]])
    chain = BackoffChain(2, order=1).fit(np.array([[0, 1, 1, 0, 0]]), pad)
    assert chain.tables[0][0].tolist() == pytest.approx([(3 + 1) / 6, (1 + 1) / 6])
    seen = {(0, 1): 1, (0, 0): 1}  # 0 -> 1 before the gap and 0 -> 0 after it
    prior = chain.tables[0][0]
    for c, x in product(range(2), repeat=2):
        total = sum(seen.get((c, y), 0) for y in range(2))
        assert chain.tables[1][c, x] == pytest.approx((seen.get((c, x), 0) + 2 * prior[x]) / (total + 2))
    known = chain.bits(np.array([[0, 1, 1, 0, 0]]), pad)
    p = [prior[0], chain.tables[1][0, 1], prior[0], chain.tables[1][0, 0]]
    assert known == pytest.approx(-np.mean(np.log2(p)))


def test_draws_follow_the_chain():
    """All 27 sequences of length 3, a chi-square test with the false-alarm rate 10^-4."""
    chain = BackoffChain(3, order=1).fit(np.random.default_rng(1).integers(3, size=(5, 6)))
    num = 20_000
    drawn = chain.sample(num, 3, seed=0)
    first, then = chain.tables[0][0], chain.tables[1]
    expected = [num * first[a] * then[a, b] * then[b, c] for a, b, c in product(range(3), repeat=3)]
    observed = np.bincount(drawn @ [9, 3, 1], minlength=27)
    assert chi_square_p_value(observed, expected) > 1e-4


def test_what_the_chain_knows_by_heart_is_drawn():
    """A period of 3 needs two letters of memory."""
    rows = np.tile([0, 0, 1], (200, 20))
    two, one = (BackoffChain(2, order).fit(rows) for order in (2, 1))
    assert two.bits(rows) < 0.05 < 0.5 < one.bits(rows)
    drawn = two.sample(50, 30, seed=0)
    assert np.mean(drawn[:, 10:-3] == drawn[:, 13:]) > 0.95


def test_after_an_end_there_are_only_ends():
    rows = np.array([[0, 1, 2, 2, 2], [1, 0, 1, 2, 2], [0, 1, 0, 1, 0]])
    chain = BackoffChain(3, order=1, end=2).fit(rows)
    assert chain.tables[0][0].tolist() == pytest.approx([(5 + 1) / 15, (5 + 1) / 15, (2 + 1) / 15])  # one end a row
    drawn = chain.sample(500, 8, seed=0)
    ended = np.logical_or.accumulate(drawn == 2, 1)
    assert (drawn[ended] == 2).all()
    assert ended.any()
    assert chain.bits(rows[:1]) == pytest.approx(chain.bits(rows[:1, :3]))  # ends after the first one say nothing


def test_a_chain_of_order_zero_has_the_frequencies_alone():
    rows = np.array([[0, 0, 0, 1]])
    chain = BackoffChain(2, order=0).fit(rows)
    p = (3 + 1) / 6
    assert chain.bits(np.array([[0]])) == pytest.approx(-math.log2(p))
    assert chain.sample(4000, 5, seed=0).mean() == pytest.approx(1 - p, abs=0.02)  # 6 standard deviations


def test_what_no_chain_can_hold_is_refused():
    with pytest.raises(ValueError, match="order = 5: expected a smaller one for 21 categories"):
        BackoffChain(21, 5)
    with pytest.raises(ValueError, match="tables = none"):
        BackoffChain(2, 1).sample(1, 1)
    with pytest.raises(ValueError, match="tokens = 2: expected categories"):
        BackoffChain(2, 1).fit(np.array([[0, 2]]))
