"""Boards in the studio, and what is said about drawn ones."""

import torch

from usd3.kinds.board.kind import Board
from usd3.kinds.board.sudoku import count_solutions
from usd3.kinds.rendering import Request

SOLVED = "123456789456789123789123456231674895875912364694538217317265948542897631968341572"


def sudoku(side=9, symbols="123456789"):
    return Board(side, (side, side), symbols, "sudoku").page(Request())


def test_the_editor_knows_symbols_and_boxes():
    assert sudoku().editor() == {"name": "board", "symbols": "123456789", "box": 3}
    assert Board(2, (3, 5), ".#").page(Request()).editor() == {"name": "board", "symbols": ".#", "box": None}


def test_the_examples_are_puzzles_with_one_solution():
    page = sudoku()
    tokens, given, _ = page.from_page(page.prompts())
    assert count_solutions(tokens, given).tolist() == [1, 1]
    assert page.prompts() == sudoku().prompts()
    assert sudoku(16, "123456789ABCDEFG").prompts() == []
    assert Board(2, (3, 5), ".#").page(Request()).prompts() == []


def test_what_is_said_counts_solved_boards_and_solutions(tmp_path):
    (tmp_path / "a.txt").write_text(SOLVED)
    page = sudoku()
    board, notes = page.read(tmp_path / "a.txt")
    assert notes == []
    right = torch.tensor([board])
    wrong = right.clone()
    wrong[0, 0, 0] = (wrong[0, 0, 0] + 1) % 9
    hole = page.from_page([[[-1, *board[0][1:]], *board[1:]]])
    assert page.notes(right, hole) == ["solved", "the puzzle has one solution"]
    assert page.notes(wrong, hole) == ["not solved", "the puzzle has one solution"]
    assert page.notes(torch.cat([right, wrong]), hole)[0] == "1 of 2 boards solved"
    empty = page.from_page([page.empty()])
    assert page.notes(right, empty) == ["solved"]
    assert Board(2, (2, 2), ".#").page(Request()).notes(torch.zeros(1, 2, 2, dtype=torch.long), empty) == []
