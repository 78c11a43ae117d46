"""Boards in texts: one board a line, or one in several lines, with comments and the lines that people draw."""

import csv
import math
from pathlib import Path

from usd3._internal.checks import require

__all__ = ["boards_in", "columns_of_boards", "read_text", "rows_of", "shape_of_line"]

_SEPARATORS, _RULES, _COMMENT = " \t|", "-+=", "#"
_HELP = "--data.board.width says how many cells a row has"


def read_text(path: Path) -> str:
    """The text of a file in UTF-8."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: {'a folder' if path.is_dir() else 'no such file'}; expected a file of boards")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"{path}: expected a text in UTF-8") from None


def boards_in(
    text: str, name: str, symbols: str = "", shape: tuple[int, int] | None = None, width: int | None = None
) -> tuple[list[str], tuple[int, int]]:
    """The boards of a text, each as one string of its cells row by row, and their shape (H, W).

    A line is a board. Or a line is a row, and the lines between two blank lines are a board. Lines that begin with `#`
    are comments; spaces, `|` and lines of `-`, `+` and `=` are left out. What is a symbol keeps its meaning.

    Args:
        text: the text.
        name: what the text is called in error messages.
        symbols: the symbols of the boards, as far as they are known.
        shape: the shape of the boards; None: it follows from the text. Boards on one line are then square, unless
            `width` says otherwise; rows of square boards are as long as there are rows between two blank lines.
        width: the number of cells of a row; None: unknown.
    """
    runs = _runs(text, symbols)
    lines = [line for run in runs for line in run]
    require(len(lines) > 0, name, "nothing", "at least one board")
    length = len(lines[0])
    other = next((i for i, line in enumerate(lines) if len(line) != length), None)
    if shape is not None:
        return _boards_of_shape(lines, other, shape, name), shape
    if other is not None:
        seen = f"a line of {len(lines[other])} cells after lines of {length}"
        require(False, name, seen, f"boards of one size, as in {lines[0][:20]}")
    rows = {len(run) for run in runs}
    many = len(runs) > 1 and len(rows) == 1 and min(rows) > 1
    in_blocks = length == width if width is not None else many and (rows == {length} or not _is_square(length))
    if in_blocks:
        require(
            len(rows) == 1, name, f"blocks of {min(rows)} to {max(rows)} lines", "blocks of the same number of lines"
        )
        return ["".join(run) for run in runs], (rows.pop(), length)
    return lines, shape_of_line(length, width, name)


def rows_of(board: str, symbols: str = "") -> list[str]:
    """The cells of each line of one board, without what separates them."""
    return [line for run in _runs(board, symbols) for line in run]


def columns_of_boards(path: Path, name: str) -> tuple[str, list[str] | None]:
    """The boards in a .csv file, one a line: its last column, and the column before it, as in `puzzle,solution`.

    The column before it is None if there is none, or if its cells have another length than the boards.
    """
    rows = [row for row in csv.reader(read_text(path).splitlines()) if row]
    require(len(rows) > 0, name, "nothing", "at least one board")
    rows = rows[len(rows) > 1 and len(rows[0][-1]) != len(rows[1][-1]) :]
    are_puzzles = all(len(row) > 1 and len(row[-2]) == len(row[-1]) for row in rows)
    return "\n".join(row[-1] for row in rows), [row[-2] for row in rows] if are_puzzles else None


def _runs(text: str, symbols: str) -> list[list[str]]:
    """The cells of each line, in runs of lines without a blank line between."""
    dropped = str.maketrans("", "", "".join(c for c in _SEPARATORS if c not in symbols))
    rules = {c for c in _RULES if c not in symbols}
    runs: list[list[str]] = [[]]
    for line in text.splitlines():
        cells = line.translate(dropped)
        if not cells:
            runs.append([])
        elif not (rules.issuperset(cells) or (cells.startswith(_COMMENT) and _COMMENT not in symbols)):
            runs[-1].append(cells)
    return [run for run in runs if run]


def _boards_of_shape(lines: list[str], other: int | None, shape: tuple[int, int], name: str) -> list[str]:
    """Lines as boards of a known shape: each is one, or each is a row; `other` is the first line of another length."""
    height, width = shape
    expected = f"{height * width} characters, one for each of {height} x {width} cells"
    if other is None and len(lines[0]) == width and height > 1:
        seen = f"{len(lines)} row{'s' if len(lines) > 1 else ''} of {width} cells"
        require(len(lines) % height == 0, name, seen, f"{height} rows a board, or {expected}")
        return ["".join(lines[i : i + height]) for i in range(0, len(lines), height)]
    wrong = next((i for i, line in enumerate(lines) if len(line) != height * width), None)
    if wrong is not None:
        which = f" in line {wrong + 1} of the boards" if len(lines) > 1 else ""
        require(False, name, f"{len(lines[wrong])} characters{which}", expected)
    return lines


def shape_of_line(length: int, width: int | None, name: str) -> tuple[int, int]:
    """The shape of boards that are written on one line of so many cells."""
    if width is not None:
        require(
            length % width == 0, name, f"lines of {length} cells", f"rows of {width} cells, as data.board.width says"
        )
        return length // width, width
    expected = f"square boards, or blocks of lines with a blank line between two boards ({_HELP})"
    require(length >= 4 and _is_square(length), name, f"lines of {length} cells", expected)
    return math.isqrt(length), math.isqrt(length)


def _is_square(number: int) -> bool:
    return math.isqrt(number) ** 2 == number
