"""Boards of a model beside real ones, and the puzzles it solves."""

import json

import numpy as np
import pytest
import torch

from usd3.cli.main import main
from usd3.kinds.board.judge import BoardJudge
from usd3.kinds.board.kind import Board
from usd3.kinds.board.options import BoardSettings
from usd3.kinds.board.puzzles import minimal_puzzles, random_boards
from usd3.kinds.board.rename import canonical
from usd3.kinds.board.sudoku import count_solutions
from usd3.kinds.dataset import Dataset, Sequences
from usd3.kinds.options import DataConfig
from usd3.nets.options import ModelConfig
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.pipeline import Pipeline

EVERY = torch.tensor(np.unique(random_boards(1200, 4, seed=0), axis=0))
_, GROUPS = np.unique(canonical(EVERY.numpy(), 4).reshape(len(EVERY), -1), axis=0, return_inverse=True)
TRAIN, TEST = EVERY[GROUPS.ravel() < 10][:200], EVERY[GROUPS.ravel() >= 10][:16]  # other boards, whatever their names
PLAIN = torch.randint(3, (60, 3, 5), generator=torch.Generator().manual_seed(0))
FAST = ["--steps", "2", "--runs", "2", "--bound_samples", "2", "--device", "cpu", "--boards.num", "6"]


def sudoku(**settings):
    dataset = Dataset("shidoku", 4, Sequences(TRAIN), Sequences(TEST), kind=Board(4, (4, 4), "1234", "sudoku"))
    return BoardJudge(dataset, BoardSettings(**{"num": 10, "num_puzzles": 20} | settings))


def plain(num=10):
    dataset = Dataset("plain", 3, Sequences(PLAIN[:40]), Sequences(PLAIN[40:]), kind=Board(3, (3, 5), "-xo"))
    return BoardJudge(dataset, BoardSettings(num=num))


def test_scores_say_whether_boards_obey_the_rules_and_are_new():
    boards = torch.cat([TRAIN[:3], TEST[:2], TEST[:1], torch.zeros(2, 4, 4, dtype=torch.long)])
    found = sudoku().scores(boards)
    assert found == {"valid": 6 / 8, "violations": 2 * 36 / 8, "distinct": 6 / 8, "copied": 3 / 8}


def test_puzzles_are_made_of_held_out_boards():
    judge = sudoku()
    tokens, given = judge.prompts
    assert torch.equal(tokens, TEST[torch.arange(20) % 16])
    assert count_solutions(tokens, given).tolist() == [1] * 20
    assert judge.filled_scores(tokens) == {"solved": 1.0}
    wrong = tokens.clone()
    wrong[:5] = (wrong[:5] + 1) % 4  # valid, but not what was given
    assert judge.filled_scores(wrong) == {"solved": 15 / 20}
    assert judge.about["puzzles"] == {"num": 20, "from": "minimal ones made of held-out boards"}
    assert not torch.equal(sudoku().prompts.given[:1], sudoku(num_puzzles=17).prompts.given[-1:])  # the same board
    assert sudoku(num_puzzles=0).prompts is None


def test_puzzles_of_a_file_are_read(tmp_path):
    given = minimal_puzzles(TEST.numpy(), seed=4)
    texts = np.where(given, TEST.numpy() + 1, 0)
    (tmp_path / "puzzles.txt").write_text("\n".join("".join(map(str, board.ravel())) for board in texts))
    judge = sudoku(puzzles=str(tmp_path / "puzzles.txt"), num_puzzles=7)
    assert np.array_equal(judge.prompts.given, given[:7])
    assert judge.filled_scores(TEST[:7]) == {"solved": 1.0}
    assert judge.about["puzzles"]["from"] == "the first of puzzles.txt"
    (tmp_path / "full.txt").write_text("1234341221434321")
    with pytest.raises(ValueError, match="expected boards with holes"):
        sudoku(puzzles=str(tmp_path / "full.txt"))


def test_reference_rows_of_sudoku():
    rows = sudoku().references(10)
    assert list(rows) == ["held-out boards", "independent cells", "singles alone"]
    assert rows["held-out boards"]["valid"].mean == 1
    assert rows["held-out boards"]["copied"].mean == 0
    assert rows["independent cells"]["valid"].mean < 0.2
    assert 0.5 < rows["singles alone"]["solved"].mean <= 1


def test_boards_without_rules_are_compared_by_their_symbols():
    judge = plain()
    assert judge.prompts is None
    assert set(judge.scores(PLAIN[:40])) == {"distinct", "copied", "cells", "neighbours"}
    same = judge.scores(PLAIN[:40])
    assert (same["cells"], same["neighbours"], same["copied"], same["distinct"]) == (0, 0, 1, 1)
    assert judge.scores(torch.zeros(4, 3, 5, dtype=torch.long))["cells"] > 0.5
    assert list(judge.references(10)) == ["held-out boards", "independent cells"]


def test_cells_of_the_independent_row_have_their_own_frequencies():
    columns = torch.arange(5).remainder(3).expand(60, 3, 5)  # every cell always has the same symbol
    dataset = Dataset("columns", 3, Sequences(columns[:40]), Sequences(columns[40:]), kind=Board(3, (3, 5), "-xo"))
    rows = BoardJudge(dataset, BoardSettings(num=8)).references(8)
    assert rows["independent cells"]["cells"].mean == 0


def test_a_scrambled_model_is_judged_in_the_symbols_of_the_data():
    encode = torch.tensor([2, 0, 3, 1])
    kind = Board(4, (4, 4), "1234", "sudoku")
    splits = (Sequences(encode[part]) for part in (TRAIN, TEST))
    judge = BoardJudge(
        Dataset("scrambled", 4, *splits, decode=encode.argsort(), kind=kind), BoardSettings(num_puzzles=3)
    )
    assert judge.scores(TRAIN[:5])["copied"] == 1
    assert torch.equal(judge.prompts.tokens, TEST[:3])


# ---- the command ------------------------------------------------------------------------------------------------


def saved(folder, kind, train, test):
    np.savez(folder / f"{kind.symbols}.npz", train=train.numpy(), test=test.numpy())
    torch.manual_seed(0)
    config = PipelineConfig(kind.num_classes, list(kind.shape), kind=kind.as_dict(), given="none")
    config.data = DataConfig("board", str(folder / f"{kind.symbols}.npz"))
    config.data.board.symbols = kind.symbols
    config.model = ModelConfig(dim=8, depth=1, heads=1, time_dim=4, hollow=False, timeless=True)
    config.diffusion.noise, config.diffusion.schedule = "absorbing", "linear"
    Pipeline(config).save_pretrained(folder / "model")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_evaluate_draws_boards_and_solves_puzzles(folder, capsys):
    saved(folder, Board(4, (4, 4), "1234", "sudoku"), TRAIN, TEST)
    options = [*FAST, "--boards.num_puzzles", "3"]
    assert main(["evaluate", "model", *options, "--out", "a.json", "--save_samples", "drawn.npz"]) == 0
    shown = capsys.readouterr().out
    assert "2 sets of 6 boards in 2 steps, seed 0, beside 200 training boards; 3 puzzles, minimal ones made of" in shown
    assert "puzzles solved ↑" in shown
    assert "distance" not in shown
    found = json.loads((folder / "a.json").read_text())
    assert set(found["rows"]["model"]) == {"valid", "violations", "distinct", "copied", "solved"}
    stored = np.load(folder / "drawn.npz")
    assert stored["tokens"].shape == (2, 6, 4, 4)
    assert stored["filled_tokens"].shape == (2, 3, 4, 4)
    again = ["--samples", "drawn.npz", "--out", "b.json"]
    assert main(["evaluate", "model", *options, *again]) == 0
    assert json.loads((folder / "b.json").read_text())["rows"] == found["rows"]
    perfect = {"tokens": TEST[None, :6].numpy(), "filled_tokens": TEST[None, :3].numpy()}
    np.savez(folder / "perfect.npz", **perfect)
    assert main(["evaluate", "model", *options, "--samples", "perfect.npz", "--out", "c.json"]) == 0
    row = json.loads((folder / "c.json").read_text())["rows"]["model"]
    assert row["valid"]["mean"] == row["solved"]["mean"] == 1
    np.savez(folder / "few.npz", tokens=perfect["tokens"], filled_tokens=perfect["filled_tokens"][:, :2])
    assert main(["evaluate", "model", *options, "--samples", "few.npz", "--out", "d.json"]) == 1
    assert "shape of the filled samples = (1, 2, 4, 4): expected (runs, 3, 4, 4)" in capsys.readouterr().err


def test_evaluate_of_boards_without_rules(folder, capsys):
    saved(folder, Board(3, (3, 5), "-xo"), PLAIN[:40], PLAIN[40:])
    assert main(["evaluate", "model", *FAST, "--out", "a.json"]) == 0
    shown = capsys.readouterr().out
    assert "beside 40 training boards\n" in shown
    assert "distance of cells ↓  distance of neighbours ↓" in shown
    assert "puzzles" not in shown
    assert main(["evaluate", "model", *FAST, "--boards.puzzles", "mine.txt", "--out", "b.json"]) == 1
    assert "boards.puzzles = mine.txt: expected null, as these boards have no rules" in capsys.readouterr().err
    assert main(["evaluate", "model", *FAST, "--images.num", "7", "--out", "b.json"]) == 1
    assert "images.num = 7: expected no such option, as the data are no images" in capsys.readouterr().err
