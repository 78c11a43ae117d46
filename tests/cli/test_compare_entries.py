"""What `usd3 compare` compares: the meaning of its words, and what the methods share."""

import pytest

from support.runs import tiny_recipe
from usd3.cli import compare, compare_entries
from usd3.cli.entries import Entry
from usd3.training.options import Recipe


def test_without_a_number_of_sampling_steps_all_take_what_each_can(tmp_path):
    few, many = tiny_recipe(tmp_path), Recipe()
    entries = [Entry("few", "few", few), Entry("many", "many", many)]
    assert compare_entries.shared_steps(entries[1:], None) == 100
    assert compare_entries.shared_steps(entries, None) == few.diffusion.num_steps == 20
    assert compare_entries.shared_steps(entries, 5) == 5


def test_a_folder_with_the_name_of_a_recipe_is_no_trained_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "usd3").mkdir()
    entry = compare_entries._entry("usd3", ["base"], lambda names: compare.CompareOptions(seed=len(names)))
    assert (entry.trained, entry.recipe.seed) == (None, 2)


def test_a_method_may_have_another_number_of_trainings_than_the_others():
    read = lambda names: compare.CompareOptions(seed=5)
    entries = compare_entries.read_entries("a:usd3 b:rdm*3 c:d3pm*1", 2, ["bach-small"], read)
    assert [entry.label for entry in entries] == ["a", "a-2", "b", "b-2", "b-3", "c"]
    assert [entry.recipe.seed for entry in entries] == [5, 6, 5, 6, 7, 5]
    assert [entry.source for entry in entries][2] == "rdm"
    summary = compare._summary(entries, compare.EvaluationSettings())
    assert summary["trainings"] == {"a": ["a", "a-2"], "b": ["b", "b-2", "b-3"], "c": ["c"]}


def test_a_trained_model_has_no_number_of_trainings(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"methods = mine:.*\*3: expected .* alone: a trained model is measured"):
        compare_entries.read_entries(f"mine:{tmp_path}*3", 1, [], lambda names: compare.CompareOptions())
