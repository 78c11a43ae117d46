"""What `usd3 compare` compares: the meaning of its words, and what the methods share."""

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
