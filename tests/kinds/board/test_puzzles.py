import math

import numpy as np
import pytest

from support.statistics import chi_square_p_value
from usd3.kinds.board.puzzles import filled_boards, minimal_puzzles, random_boards, rearranged
from usd3.kinds.board.sudoku import count_solutions
from usd3.metrics.boards import obey_rules


def test_boards_obey_the_rules_and_depend_on_the_seed_alone():
    boards = random_boards(30, 9, seed=1)
    assert boards.shape == (30, 9, 9)
    assert obey_rules(boards).all()
    assert np.array_equal(random_boards(7, 9, seed=1), boards[:7])
    assert not np.array_equal(random_boards(7, 9, seed=2), boards[:7])


def test_all_4_x_4_boards_are_equally_frequent():
    """Chi-squared over the 288 boards; the seed is fixed, and a false alarm has probability 1e-4."""
    boards = random_boards(14_400, 4, seed=0).reshape(14_400, -1)
    _, counts = np.unique(boards, axis=0, return_counts=True)
    assert len(counts) == 288
    assert chi_square_p_value(counts, np.full(288, 50)) > 1e-4


@pytest.mark.parametrize(("box", "true"), [(2, 288), (3, 6670903752021072936960)])
def test_the_weights_count_the_boards(box, true):
    """Their mean is the number of all boards: known exactly. The bound is five standard errors."""
    num = 1000
    boards, weights = filled_boards(num, box, np.random.default_rng(0))
    assert obey_rules(boards).all()
    ratios = np.r_[np.exp(weights - math.log(true)), np.zeros(num - len(weights))]
    assert abs(ratios.mean() - 1) < 5 * ratios.std() / math.sqrt(num)
    assert ratios.std() / math.sqrt(num) < 0.15


def test_every_symmetry_is_used_and_keeps_the_rules():
    rng = np.random.default_rng(0)
    board = random_boards(1, 9, seed=0)
    changed = rearranged(np.repeat(board, 500, 0), rng)
    assert obey_rules(changed).all()
    assert len(np.unique(changed.reshape(500, -1), axis=0)) == 500
    assert len(np.unique(rearranged(np.repeat(random_boards(1, 4, seed=0), 9000, 0), rng), axis=0)) in (96, 192)


@pytest.mark.parametrize(("side", "least", "most"), [(4, 4, 6), (9, 20, 29)])
def test_puzzles_have_one_solution_and_no_given_too_many(side, least, most):
    boards = random_boards(12, side, seed=2)
    given = minimal_puzzles(boards, seed=0)
    assert count_solutions(boards, given).tolist() == [1] * 12
    assert set(given.sum((1, 2)).tolist()) <= set(range(least, most + 1))
    for board, puzzle in zip(boards, given):
        fewer = np.repeat(puzzle[None], puzzle.sum(), 0)
        fewer[np.arange(len(fewer)), *np.nonzero(puzzle)] = False
        assert (count_solutions(np.repeat(board[None], len(fewer), 0), fewer) == 2).all()
    assert np.array_equal(minimal_puzzles(boards, seed=0), given)
    assert not np.array_equal(minimal_puzzles(boards, seed=1), given)


def test_without_a_budget_for_a_search_a_cell_stays_given():
    boards = random_boards(3, 9, seed=0)
    given = minimal_puzzles(boards, seed=0, budget=1)
    assert (given.sum((1, 2)) > 30).all()
    assert count_solutions(boards, given).tolist() == [1, 1, 1]


def test_what_is_no_sudoku_size_is_refused():
    with pytest.raises(ValueError, match="side = 6: expected 4, 9, 16 or 25"):
        random_boards(1, 6)
    with pytest.raises(ValueError, match=r"boards.shape = \(9, 9\): expected \(N, K, K\)"):
        minimal_puzzles(np.zeros((9, 9), int))
