"""How boards are written: one character for each cell, row by row, and a hole where a cell is to be filled."""

import string
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from usd3._internal.checks import require

__all__ = ["HOLES", "USUAL", "holes_beside", "parsed", "symbols_in", "usual_symbols", "written"]

USUAL = "123456789" + string.ascii_uppercase + string.ascii_lowercase
"""The symbols of the categories 0, 1, ... unless the user names others."""
HOLES = ".0_"
"""What stands for a cell to fill, unless it is a symbol itself."""


def usual_symbols(num_classes: int) -> str:
    """The symbols of boards whose user named none: digits from 1 on, then letters."""
    expected = f"at most {len(USUAL)}, as each is written as one character (--data.board.symbols names others)"
    require(num_classes <= len(USUAL), "num_classes", num_classes, expected)
    return USUAL[:num_classes]


def symbols_in(boards: Sequence[str]) -> str:
    """The symbols of these boards: digits up to the largest that occurs; or all characters that occur, sorted."""
    found = set().union(*map(set, boards)) - set(HOLES)
    digits = found <= set(string.digits)
    return USUAL[: int(max(found, default="0"))] if digits else "".join(sorted(found))


def holes_beside(symbols: str) -> str:
    """The characters that stand for holes in boards of these symbols."""
    return "".join(hole for hole in HOLES if hole not in symbols)


def parsed(boards: Sequence[str], symbols: str, name: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The categories of boards of one length L, (N, L), and a mask that is False where there is a hole.

    Args:
        boards: one string for each.
        symbols: the characters of the categories 0, 1, ...
        name: what the boards are called in error messages.
    """
    codes = np.frombuffer("".join(boards).encode("utf-32-le", "surrogatepass"), dtype="<u4")
    table = np.full(1 + max(int(codes.max()), *map(ord, symbols + HOLES)), -2, dtype=np.int64)
    holes = holes_beside(symbols)
    table[list(map(ord, holes))] = -1
    table[list(map(ord, symbols))] = np.arange(len(symbols))
    tokens = table[codes].reshape(len(boards), -1)
    if (tokens == -2).any():
        board, cell = np.argwhere(tokens == -2)[0].tolist()
        seen = f"{boards[board][cell]!r} in cell {cell + 1}" + (f" of board {board + 1}" if len(boards) > 1 else "")
        require(False, name, seen, f"one of {symbols}, or a hole: {' '.join(holes)}")
    return np.maximum(tokens, 0), tokens >= 0


def written(tokens: Any, symbols: str) -> list[str]:
    """Boards (N, H, W) as strings of H * W characters, row by row."""
    characters = np.array(list(symbols))[np.asarray(tokens)].reshape(len(tokens), -1)
    return ["".join(row) for row in characters.tolist()]
