"""The points of a frontier: entropies, and the number of network calls."""

import math

import numpy as np
import pytest
import torch

from support.runs import tiny_recipe
from usd3.core.options import DiffusionConfig
from usd3.evaluation.counting import CountingPipeline
from usd3.evaluation.frontier import Way, entropies, measured_point, task_of
from usd3.evaluation.settings import EvaluationSettings
from usd3.kinds.board.kind import Board
from usd3.kinds.board.options import BoardSettings
from usd3.kinds.board.puzzles import random_boards
from usd3.kinds.board.rename import canonical
from usd3.kinds.options import DataConfig
from usd3.nets.options import ModelConfig
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.pipeline import Pipeline
from usd3.training.run import pipeline_for


def test_entropies_of_known_sets():
    equal = torch.tensor([[0, 1, 2, 3]]).repeat(4, 1)
    assert entropies(equal) == {"element_entropy": 0, "sample_entropy": 2}
    constant = torch.arange(4)[:, None].repeat(1, 8)
    assert entropies(constant) == {"element_entropy": 2, "sample_entropy": 0}
    drawn = torch.randint(8, (4000, 2, 3), generator=torch.Generator().manual_seed(0))
    assert entropies(drawn)["element_entropy"] == pytest.approx(3, abs=0.01)


def test_what_was_not_drawn_does_not_count():
    tokens, fixed = torch.tensor([[0, 1, 1], [0, 2, 1]]), torch.tensor([[True, False, True]])
    assert entropies(tokens, fixed) == {"element_entropy": 1, "sample_entropy": 0}
    assert entropies(tokens, torch.ones(2, 3, dtype=torch.bool)) == {"element_entropy": 0, "sample_entropy": 0}


def test_each_row_that_the_network_is_asked_about_counts(tmp_path):
    recipe = tiny_recipe(tmp_path)
    dataset = recipe.data.load()
    pipeline = pipeline_for(recipe, dataset)
    counting = CountingPipeline(pipeline)
    assert torch.equal(counting.sample(5, num_steps=3, batch_size=2), pipeline.sample(5, num_steps=3, batch_size=2))
    assert counting.rows == 15
    settings = EvaluationSettings(runs=2, limit=4)
    task = task_of(pipeline, dataset, settings, is_prompted=False)
    point = measured_point(pipeline, task, settings, Way("exact", 3, 0.5))
    assert point.calls == 3
    assert point.seconds > 0
    assert math.isfinite(point.metrics["2g_hellinger"].mean)
    assert 0 < point.metrics["sample_entropy"].mean <= math.log2(5)


def test_what_is_given_or_padding_does_not_count_in_the_diversity(tmp_path):
    recipe = tiny_recipe(tmp_path)
    dataset = recipe.data.load()
    pipeline = pipeline_for(recipe, dataset)
    task = task_of(pipeline, dataset, EvaluationSettings(runs=1, limit=4, prefix=3), is_prompted=True)
    assert torch.equal(task.fixed, (torch.arange(8) < 3).expand(4, 8))
    free = task_of(pipeline, dataset, EvaluationSettings(runs=1, limit=4), is_prompted=False)
    assert not free.fixed.any()


def test_the_diversity_of_puzzles_is_that_of_their_open_cells(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    boards = random_boards(60, 4, seed=0)
    names = canonical(boards, 4).reshape(60, -1)
    held_out = (names == names[0]).all(1)
    np.savez("boards.npz", train=boards[~held_out], test=boards[held_out])
    config = PipelineConfig(4, [4, 4], data=DataConfig("board", "boards.npz"), diffusion=DiffusionConfig("absorbing"))
    config.kind = Board(4, (4, 4), "1234", "sudoku").as_dict()
    config.model = ModelConfig(dim=8, depth=1, heads=1, time_dim=4, hollow=False)
    pipeline = Pipeline(config)
    dataset = config.data.load()
    settings = EvaluationSettings(runs=1, boards=BoardSettings(num=6, num_puzzles=6))
    task = task_of(pipeline, dataset, settings, is_prompted=True)
    assert torch.equal(task.fixed, task.prompt["given"])
    assert len(task.truth) == len(task.fixed) == 6
    assert len(task.truth.unique(dim=0)) > 1
