"""The solver beside brute force, on all 4 x 4 boards."""

import itertools

import numpy as np
import pytest

from usd3.kinds.board import sudoku
from usd3.kinds.board.candidates import full, of_boards, reduced, symbols_of
from usd3.kinds.board.puzzles import minimal_puzzles, random_boards
from usd3.kinds.board.sudoku import count_solutions, fill_singles, search, solve
from usd3.metrics.boards import are_solved, obey_rules


@pytest.fixture(scope="module")
def everything():
    """All boards of 4 x 4 cells, by trying every arrangement of rows."""
    rows = list(itertools.permutations(range(4)))
    boards = np.array([x for x in itertools.product(rows, repeat=4) if all(len(set(c)) == 4 for c in zip(*x))])
    return boards[obey_rules(boards)]


def fitting(everything, tokens, given):
    return everything[((everything == tokens) | ~given).all((1, 2))]


def test_there_are_288_boards(everything):
    assert len(everything) == 288
    empty = np.zeros((1, 4, 4), int)
    assert solve(empty, empty > 0, most=1000).counts.tolist() == [288]


def test_the_number_of_solutions_is_that_of_brute_force(everything):
    rng = np.random.default_rng(0)
    given = rng.random((300, 4, 4)) < rng.random((300, 1, 1))
    tokens = everything[rng.integers(288, size=300)]
    changed = rng.random((300, 1, 1)) < 0.3  # some puzzles have no solution
    tokens = np.where(changed & (rng.random((300, 4, 4)) < 0.2), rng.integers(4, size=(300, 4, 4)), tokens)
    expected = [len(fitting(everything, *puzzle)) for puzzle in zip(tokens, given)]
    found = solve(tokens, given, most=1000)
    assert found.counts.tolist() == expected
    assert found.finished.all()
    assert {0, 1, 2} <= set(expected)
    assert max(expected) > 100
    assert count_solutions(tokens, given).tolist() == [min(count, 2) for count in expected]
    solved = found.counts > 0
    assert are_solved(found.boards[solved], tokens[solved], given[solved]).all()
    assert (found.boards[~solved] == -1).all()


def test_elimination_keeps_every_solution(everything):
    rng = np.random.default_rng(1)
    tokens, given = everything[rng.integers(288, size=200)], rng.random((200, 4, 4)) < 0.3
    step = reduced(of_boards(tokens, given, 2))
    assert step.possible.all()
    left = np.moveaxis(step.candidates.reshape(4, 4, 200), -1, 0)
    for candidates, *puzzle in zip(left, tokens, given):
        assert (candidates[None] & (1 << fitting(everything, *puzzle))).all()


def test_what_singles_fill_is_in_every_solution(everything):
    rng = np.random.default_rng(2)
    tokens, given = everything[rng.integers(288, size=200)], rng.random((200, 4, 4)) < 0.35
    filled = fill_singles(tokens, given)
    assert 0.1 < (filled >= 0).all((1, 2)).mean() < 0.9
    for board, *puzzle in zip(filled, tokens, given):
        assert ((fitting(everything, *puzzle) == board) | (board < 0)).all()


@pytest.mark.parametrize("side", [4, 9, 16])
def test_puzzles_of_any_size_are_solved(side):
    boards = random_boards(4, side, seed=3)
    given = np.random.default_rng(0).random(boards.shape) < 0.6
    found = solve(boards, given)
    one = found.counts == 1
    assert one.any()
    assert np.array_equal(found.boards[one], boards[one])


def test_a_known_puzzle_is_solved():
    puzzle = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"
    answer = "534678912672195348198342567859761423426853791713924856961537284287419635345286179"
    tokens = np.array([int(c) - 1 if c != "." else 0 for c in puzzle]).reshape(1, 9, 9)
    given = np.array([c != "." for c in puzzle]).reshape(1, 9, 9)
    found = solve(tokens, given)
    assert found.counts.tolist() == [1]
    assert "".join(str(k + 1) for k in found.boards.ravel()) == answer
    given[0, 6:] = False
    assert count_solutions(tokens, given).tolist() == [2]


def test_a_search_gives_up_after_its_budget():
    boards = random_boards(1, 9, seed=0)
    given = minimal_puzzles(boards, seed=0)
    found = solve(boards, given, budget=1)
    assert not found.finished.any()
    assert found.counts.tolist() == [0]
    empty = np.zeros((1, 9, 9), int)
    assert solve(empty, empty > 0, most=2).finished.all()  # two are found at once


def test_an_endless_search_is_an_error(monkeypatch):
    monkeypatch.setattr(sudoku.solve, "__defaults__", (2, 1))
    boards = random_boards(2, 9, seed=0)
    with pytest.raises(ValueError, match="puzzle = 0: expected one that can be searched"):
        count_solutions(boards, minimal_puzzles(boards, seed=0))


def test_many_puzzles_are_searched_in_parts(monkeypatch):
    boards = random_boards(40, 9, seed=0)
    given = minimal_puzzles(boards, seed=1)
    monkeypatch.setattr(sudoku, "_AT_ONCE", 7)
    found = solve(boards, given)
    assert found.counts.tolist() == [1] * 40
    assert np.array_equal(found.boards, boards)


def test_candidates_of_the_largest_boards_fit_their_type():
    boards = random_boards(1, 25, seed=0)
    everything = of_boards(boards, boards >= 0, 5)
    assert np.array_equal(symbols_of(everything), boards)
    assert reduced(everything).possible.all()
    assert full(5) == 2**25 - 1
    assert search(everything, most=1).counts.tolist() == [1]


@pytest.mark.parametrize(
    ("tokens", "given", "error", "message"),
    [
        (np.zeros((1, 4, 4)), np.zeros((1, 4, 4), bool), TypeError, "expected integers"),
        (np.zeros((1, 4, 4), int), np.zeros((1, 4, 4), int), TypeError, "expected booleans"),
        (np.zeros((4, 4), int), np.zeros((4, 4), bool), ValueError, r"expected \(N, K, K\)"),
        (np.zeros((1, 6, 6), int), np.zeros((1, 6, 6), bool), ValueError, "boards of 4 x 4"),
        (np.zeros((1, 4, 4), int), np.zeros((2, 4, 4), bool), ValueError, r"given.shape = \(2, 4, 4\)"),
        (np.full((1, 4, 4), 4), np.ones((1, 4, 4), bool), ValueError, r"expected symbols 0\.\.3"),
    ],
)
def test_bad_puzzles_are_refused(tokens, given, error, message):
    with pytest.raises(error, match=message):
        solve(tokens, given)
