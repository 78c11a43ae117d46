"""How good are boards: do they obey the rules, are they new, and does the model solve puzzles?

Boards without rules are compared with the training boards by the frequencies of their symbols: in each cell, and in
neighbouring cells.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from usd3._internal.checks import require
from usd3._internal.progress import say
from usd3._internal.random import seed_of
from usd3.kinds.base import Judge, Prompts
from usd3.kinds.board.kind import Board
from usd3.kinds.board.options import BoardSettings
from usd3.kinds.board.puzzles import minimal_puzzles
from usd3.kinds.board.sudoku import fill_singles
from usd3.kinds.board.texts import read_text
from usd3.kinds.dataset import Dataset
from usd3.metrics import boards as measures
from usd3.metrics.summary import Summary

__all__ = ["BoardJudge"]

_LARGEST_MADE = 9  # side of boards of which puzzles are made: the search on larger ones takes minutes


class BoardJudge(Judge):
    """Measures sets of boards and solutions of puzzles. The constructor reads the puzzles, or makes them.

    Args:
        dataset: the real boards.
        settings: how many boards, and which puzzles.
        seed: seed of the puzzles that are made.
        option: the name of the settings in error messages.
    """

    def __init__(self, dataset: Dataset, settings: BoardSettings, seed: int = 0, option: str = "boards"):
        kind = dataset.kind
        if not isinstance(kind, Board):
            raise ValueError(f"data = {dataset.name}: expected boards")
        self.kind, self.settings, self.num = kind, settings, settings.num
        self.train, self.test = (dataset.decoded(part.tokens.long()) for part in (dataset.train, dataset.test))
        self.prompts, origin = self._puzzles(seed, option)
        self.about: dict[str, Any] = {"training_boards": len(self.train), "rules": kind.rules, "puzzles": None}
        if self.prompts is not None:
            self.about["puzzles"] = {"num": len(self.prompts.tokens), "from": origin}

    def _puzzles(self, seed: int, option: str) -> tuple[Prompts | None, str]:
        """The puzzles to solve, and where they come from; None: there are none."""
        path, num = self.settings.puzzles, self.settings.num_puzzles
        if self.kind.rules is None or num == 0:
            return None, ""
        if path is not None:
            tokens, given = self.kind.parsed(read_text(Path(path)), f"{option}.puzzles")
            require(not bool(given.all()), f"{option}.puzzles", path, "boards with holes")
            return Prompts(tokens[:num], given[:num]), f"the first of {Path(path).name}"
        if self.kind.shape[0] > _LARGEST_MADE:
            return None, ""
        tokens = self.test[torch.arange(num) % len(self.test)]  # one board makes several puzzles
        say(f"making {num} puzzles of held-out boards")
        given = torch.from_numpy(minimal_puzzles(tokens.numpy(), seed_of(seed)))
        return Prompts(tokens, given), "minimal ones made of held-out boards"

    def settings_with(self, num: int) -> dict[str, Any]:
        """The settings of boards for the results; `num` boards were drawn."""
        return {"boards": asdict(self.settings) | {"num": num}}

    def scores(self, tokens: Tensor) -> dict[str, float]:
        """The metrics of boards (N, H, W) drawn from nothing, by key."""
        found = {"distinct": measures.distinct(tokens), "copied": measures.copied(tokens, self.train)}
        if self.kind.rules is not None:
            wrong = measures.violations(tokens)
            return {"valid": float((wrong == 0).mean()), "violations": float(wrong.mean())} | found
        num_classes = self.kind.num_classes
        return found | {
            "cells": measures.cell_distance(tokens, self.train, num_classes),
            "neighbours": measures.neighbour_distance(tokens, self.train, num_classes),
        }

    def filled_scores(self, tokens: Tensor) -> dict[str, float]:
        """The share of puzzles that are solved, from the filled puzzles (M, H, W)."""
        assert self.prompts is not None
        return {"solved": float(measures.are_solved(tokens, self.prompts.tokens, self.prompts.given).mean())}

    def references(self, num: int) -> dict[str, dict[str, Summary]]:
        """Reference rows.

        Held-out boards; boards whose cells are drawn one by one, with the frequencies that each cell has in training;
        and for puzzles, those that need no guess: cells with one symbol left and symbols with one cell left fill them.
        """
        generator = torch.Generator().manual_seed(seed_of(0, num))
        mixed = torch.randint(len(self.train), (num, *self.kind.shape), generator=generator)
        independent = self.train.flatten(1).gather(0, mixed.flatten(1)).unflatten(1, self.kind.shape)
        rows = {"held-out boards": self.scores(self.test[:num]), "independent cells": self.scores(independent)}
        if self.prompts is not None:
            filled = fill_singles(self.prompts.tokens, self.prompts.given)
            complete = (filled >= 0).all((1, 2))
            solved = measures.are_solved(filled.clip(0), self.prompts.tokens, self.prompts.given)
            rows["singles alone"] = {"solved": float((complete & solved).mean())}
        return {name: {key: Summary(value, 0.0) for key, value in row.items()} for name, row in rows.items()}
