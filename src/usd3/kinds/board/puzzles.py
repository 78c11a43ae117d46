"""Sudoku boards drawn at random, and puzzles with one solution made of them; many at once, with a seed."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from usd3._internal.checks import as_count, require
from usd3.kinds.board import candidates as rules
from usd3.kinds.board.candidates import Candidates
from usd3.kinds.board.sudoku import search
from usd3.metrics.boards import box_side

__all__ = ["filled_boards", "minimal_puzzles", "random_boards", "rearranged"]

_LARGEST_WEIGHTS = {2: math.log(384), 3: 53.0}
"""Logarithms of the weights at which a board is certainly kept, by the side of a box.

Of 409,600 boards of 9 x 9 cells, the part of the weights above it sums to 0.8 % of all weights; at 4 x 4 there is none.
"""
_BUDGET = 20_000  # boards in the search for a second solution: a 9 x 9 puzzle needs a few hundred


def random_boards(num: int, side: int = 9, seed: int = 0) -> npt.NDArray[np.int64]:
    """Solved boards (num, side, side), symbols 0..side-1, at 4 x 4 and 9 x 9 drawn uniformly from all there are.

    A board is filled at random under the rules. Some boards come out of this more often than others, by a known weight,
    and are dropped as often. So a model that learnt them perfectly has 72.5 bits for a board of 9 x 9 cells, 0.895 for
    a cell. Boards of 16 x 16 and 25 x 25 cells are not weighed: almost all would be dropped.

    Args:
        num: number of boards.
        side: 4, 9, 16 or 25.
        seed: seed of the draws. The same seed gives the same boards; more boards begin with the same ones.
    """
    num, box = as_count(num, "num", 1), _box(side)
    rng = np.random.default_rng(as_count(seed, "seed", 0))
    parts, missing = list[npt.NDArray[np.int64]](), num
    while missing > 0:
        at_once = 64 if box > 3 else 2048 if parts else 512  # few boards are made at once, many in large parts
        boards, weights = filled_boards(at_once, box, rng)
        largest = _LARGEST_WEIGHTS.get(box, -math.inf)
        kept = np.log(rng.random(len(weights))) < weights - largest
        parts.append(rearranged(boards[kept], rng)[:missing])
        missing -= len(parts[-1])
    return np.concatenate(parts)


def filled_boards(
    num: int, box: int, rng: np.random.Generator
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Boards filled cell by cell at random, and the logarithms of their weights: at most `num` of each.

    Each draw takes one of the candidates of the cell with the fewest, until every cell has one. Boards that run into a
    contradiction are dropped. The weight is the product of the numbers of candidates, 1 / p(board): its mean over all
    `num` draws, with 0 for the dropped ones, estimates how many solved boards there are.
    """
    side = box * box
    nothing = np.zeros((num, side, side), dtype=np.int64)
    now, weights = rules.of_boards(nothing, nothing != 0, box), np.zeros(num)
    done, done_weights = [nothing[:0]], [weights[:0]]
    while now.shape[-1]:
        step = rules.reduced(now)
        now, weights = rules.chosen(step.candidates, step.possible), weights[step.possible]
        boards = np.flatnonzero(~step.changed[step.possible])
        cell, number = rules.fewest(rules.chosen(now, boards))
        solved, open_ = boards[number == 0], boards[number > 0]
        done.append(rules.symbols_of(rules.chosen(now, solved)))
        done_weights.append(weights[solved])
        _choose(now, open_, cell[number > 0], rng)
        weights[open_] += np.log(number[number > 0])
        unsolved = np.ones(len(weights), dtype=bool)
        unsolved[solved] = False
        now, weights = rules.chosen(now, unsolved), weights[unsolved]
    return np.concatenate(done), np.concatenate(done_weights)


def _choose(
    now: Candidates, boards: npt.NDArray[np.int64], cell: npt.NDArray[np.int64], rng: np.random.Generator
) -> None:
    """Leave one candidate, drawn at random, in a cell of each of these boards."""
    cells = rules.flat(now)
    bits = np.arange(len(now) ** 2)[:, None]
    lots = (cells[cell, boards] >> bits & 1) * (1 + rng.random((len(bits), len(boards))))  # 0 where it is none
    cells[cell, boards] = np.left_shift(1, lots.argmax(0)).astype(now.dtype)


def rearranged(boards: npt.NDArray[np.int64], rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Boards (N, K, K), each changed by a random symmetry of Sudoku: valid boards stay valid."""
    num, side, _ = boards.shape
    box = _box(side)
    boards = np.take_along_axis(boards, _lines(num, box, rng)[:, :, None], 1)
    boards = np.take_along_axis(boards, _lines(num, box, rng)[:, None, :], 2)
    turned = rng.random((num, 1, 1)) < 0.5
    boards = np.where(turned, boards.transpose(0, 2, 1), boards)
    names = rng.random((num, side)).argsort(1)
    return np.take_along_axis(names, boards.reshape(num, -1), 1).reshape(boards.shape)


def _lines(num: int, box: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Random orders of the rows of boards, (num, K): bands in any order, and rows in any order within each band."""
    bands, rows = rng.random((num, box)).argsort(1), rng.random((num, box, box)).argsort(2)
    return (bands[:, :, None] * box + rows).reshape(num, -1)


def minimal_puzzles(boards: Any, seed: int = 0, budget: int = _BUDGET) -> npt.NDArray[np.bool_]:
    """Which cells to give of solved boards (N, K, K), so that each is the one solution of a minimal puzzle.

    Takes the cells in a random order, and removes each that is not needed: where no other symbol can stand there, the
    solution stays the only one. At the end no given can be removed. At 9 x 9 about 24 givens are left.

    Args:
        boards: the solutions.
        seed: seed of the orders. The same seed gives the same puzzles.
        budget: boards in a search for another solution. Where it ends without an answer, which no 9 x 9 board has
            shown, the cell stays given: the solution is the only one, but the puzzle may not be minimal.

    Returns:
        (N, K, K) True where a cell is given.
    """
    boards = np.asarray(boards)
    require(boards.ndim == 3 and len(boards) > 0, "boards.shape", boards.shape, "(N, K, K)")
    num, side, _ = boards.shape
    box = _box(side)
    order = np.random.default_rng(as_count(seed, "seed", 0)).random((num, side * side)).argsort(1)
    given = np.ones((num, side * side), dtype=bool)
    rows, solution = np.arange(num), boards.reshape(num, -1)
    for cell in order.T:
        given[rows, cell] = False
        others = rules.of_boards(boards, given.reshape(boards.shape), box)
        flat = rules.flat(others)
        flat[cell, rows] ^= np.left_shift(1, solution[rows, cell]).astype(flat.dtype)
        found = search(others, most=1, budget=budget)
        given[rows, cell] = (found.counts > 0) | ~found.finished
    return given.reshape(boards.shape)


def _box(side: int) -> int:
    """The side of a box."""
    box = box_side((side, side))
    require(box is not None, "side", side, "4, 9, 16 or 25")
    assert box is not None
    return box
