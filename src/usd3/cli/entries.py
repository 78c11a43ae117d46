"""The methods that a command compares, as the words of its option `methods` name them."""

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml  # type: ignore[import-untyped]

from usd3._internal.checks import as_count, require
from usd3._internal.messages import suggestion
from usd3.kinds.class_files import absolute_places
from usd3.methods import METHODS
from usd3.pipeline.packaged import find_model
from usd3.recipes import list_recipes
from usd3.training.options import Recipe

__all__ = [
    "Entry",
    "Word",
    "about_method",
    "method_words",
    "plain",
    "read_entry",
    "recipes_in",
    "require_names",
    "require_same_recipe",
]


@dataclass(frozen=True)
class Entry:
    """One method: a recipe to train, or a trained model.

    Args:
        label: its name in the tables.
        source: the recipes or the folder, as the user typed them.
        recipe: what to train; None for a trained model.
        trained: the folder of a trained model.
        data_path: where the data are, for a trained model that does not know it.
        repeats: the label of the method of which this is a further training.
        trainings: how many trainings the user asked for, of this method alone; None: as many as of the others.
    """

    label: str
    source: str
    recipe: Recipe | None
    trained: Path | None = None
    data_path: str | None = None
    repeats: str | None = None
    trainings: int | None = None

    @property
    def method(self) -> str:
        """The label of the method, which all its trainings share."""
        return self.label if self.repeats is None else self.repeats

    def folder(self, out: Path) -> Path:
        """The folder of its model; `out` is that of the results."""
        return out / self.label if self.trained is None else self.trained


def method_words(words: str | None) -> list[str]:
    """The words of the option; None: all methods that have a recipe of their name."""
    chosen = [name for name in METHODS if name in list_recipes()] if words is None else shlex.split(words)
    require(bool(chosen), "methods", words, "recipes joined by +, or folders of trained models")
    return chosen


class Word(NamedTuple):
    """The parts of a word such as "star:usd3-star+discrete*3": a label, recipes or a folder, a number of trainings."""

    label: str
    source: str
    trainings: int | None

    @classmethod
    def read(cls, word: str) -> "Word":
        """The parts of a word. Without a label, that of the recipes; without a number, None."""
        name, colon, source = word.partition(":")
        name, source = (name, source) if colon and not Path(word).exists() else ("", word)
        recipes, star, number = source.rpartition("*")
        if star and number.isdecimal() and not Path(source).exists():
            return cls(name or _label(recipes), recipes, as_count(int(number), f"trainings of {recipes}", 1))
        return cls(name or _label(source), source, None)


def _label(source: str) -> str:
    """The names of the recipes, or of the folder, without folders and endings."""
    return "+".join(Path(part).stem for part in recipes_in(source))


def recipes_in(source: str) -> list[str]:
    """The recipes that are joined by +; a file whose name has one is one recipe."""
    return [source] if Path(source).is_file() else source.split("+")


def read_entry(word: str, base: Sequence[str], read: Callable[[Sequence[str]], Recipe]) -> Entry:
    """The method that a word means; `read` reads the options from recipes, of which those in `base` come first."""
    label, source, trainings = Word.read(word)
    trained = Path(os.path.abspath(source if source in list_recipes() else find_model(source)))
    if (trained / "config.json").is_file():
        expected = f"{source} alone: a trained model is measured, and not trained again"
        require(trainings is None, "methods", word, expected)
        return Entry(trained.name if word == source else label, source, None, trained)
    parts = recipes_in(source)
    expected = "words with spaces between them, each a recipe, recipes joined by +, or the folder of a trained model"
    recipes = list_recipes()
    unknown = [part for part in parts if part not in recipes and not Path(part).is_file()]
    hints = "".join(suggestion(part, recipes) for part in unknown)
    require(not unknown, "methods", source, f"{expected}; recipes are YAML files or {', '.join(recipes)}{hints}")
    with about_method(source if word.startswith(source) else label):
        recipe = read([*base, *parts]).recipe
    if recipe.data.path is not None:
        recipe.data.path = absolute_places(recipe.data.path)
    return Entry(label, source, recipe, trainings=trainings)


def require_names(entries: Sequence[Entry]) -> None:
    """Raise an error if a label is no file name, or if two methods share it."""
    labels = [entry.label for entry in entries]
    for label in labels:
        valid = re.fullmatch(r"\w[\w+*-]*", label) is not None
        require(valid, "methods", label, "a name that begins with a letter or digit, with + * - _ besides")
        require(labels.count(label) == 1, "methods", label, "names that differ, as in a:usd3 b:usd3")


@contextmanager
def about_method(label: str) -> Iterator[None]:
    """Inside, the message of a ValueError begins with the label of the method."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{label}: {error}") from error


def plain(recipe: Recipe) -> Any:
    """A recipe as plain data, as a file of it is read."""
    return yaml.safe_load(yaml.safe_dump(asdict(recipe), sort_keys=False))


def require_same_recipe(label: str, recipe: Recipe, before: Mapping[str, Any], file: Path) -> None:
    """Raise an error if a recipe differs from `before`, the earlier one in `file`; `label` is its method."""
    now, default = plain(recipe), plain(Recipe())
    require(now.pop("seed") == before["seed"], f"seed of {label}", recipe.seed, f"that of {file}")
    for part, values in now.items():
        for name, value in values.items():
            earlier = before.get(part, {}).get(name, default[part][name])
            require(value == earlier, f"{part}.{name} of {label}", value, f"{earlier}, as in {file}; or another --out")
