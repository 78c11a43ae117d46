"""Boards on the studio's page: symbols in rows and columns, and what the rules say about them."""

import functools
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from usd3._internal.checks import require
from usd3.kinds.board.kind import Board
from usd3.kinds.board.puzzles import minimal_puzzles, random_boards
from usd3.kinds.board.rendering import about_solutions
from usd3.kinds.board.texts import read_text
from usd3.kinds.page import OPEN, FromPage, Page
from usd3.metrics.boards import in_conflict

__all__ = ["BoardPage"]

_LARGEST_PUZZLE = 9  # side of the boards of which puzzles are made at once


@functools.lru_cache(maxsize=2)
def _puzzles(side: int) -> Tensor:
    """Two minimal Sudoku puzzles, (2, side, side), always the same."""
    boards = random_boards(2, side, seed=1)
    return torch.where(torch.from_numpy(minimal_puzzles(boards, seed=1)), torch.from_numpy(boards), OPEN)


class BoardPage(Page):
    """A board of symbols."""

    reads = (".txt",)
    kind: Board

    def editor(self) -> dict[str, Any]:
        """The symbols, and the side of a box where there are boxes."""
        return {"name": "board", "symbols": self.kind.symbols, "box": self.kind.box}

    def prompts(self) -> list[Any]:
        """Sudoku puzzles with one solution."""
        side = self.kind.shape[0]
        if self.kind.rules is None or side > _LARGEST_PUZZLE:
            return []
        return _puzzles(side).tolist()

    def notes(self, tokens: Tensor, prompt: FromPage) -> list[str]:
        """How many boards are solved, and how many solutions the puzzle has."""
        if self.kind.rules is None:
            return []
        solved, num = int((in_conflict(tokens).sum((1, 2)) == 0).sum()), len(tokens)
        lines = [("solved" if solved else "not solved") if num == 1 else f"{solved} of {num} boards solved"]
        if bool(prompt.given.any()):
            lines.append(f"the puzzle has {about_solutions(prompt.tokens, prompt.given)[0]}")
        return lines

    def read(self, path: Path) -> tuple[Any, list[str]]:
        """The first board of a text."""
        tokens, given = self.kind.parsed(read_text(path), path.name)
        require(len(tokens) > 0, path.name, "nothing", "at least one board")
        notes = [] if len(tokens) == 1 else [f"the first of {len(tokens):,} boards"]
        return torch.where(given[0], tokens[0], OPEN).tolist(), notes
