"""The jobs of `usd3 compare`: what is left to train."""

import json

from support.runs import tiny_recipe
from usd3.cli import compare_jobs


def test_finished_is_by_steps_or_by_minutes(tmp_path):
    recipe = tiny_recipe(tmp_path, steps=10, minutes=3.0)
    for steps, minutes, expected in ((10, 1.0, True), (9, 3.0, True), (9, 2.9, False), (9, None, False)):
        config = {"num_classes": 5, "shape": [8], "steps": steps, "minutes": minutes}
        (tmp_path / "config.json").write_text(json.dumps(config))
        assert compare_jobs.is_finished(tmp_path, recipe.training) == expected
    assert not compare_jobs.is_finished(tmp_path / "nothing", recipe.training)
