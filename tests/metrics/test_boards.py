import itertools

import numpy as np
import pytest
import torch

from usd3.metrics import are_solved, obey_rules, violations
from usd3.metrics.boards import box_side, cell_distance, copied, distinct, in_conflict, neighbour_distance

GOOD = np.array([[0, 1, 2, 3], [2, 3, 0, 1], [1, 0, 3, 2], [3, 2, 1, 0]])


def units(side, box):
    """The cells of every row, column and box."""
    cells = list(itertools.product(range(side), repeat=2))
    yield from ([(r, c) for r, c in cells if r == i] for i in range(side))
    yield from ([(r, c) for r, c in cells if c == i] for i in range(side))
    yield from ([(r, c) for r, c in cells if (r // box, c // box) == (i, j)] for i in range(box) for j in range(box))


def counted(board, box):
    return sum(len(cells) - len({int(board[cell]) for cell in cells}) for cells in units(len(board), box))


@pytest.mark.parametrize("box", [2, 3])
def test_violations_are_the_repetitions_of_rows_columns_and_boxes(box):
    side = box * box
    boards = np.random.default_rng(0).integers(side, size=(20, side, side))
    assert violations(boards).tolist() == [counted(board, box) for board in boards]


def test_a_board_that_misses_one_rule_alone_is_not_valid():
    latin = np.array([[0, 1, 2, 3], [1, 0, 3, 2], [2, 3, 0, 1], [3, 2, 1, 0]])  # rows and columns, no boxes
    rows = np.tile(np.arange(4), (4, 1))
    assert obey_rules(torch.tensor(np.stack([GOOD, latin, rows]))).tolist() == [True, False, False]
    assert violations(GOOD[None]).tolist() == [0]


def test_the_cells_in_conflict_are_those_that_share_a_symbol():
    boards = np.random.default_rng(1).integers(4, size=(10, 4, 4))
    known = np.random.default_rng(2).random((10, 4, 4)) < 0.6
    expected = np.zeros_like(known)
    for board, filled, wrong in zip(boards, known, expected):
        for cells in units(4, 2):
            for a, b in itertools.permutations(cells, 2):
                wrong[a] |= filled[a] and filled[b] and board[a] == board[b]
    assert np.array_equal(in_conflict(boards, known), expected)
    unread = np.where(known, boards, 99)  # what is not known may be anything
    assert np.array_equal(in_conflict(unread, known), expected)
    assert not in_conflict(GOOD[None]).any()


def test_a_solution_keeps_what_is_given():
    given = np.zeros((2, 4, 4), dtype=bool)
    given[:, 0, 0] = True
    puzzles = np.stack([GOOD, (GOOD + 1) % 4])
    assert are_solved(np.stack([GOOD, GOOD]), puzzles, given).tolist() == [True, False]
    wrong = GOOD.copy()
    wrong[3, 3] = 1
    assert not are_solved(wrong[None], puzzles[:1], given[:1]).any()


def test_different_boards_and_copies_are_counted():
    boards = np.stack([GOOD, GOOD, GOOD.T, 3 - GOOD])
    assert distinct(boards) == 3 / 4
    assert copied(boards, np.stack([GOOD, GOOD + 0])) == 2 / 4
    assert copied(torch.tensor(boards), torch.tensor(boards[2:])) == 2 / 4
    with pytest.raises(ValueError, match=r"boards.shape = \(4, 4, 4\): expected boards \(3, 4\)"):
        copied(boards, boards[:, :3])


def test_distances_of_symbols_by_hand():
    """One cell of six differs in half of the boards; of the pairs, those with this cell."""
    real = np.zeros((4, 2, 3), dtype=int)
    boards = real.copy()
    boards[:2, 0, 0] = 1
    assert cell_distance(boards, real, 2) == pytest.approx(0.5 / 6)
    across, down = 2 / 16, 2 / 12  # pairs with the cell, of 4 x 4 side by side and 3 x 4 above each other
    assert neighbour_distance(boards, real, 2) == pytest.approx((across + down) / 2)
    assert cell_distance(boards, boards[::-1], 2) == neighbour_distance(boards, boards[::-1], 2) == 0
    assert cell_distance(1 - real, real, 2) == neighbour_distance(1 - real, real, 2) == 1


def test_neighbours_are_told_apart_where_the_cells_are_not():
    rng = np.random.default_rng(0)
    stripes = np.repeat(rng.integers(2, size=(2000, 4, 1)), 4, 2)  # each row has one symbol
    mixed = rng.integers(2, size=(2000, 4, 4))
    assert cell_distance(stripes, mixed, 2) < 0.05
    assert 0.2 < neighbour_distance(stripes, mixed, 2) < 0.3  # half in rows, nothing in columns


@pytest.mark.parametrize(
    ("shape", "box"), [((4, 4), 2), ((9, 9), 3), ((25, 25), 5), ((9, 4), None), ((8, 8), None), ((36, 36), None)]
)
def test_boards_with_boxes(shape, box):
    assert box_side(shape) == box


@pytest.mark.parametrize(
    ("boards", "message"),
    [
        (np.zeros((2, 6, 6), int), "expected boards of 4 x 4"),
        (np.full((1, 4, 4), 4), r"boards = symbols 4..4: expected symbols 0..3"),
        (np.zeros((4, 4), int), r"expected \(N, K, K\)"),
    ],
)
def test_what_is_no_sudoku_board_is_refused(boards, message):
    with pytest.raises(ValueError, match=message):
        violations(boards)
