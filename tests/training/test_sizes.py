"""Sizes that a recipe leaves to the kind of the data."""

import json
from dataclasses import dataclass, replace

import pytest

from support.runs import tiny_recipe
from usd3.kinds.array import Array
from usd3.nets.options import ModelConfig
from usd3.training.run import fit, pipeline_for
from usd3.training.sizes import sized


@dataclass(frozen=True)
class Sized(Array):
    """Arrays that know how large a network they need."""

    @classmethod
    def path(cls):
        return "array"  # so that a model folder can be read back

    @classmethod
    def sizes(cls, num_objects):
        return {"dim": 2 * num_objects, "depth": 1, "heads": 1}


def data_of(recipe):
    dataset = recipe.data.load()
    return replace(dataset, kind=Sized(dataset.num_classes, dataset.shape))


def test_zeros_are_filled_by_the_kind_and_other_numbers_stay(tmp_path):
    recipe = tiny_recipe(tmp_path)
    recipe.model = ModelConfig(dim=0, depth=3, heads=2)
    full = sized(recipe, data_of(recipe))
    assert (full.model.dim, full.model.depth, full.model.heads) == (100, 3, 2)
    assert recipe.model.dim == 0
    assert full.training == recipe.training


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
def test_few_objects_have_smaller_batches_and_fewer_steps(options, batch_size, steps, tmp_path):
    """Of 50 objects; a later look at the sizes, as in a run that is resumed, changes nothing more."""
    recipe = tiny_recipe(tmp_path, **options)
    full = sized(recipe, data_of(recipe))
    assert (full.training.batch_size, full.training.steps) == (batch_size, steps)
    longer = replace(full, training=replace(full.training, steps=9999))
    assert sized(longer, data_of(recipe)).training == longer.training


def test_a_kind_without_sizes_refuses_zeros(tmp_path):
    recipe = tiny_recipe(tmp_path)
    recipe.model = ModelConfig(dim=0)
    with pytest.raises(ValueError, match=r"model\.dim = 0: expected a number >= 1 for arrays"):
        pipeline_for(recipe, recipe.data.load())


def test_a_run_writes_down_the_sizes_it_found(tmp_path):
    recipe = tiny_recipe(tmp_path, steps=99, epochs=4, batch_size=4)
    fit(recipe, tmp_path / "run", progress=False, dataset=data_of(recipe))
    assert "steps: 50" in (tmp_path / "run" / "recipe.yaml").read_text()
    assert json.loads((tmp_path / "run" / "config.json").read_text())["steps"] == 50
