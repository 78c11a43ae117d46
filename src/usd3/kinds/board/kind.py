"""Boards as a kind of data: symbols in rows and columns, such as Sudoku.

Readers, measures and pictures are imported where they are used: `usd3 sample` needs few of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from usd3._internal.checks import as_tokens, require, require_type
from usd3.kinds.base import Augment, Kind
from usd3.kinds.board.notation import parsed, written
from usd3.kinds.board.texts import boards_in, rows_of
from usd3.kinds.dataset import Dataset
from usd3.kinds.options import DataConfig
from usd3.kinds.rendering import Request
from usd3.metrics.boards import box_side
from usd3.metrics.summary import Metric

if TYPE_CHECKING:
    from usd3.kinds.board.judge import BoardJudge
    from usd3.kinds.board.page import BoardPage
    from usd3.kinds.board.rendering import BoardRenderer

__all__ = ["Board"]


@dataclass(frozen=True)
class Board(Kind):
    """A board (H, W), with a symbol in each cell.

    Args:
        symbols: the characters of the categories 0, 1, ... They must be given; "" is an error.
        rules: "sudoku": every symbol stands once in each row, column and box; None: there are no rules.
    """

    symbols: str = ""
    rules: Literal["sudoku"] | None = None

    name: ClassVar[str] = "board"
    plural: ClassVar[str] = "boards"
    sources: ClassVar[tuple[str, ...]] = ("board",)
    also_reads: ClassVar[tuple[str, ...]] = ("array",)
    suffixes: ClassVar[tuple[str, ...]] = (".npz", ".txt", ".png", ".gif")
    draws_all_prompts: ClassVar[bool] = True
    is_sequence: ClassVar[bool] = False
    is_judged: ClassVar[bool] = True
    columns: ClassVar[Mapping[str, Metric]] = {
        "valid": Metric("valid", "higher"),
        "violations": Metric("violations a board"),
        "distinct": Metric("distinct", "higher"),
        "copied": Metric("training boards", None),
        "cells": Metric("distance of cells"),
        "neighbours": Metric("distance of neighbours"),
        "solved": Metric("puzzles solved", "higher"),
    }
    main_metrics: ClassVar[tuple[str, ...]] = ("solved", "valid", "neighbours")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_type(isinstance(self.symbols, str), "symbols", self.symbols, "a text")
        require(self.rules in (None, "sudoku"), "rules", self.rules, "null or sudoku")
        require(len(self.shape) == 2, "shape", self.shape, "(H, W), that of a board")
        fits = len(set(self.symbols)) == len(self.symbols) == self.num_classes
        require(fits, "symbols", self.symbols, f"{self.num_classes} different characters, one for each category")
        fits = self.rules is None or (self.box is not None and self.shape[0] == self.num_classes)
        require(fits, "rules", self.rules, "null for these boards: Sudoku has as many symbols as rows, 4, 9, 16 or 25")

    @property
    def box(self) -> int | None:
        """The side of a box of a Sudoku board; None: there are no boxes."""
        return None if self.rules is None else box_side(self.shape)

    def describe(self) -> str:
        """Such as "Sudoku boards of 9 x 9 cells"."""
        size = " x ".join(map(str, self.shape))
        if self.rules == "sudoku":
            return f"Sudoku boards of {size} cells"
        return f"boards of {size} cells and {self.num_classes} symbols"

    def require_same(self, other: Mapping[str, Any], name: str) -> None:
        """Raise an error for another kind, and for boards of other symbols."""
        super().require_same(other, name)
        require(other["symbols"] == self.symbols, f"symbols of {name}", other["symbols"], self.symbols)

    def obeys(self, tokens: Tensor) -> Tensor | None:
        """Whether each board has every symbol once in each row, column and box; None: these boards have no rules."""
        from usd3.metrics.boards import obey_rules

        return None if self.rules is None else torch.from_numpy(obey_rules(tokens))

    # ---- reading ------------------------------------------------------------------------------------------------

    @classmethod
    def read(cls, data: DataConfig) -> Dataset:
        """The boards of an .npy or .npz file, of a .csv file, or of a text."""
        from usd3.kinds.board.reading import read_dataset  # it imports this class

        return read_dataset(Path(data.file("a file of boards")), data)

    @classmethod
    def from_objects(cls, objects: Any, data: DataConfig) -> Dataset:
        """Boards in memory: a list of strings, or integers (N, H, W)."""
        from usd3.kinds.board.reading import board_dataset

        return board_dataset(objects, data)

    @classmethod
    def describe_split(cls, data: DataConfig) -> str:
        """The arrays of the file that are the splits, or the fraction that was held out."""
        from usd3.kinds.array import Array

        if Path(str(data.path)).suffix.lower() == ".npz":
            return Array.describe_split(data)
        return f"{data.test_fraction:g} held out of the boards, equal ones on one side, seed {data.seed}"

    def renames(self, data: DataConfig) -> bool:
        """Whether training renames the symbols of boards."""
        return self.rules is not None if data.board.rename is None else data.board.rename

    def augment(self, data: DataConfig, decode: Tensor | None, device: Any) -> Augment | None:
        """A function that renames the symbols of each board at random; None where they keep their names."""
        from usd3.kinds.board.rename import renamer

        return renamer(self.num_classes) if self.renames(data) else None

    # ---- tokens and strings -------------------------------------------------------------------------------------

    def objects(self, tokens: Tensor, seed: int = 0) -> list[str]:
        """Each board as a string of its cells, row by row."""
        return written(as_tokens(tokens).cpu(), self.symbols)

    def tokens(self, objects: Any) -> tuple[Tensor, Tensor]:
        """Strings, one for each board, as tokens (N, H, W), and a mask that is False where there is a hole.

        A string has H * W characters, or several lines, or both with spaces and `|` between. An array is as in `Kind`.
        """
        if not isinstance(objects, str | Sequence) or not all(isinstance(board, str) for board in objects):
            return super().tokens(objects)
        boards = [objects] if isinstance(objects, str) else list(objects)
        require_type(len(boards) > 0, "boards", boards, "at least one board")
        lines = ["".join(rows_of(board, self.symbols)) for board in boards]
        cells = self.shape[0] * self.shape[1]
        wrong = next((i for i, line in enumerate(lines) if len(line) != cells), None)
        if wrong is not None:
            seen = f"{len(lines[wrong])} cells in board {wrong + 1}"
            require(
                False, "boards", seen, f"{cells}, one character for each of {self.shape[0]} x {self.shape[1]} cells"
            )
        return self.parsed("\n".join(lines), "boards")

    def parsed(self, text: str, name: str) -> tuple[Tensor, Tensor]:
        """The boards in a text as tokens (N, H, W), and a mask that is False where there is a hole.

        Args:
            text: one board a line, or in several lines.
            name: what the text is called in error messages.
        """
        shape = (self.shape[0], self.shape[1])
        boards, _ = boards_in(text, name, self.symbols, shape)
        tokens, known = (torch.from_numpy(part).reshape(-1, *shape) for part in parsed(boards, self.symbols, name))
        return tokens, known

    # ---- files and pictures -------------------------------------------------------------------------------------

    def renderer(self, request: Request) -> "BoardRenderer":
        """The renderer of texts and pictures of boards."""
        from usd3.kinds.board.rendering import BoardRenderer

        return BoardRenderer(self)

    def page(self, request: Request) -> "BoardPage":
        """The boards as the studio shows them."""
        from usd3.kinds.board.page import BoardPage

        return BoardPage(self, request)

    def picture_methods(self, rows: Mapping[str, Tensor], compared_with: Mapping[str, Any], path: Path) -> bool:
        """Draw a row of boards for each method."""
        return self.renderer(Request()).picture_rows(rows, path)

    def sample_examples(self, given: str | None, prefix: int) -> list[str]:
        """One from nothing, and one that fills holes."""
        return ["", " --prompt boards-with-holes.txt"]

    # ---- measures -----------------------------------------------------------------------------------------------

    def require_settings(self, settings: Any, option: str) -> None:
        """Raise an error for puzzles of boards that have no rules."""
        puzzles = settings.boards.puzzles
        expected = "null, as these boards have no rules that say what a solution is"
        require(puzzles is None or self.rules is not None, f"{option}boards.puzzles", puzzles, expected)

    def judge(self, dataset: Dataset, settings: Any, device: str | None, option: str) -> "BoardJudge":
        """The judge that checks the rules and compares boards with the training boards."""
        from usd3.kinds.board.judge import BoardJudge

        self.require_settings(settings, option)
        return BoardJudge(dataset, settings.boards, settings.seed, f"{option}boards")

    @classmethod
    def describe_sets(cls, settings: Mapping[str, Any], compared_with: Mapping[str, Any]) -> str:
        """A line with the number of boards drawn, the training boards and the puzzles."""
        drawn = f"{settings['boards']['num']} boards in {settings['steps']} steps, seed {settings['seed']}"
        line = drawn if settings["runs"] == 1 else f"{settings['runs']} sets of {drawn}"
        line += f", beside {compared_with['training_boards']} training boards"
        puzzles = compared_with["puzzles"]
        return f"{line}; {puzzles['num']} puzzles, {puzzles['from']}" if puzzles else line
