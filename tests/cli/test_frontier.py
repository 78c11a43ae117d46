"""`usd3 frontier` as a user calls it, on untrained models."""

import csv
import json

import numpy as np
import pytest
import torch

from support.runs import tiny_recipe
from usd3.cli import frontier
from usd3.cli.main import main
from usd3.kinds.board.kind import Board
from usd3.kinds.board.puzzles import random_boards
from usd3.kinds.board.rename import canonical
from usd3.kinds.options import DataConfig
from usd3.nets.options import ModelConfig
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.pipeline import Pipeline
from usd3.training.run import pipeline_for

SMALL = ["--num", "6", "--runs", "2", "--device", "cpu"]


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = tiny_recipe(tmp_path)
    pipeline_for(recipe, recipe.data.load()).save_pretrained("mine")
    return tmp_path


@pytest.fixture
def boards(tmp_path, monkeypatch):
    """A model of 4 x 4 Sudoku boards that ignores the time."""
    monkeypatch.chdir(tmp_path)
    made = random_boards(30, 4, seed=0)
    names = canonical(made, 4).reshape(30, -1)
    held_out = (names == names[0]).all(1)
    np.savez("boards.npz", train=made[~held_out], test=made[held_out])
    kind = Board(4, (4, 4), "1234", "sudoku")
    torch.manual_seed(0)
    config = PipelineConfig(4, [4, 4], data=DataConfig("board", "boards.npz"))
    config.kind, config.given = kind.as_dict(), "none"
    config.diffusion.noise, config.diffusion.schedule = "absorbing", "linear"
    config.model = ModelConfig(dim=8, depth=1, heads=1, time_dim=4, hollow=False, timeless=True)
    Pipeline(config).save_pretrained(tmp_path / "sudoku")
    return tmp_path


def table(file):
    with open(file) as lines:
        return list(csv.DictReader(lines))


def test_a_curve_for_each_sampler_and_temperature(model, capsys):
    words = ["--samplers", "exact euler", "--steps", "2 4", "--temperatures", "1 0.5", "--out", "new"]
    assert main(["frontier", "mine", *SMALL, *words]) == 0
    assert {file.name for file in (model / "new").iterdir()} == {"frontier.csv", "frontier.json", "frontier.png"}
    assert (model / "new/frontier.png").read_bytes().startswith(b"\x89PNG")
    rows = [row for row in table(model / "new/frontier.csv") if row["row"] == "model"]
    found = [(row["sampler"], row["steps"], row["temperature"]) for row in rows]
    assert found == [(s, n, t) for s in ("exact", "euler") for t in ("1", "0.5") for n in ("2", "4")]
    assert [float(row["calls"]) for row in rows] == 4 * [2, 4]  # the network sees the time: it is asked in each step
    results = json.loads((model / "new/frontier.json").read_text())
    assert results["metric"] == "2g_hellinger"
    assert {"command", "torch", "usd3", "machine", "commit", "settings"} <= results.keys()
    assert {"Markov chain", "data"} <= results["references"].keys()
    assert results["references"]["data"]["sample_entropy"]["mean"] == pytest.approx(2.25, abs=0.01)
    out = capsys.readouterr()
    assert "2g Hellinger" in out.out
    assert "8/8 euler, 4 steps, temperature 0.5" in out.err


def test_it_says_when_there_are_fewer_held_out_objects_than_wanted(model, capsys):
    words = ["--samplers", "exact", "--steps", "2", "--out", "few", "--num", "100000"]
    assert main(["frontier", "mine", *SMALL, "--prompt", "test", *words]) == 0
    assert "num = 100000: there are 10 held-out objects, so many are drawn" in capsys.readouterr().err


def test_points_that_are_there_are_not_drawn_again(model, monkeypatch, capsys):
    words = ["frontier", "mine", *SMALL, "--samplers", "exact", "--out", "new", "--steps"]
    assert main([*words, "2"]) == 0
    drawn, measure = [], frontier.measured_point

    def counting(*arguments):
        drawn.append(arguments[3])
        return measure(*arguments)

    monkeypatch.setattr(frontier, "measured_point", counting)
    assert main([*words, "2 4"]) == 0
    assert [way.steps for way in drawn] == [4]
    assert [row["steps"] for row in table(model / "new/frontier.csv") if row["row"] == "model"] == ["2", "4"]
    assert main([*words, "4", "--metric", "1g_outliers"]) == 0  # another metric needs no new draws
    assert len(drawn) == 1
    assert json.loads((model / "new/frontier.json").read_text())["metric"] == "1g_outliers"
    capsys.readouterr()
    assert main([*words, "4", "--seed", "1"]) == 1
    assert "seed = 1: expected 0, as in new/frontier.json; or another --out" in capsys.readouterr().err


def test_boards_from_nothing_and_puzzles(boards):
    words = ["--steps", "4 16", "--samplers", "exact first_hitting"]
    assert main(["frontier", "sudoku", *SMALL, *words, "--out", "free"]) == 0
    rows = {(row["sampler"], row["steps"]): row for row in table(boards / "free/frontier.csv")}
    assert float(rows["first_hitting", "16"]["calls"]) == 16
    assert float(rows["exact", "16"]["calls"]) < 16  # boards that did not change are not asked about again
    results = json.loads((boards / "free/frontier.json").read_text())
    assert results["metric"] == "valid"
    assert results["references"]["held-out boards"]["valid"]["mean"] == 1
    assert main(["frontier", "sudoku", *SMALL, *words, "--prompt", "test", "--out", "puzzles"]) == 0
    results = json.loads((boards / "puzzles/frontier.json").read_text())
    assert results["metric"] == "solved"
    assert results["references"]["singles alone"].keys() == {"solved"}
    assert max(point["calls"] for point in results["points"]) < 16  # what is given is not drawn


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--samplers", "exakt"], "samplers = exakt: expected one of exact, euler"),
        (["--steps", "4 x"], "steps = 4 x: expected numbers with spaces between"),
        (["--steps", "0"], "steps = 0"),
        (["--steps", "21"], "steps = 21"),
        (["--temperatures=-1"], "temperatures = -1"),
        (["--metric", "2g_helinger"], "(is 2g_hellinger meant?)"),
        (["--prompt", "train"], "prompt = train: expected null or test"),
        (["--prefix", "2"], "prefix = 2: expected null without --prompt test"),
        (["--top_p", "2"], "top_p = 2.0: expected a number in (0, 1]"),
        (["--where", "a=1"], "where = a=1: expected no condition"),
        (["--num", "1"], "num = 1"),
        (["--metric", "bits_per_element"], "metric = bits_per_element: expected one of"),
        (["--boards.num", "9"], "boards.num = 9: expected no such option"),
    ],
)
def test_wrong_options_are_refused_in_one_line_before_anything_is_drawn(words, message, model, monkeypatch, capsys):
    monkeypatch.setattr(frontier, "measured_point", None)
    assert main(["frontier", "mine", "--device", "cpu", *words]) in (1, 2)
    errors = capsys.readouterr().err.strip().splitlines()
    assert len(errors) == 1
    assert message in errors[0]


def test_a_label_and_guidance_reach_the_draws(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = (np.arange(8) + np.arange(60)[:, None]) % 5
    np.savez("data.npz", train=rows[:50], test=rows[50:], train_label=np.arange(50) % 2, test_label=np.arange(10) % 2)
    recipe = tiny_recipe(tmp_path)
    pipeline_for(recipe, recipe.data.load()).save_pretrained("mine")
    drawn, sample = [], Pipeline.sample

    def recorded(self, *arguments, **options):
        drawn.append({key: options.get(key) for key in ("where", "guidance_scale", "top_p", "top_k", "num_steps")})
        return sample(self, *arguments, **options)

    monkeypatch.setattr(Pipeline, "sample", recorded)
    words = ["--samplers", "exact", "--steps", "2", "--where", "label=1", "--guidance", "1 3", "--top_p", "0.9"]
    assert main(["frontier", "mine", "--num", "4", "--runs", "1", *words, "--top_k", "3", "--out", "new"]) == 0
    common = {"where": "label=1", "top_p": 0.9, "top_k": 3, "num_steps": 2}
    assert [{key: way[key] for key in way} for way in drawn] == [common | {"guidance_scale": g} for g in (1.0, 3.0)]
    found = [row for row in table(tmp_path / "new/frontier.csv") if row["row"] == "model"]
    assert [float(row["calls"]) for row in found] == [2, 4]
    out = capsys.readouterr().out
    assert "temperature 1, top p 0.9, top k 3, guidance 3" in out
    assert "mine: 1 x 4 arrays with label=1" in out
    for wrong, message in (
        (["--where", "label=7"], "label = 7: expected one class, of 0, 1"),
        (["--guidance", "2"], "guidance = 2: expected null without --where or --prompt test"),
        (["--guidance=-1", "--where", "label=1"], "guidance = -1.0"),
    ):
        assert main(["frontier", "mine", "--num", "4", *wrong]) == 1
        assert message in capsys.readouterr().err


def test_other_settings_of_the_kind_need_another_folder(boards, capsys):
    words = [
        "frontier",
        "sudoku",
        "--num",
        "4",
        "--runs",
        "1",
        "--samplers",
        "exact",
        "--steps",
        "2",
        "--prompt",
        "test",
    ]
    (boards / "p.txt").write_text("12..34..21..43..\n" * 4)
    assert main([*words, "--out", "new"]) == 0
    assert main([*words, "--out", "new", "--boards.num", "9"]) == 1
    assert "boards.num = 9: expected" in capsys.readouterr().err
    assert main([*words, "--out", "new", "--boards.puzzles", "p.txt"]) == 1
    assert "as in new/frontier.json; or another --out" in capsys.readouterr().err
    results = json.loads((boards / "new/frontier.json").read_text())
    assert results["settings"]["kind"]["num_puzzles"] == 4
    assert results["settings"]["objects"] == 4


def test_continuations_of_held_out_objects(model):
    words = ["--samplers", "exact", "--steps", "2", "--prompt", "test", "--out", "new"]
    assert main(["frontier", "mine", *SMALL, *words]) == 0
    assert json.loads((model / "new/frontier.json").read_text())["settings"]["prompt"] == "test"


@pytest.mark.usefixtures("boards")
def test_the_network_is_compiled_on_demand(monkeypatch):
    asked, load = [], Pipeline.from_pretrained
    monkeypatch.setattr(
        Pipeline, "from_pretrained", lambda *a, compile, **options: (asked.append(compile), load(*a, **options))[1]
    )
    for words in ([], ["--compile", "true"]):
        assert main(["frontier", "sudoku", *SMALL, "--samplers", "exact", "--steps", "2", *words]) == 0
    assert asked == [False, True]
