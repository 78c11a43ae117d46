"""Sudoku: solve puzzles, count their solutions, and fill what simple logic alone can fill. Many puzzles at once.

A puzzle is a board (K, K) of symbols 0..K-1, K = n * n, with a mask of the cells that are given.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from usd3._internal.checks import as_count, require, require_type
from usd3.kinds.board import candidates as rules
from usd3.kinds.board.candidates import Candidates
from usd3.metrics.boards import box_side

__all__ = ["Solutions", "count_solutions", "fill_singles", "search", "solve"]

_AT_ONCE = 2048  # boards of one round; more do not fit into the caches of a core
_USUAL_BUDGET = 1_000_000


class Solutions(NamedTuple):
    """What `solve` found for N puzzles.

    Args:
        counts: (N,) number of solutions, at most as many as asked for.
        boards: (N, K, K) one solution of each; -1 where none was found.
        finished: (N,) False where the search gave up; the count is then a lower bound.
    """

    counts: npt.NDArray[np.int64]
    boards: npt.NDArray[np.int64]
    finished: npt.NDArray[np.bool_]


def solve(tokens: Any, given: Any, most: int = 2, budget: int = _USUAL_BUDGET) -> Solutions:
    """Solve puzzles, and count their solutions up to `most`: 2 tells whether there are none, one or several.

    Args:
        tokens: (N, K, K) symbols 0..K-1.
        given: (N, K, K) True where a cell is given; other tokens are not read.
        most: stop at this number of solutions.
        budget: give up on a puzzle after this many boards of its search.
    """
    tokens, given, box = _checked(tokens, given)
    return search(rules.of_boards(tokens, given, box), most, budget)


def count_solutions(tokens: Any, given: Any, most: int = 2) -> npt.NDArray[np.int64]:
    """The number of solutions of puzzles (N, K, K), at most `most`, (N,). An error if a search takes too long."""
    found = solve(tokens, given, most)
    puzzle = int((~found.finished).argmax())
    require(bool(found.finished.all()), "puzzle", puzzle, "one that can be searched in a reasonable time")
    return found.counts


def fill_singles(tokens: Any, given: Any) -> npt.NDArray[np.int64]:
    """Puzzles (N, K, K) filled as far as singles go, without any guess; -1 where a cell stays open.

    A single is a cell with one symbol left, or a symbol with one cell left in a row, column or box.
    """
    tokens, given, box = _checked(tokens, given)
    now = rules.of_boards(tokens, given, box)
    changed = np.ones(now.shape[-1], dtype=bool)
    while changed.any():
        step = rules.reduced(rules.chosen(now, changed))
        now[..., changed] = step.candidates
        changed[changed] = step.changed & step.possible
    return rules.symbols_of(now)


def search(start: Candidates, most: int, budget: int = _USUAL_BUDGET) -> Solutions:
    """The solutions within candidates (n, n, n, n, N), up to `most` for each of the N boards.

    Eliminates candidates by singles; where that ends, tries one of the fewest candidates of a cell, and all others.
    """
    most, budget = as_count(most, "most", 1), as_count(budget, "budget", 1)
    side, puzzles = len(start) ** 2, start.shape[-1]
    counts, spent = np.zeros(puzzles, np.int64), np.zeros(puzzles, np.int64)
    boards = np.full((puzzles, side, side), -1, np.int64)
    stack = [(start, np.arange(puzzles))]
    while stack:
        now, owner = _popped(stack)
        wanted = (counts[owner] < most) & (spent[owner] <= budget)
        now, owner = rules.chosen(now, wanted), owner[wanted]
        spent += np.bincount(owner, minlength=puzzles)
        step = rules.reduced(now)
        moving = step.possible & step.changed
        at_rest = step.possible & ~step.changed
        resting, rest_owner = rules.chosen(step.candidates, at_rest), owner[at_rest]
        cell, number = rules.fewest(resting)
        solved = number == 0
        boards[rest_owner[solved]] = rules.symbols_of(rules.chosen(resting, solved))
        counts += np.bincount(rest_owner[solved], minlength=puzzles)
        one, others = _halved(rules.chosen(resting, ~solved), cell[~solved])
        halved = rest_owner[~solved]
        stack += [(others, halved), (one, halved), (rules.chosen(step.candidates, moving), owner[moving])]
        stack = [part for part in stack if len(part[1])]
    return Solutions(np.minimum(counts, most), boards, (spent <= budget) | (counts >= most))


def _popped(stack: list[tuple[Candidates, npt.NDArray[np.int64]]]) -> tuple[Candidates, npt.NDArray[np.int64]]:
    """Boards from the top of the stack, as many as one round takes: deep ones first, so that the stack stays small."""
    parts, owners, room = [], [], _AT_ONCE
    while stack and room:
        boards, owner = stack.pop()
        if len(owner) > room:
            stack.append((boards[..., :-room], owner[:-room]))
            boards, owner = boards[..., -room:], owner[-room:]
        parts.append(boards)
        owners.append(owner)
        room -= len(owner)
    return np.concatenate(parts, -1), np.concatenate(owners)


def _halved(now: Candidates, cell: npt.NDArray[np.int64]) -> tuple[Candidates, Candidates]:
    """The boards twice: one candidate of a cell alone, and all its other candidates."""
    one, others = now.copy(), now.copy()
    boards = np.arange(now.shape[-1])
    flat_one, flat_others = map(rules.flat, (one, others))
    chosen = flat_one[cell, boards]
    lowest = chosen & (~chosen + chosen.dtype.type(1))
    flat_one[cell, boards], flat_others[cell, boards] = lowest, chosen ^ lowest
    return one, others


def _checked(tokens: Any, given: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], int]:
    """The arguments as arrays, and the side of a box."""
    tokens, given = np.asarray(tokens), np.asarray(given)
    require_type(tokens.dtype.kind in "iu", "tokens", tokens, "integers (N, K, K)")
    require_type(given.dtype == bool, "given", given, "booleans (N, K, K)")
    require(tokens.ndim == 3 and len(tokens) > 0, "tokens.shape", tokens.shape, "(N, K, K)")
    require(given.shape == tokens.shape, "given.shape", given.shape, f"{tokens.shape}, that of tokens")
    box = box_side(tokens.shape[1:])
    require(box is not None, "tokens.shape", tokens.shape, "boards of 4 x 4, 9 x 9, 16 x 16 or 25 x 25 cells")
    assert box is not None
    bad = tokens[given & ((tokens < 0) | (tokens >= box * box))]
    require(bad.size == 0, "tokens", f"... {bad[:1]} ...", f"symbols 0..{box * box - 1}")
    return tokens.astype(np.int64), given, box
