"""Boards in numbers: whether they obey the rules of Sudoku, how many are distinct, how many copy training boards."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from usd3._internal.checks import require
from usd3.metrics._arrays import Bools, Floats, Ints, as_array, as_sequences

__all__ = [
    "are_solved",
    "box_side",
    "cell_distance",
    "copied",
    "distinct",
    "in_conflict",
    "neighbour_distance",
    "obey_rules",
    "violations",
]

_LARGEST_BOX = 5  # boards of 25 x 25 cells
_AT_ONCE = 2**24  # elements of a table of boards, cells and symbols


def box_side(shape: Sequence[int]) -> int | None:
    """The side n of a box of a Sudoku board (n * n, n * n), 2 <= n <= 5; None: the shape is no such board's."""
    rows, *others = shape
    box = math.isqrt(rows)
    return box if others == [rows] and box * box == rows and 2 <= box <= _LARGEST_BOX else None


def violations(boards: Any) -> Ints:
    """How often boards (N, K, K) of symbols 0..K-1 break the rules of Sudoku, (N,).

    Counts, for each row, column and box, the cells that repeat a symbol of another cell of it: its cells less its
    different symbols. A board without any obeys the rules.
    """
    x, box = _as_sudoku(boards)
    side = box * box
    parts = [_lacking(part, box) for part in np.array_split(x, max(1, math.ceil(x.size * side / _AT_ONCE)))]
    return np.concatenate(parts)


def _lacking(x: Ints, box: int) -> Ints:
    """The number of symbols that the units of boards lack, (N,)."""
    lacks = np.zeros(len(x), dtype=np.int64)
    for units in _units(x, box):
        has = np.zeros((*units.shape[:2], box * box), dtype=bool)
        np.put_along_axis(has, units, True, 2)
        lacks += (~has).sum((1, 2))
    return lacks


def obey_rules(boards: Any) -> Bools:
    """Whether each of the boards (N, K, K) has every symbol once in each row, column and box, (N,)."""
    return np.asarray(violations(boards) == 0)


def in_conflict(boards: Any, known: Any = None) -> Bools:
    """The cells of boards (N, K, K) whose symbol stands in another cell of their row, column or box, (N, K, K).

    Args:
        boards: symbols 0..K-1.
        known: (N, K, K) True where a cell has a symbol; the others conflict with nothing. None: all have.
    """
    given = None if known is None else np.asarray(as_array(known))
    x = as_array(boards)
    x, box = _as_sudoku(x if given is None else np.where(given, x, 0))
    symbols = np.arange(box * box)
    is_symbol = (x[..., None] == symbols) & (True if given is None else given[..., None])
    repeated = np.zeros_like(is_symbol)
    for axes, view in (((2,), is_symbol), ((1,), is_symbol), ((2, 4), _boxed(is_symbol, box))):
        often = (view.sum(axes, keepdims=True) > 1) & view
        repeated |= often.reshape(repeated.shape)
    return np.asarray(repeated.any(-1))


def are_solved(boards: Any, tokens: Any, given: Any) -> Bools:
    """Whether each of the boards (N, K, K) solves its puzzle: it obeys the rules and keeps what is given, (N,).

    Args:
        boards: the filled puzzles.
        tokens: (N, K, K) the puzzles.
        given: (N, K, K) True where a cell of a puzzle is given.
    """
    x = as_array(boards)
    kept = (x == as_array(tokens)) | ~np.asarray(as_array(given))
    return np.asarray(obey_rules(x) & kept.all((1, 2)))


def distinct(boards: Any) -> float:
    """The number of different boards among boards (N, H, W), divided by N."""
    rows = _rows(as_sequences(boards, "boards", "(N, H, W)"))
    return len(np.unique(rows)) / len(rows)


def copied(boards: Any, train: Any) -> float:
    """The share of the boards (N, H, W) that equal one of the training boards (M, H, W) in every cell."""
    x, real = as_sequences(boards, "boards", "(N, H, W)"), as_sequences(train, "train", "(M, H, W)")
    require(x.shape[1:] == real.shape[1:], "boards.shape", x.shape, f"boards {real.shape[1:]}, as training has")
    return float(np.isin(_rows(x), _rows(real)).mean())


def cell_distance(boards: Any, real: Any, num_classes: int) -> float:
    """Total variation distance of the symbols of each cell, mean over the cells: 0 same frequencies, 1 disjoint.

    Args:
        boards: (N, H, W) symbols 0..num_classes-1.
        real: (M, H, W) boards to compare with.
        num_classes: number of symbols.
    """
    x, y = (as_sequences(part, name, "(N, H, W)") for part, name in ((boards, "boards"), (real, "real")))
    frequencies = [_frequencies(part.reshape(len(part), -1).T, num_classes) for part in (x, y)]
    return float(np.abs(frequencies[0] - frequencies[1]).sum(1).mean() / 2)


def neighbour_distance(boards: Any, real: Any, num_classes: int) -> float:
    """Total variation distance of the pairs of symbols in neighbouring cells, side by side and one above the other.

    Pairs count wherever they stand. The result is the mean over both directions; a direction without pairs is left out.

    Args:
        boards: (N, H, W) symbols 0..num_classes-1.
        real: (M, H, W) boards to compare with.
        num_classes: number of symbols.
    """
    x, y = (as_sequences(part, name, "(N, H, W)") for part, name in ((boards, "boards"), (real, "real")))
    distances = []
    for axis in (1, 2):
        if x.shape[axis] > 1:
            pairs = [_pairs(part, axis, num_classes) for part in (x, y)]
            distances.append(float(np.abs(pairs[0] - pairs[1]).sum() / 2))
    return float(np.mean(distances)) if distances else math.nan


def _frequencies(rows: Ints, num_classes: int) -> Floats:
    """The share of each category in each row of an array (R, L), (R, K)."""
    numbered = rows + num_classes * np.arange(len(rows))[:, None]
    counts = np.bincount(numbered.ravel(), minlength=num_classes * len(rows)).reshape(len(rows), num_classes)
    return np.asarray(counts / rows.shape[1])


def _pairs(x: Ints, axis: int, num_classes: int) -> Floats:
    """The share of each pair of categories in neighbouring cells along an axis, (1, K * K)."""
    first, second = np.delete(x, -1, axis), np.delete(x, 0, axis)
    return _frequencies((first * num_classes + second).reshape(1, -1), num_classes**2)


def _rows(x: Ints) -> Any:
    """Each board as one value that can be sorted and compared."""
    flat = np.ascontiguousarray(x.reshape(len(x), -1))
    return flat.view(np.dtype((np.void, flat.dtype.itemsize * flat.shape[1]))).ravel()


def _as_sudoku(boards: Any) -> tuple[Ints, int]:
    """The boards as an array, and the side of a box."""
    x = as_sequences(boards, "boards", "(N, K, K)")
    box = box_side(x.shape[1:])
    require(box is not None, "boards.shape", x.shape, "boards of 4 x 4, 9 x 9, 16 x 16 or 25 x 25 cells")
    assert box is not None
    fits = x.min() >= 0 and x.max() < box * box
    require(fits, "boards", f"symbols {x.min()}..{x.max()}", f"symbols 0..{box * box - 1}")
    return x, box


def _units(x: Ints, box: int) -> tuple[Ints, Ints, Ints]:
    """The rows, the columns and the boxes of boards (N, K, K), each (N, K, K): one row of the result is one unit."""
    boxes = _boxed(x, box).transpose(0, 1, 3, 2, 4).reshape(x.shape)
    return x, x.transpose(0, 2, 1), boxes


def _boxed(x: Any, box: int) -> Any:
    """Boards (N, K, K, ...) with the axes of bands and stacks apart, (N, n, n, n, n, ...)."""
    return x.reshape(len(x), box, box, box, box, *x.shape[3:])
