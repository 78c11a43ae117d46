"""The best grids of a trained model, and the file that keeps their costs."""

import json

import pytest
import torch

from support.runs import tiny_recipe
from usd3.core.step_costs import StepCosts
from usd3.methods.options import MethodConfig
from usd3.pipeline.grids import STEP_COSTS, read_step_costs, write_step_costs
from usd3.pipeline.pipeline import Pipeline
from usd3.training.run import pipeline_for


@pytest.fixture
def pipeline(tmp_path):
    recipe = tiny_recipe(tmp_path)
    torch.manual_seed(0)
    pipeline = pipeline_for(recipe, recipe.data.load())
    with torch.no_grad():  # logits are 0 at first
        for weight in pipeline.model.parameters():
            weight += 0.3 * torch.randn_like(weight)
    return pipeline


TOKENS = (torch.arange(8) + torch.arange(12)[:, None]) % 5
COSTS = StepCosts((20.0, 10.0, 5.0, 0.0), torch.rand(4, 4, generator=torch.Generator().manual_seed(0)).double())


def test_costs_are_means_over_the_objects_of_all_batches(pipeline):
    costs = pipeline.measured_step_costs(TOKENS, times=4)
    assert costs.times == (20.0, 15.0, 10.0, 5.0, 0.0)
    in_parts = pipeline.measured_step_costs(TOKENS, times=4, seed=3, batch_size=5).nats
    parts = [slice(0, 5), slice(5, 10), slice(10, 12)]
    alone = [
        pipeline.diffusion.step_costs(
            pipeline.model, TOKENS[rows], costs.times, generator=pipeline.generator(3, rows)
        ).nats
        for rows in parts
    ]
    expected = (5 * alone[0] + 5 * alone[1] + 2 * alone[2]) / 12
    assert torch.allclose(in_parts, expected, rtol=1e-5)
    assert (alone[2] - expected).abs().max() > 1e-3


def test_a_given_prefix_leaves_less_to_lose(pipeline):
    given = torch.arange(8) < 6
    whole, rest = (pipeline.measured_step_costs(TOKENS, mask, times=2).nats[0, -1] for mask in (None, given))
    assert 0.1 * whole < rest < 0.5 * whole


def test_the_best_grid_comes_from_the_file_beside_the_weights(pipeline, tmp_path):
    with pytest.raises(
        ValueError, match=r"grid = best: expected a model with step_costs\.json, which `usd3 grid MODEL`"
    ):
        pipeline.best_grid(2)
    pipeline.step_costs = COSTS
    pipeline.save_pretrained(tmp_path / "mine")
    again = Pipeline.from_pretrained(tmp_path / "mine", device="cpu")
    assert again.best_grid(2) == COSTS.best_grid(2)
    assert again.best_grid() == [20.0, 10.0, 5.0, 0.0]
    for wrong in (0, 4):
        with pytest.raises(ValueError, match="num_steps"):
            again.best_grid(wrong)
    assert again.num_moves(again.best_grid(2)) == 2
    steps = []
    x = again.sample(3, num_steps=again.best_grid(2), callback=steps.append)
    assert x.shape == (3, 8)
    assert [20 * step.t for step in steps] == again.best_grid(2)[:-1]


def test_a_file_keeps_the_costs(tmp_path):
    write_step_costs(tmp_path / STEP_COSTS, COSTS)
    again = read_step_costs(tmp_path / STEP_COSTS)
    assert again.times == COSTS.times
    assert torch.allclose(again.nats, COSTS.nats.triu(1), atol=1e-6)


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{}",
        '{"times": [1, 0], "nats": [[0, 1]]}',
        '{"times": [0, 1], "nats": [[0, 1], [0, 0]]}',
        '{"times": [1, 0.5], "nats": [[0, 1], [0, 0]]}',
        '{"times": [1, 0], "nats": [[0, NaN], [0, 0]]}',
        '{"times": [1, 0], "nats": [[0, "a"], [0, 0]]}',
        '{"times": "10", "nats": 3}',
        '{"times": [0], "nats": [[0]]}',
        json.dumps({"times": list(range(2000, -1, -1)), "nats": [[0]]}),
        "not json",
    ],
)
def test_another_file_is_refused(tmp_path, content):
    (tmp_path / "wrong.json").write_text(content)
    with pytest.raises(ValueError, match=r"wrong\.json: expected"):
        read_step_costs(tmp_path / "wrong.json")


@pytest.mark.filterwarnings("ignore:Transitions.* does not end at")
def test_the_costs_of_a_method_with_matrices_are_those_of_its_process(tmp_path):
    recipe = tiny_recipe(tmp_path)
    recipe.method = MethodConfig("d3pm", {"transitions": "banded", "width": 1, "betas": [0.9, 1.0]})
    torch.manual_seed(0)
    pipeline = pipeline_for(recipe, recipe.data.load())
    found = pipeline.measured_step_costs(TOKENS, times=4, seed=3)
    own = pipeline.method.diffusion.step_costs(
        pipeline.method.denoiser(pipeline.model), TOKENS, found.times, generator=pipeline.generator(3, slice(0, 12))
    )
    assert torch.allclose(found.nats, own.nats, rtol=1e-5)
