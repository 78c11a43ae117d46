"""`usd3 grid`, and drawing with the grid that it finds."""

import shutil
from dataclasses import replace

import pytest
import torch

from support.runs import tiny_recipe
from usd3.cli.grid import chosen_elsewhere, even_grid
from usd3.cli.main import main
from usd3.core.step_costs import StepCosts
from usd3.pipeline.pipeline import Pipeline
from usd3.training.run import pipeline_for


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = tiny_recipe(tmp_path)
    torch.manual_seed(0)
    pipeline_for(recipe, recipe.data.load()).save_pretrained("mine")
    return tmp_path


def test_the_best_grid_of_a_model_serves_sampling_and_frontier(model, capsys):
    assert main(["grid", "mine", "--num", "4", "--times", "8", "--steps", "2 4 100", "--device", "cpu"]) == 0
    out = capsys.readouterr().out
    assert "usd3 sample mine --grid best --steps 4" in out
    lines = [line.split() for line in out.splitlines() if line[:1].isdigit()]
    assert [line[0] for line in lines] == ["2", "4"]
    costs = Pipeline.from_pretrained("mine", device="cpu").step_costs
    assert all(costs.loss_of(costs.best_grid(n)) <= costs.loss_of(even_grid(costs, n)) for n in (2, 4))
    assert [float(line[2]) for line in lines] == [round(costs.loss_of(even_grid(costs, n)), 2) for n in (2, 4)]
    assert (model / "mine" / "grids.png").read_bytes().startswith(b"\x89PNG")
    best = Pipeline.from_pretrained("mine", device="cpu").best_grid(4)
    assert len(best) == 5
    assert main(["sample", "mine", "--steps", "4", "--grid", "best", "--device", "cpu", "--out", "new.npz"]) == 0
    shutil.copy("mine/step_costs.json", "other.json")
    assert main(["sample", "mine", "--steps", "4", "--grid", "other.json", "--device", "cpu", "--out", "two.npz"]) == 0
    words = ["--num", "4", "--runs", "1", "--samplers", "exact", "--steps", "2 4", "--grids", "even best", "--out", "f"]
    assert main(["frontier", "mine", "--device", "cpu", *words]) == 0
    rows = (model / "f" / "frontier.csv").read_text().splitlines()
    assert [row.split(",")[7] for row in rows[1:5]] == ["even", "even", "best", "best"]


def test_files_go_where_the_user_says_and_export_takes_the_costs_along(model, capsys):
    assert main(["grid", "mine", "--num", "4", "--times", "4", "--steps", "2", "--prefix", "2", "--out", "else"]) == 0
    assert "usd3 sample mine --grid else/step_costs.json --steps 2" in capsys.readouterr().out
    assert not (model / "mine" / "step_costs.json").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["grid", "mine", "--steps", "100"], "steps = 100: expected a number of steps that is at most 20"),
        (["grid", "mine", "--steps", "few"], "steps = few: expected numbers with spaces between"),
        (["grid", "mine", "--steps", "0 4"], "steps = 0"),
        (["grid", "mine", "--num", "1"], "num = 1"),
        (["grid", "mine", "--times", "1100"], "times = 1100"),
        (["grid", "mine", "--times", "1"], "times = 1"),
        (["grid", "mine", "--prefix", "9"], "prefix = 9"),
        (["sample", "mine", "--grid", "best"], "grid = best: expected a model with step_costs.json"),
        (
            ["sample", "mine", "--grid", "nothing.json"],
            "grid = nothing.json: expected even, best, or a step_costs.json",
        ),
        (["frontier", "mine", "--grids", "best"], "grid = best: expected a model with step_costs.json"),
        (["frontier", "mine", "--grids", "odd"], "grids = odd: expected even, best"),
    ],
)
def test_wrong_requests(model, words, message, capsys):
    assert main(words) != 0
    assert message in capsys.readouterr().err


def test_a_grid_is_measured_on_objects_that_did_not_choose_it():
    def costs(*nats):  # of the steps 2 -> 1, 2 -> 0 and 1 -> 0
        (a, b, c) = nats
        return StepCosts((3.0, 2.0, 1.0, 0.0), torch.tensor([[0, a, b, 9], [0, 0, 1, c], [0, 0, 0, 1], [0, 0, 0, 0.0]]))

    first, second = costs(1.0, 5.0, 2.0), costs(4.0, 1.0, 3.0)  # two steps: best 3 2 0 loses 3, best 3 1 0 loses 2
    assert first.best_grid(2) == [3.0, 2.0, 0.0]
    assert second.best_grid(2) == [3.0, 1.0, 0.0]
    assert chosen_elsewhere(first, second, 2) == ((5 + 1) + (4 + 3)) / 2


def test_costs_of_an_earlier_training_step_are_refused_only_where_they_are_needed(model, capsys):
    assert main(["grid", "mine", "--num", "4", "--times", "4", "--steps", "2", "--device", "cpu"]) == 0
    pipeline = Pipeline.from_pretrained("mine", device="cpu")
    pipeline.config = replace(pipeline.config, steps=7)
    pipeline.step_costs = None
    shutil.copy("mine/step_costs.json", "kept.json")
    pipeline.save_pretrained("mine")
    assert not (model / "mine" / "step_costs.json").exists()  # that of the model that was there
    shutil.copy("kept.json", "mine/step_costs.json")
    assert main(["sample", "mine", "--steps", "2", "--device", "cpu", "--out", "a.npz"]) == 0
    capsys.readouterr()
    assert main(["sample", "mine", "--steps", "2", "--grid", "best", "--device", "cpu", "--out", "b.npz"]) == 1
    assert "is of training step" in capsys.readouterr().err


def test_the_even_grid_is_the_fine_one_with_steps_left_out():
    costs = StepCosts((8.0, 6.0, 4.0, 2.0, 0.0), torch.zeros(5, 5))
    assert even_grid(costs, 4) == [8.0, 6.0, 4.0, 2.0, 0.0]
    assert even_grid(costs, 2) == [8.0, 4.0, 0.0]
    assert even_grid(costs, 1) == [8.0, 0.0]
