import numpy as np
import pytest
import torch

import usd3
from usd3.kinds.chorale.kind import Chorale
from usd3.kinds.options import DataConfig
from usd3.kinds.registry import KINDS, kind_from, recipe_of_kind
from usd3.training.recipes import recipe_from

KIND = Chorale(129, (32, 4))


def test_it_is_found_by_its_name_and_by_its_source():
    assert KINDS["chorale"] is Chorale
    assert DataConfig("chorales").kind_class is Chorale
    assert kind_from(KIND.as_dict(), 129, [32, 4]) == KIND
    assert KIND.describe() == "chorales of 32 sixteenth notes"


@pytest.mark.parametrize(("num_classes", "shape"), [(130, (32, 4)), (129, (32,)), (129, (32, 3)), (129, (4, 32, 2))])
def test_other_shapes_and_categories_are_refused(num_classes, shape):
    with pytest.raises(ValueError, match="expected"):
        Chorale(num_classes, shape)


def test_its_recipes_need_no_file():
    for name in ("", "small"):
        recipe = recipe_from([recipe_of_kind(Chorale, name)])
        assert recipe.data.kind_class is Chorale
        assert recipe.model.net == "voices"
        assert not Chorale.needs_path(recipe.data)


def test_training_chorales_are_transposed_where_the_recipe_says_so():
    x = torch.tensor([72, 64, 55, 48]).expand(64, 32, 4)
    assert KIND.augment(DataConfig("chorales"), None, "cpu") is None
    augment = KIND.augment(DataConfig("chorales", transpose=3), None, "cpu")
    moved = augment(x, None, torch.Generator().manual_seed(0)) - x
    assert set(moved.unique().tolist()) == {-3, -2, -1, 0, 1, 2, 3}


def test_structure_of_flat_and_of_whole_chorales():
    x = torch.tensor([72, 64, 55, 48]).expand(2, 3, 32, 4).clone()
    x[..., 17:, :] += 2
    pad = torch.zeros(3, 32, 4, dtype=torch.bool)
    for runs, hidden in ((x, None), (x.flatten(2), None), (x.flatten(2), pad.flatten(1))):
        found = KIND.structure(runs, hidden)
        assert set(found) == set(KIND.columns)
        assert found["parallel_octaves"].mean == 100
        assert found["on_beat"].mean == 0.5
    pad[:, 17:] = True
    assert KIND.structure(x.flatten(2), pad.flatten(1))["on_beat"].mean == 1


def test_a_model_is_fitted_to_an_array():
    music = np.random.default_rng(0).integers(0, 5, (12, 40, 4)) + np.array([70, 62, 55, 45])
    training = {"steps": 2, "batch_size": 4, "validate_every": 0, "patience": 0, "accelerator": "cpu"}
    model = {"dim": 16, "depth": 1, "heads": 2}
    options = {"training": training, "model": model, "data": {"length": 32}}
    pipeline = usd3.fit(music, "small", kind="chorale", progress=False, **options)
    assert pipeline.kind == Chorale(129, (32, 4), from_files=True)
    assert pipeline.sample(2, num_steps=2).shape == (2, 32, 4)
