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
from usd3.kinds.board.texts import boards_in, columns_of_boards, read_text, rows_of, shape_of_line
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
        given: (N, H, W) True for the cells of a puzzle that each training board is the solution of; None: unknown.
    """

    train: Ints
    test: Ints | None
    symbols: str
    given: npt.NDArray[np.bool_] | None = None


def read_dataset(path: Path, data: DataConfig) -> Dataset:
    """The boards of a file: an .npy or .npz of integers, a .csv with a column of boards, or a text."""
    if path.suffix.lower() in (".npy", ".npz"):
        arrays, given = _arrays_in(path, data)
        boards = _of_arrays(arrays, data, str(path))._replace(given=given)
    else:
        text, puzzles = columns_of_boards(path, str(path)) if path.suffix.lower() == ".csv" else (read_text(path), None)
        board = data.board
        boards = _of_texts(*boards_in(text, str(path), board.symbols or "", width=board.width), data, str(path))
        if puzzles is not None:
            boards = boards._replace(given=_given_in(puzzles, boards, str(path)))
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


def _given_in(puzzles: list[str], boards: Boards, name: str) -> npt.NDArray[np.bool_]:
    """The cells that puzzles give, (N, H, W); they must agree with their solutions."""
    tokens, cells = parsed(puzzles, boards.symbols, name)
    known = cells.reshape(boards.train.shape)
    wrong = np.flatnonzero((known & (tokens.reshape(known.shape) != boards.train)).any((1, 2)))
    require(
        not len(wrong), f"puzzle {wrong[0] + 1 if len(wrong) else ''} of {name}", "other cells", "those of its solution"
    )
    return known


def _arrays_in(path: Path, data: DataConfig) -> tuple[list[npt.NDArray[Any]], npt.NDArray[np.bool_] | None]:
    """The array of training boards in a file, that of held-out boards if there is one, and which cells are given."""
    stored = read_arrays(path)
    if not isinstance(stored, dict):
        return [stored], None
    train = data.train_key if data.train_key in stored or len(stored) != 1 else next(iter(stored))
    require(train in stored, f"arrays of {path}", ", ".join(stored) or "none", f"one named {train!r}")
    given = stored.get(f"{train}_given")
    if given is not None:
        fits = given.dtype == np.bool_ and given.shape == stored[train].shape
        require(fits, f"{path}[{train}_given]", f"{given.dtype} {given.shape}", f"booleans {stored[train].shape}")
    return [stored[key] for key in (train, data.test_key) if key in stored], given


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
    train, test, symbols, given = boards
    require(len(symbols) >= 2, f"symbols of {file}", repr(symbols), "at least two different ones")
    require(data.transpose == 0, "data.transpose", data.transpose, "0 for boards, which have no pitch")
    require(data.pad_value is None, "data.pad_value", data.pad_value, "null for boards, which have no padding")
    fits = data.num_classes in (None, len(symbols))
    require(fits, "data.num_classes", data.num_classes, f"null or {len(symbols)}, as data.board.symbols has so many")
    kind = Board(len(symbols), train.shape[1:], symbols, "sudoku" if _is_sudoku(train, len(symbols), file) else None)
    if test is None:
        is_test = _is_test(train, kind, data, file)
        train, test, given = train[~is_test], train[is_test], None if given is None else given[~is_test]
    elif data.test_key != data.train_key:
        _warn_of_shared(train, test, kind, data, file)
    tokens = [compact(torch.from_numpy(part), len(symbols)) for part in (train, test)]
    known = None if given is None else torch.from_numpy(given)
    return Dataset(name, len(symbols), Sequences(tokens[0], given=known), Sequences(tokens[1]), kind=kind)


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


def _is_test(boards: Ints, kind: Board, data: DataConfig, file: str) -> npt.NDArray[np.bool_]:
    """Which boards are held out, at random, (N,).

    Identical boards stay on one side; where training renames symbols, also boards that are the same up to their names.
    """
    flat = _compared(boards, kind, data).reshape(len(boards), -1)
    _, group, sizes = np.unique(flat, axis=0, return_inverse=True, return_counts=True)
    enough = "at least 2, one to train on and one held out, or an .npz with an array of held-out ones"
    require(len(sizes) >= 2, f"different boards of {file}", len(sizes), enough)
    return np.array(is_test_group(sizes.tolist(), data.test_fraction, data.seed))[group.ravel()]


def _compared(boards: Ints, kind: Board, data: DataConfig) -> Ints:
    """Boards in the form in which training sees no difference between them."""
    return canonical(boards, kind.num_classes) if kind.renames(data) else boards


def _warn_of_shared(train: Ints, test: Ints, kind: Board, data: DataConfig, file: str) -> None:
    """Warn if held-out boards of a file are training boards, also with other names where training renames symbols."""
    shared = copied(*(_compared(part, kind, data) for part in (test, train)))
    if shared:
        number, names = round(shared * len(test)), ", up to the names of their symbols" if kind.renames(data) else ""
        warnings.warn(f"{file}: {number} of {len(test)} held-out boards are also training boards{names}", stacklevel=2)
