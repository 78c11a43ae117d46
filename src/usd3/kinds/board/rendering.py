"""Boards as texts and pictures, and texts with holes as prompts."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from usd3._internal.checks import require
from usd3._internal.files import write_whole
from usd3._internal.progress import say
from usd3.kinds.board.kind import Board
from usd3.kinds.board.sudoku import Solutions, solve
from usd3.kinds.board.texts import read_text
from usd3.kinds.dataset import Sequences
from usd3.kinds.rendering import Drawn, Renderer
from usd3.kinds.text.printing import printable
from usd3.metrics.boards import in_conflict, violations
from usd3.pictures.boards import BOARDS_IN_A_ROW, MOST_BOARDS

__all__ = ["BoardRenderer", "about_solutions"]

_MOST_BOARDS = 8  # in one picture
_MOST_SHOWN = 4  # on the terminal
_BUDGET, _LARGE_BUDGET = 1_000_000, 200_000  # boards in a search for solutions, up to 9 x 9 and beyond: about a second
_LARGEST_SIDE = 32  # cells of a row whose symbols can be read; larger boards are drawn as maps of colours


class BoardRenderer(Renderer):
    """Writes boards.txt, one board a line, and pictures of boards. Reads boards with holes."""

    prompts = (".txt",)
    has_holes = True
    reads_text = True
    kind: Board

    def __init__(self, kind: Board):
        super().__init__(kind)
        self._typed: tuple[Tensor, Tensor] | None = None  # tokens and mask of given cells of what was typed

    # ---- prompts ------------------------------------------------------------------------------------------------

    def prompt(self, path: Path) -> tuple[Sequences, Tensor]:
        """The boards in a text file, and a mask (N, H, W) that is False where there is a hole."""
        return self._with_holes(read_text(path), str(path))

    def text_prompt(self, text: str) -> tuple[Sequences, Tensor]:
        """A board that was typed."""
        boards, given = self._with_holes(text, "prompt")
        self._typed = boards.tokens.long(), given
        return boards, given

    def _with_holes(self, text: str, name: str) -> tuple[Sequences, Tensor]:
        tokens, given = self.kind.parsed(text, name)
        require(not bool(given.all()), name, "no hole", "at least one cell to fill")
        if self.kind.rules is not None:
            impossible = in_conflict(tokens, given).any((1, 2))
            if impossible.any():
                first = int(np.flatnonzero(impossible)[0]) + 1
                which = "the board" if len(tokens) == 1 else f"{impossible.sum()} of {len(tokens)} boards"
                at = "" if len(tokens) == 1 else f", the first is board {first}"
                warnings.warn(f"{name}: what is given of {which} breaks the rules of Sudoku{at}", stacklevel=2)
        return Sequences(tokens), given

    # ---- files --------------------------------------------------------------------------------------------------

    def write(self, drawn: Drawn, out: Path) -> None:
        """Write the boards and their pictures, and say how many obey the rules."""
        super().write(drawn, out)
        if self.kind.rules is not None:
            valid, num = int((violations(drawn.tokens) == 0).sum()), len(drawn.tokens)
            obey = f"{valid} of {num} boards {'obeys' if valid == 1 else 'obey'}"
            say(f"{obey if num > 1 else 'the board obeys' if valid else 'the board breaks'} the rules of Sudoku")

    def write_objects(self, drawn: Drawn, out: Path) -> None:
        """Write the boards, one a line."""
        if out.suffix in ("", ".txt"):
            lines = "\n".join(self.kind.objects(drawn.tokens)) + "\n"
            write_whole(out if out.suffix else out / "boards.txt", lines)

    def shown(self, drawn: Drawn) -> str:
        """The first boards in rows, if one was typed: a text that can be a prompt, or data, again.

        Comments say which boards are solved, and how many solutions a typed Sudoku puzzle has.
        """
        if self._typed is None:
            return ""
        boards = drawn.tokens[:_MOST_SHOWN]
        numbers = [f"{i}" if len(drawn.tokens) > 1 else "" for i in range(1, len(boards) + 1)]
        wrong = None if self.kind.rules is None else in_conflict(drawn.tokens).sum((1, 2))
        verdicts = [""] * len(boards) if wrong is None else [_verdict(int(n)) for n in wrong[: len(boards)]]
        titles = [": ".join(filter(None, parts)) for parts in zip(numbers, verdicts)]
        shown = map(self._in_rows, self.kind.objects(boards))
        parts = [f"# {title}\n{board}" if title else board for title, board in zip(titles, shown)]
        if wrong is not None:
            parts.append("\n".join(f"# {line}" for line in self._about_puzzles(*self._typed, wrong)))
        return printable("\n\n".join(parts))

    def _about_puzzles(self, tokens: Tensor, given: Tensor, wrong: Any) -> list[str]:
        """Lines about typed puzzles: how many answers are right, how many solutions there are, what to try next.

        Args:
            tokens: (N, K, K) the puzzles.
            given: (N, K, K) True where a cell is given.
            wrong: (M,) the number of cells of each answer that break the rules.
        """
        lines = [f"{int((wrong == 0).sum())} of {len(wrong)} boards solved"] if len(wrong) > 1 else []
        found = _searched(tokens, given)
        words = _in_words(found)
        if len(words) == 1:
            lines.append(f"the puzzle has {words[0]}")
        else:
            counts = {word: words.count(word) for word in dict.fromkeys(words)}
            lines.append("solutions of the puzzles: " + ", ".join(f"{n} with {word}" for word, n in counts.items()))
        if wrong.any() and not ((found.counts == 0) & found.finished).all():
            lines.append("to solve more: --sampler confidence with more --steps, or draw more answers with --num")
        return lines

    def _in_rows(self, cells: str) -> str:
        """The cells of a board in lines, with lines between its boxes."""
        width = self.kind.shape[1]
        box = self.kind.box or width
        rows = [cells[i : i + width] for i in range(0, len(cells), width)]
        lines = ["|".join(row[i : i + box] for i in range(0, width, box)) for row in rows]
        if self.kind.box is not None:
            between = "+".join(["-" * box] * (width // box))
            lines = [line for i, row in enumerate(lines) for line in ([between, row] if i and i % box == 0 else [row])]
        return "\n".join(lines)

    # ---- pictures -----------------------------------------------------------------------------------------------

    def picture(self, drawn: Drawn, path: Path) -> None:
        """Draw the first boards: what was given dark, the rest in a colour, and in orange what breaks a rule."""
        from usd3.pictures import board_grid

        if max(self.kind.shape) > _LARGEST_SIDE:
            super().picture(drawn, path)
            return
        boards = drawn.tokens[:_MOST_BOARDS]
        given = self._given(drawn, len(boards))
        titles = None if self.kind.rules is None else self._verdicts(boards, "valid" if given is None else "solved")
        board_grid(boards, path, self.kind.symbols, given, self._wrong(boards, given), self.kind.box, titles)

    def picture_rows(self, rows: Mapping[str, Tensor], path: Path) -> bool:
        """Draw boards (n, H, W) of several methods, those of one in a row; False where boards are too large."""
        from usd3.pictures import board_grid

        if max(self.kind.shape) > _LARGEST_SIDE:
            return False
        shown = {label: boards[:BOARDS_IN_A_ROW] for label, boards in rows.items() if len(boards) >= BOARDS_IN_A_ROW}
        boards, labels = torch.cat(list(shown.values())), np.repeat(list(shown), BOARDS_IN_A_ROW).tolist()
        boards, labels = boards[:MOST_BOARDS], labels[:MOST_BOARDS]
        if self.kind.rules is not None:
            labels = [f"{label}: {verdict}" for label, verdict in zip(labels, self._verdicts(boards, "valid"))]
        board_grid(boards, path, self.kind.symbols, None, self._wrong(boards, None), self.kind.box, labels)
        return True

    def _verdicts(self, boards: Tensor, good: str) -> list[str]:
        """For each board how often it breaks the rules, or the word `good`."""
        return [good if n == 0 else f"{n} violation{'s' if n > 1 else ''}" for n in violations(boards)]

    def animate(self, drawn: Drawn, path: Path) -> None:
        """Draw how the first boards are filled."""
        from usd3.pictures import animate_boards

        if max(self.kind.shape) > _LARGEST_SIDE:
            super().animate(drawn, path)
            return
        given = self._given(drawn, len(drawn.frames[0]))
        wrong = [self._wrong(frame, given) for frame in drawn.frames]
        known = None if wrong[0] is None else [part for part in wrong if part is not None]
        animate_boards(drawn.frames, path, self.kind.symbols, given, known, self.kind.box)

    def _given(self, drawn: Drawn, num: int) -> Tensor | None:
        """What the prompt gave of the first boards, (1, H, W) or (num, H, W)."""
        given = drawn.given_of_first(num)
        return None if given is None else given.unflatten(1, self.kind.shape)

    def _wrong(self, boards: Tensor, given: Tensor | None) -> Tensor | None:
        """The cells of boards that break a rule and were not given; None: there are no rules."""
        if self.kind.rules is None:
            return None
        known = boards < self.kind.num_classes
        wrong = known.new_tensor(in_conflict(boards.clamp(max=self.kind.num_classes - 1), known))
        return wrong if given is None else wrong & ~given


def _verdict(wrong: int) -> str:
    """What is said of an answer with so many cells that break the rules."""
    return "solved" if wrong == 0 else f"not solved: {wrong} cells break the rules"


def about_solutions(tokens: Tensor, given: Tensor) -> list[str]:
    """How many solutions each of some Sudoku puzzles (N, K, K) has, in words; `given` is True at the given cells."""
    return _in_words(_searched(tokens, given))


def _searched(tokens: Tensor, given: Tensor) -> Solutions:
    budget = _BUDGET if tokens.shape[1] <= 9 else _LARGE_BUDGET
    return solve(tokens.numpy(), given.numpy(), most=2, budget=budget)


def _in_words(found: Solutions) -> list[str]:
    return [_solutions(int(n), bool(done)) for n, done in zip(found.counts, found.finished)]


def _solutions(count: int, is_finished: bool) -> str:
    """How many solutions a search for two found."""
    if is_finished:
        return {0: "no solution", 1: "one solution"}.get(count, "several solutions")
    found = "at least one solution" if count else "no solution found"
    return f"{found}, as the search was ended early"
