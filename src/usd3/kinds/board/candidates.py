"""The candidates of the cells of many Sudoku boards at once, as bits: what the rules leave possible.

A board has n x n boxes of n x n cells and K = n * n symbols. Candidates are an array (n, n, n, n, S) for S boards: the
axes are band, row in the band, stack, column in the stack, board. Bit k is set where symbol k is possible. Boards come
last, so that each operation runs over many of them in contiguous memory.
"""

import functools
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = [
    "Candidates",
    "Reduced",
    "chosen",
    "fewest",
    "flat",
    "full",
    "is_single",
    "of_boards",
    "reduced",
    "symbols_of",
]

Candidates: TypeAlias = npt.NDArray[Any]
"""uint16 for at most 9 symbols, else uint32: sums of the bits of a unit must fit."""

_ROWS, _COLUMNS, _BOXES = (2, 3), (0, 1), (1, 3)  # the axes along which the cells of a unit lie
_CELLS = (0, 1, 2, 3)


class Reduced(NamedTuple):
    """Candidates after one round of elimination.

    Args:
        candidates: (n, n, n, n, S).
        possible: (S,) False where a board has a contradiction.
        changed: (S,) True where a candidate fell.
    """

    candidates: Candidates
    possible: npt.NDArray[np.bool_]
    changed: npt.NDArray[np.bool_]


def full(box: int) -> int:
    """All candidates of a cell, for boxes of `box` x `box` cells."""
    return int((1 << (box * box)) - 1)


def of_boards(tokens: npt.NDArray[Any], given: npt.NDArray[np.bool_], box: int) -> Candidates:
    """The candidates of boards (N, K, K) before any elimination: one where a cell is given, else all."""
    kind: Any = np.uint16 if box <= 3 else np.uint32
    bits = np.where(given, np.left_shift(1, np.where(given, tokens, 0)), full(box)).astype(kind)
    return np.ascontiguousarray(np.moveaxis(bits.reshape(-1, box, box, box, box), 0, -1))


def symbols_of(candidates: Candidates) -> npt.NDArray[np.int64]:
    """The boards (S, K, K) of candidates; -1 where a cell has several."""
    box, boards = len(candidates), candidates.shape[-1]
    symbols = np.where(is_single(candidates), np.log2(np.maximum(candidates, 1)).round().astype(np.int64), -1)
    return np.ascontiguousarray(np.moveaxis(symbols.reshape(box * box, box * box, boards), -1, 0))


def flat(candidates: Candidates) -> Candidates:
    """The cells of boards in one axis, (K * K, S): a view where the array is contiguous."""
    return candidates.reshape(len(candidates) ** 4, candidates.shape[-1])


def chosen(candidates: Candidates, boards: npt.NDArray[Any]) -> Candidates:
    """The candidates of some boards, by a mask (S,) or their numbers; contiguous."""
    return np.take(candidates, np.flatnonzero(boards) if boards.dtype == bool else boards, -1)


def is_single(candidates: Candidates) -> npt.NDArray[np.bool_]:
    """Whether a cell has at most one candidate."""
    return np.asarray((candidates & (candidates - candidates.dtype.type(1))) == 0)


def reduced(candidates: Candidates) -> Reduced:
    """One round of elimination by singles.

    A symbol that is certain in a cell falls in the other cells of its row, column and box. Then a symbol that has one
    place left in a row, column or box takes it.
    """
    single = is_single(candidates)
    certain = np.where(single, candidates, candidates.dtype.type(0))
    possible, taken = (candidates != 0).all(_CELLS), np.zeros_like(candidates)
    for axes in (_ROWS, _COLUMNS, _BOXES):
        union = np.bitwise_or.reduce(certain, axis=axes, keepdims=True)
        possible &= (union == np.add.reduce(certain, axis=axes, keepdims=True, dtype=union.dtype)).all(_CELLS)
        taken |= union
    left = np.where(single, candidates, candidates & ~taken)
    alone = np.zeros_like(left)
    for axes in (_ROWS, _COLUMNS, _BOXES):
        some, once = _places(left, axes)
        possible &= (some == full(len(left))).all((0, 1))
        alone |= np.expand_dims(once, axes)
    placed = left & alone
    left = np.where(placed != 0, placed, left)
    return Reduced(left, possible, (left != candidates).any(_CELLS))


def _places(candidates: Candidates, axes: tuple[int, int]) -> tuple[Candidates, Candidates]:
    """The symbols that have a place in each unit, and those that have exactly one: (n, n, S) each."""
    cells = np.moveaxis(candidates, axes, (0, 1))
    some, several = np.zeros_like(cells[0, 0]), np.zeros_like(cells[0, 0])
    for place in np.ndindex(cells.shape[:2]):
        several |= some & cells[place]
        some |= cells[place]
    return some, some & ~several


def fewest(candidates: Candidates) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The first of the cells with the fewest candidates but more than one, 0..K*K-1, and their number, (S,) each.

    The number is 0 where every cell has one candidate.
    """
    cells = flat(candidates)
    counts = _bits()[cells & 0xFFFF]
    if candidates.dtype != np.uint16:
        counts = counts + _bits()[cells >> 16]
    counts = np.where(counts <= 1, 99, counts)
    cell, number = counts.argmin(0), counts.min(0)
    return cell, np.where(number == 99, 0, number).astype(np.int64)


@functools.cache
def _bits() -> npt.NDArray[np.uint8]:
    """How many bits are set in 0..2^16-1."""
    bits = np.unpackbits(np.arange(2**16, dtype=np.uint16).view(np.uint8)).reshape(-1, 16)
    return np.asarray(bits.sum(1), dtype=np.uint8)
