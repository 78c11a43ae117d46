"""The words of the option `methods`."""

import pytest

from usd3.cli.entries import Word, method_words
from usd3.methods import METHODS
from usd3.recipes import list_recipes


def test_without_methods_all_that_have_a_recipe_are_taken():
    assert method_words(None) == [name for name in METHODS if name in list_recipes()]
    assert "usd3" in method_words(None)


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("usd3+discrete", ("usd3+discrete", "usd3+discrete", None)),
        ("star:usd3-star+discrete*3", ("star", "usd3-star+discrete", 3)),
        ("rdm*2", ("rdm", "rdm", 2)),
        ("sddm+recipes/hollow.yaml*2", ("sddm+hollow", "sddm+recipes/hollow.yaml", 2)),
        ("runs/usd3*", ("usd3*", "runs/usd3*", None)),
    ],
)
def test_a_word_has_a_label_recipes_and_a_number_of_trainings(word, parts):
    assert Word.read(word) == parts


def test_a_folder_whose_name_looks_like_a_number_of_trainings_is_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run*2").mkdir()
    assert Word.read("run*2") == ("run*2", "run*2", None)


def test_no_training_is_refused():
    with pytest.raises(ValueError, match=r"trainings of rdm = 0: expected"):
        Word.read("rdm*0")
