"""The words of the option `methods`."""

from usd3.cli.entries import method_words
from usd3.methods import METHODS
from usd3.recipes import list_recipes


def test_without_methods_all_that_have_a_recipe_are_taken():
    assert method_words(None) == [name for name in METHODS if name in list_recipes()]
    assert "usd3" in method_words(None)
