"""The words after `usd3 train`: recipes, and a file of data whose kind is told by its ending."""

from collections.abc import Sequence
from pathlib import Path

from usd3._internal.checks import require
from usd3.cli.parsing import value_of
from usd3.kinds.base import Kind
from usd3.kinds.class_files import places_of
from usd3.kinds.registry import KINDS, kind_named, kind_of_file, recipe_of_kind
from usd3.recipes import find_recipe, list_recipes

__all__ = ["configs_of_words"]


def configs_of_words(words: Sequence[str], arguments: list[str]) -> list[str]:
    """The options that words stand for: `--config` for each recipe, and `--data.path` for a file of data.

    A file of data stands for the recipe of its kind, which comes first. The other recipes are those of its kind where
    there are some: in `usd3 train adult.csv small`, `small` is the packaged recipe `table-small`.

    Args:
        words: names of recipes and at most one file or folder of data.
        arguments: the options that the user typed; `--data.kind` overrules the ending of the file.
    """
    kinds = {word: None if _is_recipe(word) else _kind_of_word(word, arguments) for word in words}
    data = [word for word in words if kinds[word] is not None]
    require(len(data) < 2, "data", ", ".join(data), "one file or folder")
    kind = kinds[data[0]] if data else None
    recipes = [word if kind is None else recipe_of_kind(kind, word) for word in words if word not in data]
    recipes = recipes if kind is None else [recipe_of_kind(kind), *recipes]
    configs = [part for recipe in recipes for part in ("--config", str(find_recipe(recipe)))]
    return [*configs, *(f"--data.path={word}" for word in data)]


def _is_recipe(word: str) -> bool:
    return word in list_recipes() or Path(word).suffix in (".yaml", ".yml")


def _kind_of_word(word: str, arguments: list[str]) -> type[Kind] | None:
    """The kind of the data at the path `word`; None: it is no path of data."""
    paths = places_of(word)
    path = paths[0]
    typed = value_of("--data.kind", arguments)
    endings = {ending: kind for kind in KINDS.values() for ending in kind.files}
    if missing := [path for path in paths if not path.exists()]:
        if len(paths) > 1 or path.name.lower().endswith(tuple(endings)):
            raise FileNotFoundError(f"{missing[0]}: no such file")
        return None
    if typed is not None:
        return kind_named(typed, "data.kind")
    kind = kind_of_file(path)
    what = "a folder of MIDI files" if path.is_dir() else f"a file that ends with {', '.join(endings)}"
    require(kind is not None, "data", word, f"{what}, a recipe, or --data.kind, which says what it is")
    return kind
