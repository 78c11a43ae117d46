"""Read boards from texts and arrays, tell whether they are Sudoku boards, and hold some of them out."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from usd3._internal.checks import as_count, require, require_type
from usd3.kinds.board.kind import Board
from usd3.kinds.board.notation import parsed, symbols_in, usual_symbols
from usd3.kinds.board.rename import canonical
from usd3.kinds.board.texts import boards_in, column_of_boards, read_text, rows_of, shape_of_line
from usd3.kinds.dataset import Dataset, Sequences, compact
from usd3.kinds.numpy_files import read_arrays
from usd3.kinds.options import DataConfig
from usd3.kinds.splits import is_test_group
from usd3.metrics.boards import box_side, copied, obey_rules

__all__ = ["board_dataset", "read_dataset"]

Ints = npt.NDArray[np.int64]

_MOST_NAMED = 3  # boards that a warning names


class Boards(NamedTuple):
    """Boards as they were read.

    Args:
        train: (N, H, W) categories from 0 on.
        test: those held out, if the file says which; else None.
        symbols: how the categories are written.
    """

    train: Ints
    test: Ints | None
    symbols: str


def read_dataset(path: Path, data: DataConfig) -> Dataset:
    """The boards of a file: an .npy or .npz of integers, a .csv with a column of boards, or a text."""
    if path.suffix.lower() in (".npy", ".npz"):
        boards = _of_arrays(_arrays_in(path, data), data, str(path))
    else:
        text = column_of_boards(path, str(path)) if path.suffix.lower() == ".csv" else read_text(path)
        board = data.board
        boards = _of_texts(*boards_in(text, str(path), board.symbols or "", width=board.width), data, str(path))
    return _dataset(boards, data, path.stem, str(path))


def board_dataset(objects: Any, data: DataConfig) -> Dataset:
    """Boards in memory: a list of strings, or integers (N, H, W)."""
    if _are_texts(objects):
        symbols = data.board.symbols or ""
        boards = [rows_of(board, symbols) for board in objects]
        height, length = len(boards[0]), len("".join(boards[0]))
        shape = (height, length // height) if height > 1 else shape_of_line(length, data.board.width, "boards")
        found = boards_in("\n".join(map("".join, boards)), "boards", symbols, shape)
        return _dataset(_of_texts(*found, data, "boards"), data, "boards", "boards")
    array = np.asarray(objects.cpu() if isinstance(objects, torch.Tensor) else objects)
    return _dataset(_of_arrays([array], data, "boards"), data, "boards", "boards")


def _are_texts(objects: Any) -> bool:
    several = isinstance(objects, Sequence) and not isinstance(objects, str) and len(objects) > 0
    return several and all(isinstance(board, str) for board in objects)


# ---- texts and arrays -------------------------------------------------------------------------------------------


def _of_texts(boards: list[str], shape: tuple[int, int], data: DataConfig, name: str) -> Boards:
    symbols = data.board.symbols or symbols_in(boards)
    if data.board.symbols is None and data.num_classes is not None:
        symbols = usual_symbols(data.num_classes)
    tokens, known = parsed(boards, symbols, name)
    if not known.all():
        board, cell = np.argwhere(~known)[0].tolist()
        hole = boards[board][cell]
        expected = f"boards without holes (--data.board.symbols '{hole}{symbols}' where {hole} is a symbol)"
        require(False, name, f"a hole, {hole!r}, in board {board + 1}", expected)
    return Boards(tokens.reshape(-1, *shape), None, symbols)


def _arrays_in(path: Path, data: DataConfig) -> list[npt.NDArray[Any]]:
    """The array of training boards in a file, and that of held-out boards if there is one."""
    stored = read_arrays(path)
    if not isinstance(stored, dict):
        return [stored]
    train = data.train_key if data.train_key in stored or len(stored) != 1 else next(iter(stored))
    require(train in stored, f"arrays of {path}", ", ".join(stored) or "none", f"one named {train!r}")
    return [stored[key] for key in (train, data.test_key) if key in stored]


def _of_arrays(arrays: list[npt.NDArray[Any]], data: DataConfig, name: str) -> Boards:
    """Boards of integers 0..K-1, or 1..K where no cell is 0."""
    for array in arrays:
        require_type(array.dtype.kind in "iu", name, array, "integers (N, H, W), or a list of strings")
        require(array.ndim == 3 and array.size > 0, f"shape of {name}", array.shape, "(N, H, W)")
        require(array.shape[1:] == arrays[0].shape[1:], f"shape of {name}", array.shape, "boards of one size")
    lowest = min(int(array.min()) for array in arrays)
    highest = max(int(array.max()) for array in arrays)
    require(lowest >= 0, f"cell of {name}", lowest, "categories 0..K-1, or 1..K")
    side = arrays[0].shape[1]
    if data.board.symbols is None and (lowest, highest) == (0, side) and box_side(arrays[0].shape[1:]) is not None:
        warnings.warn(f"{name}: cells 0..{side}: 0 is read as a symbol, not as a hole to fill", stacklevel=2)
    first = min(lowest, 1)
    found = highest - first + 1
    named = data.num_classes if data.board.symbols is None else len(data.board.symbols)
    expected = f"at least {found}, as there are cells {lowest}..{highest}"
    require(named is None or named >= found, "number of symbols", named, expected)
    symbols = data.board.symbols or usual_symbols(as_count(max(2, found) if named is None else named, "num_classes", 2))
    train, *test = (array.astype(np.int64) - first for array in arrays)
    return Boards(train, test[0] if test else None, symbols)


# ---- splits -----------------------------------------------------------------------------------------------------


def _dataset(boards: Boards, data: DataConfig, name: str, file: str) -> Dataset:
    train, test, symbols = boards
    require(len(symbols) >= 2, f"symbols of {file}", repr(symbols), "at least two different ones")
    require(data.transpose == 0, "data.transpose", data.transpose, "0 for boards, which have no pitch")
    require(data.pad_value is None, "data.pad_value", data.pad_value, "null for boards, which have no padding")
    fits = data.num_classes in (None, len(symbols))
    require(fits, "data.num_classes", data.num_classes, f"null or {len(symbols)}, as data.board.symbols has so many")
    kind = Board(len(symbols), train.shape[1:], symbols, "sudoku" if _is_sudoku(train, len(symbols), file) else None)
    if test is None:
        train, test = _split(train, kind, data, file)
    elif data.test_key != data.train_key:
        _warn_of_shared(train, test, kind, data, file)
    splits = [Sequences(compact(torch.from_numpy(part), len(symbols))) for part in (train, test)]
    return Dataset(name, len(symbols), splits[0], splits[1], kind=kind)


def _is_sudoku(boards: Ints, num_classes: int, file: str) -> bool:
    """Whether all boards obey the rules of Sudoku. Warns if only most of them do."""
    if box_side(boards.shape[1:]) is None or boards.shape[1] != num_classes:
        return False
    obey = obey_rules(boards)
    if 0.5 <= obey.mean() < 1:
        wrong = np.flatnonzero(~obey)
        first = ", ".join(str(board + 1) for board in wrong[:_MOST_NAMED])
        more = ", ..." if len(wrong) > _MOST_NAMED else ""
        warnings.warn(
            f"{file}: {len(wrong)} of {len(boards)} boards break the rules of Sudoku (number {first}{more}); "
            "they are read as boards without rules",
            stacklevel=2,
        )
    return bool(obey.all())


def _split(boards: Ints, kind: Board, data: DataConfig, file: str) -> tuple[Ints, Ints]:
    """Boards in a training and a test split at random.

    Identical boards stay on one side; where training renames symbols, also boards that are the same up to their names.
    """
    flat = _compared(boards, kind, data).reshape(len(boards), -1)
    _, group, sizes = np.unique(flat, axis=0, return_inverse=True, return_counts=True)
    enough = "at least 2, one to train on and one held out, or an .npz with an array of held-out ones"
    require(len(sizes) >= 2, f"different boards of {file}", len(sizes), enough)
    is_test = np.array(is_test_group(sizes.tolist(), data.test_fraction, data.seed))[group.ravel()]
    return boards[~is_test], boards[is_test]


def _compared(boards: Ints, kind: Board, data: DataConfig) -> Ints:
    """Boards in the form in which training sees no difference between them."""
    return canonical(boards, kind.num_classes) if kind.renames(data) else boards


def _warn_of_shared(train: Ints, test: Ints, kind: Board, data: DataConfig, file: str) -> None:
    """Warn if held-out boards of a file are training boards, also with other names where training renames symbols."""
    shared = copied(*(_compared(part, kind, data) for part in (test, train)))
    if shared:
        number, names = round(shared * len(test)), ", up to the names of their symbols" if kind.renames(data) else ""
        warnings.warn(f"{file}: {number} of {len(test)} held-out boards are also training boards{names}", stacklevel=2)
