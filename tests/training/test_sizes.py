"""Batches and steps by the number of training objects."""

import json
from dataclasses import replace

import pytest

from support.runs import tiny_recipe
from usd3.training.options import TrainingConfig
from usd3.training.run import fit
from usd3.training.sizes import sized


@pytest.mark.parametrize(
    ("options", "batch_size", "steps"),
    [
        ({"batch_size": 512, "steps": 4000, "epochs": 50, "least_batches": 16}, 4, 625),
        ({"batch_size": 2, "steps": 4000, "epochs": 50, "least_batches": 16}, 2, 1250),
        ({"batch_size": 512, "steps": 400, "epochs": 50, "least_batches": 16}, 4, 400),
        ({"batch_size": 512, "steps": 400, "epochs": 0.01, "least_batches": 200}, 1, 1),
        ({"batch_size": 10, "steps": 400, "epochs": 1}, 10, 5),
        ({"batch_size": 512, "steps": 400}, 512, 400),
    ],
)
def test_few_objects_have_smaller_batches_and_fewer_steps(options, batch_size, steps):
    full = sized(TrainingConfig(**options), 50)
    assert (full.batch_size, full.steps) == (batch_size, steps)


def test_a_run_that_its_epochs_end_is_finished_and_goes_on_with_more_of_them(tmp_path, capsys):
    """50 objects in batches of 10. The recipe keeps what the user said, so the run can be compared and resumed."""
    recipe = tiny_recipe(tmp_path, steps=99, epochs=2, batch_size=10, checkpoint_every=5)
    fit(recipe, tmp_path / "run", progress=False)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["steps"], config["planned"]) == (10, 10)
    assert "steps: 99" in (tmp_path / "run" / "recipe.yaml").read_text()
    pipeline = fit(recipe, tmp_path / "run", resume=True, progress=False)
    assert "--training.epochs 4" in capsys.readouterr().err
    assert pipeline.config.has_trained(99, None)
    more = replace(recipe, training=replace(recipe.training, epochs=3))
    assert fit(more, tmp_path / "run", resume=True, progress=False).config.steps == 15
