"""The options of boards: how they are read, the section `data.board` of a recipe, and how they are measured."""

from dataclasses import dataclass

from usd3._internal.checks import as_count, require
from usd3._internal.fields import require_fields

__all__ = ["BoardOptions", "BoardSettings"]


@dataclass
class BoardOptions:
    """How boards are read.

    Args:
        symbols: how the categories 0, 1, ... are written, such as "123456789"; null: digits from 1 on, then letters;
            in a text with other characters than digits, all that occur, sorted.
        width: number of cells of a row, for boards that a text has on one line each; null: they are square.
        rename: in training, rename the symbols of each board at random, where they are interchangeable; null: where
            the boards are Sudoku boards.
    """

    symbols: str | None = None
    width: int | None = None
    rename: bool | None = None

    def __post_init__(self) -> None:
        require_fields(self, "data.board")
        as_count(1 if self.width is None else self.width, "data.board.width", 1)
        if self.symbols is not None:
            distinct = len(set(self.symbols)) == len(self.symbols) >= 2
            require(distinct, "data.board.symbols", self.symbols, "at least two different characters")


@dataclass
class BoardSettings:
    """How boards are measured; only for a model of boards.

    Args:
        num: number of boards in a run, drawn from nothing.
        puzzles: a text of Sudoku puzzles, boards with holes, to solve; null: they are made of held-out boards. Boards
            without rules have none.
        num_puzzles: number of puzzles, minimal ones with one solution, or the first ones of the file; 0: none.
    """

    num: int = 1000
    puzzles: str | None = None
    num_puzzles: int = 200

    def __post_init__(self) -> None:
        require_fields(self, "boards")
        as_count(self.num, "boards.num", 2)
        as_count(self.num_puzzles, "boards.num_puzzles", 0)
