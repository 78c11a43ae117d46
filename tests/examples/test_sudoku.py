"""examples/sudoku.py with small boards and almost no training."""

import csv
import json
import runpy
import sys
import types

import numpy as np
import pytest
import torch

from support.places import ROOT
from usd3.core.samplers import Step
from usd3.kinds.board.kind import Board
from usd3.kinds.board.rename import canonical
from usd3.kinds.board.sudoku import count_solutions, fill_singles
from usd3.metrics.boards import copied, distinct, obey_rules

SCRIPT = str(ROOT / "examples" / "sudoku.py")
TINY = "--model.dim 8 --model.mlp 8 --model.depth 1 --training.steps 3 --training.validate_every 0 --progress false"


def run(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["sudoku.py", *map(str, words)])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(SCRIPT, run_name="__main__")
    return stopped.value.code


def arrays_of(path):
    with np.load(path) as arrays:
        return dict(arrays)


def test_boards_and_puzzles_are_made_once_and_keep_apart(tmp_path, monkeypatch, capsys):
    options = ("make", "--side", 9, "--boards", 40, "--puzzles", 8, "--seed", 3, "--out", tmp_path / "data")
    assert run(monkeypatch, *options) == 0
    arrays = arrays_of(tmp_path / "data" / "boards.npz")
    assert len(arrays["test"]) == 8
    assert 40 < len(arrays["train"]) < 80  # those that singles do not solve come twice
    assert distinct(arrays["train"]) * len(arrays["train"]) == pytest.approx(40)
    boards, masks = arrays["train"].astype(int) - 1, arrays["train_given"]
    assert count_solutions(boards, masks).tolist() == [1] * len(boards)
    hard = (fill_singles(boards, masks) < 0).any((1, 2))
    assert hard[40:].all()
    assert hard[:40].sum() == len(boards) - 40
    assert (masks[40:].sum((1, 2)) >= masks[:40][hard[:40]].sum((1, 2))).all()
    assert (arrays["train"].min(), arrays["train"].max()) == (1, 9)
    assert obey_rules(arrays["train"].astype(int) - 1).all()
    assert copied(arrays["test"], arrays["train"]) == 0
    tokens, given = Board(9, (9, 9), "123456789", "sudoku").parsed((tmp_path / "data" / "puzzles.txt").read_text(), "")
    assert count_solutions(tokens, given).tolist() == [1] * 8
    solutions = (tmp_path / "data" / "solutions.txt").read_text().split()
    assert solutions == ["".join(map(str, board.ravel())) for board in arrays["test"]]
    before = (tmp_path / "data" / "boards.npz").stat().st_mtime_ns
    assert run(monkeypatch, *options) == 0
    assert (tmp_path / "data" / "boards.npz").stat().st_mtime_ns == before
    assert run(monkeypatch, *options[:-4], "--seed", 4, *options[-2:]) == 1
    assert "has other boards" in capsys.readouterr().err


def test_held_out_boards_differ_from_training_boards_up_to_the_names_of_symbols(tmp_path, monkeypatch):
    assert run(monkeypatch, "make", "--side", 4, "--boards", 900, "--puzzles", 50, "--out", tmp_path) == 0
    arrays = arrays_of(tmp_path / "boards.npz")
    both = np.concatenate([arrays["train"], arrays["test"]])
    assert 200 < distinct(both) * len(both) <= 288
    assert 28 <= len(arrays["test"]) <= 48  # two of the twelve classes
    train, test = (canonical(arrays[name].astype(int) - 1, 4) for name in ("train", "test"))
    assert copied(test, train) == 0
    assert len(set((tmp_path / "puzzles.txt").read_text().split())) > 40


def test_a_puzzle_that_was_not_solved_is_drawn_again_and_all_calls_count():
    puzzles, asked = torch.zeros(3, 4, 4, dtype=torch.long), []

    class Fake:
        """The first attempt solves the second puzzle alone, the next one all; a draw takes 2 calls for each board."""

        kind = types.SimpleNamespace(obeys=lambda x: x[:, 0, 0] == 1)

        def sample(self, tokens, given, num_steps, sampler, seed, callback):
            asked.append((len(tokens), seed))
            right = torch.tensor([False, True, False]) if len(asked) == 1 else torch.ones(len(tokens), dtype=torch.bool)
            x = torch.where(right[:, None, None], 1, tokens)
            callback(Step(0, 2, 1.0, 0.5, tokens, tokens + 1))
            callback(Step(1, 2, 0.5, 0.0, tokens + 1, x))
            return x

    drawn = runpy.run_path(SCRIPT)["drawn"]
    boards, calls, _ = drawn(Fake(), "exact", 2, 0, 1, puzzles, puzzles.bool())
    assert boards[:, 0, 0].tolist() == [0, 1, 0]
    assert calls == 2
    asked.clear()
    boards, calls, _ = drawn(Fake(), "exact", 2, 0, 5, puzzles, puzzles.bool())
    assert boards[:, 0, 0].tolist() == [1, 1, 1]
    assert calls == pytest.approx(2 + 2 * 2 / 3)
    assert [number for number, _ in asked] == [3, 2]
    assert asked[0][1] != asked[1][1]


def test_everything_in_one_go_and_again(tmp_path, monkeypatch, capsys):
    out = tmp_path / "all"
    sizes = ("--boards", 300, "--puzzles", 6, "--draws", 5, "--steps", "2,30", "--samplers", "exact euler")
    assert run(monkeypatch, *sizes, "--out", out, *TINY.split()) == 0
    shown = capsys.readouterr().out
    assert "of 6 puzzles solved, exact, 30 steps" in shown
    assert "the best possible 8.17" in shown
    with (out / "solved" / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["task"], row["sampler"], row["steps"]) for row in rows] == [
        (task, sampler, steps) for sampler in ("exact", "euler") for steps in ("2", "30") for task in ("solve", "draw")
    ]
    calls = {row["steps"]: float(row["calls"]) for row in rows if row["task"] == "solve" and row["sampler"] == "exact"}
    assert 1 < calls["2"] <= 2
    assert 8 < calls["30"] <= 13  # at most one for each of 12 cells, and the first
    assert json.loads((out / "solved" / "results.json").read_text())["least_bits_per_board"] == pytest.approx(
        8.17, abs=0.01
    )
    assert {file.name for file in (out / "solved").iterdir()} == {
        "results.csv",
        "results.json",
        "solved.png",
        "puzzles.png",
    }
    assert run(monkeypatch, *sizes, "--out", out, *TINY.replace("steps 3", "steps 5").split()) == 0
    assert json.loads((out / "solved-2" / "results.json").read_text())["steps"] == 5
    assert run(monkeypatch, "solve", out / "model", "--banana", "1") == 2
    assert "--banana 1: no such option of solve" in capsys.readouterr().err


def test_a_run_that_is_no_sudoku_is_refused(tmp_path, monkeypatch, capsys):
    assert run(monkeypatch, "solve", "bach", "--out", tmp_path / "out") == 1
    assert "sudoku.py: error: run = bach: expected a model of Sudoku boards" in capsys.readouterr().err
    assert run(monkeypatch, "make", "--side", 4, "--boards", 1, "--puzzles", 0, "--out", tmp_path / "one") == 1
    assert "boards = 1: all are equal up to the names of their symbols; expected more boards" in capsys.readouterr().err
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine").touch()
    assert run(monkeypatch, "make", "--side", 4, "--boards", 5, "--puzzles", 1, "--out", tmp_path / "taken") == 1
    assert "a folder that is new or empty" in capsys.readouterr().err


def test_a_call_is_needed_at_first_and_after_each_change():
    calls = runpy.run_path(SCRIPT)["Calls"]()
    states = [torch.tensor(state) for state in ([[0, 0], [0, 0]], [[0, 1], [0, 0]], [[0, 1], [0, 1]], [[1, 1], [1, 1]])]
    for i in range(3):
        calls(Step(i, 3, 1 - i / 3, 1 - (i + 1) / 3, states[i], states[i + 1]))
    assert float(calls.total) == 2 + 1 + 1
