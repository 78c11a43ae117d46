"""Training on objects whose given elements the data name: puzzles beside their solutions."""

import numpy as np
import pytest
import torch

from usd3.cli.main import main
from usd3.kinds.board.puzzles import minimal_puzzles, random_boards
from usd3.kinds.fingerprints import fingerprint_of_rows
from usd3.kinds.options import DataConfig
from usd3.kinds.rows import Sequences
from usd3.training.batches import Batches
from usd3.training.diffusion import DiffusionTraining


@pytest.fixture
def boards(tmp_path, monkeypatch):
    """data.npz and data.csv with the same 60 boards of 4 x 4 cells and a puzzle of each."""
    monkeypatch.chdir(tmp_path)
    made = random_boards(60, 4, seed=0)
    given = minimal_puzzles(made, 0)
    np.savez("data.npz", train=made, train_given=given)
    lines = ["".join(str(c + 1) if g else "0" for c, g in zip(b.ravel(), m.ravel())) for b, m in zip(made, given)]
    solved = ["".join(str(c + 1) for c in b.ravel()) for b in made]
    (tmp_path / "data.csv").write_text("\n".join(["puzzle,solution", *map(",".join, zip(lines, solved))]) + "\n")
    return made, given


def test_puzzles_come_from_arrays_and_from_tables_and_stay_with_their_solutions(boards):
    made, given = boards
    for file in ("data.npz", "data.csv"):
        data = DataConfig("board", file).load()
        assert data.test.given is None
        assert data.train.given.shape == data.train.tokens.shape
        for tokens, mask in zip(data.train.tokens.numpy(), data.train.given.numpy()):
            assert any((tokens == b).all() and (mask == m).all() for b, m in zip(made, given))
    assert DataConfig("board", "data.csv").load().kind.rules == "sudoku"


def test_wrong_puzzles_are_refused(boards, tmp_path):
    made, given = boards
    np.savez("wrong.npz", train=made, train_given=given[:5])
    with pytest.raises(
        ValueError, match=r"wrong\.npz\[train_given\] = bool \(5, 4, 4\): expected booleans \(60, 4, 4\)"
    ):
        DataConfig("board", "wrong.npz").load()
    text = (tmp_path / "data.csv").read_text().splitlines()
    solution = text[3].split(",")[1]
    text[3] = f"{'2' if solution[0] == '1' else '1'}{'0' * 15},{solution}"
    (tmp_path / "wrong.csv").write_text("\n".join(text))
    with pytest.raises(ValueError, match=r"puzzle 3 of wrong\.csv = other cells: expected those of its solution"):
        DataConfig("board", "wrong.csv").load()


def test_batches_have_the_given_elements_of_their_objects():
    tokens = torch.arange(40).reshape(20, 2)
    rows = Sequences(tokens, given=tokens % 3 == 0)
    batch = Batches(rows, 8, 0, lambda: 0, 1, 0, 1).batch(0, 0)
    assert torch.equal(batch["given"], batch["tokens"] % 3 == 0)
    assert fingerprint_of_rows(rows) != fingerprint_of_rows(Sequences(tokens))
    assert torch.equal(rows.to(torch.device("cpu")).given, rows.given)
    with pytest.raises(ValueError, match=r"given\.shape"):
        Sequences(tokens, given=torch.zeros(20, 3, dtype=torch.bool))


def test_a_model_is_trained_with_what_is_given(boards, monkeypatch, capsys):
    seen, original = [], DiffusionTraining._eager_loss

    def recorded(self, x_0, pad, label, given):
        seen.append(given)
        return original(self, x_0, pad, label, given)

    monkeypatch.setattr(DiffusionTraining, "_eager_loss", recorded)
    words = "sudoku --data.path data.npz --model.dim 8 --model.mlp 8 --training.steps 2 --training.batch_size 16"
    words += " --training.validate_every 0 --training.precision fp32 --progress false --run new"
    assert main(["train", *words.split(), "--training.given", "data"]) == 0
    assert seen[0].shape == (16, 4, 4)
    assert seen[0].any()
    capsys.readouterr()
    np.savez("plain.npz", train=boards[0])
    words = words.replace("data.npz", "plain.npz").replace("--run new", "--run other")
    assert main(["train", *words.split(), "--training.given", "data"]) == 1
    assert "training.given = data: expected none, prefix or random, as the data do not say" in capsys.readouterr().err
