"""Boards with holes in, filled boards out: by the commands, with a model that learnt nothing."""

import re

import numpy as np
import pytest
import torch

from support.pixels import has, pixels
from usd3.cli.main import main
from usd3.kinds.board import rendering
from usd3.kinds.board.kind import Board
from usd3.kinds.board.puzzles import minimal_puzzles, random_boards
from usd3.kinds.board.rename import canonical
from usd3.kinds.options import DataConfig
from usd3.kinds.rendering import Drawn, Request
from usd3.nets.options import ModelConfig
from usd3.pictures.boards import WRONG
from usd3.pictures.figures import GENERATED, INK, UNKNOWN
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.pipeline import Pipeline

SUDOKU = Board(4, (4, 4), "1234", "sudoku")
BOARDS = torch.tensor(random_boards(12, 4, seed=0))
NAMES = canonical(BOARDS.numpy(), 4).reshape(12, -1)
OTHERS = BOARDS.numpy()[~(NAMES[:, None] == NAMES[:5]).all(-1).any(1)]  # other boards than the first five up to names
PUZZLE = "1..4...........2"


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A model of Sudoku boards of 4 x 4 cells, and one of boards without rules, in the current folder."""
    monkeypatch.chdir(tmp_path)
    np.savez("boards.npz", train=OTHERS, test=BOARDS.numpy()[:5])
    for name, kind in (("model", SUDOKU), ("plain", Board(3, (2, 3), "-xo"))):
        torch.manual_seed(0)
        config = PipelineConfig(kind.num_classes, list(kind.shape), data=DataConfig("board", "boards.npz"))
        config.kind, config.given = kind.as_dict(), "none"
        config.diffusion.noise, config.diffusion.schedule = "absorbing", "linear"
        config.model = ModelConfig(dim=8, depth=1, heads=1, time_dim=4, hollow=False, timeless=True)
        Pipeline(config).save_pretrained(tmp_path / name)
    return tmp_path


def sample(*options):
    return main(["sample", *options, "--steps", "3", "--device", "cpu"])


def kept(lines, puzzle):
    return all(hole in ".0_" or cell == hole for line in lines for cell, hole in zip(line, puzzle, strict=True))


def test_a_typed_board_is_filled(model, capsys):
    assert sample("model", "--prompt", PUZZLE, "--out", "new") == 0
    assert {file.name for file in (model / "new").iterdir()} == {"boards.txt", "samples.npz", "samples.png"}
    (line,) = (model / "new" / "boards.txt").read_text().splitlines()
    assert len(line) == 16
    assert set(line) <= set("1234")
    assert kept([line], PUZZLE)
    captured = capsys.readouterr()
    assert "the board breaks the rules of Sudoku" in captured.err
    assert re.match(r"# not solved: \d+ cells break the rules\n", captured.out)
    assert "# the puzzle has several solutions\n# to solve more: --sampler confidence with more --steps" in captured.out
    rows = captured.out.partition("\n\n")[0].splitlines()[1:]
    assert "".join(rows[:2] + rows[3:]).replace("|", "") == line  # in rows, with lines between the boxes
    assert rows[2] == "--+--"
    assert "warning" not in captured.err  # what is given is seen in training, as the network ignores the time
    assert sample("model", "--prompt", PUZZLE, "--num", "5", "--out", "five.txt") == 0
    lines = (model / "five.txt").read_text().splitlines()
    assert len(lines) == 5
    assert kept(lines, PUZZLE)
    captured = capsys.readouterr()
    assert re.search(r"^[0-5] of 5 boards obeys? the rules of Sudoku$", captured.err, re.MULTILINE)
    assert re.findall(r"^# (\d): ", captured.out, re.MULTILINE) == ["1", "2", "3", "4"]
    assert re.search(r"^# [0-5] of 5 boards solved$", captured.out, re.MULTILINE)
    printed, _ = SUDOKU.parsed(captured.out.rpartition("\n\n")[0], "the terminal")  # it is a file of boards
    assert SUDOKU.objects(printed) == lines[:4]


def test_a_solved_board_is_called_so(capsys, tmp_path):
    renderer = SUDOKU.renderer(Request())
    wrong = renderer.text_prompt(PUZZLE)[0].tokens
    cases = ((BOARDS[:1], "the board obeys"), (BOARDS[:2], "2 of 2 boards obey"), (wrong, "the board breaks"))
    for boards, said in cases:
        renderer.write(Drawn(boards), tmp_path / f"{said}.txt")
        assert capsys.readouterr().err == f"{said} the rules of Sudoku\n"
    assert renderer.shown(Drawn(BOARDS[:1])).startswith("# solved\n")
    plain = Board(3, (2, 3), "-xo").renderer(Request())
    assert plain.shown(Drawn(torch.zeros(1, 2, 3, dtype=torch.long))) == ""  # nothing was typed
    plain.text_prompt("-x..o-")
    assert plain.shown(Drawn(torch.tensor([[[0, 1, 2], [1, 1, 0]]]))) == "-xo\nxx-"


def text_of(board, given):
    return "".join(cell if known else "." for cell, known in zip(SUDOKU.objects(board)[0], given.ravel()))


def test_a_typed_puzzle_is_told_how_many_solutions_it_has():
    given = minimal_puzzles(BOARDS[:1].numpy(), seed=0)
    cases = {
        text_of(BOARDS[:1], given): "# solved\n|# the puzzle has one solution",
        "." * 16: "# solved\n|# the puzzle has several solutions",
    }
    for puzzle, said in cases.items():
        renderer = SUDOKU.renderer(Request())
        renderer.text_prompt(puzzle)
        text = renderer.shown(Drawn(BOARDS[:1]))
        begins, ends = said.split("|")
        assert text.startswith(begins)
        assert text.endswith(ends)
        assert "--sampler" not in text


def test_a_typed_puzzle_without_a_solution_is_not_blamed_on_the_sampler():
    renderer = SUDOKU.renderer(Request())
    renderer.text_prompt("12..3....4......")  # the first box needs a 4 in the second column, which has one
    wrong = BOARDS[:1].clone()
    wrong[0, 0] = wrong[0, 0].roll(1)
    text = renderer.shown(Drawn(wrong))
    assert re.match(r"# not solved: \d+ cells break the rules\n", text)
    assert text.endswith("# the puzzle has no solution")


def test_a_search_that_takes_too_long_says_so(monkeypatch):
    monkeypatch.setattr(rendering, "_BUDGET", 1)
    renderer = SUDOKU.renderer(Request())
    renderer.text_prompt("." * 16)
    assert renderer.shown(Drawn(BOARDS[:1])).endswith("no solution found, as the search was ended early")


def test_several_typed_puzzles_are_counted():
    renderer = SUDOKU.renderer(Request())
    puzzle = text_of(BOARDS[:1], minimal_puzzles(BOARDS[:1].numpy(), seed=0))
    renderer.text_prompt(f"{puzzle}\n{'.' * 16}")
    text = renderer.shown(Drawn(BOARDS[:2]))
    assert "# 2 of 2 boards solved\n" in text
    assert text.endswith("# solutions of the puzzles: 1 with one solution, 1 with several solutions")


def test_every_board_of_a_file_is_filled_with_its_own_holes(model):
    puzzles = [
        "1...............",
        "....2...........",
        "........3.......",
        "............4...",
        "_0.2............",
        "." * 16,
    ]
    (model / "puzzles.txt").write_text("# some\n" + "\n".join(puzzles))
    assert sample("model", "--prompt", "puzzles.txt", "--out", "all.txt") == 0
    lines = (model / "all.txt").read_text().splitlines()
    assert len(lines) == 6
    assert all(kept([line], puzzle) for line, puzzle in zip(lines, puzzles))
    assert sample("model", "--prompt", "puzzles.txt", "--num", "2", "--first", "1", "--out", "two.txt") == 0
    lines = (model / "two.txt").read_text().splitlines()
    assert len(lines) == 2
    assert (lines[0][4], lines[1][8]) == ("2", "3")


def test_boards_are_drawn_from_nothing_and_from_the_data(model):
    assert sample("plain", "--num", "3", "--out", "new") == 0
    lines = (model / "new" / "boards.txt").read_text().splitlines()
    assert [len(line) for line in lines] == [6, 6, 6]
    assert set("".join(lines)) <= set("-xo")
    assert sample("model", "--prompt", "test", "--fill", "0:2,0:2", "--out", "filled.npz") == 0
    stored = np.load(model / "filled.npz")
    given = stored["given"]
    assert given.sum() == 12
    assert (stored["tokens"] == BOARDS[:5].numpy())[:, given].all()
    assert sample("model", "--prompt", "boards.npz", "--given", "0:3", "--out", "arrays.npz") == 0
    assert len(np.load(model / "arrays.npz")["tokens"]) == 5


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("1..4", "prompt = 1 row of 4 cells: expected 4 rows a board, or 16 characters, one for each of 4 x 4 cells"),
        ("1..4..", "prompt = 6 characters: expected 16 characters, one for each of 4 x 4 cells"),
        ("5" + PUZZLE[1:], "prompt = '5' in cell 1: expected one of 1234, or a hole: . 0 _"),
        ("1234341221434321", "prompt = no hole: expected at least one cell to fill"),
        ("", "prompt = nothing: expected at least one board"),
        ("puzzles.txt", "prompt = puzzles.txt: no such file"),
        ("wrong.txt", "wrong.txt = 15 characters in line 2 of the boards: expected 16 characters"),
        ("bytes.txt", "bytes.txt: expected a text in UTF-8"),
    ],
)
def test_a_board_that_does_not_fit_is_refused_in_one_line(model, capsys, prompt, message):
    (model / "wrong.txt").write_text(f"{PUZZLE}\n{PUZZLE[1:]}\n")
    (model / "bytes.txt").write_bytes(b"\xff\x80")
    assert sample("model", "--prompt", prompt, "--out", "new") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"usd3 sample: error: {message}" or line.startswith(f"usd3 sample: error: {message}")
    assert not (model / "new").exists()


@pytest.mark.filterwarnings("default:.*breaks the rules of Sudoku")
def test_a_puzzle_without_solution_is_filled_with_a_warning(model, capsys):
    (model / "two.txt").write_text(f"{PUZZLE}\n11{PUZZLE[2:]}\n")
    assert sample("model", "--prompt", "two.txt", "--out", "new.txt") == 0
    assert "two.txt: what is given of 1 of 2 boards breaks the rules of Sudoku, the first is board 2" in (
        capsys.readouterr().err
    )
    assert sample("model", "--prompt", f"11{PUZZLE[2:]}", "--out", "one.txt") == 0
    assert "prompt: what is given of the board breaks the rules of Sudoku" in capsys.readouterr().err


def test_a_film_shows_how_a_puzzle_is_filled(model):
    assert sample("model", "--prompt", PUZZLE, "--out", "film.gif") == 0
    first, last = pixels(model / "film.gif", 0), pixels(model / "film.gif", 2)
    assert has(first, INK)
    assert has(first[60:-30], UNKNOWN)
    assert not has(last[60:-30], UNKNOWN)


def test_pictures_tell_what_was_given_and_what_is_wrong(tmp_path):
    given = torch.from_numpy(minimal_puzzles(BOARDS.numpy(), seed=0))
    renderer = SUDOKU.renderer(Request())
    renderer.picture(Drawn(BOARDS, given=given), tmp_path / "good.png")
    wrong = torch.where(given, BOARDS, (BOARDS + 1) % 4)
    renderer.picture(Drawn(wrong, given=given), tmp_path / "bad.png")
    renderer.picture(Drawn(BOARDS), tmp_path / "free.png")
    good, bad, free = (pixels(tmp_path / f"{name}.png") for name in ("good", "bad", "free"))
    assert (has(good, GENERATED), has(good, WRONG)) == (True, False)
    assert has(bad, WRONG)
    assert not has(free, GENERATED)


def test_a_given_cell_is_never_marked_as_wrong(tmp_path):
    given = torch.zeros(1, 4, 4, dtype=torch.bool)
    given[0, 0, :2] = True
    board = BOARDS[:1].clone()
    board[0, 0, 1] = board[0, 0, 0]  # two givens
    renderer = SUDOKU.renderer(Request())
    assert not renderer._wrong(board, given)[given].any()
    assert renderer._wrong(board, None)[given].all()
    assert Board(4, (4, 4), "1234").renderer(Request())._wrong(board, given) is None


def test_large_boards_are_maps_of_colours(tmp_path):
    kind = Board(3, (40, 40), "123")
    boards = torch.randint(3, (2, 40, 40), generator=torch.Generator().manual_seed(0))
    renderer = kind.renderer(Request())
    renderer.write(Drawn(boards, frames=[boards, boards]), tmp_path / "new")
    assert {file.name for file in (tmp_path / "new").iterdir()} == {"boards.txt", "samples.png", "denoising.gif"}


def test_a_film_of_boards_without_rules_has_nothing_wrong(tmp_path):
    kind = Board(2, (4, 4), "01")
    frames = [torch.full((2, 4, 4), 2), torch.ones(2, 4, 4, dtype=torch.long)]
    kind.renderer(Request()).write(Drawn(frames[-1], frames=frames, mask=2), tmp_path / "new.gif")
    assert not has(pixels(tmp_path / "new.gif", 1), WRONG)


def test_objects_are_written_from_python(tmp_path):
    SUDOKU.write(BOARDS, tmp_path / "all")
    assert (tmp_path / "all" / "boards.txt").read_text().splitlines() == SUDOKU.objects(BOARDS)
    SUDOKU.write(BOARDS, tmp_path / "some.txt")
    with pytest.raises(ValueError, match="a name that is not taken"):
        SUDOKU.write(BOARDS, tmp_path / "some.txt")


def test_boards_of_several_methods_stand_in_rows(tmp_path):
    wrong = BOARDS.clone()
    wrong[:, 0, 0] = (wrong[:, 0, 0] + 1) % 4
    assert SUDOKU.picture_methods({"one": BOARDS, "two": wrong, "few": BOARDS[:2]}, {}, tmp_path / "rows.png")
    picture = pixels(tmp_path / "rows.png")
    upper, lower = np.array_split(picture[60:], 2)  # without the legend
    assert (has(upper, WRONG), has(lower, WRONG)) == (False, True)
    large = Board(2, (40, 40), "12")
    assert not large.picture_methods({"one": torch.zeros(4, 40, 40, dtype=torch.long)}, {}, tmp_path / "large.png")
    assert not (tmp_path / "large.png").exists()


def test_a_file_of_boards_trains_a_model_that_sees_a_puzzle_as_a_partly_masked_board(tmp_path, monkeypatch):
    """Training gives nothing, so what marks given cells stays without effect: they are cells that are not masked."""
    monkeypatch.chdir(tmp_path)
    SUDOKU.write(BOARDS, "boards.txt")
    tiny = ["--model.dim", "16", "--model.depth", "1", "--model.heads", "1", "--training.steps", "3"]
    assert main(["train", "boards.txt", "small", "--data.kind", "board", *tiny, "--training.validate_every", "0"]) == 0
    pipeline = Pipeline.from_pretrained("runs/boards-small", device="cpu")
    assert pipeline.kind == SUDOKU
    assert pipeline.config.given == "none"
    tokens, given = pipeline.kind.tokens([PUZZLE])
    masked = torch.where(given, tokens, 4)
    with torch.inference_mode():
        plain, told = (pipeline.model(masked, torch.ones(1), given=mask) for mask in (None, given))
        assert torch.equal(plain, told)
        assert not torch.equal(plain, pipeline.model(torch.full_like(masked, 4), torch.ones(1)))
