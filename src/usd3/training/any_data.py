"""`usd3.fit`: train a model on whatever data the user has, in one call."""

import os
import tempfile
from pathlib import Path
from typing import Any

import torch

from usd3._internal.checks import as_number, require
from usd3._internal.device import device_named
from usd3.kinds.base import Kind
from usd3.kinds.class_files import absolute_places, places_of
from usd3.kinds.dataset import Dataset
from usd3.kinds.labels import class_numbers
from usd3.kinds.registry import kind_named, kind_of_file, kind_of_objects, recipe_of_kind
from usd3.pipeline.pipeline import Pipeline
from usd3.pipeline.trust import require_trusted
from usd3.training.options import Recipe
from usd3.training.recipes import recipe_from
from usd3.training.run import fit as fit_recipe

__all__ = ["fit"]

_LONGEST_NAME = 4096  # of a file; a longer word is a text


def fit(
    data: Any,
    /,
    *recipes: str,
    minutes: float | None = None,
    kind: str | None = None,
    run: str | os.PathLike[str] | None = None,
    seed: int = 0,
    progress: bool = True,
    trust_code: bool = False,
    labels: Any = None,
    **options: Any,
) -> Pipeline:
    """Train a model on data of any kind, and return it.

    Args:
        data: an array or tensor of integers (N, ...), a DataFrame, a list of strings, a text, or the path of a file or
            folder. A part is held out: by its bound, training ends before small data are learnt by heart.
        recipes: names of packaged recipes, or YAML files, as in `usd3 train`. By default "small" where there is no GPU.
        minutes: train for at most so many minutes; None: as many steps as the recipe says.
        kind: the kind of the data, such as "table", where it cannot be told from the data.
        run: keep the run in this new folder, with logs and checkpoints; None: keep nothing but the model returned.
        seed: of the weights and of every draw in training.
        progress: show progress.
        trust_code: import a kind, network or method that is not ours, if a YAML file names one. This runs its code. Not
            needed for a class that is named in an argument.
        labels: the class of each object, (N,) names or integers, None or -1 where it is unknown; for arrays and lists
            of strings. The model then draws objects of a class, `model.generate(10, where={"label": "cat"})`. Files say
            it themselves: by an array `train_label`, or one file for each class, "promoter=a.fa,none=b.fa".
        options: further options by section: data={...}, diffusion={...}, method={...}, model={...}, training={...}.

    Example:
        >>> model = usd3.fit(table, minutes=2)          # a DataFrame
        >>> model.generate(1000, where={"sex": "Female"})
    """
    path = _path_of(data)
    found = kind_named(kind, "kind") if kind is not None else kind_of_objects(data) if path is None else _of_file(path)
    recipe = _recipe(found, recipes, path, options, seed)
    if not trust_code:
        require_trusted(recipe, {found.path(), *_named_classes(options)})
    if minutes is not None:
        recipe.training.minutes = as_number(minutes, "minutes", 0)
    require(labels is None or path is None, "labels", labels, "None for files, which say themselves of what class")
    dataset = None if path is not None else _dataset(found, data, recipe, labels)
    if run is not None:
        return _fit(recipe, Path(run), progress, dataset)
    with tempfile.TemporaryDirectory(prefix="usd3-") as folder:
        return _fit(recipe, Path(folder) / "run", progress, dataset)


def _fit(recipe: Recipe, folder: Path, progress: bool, dataset: Dataset | None) -> Pipeline:
    return fit_recipe(recipe, folder, progress=progress, dataset=dataset).to(device_named(None))


def _dataset(kind: type[Kind], data: Any, recipe: Recipe, labels: Any) -> Dataset:
    """The data set of objects in memory, with the class of each of them."""
    if labels is None:
        expected = "null or false: the argument `labels` has the class of each object"
        require(not recipe.data.labels, "data.labels", recipe.data.labels, expected)
        return kind.from_objects(data, recipe.data)
    require(kind.takes_labels, "labels", "given", f"None for {kind.plural}, which take no labels")
    numbers, classes = class_numbers(labels, "labels")
    return kind.from_objects(data, recipe.data, numbers, classes)  # type: ignore[call-arg]


def _path_of(data: Any) -> Path | None:
    """The path that `data` is; None: it is data."""
    if isinstance(data, os.PathLike):
        return Path(data)
    if not isinstance(data, str):
        return None
    is_word = len(data) < _LONGEST_NAME and not any(letter.isspace() for letter in data)
    return Path(data) if is_word or _is_file(Path(data)) else None


def _is_file(path: Path) -> bool:
    """Whether a text with spaces is the name of a file: one that exists, or with the ending of a kind of data."""
    try:
        return path.exists() or ("\n" not in str(path) and kind_of_file(path) is not None)
    except (OSError, ValueError):  # too long, or with a NUL
        return False


def _of_file(path: Path) -> type[Kind]:
    places = places_of(str(path))
    for place in places:
        if not place.exists():
            raise FileNotFoundError(f"data = {place}: no such file")
    kind = kind_of_file(places[0])
    require(kind is not None, "data", path, "a file of a known ending, or `kind`, which says what it is")
    return kind  # type: ignore[return-value]


def _named_classes(options: dict[str, Any]) -> set[str]:
    """The classes that the user names in arguments: a network, a method, a kind."""
    places = (("model", "net"), ("method", "name"), ("data", "kind"))
    sections = ((options.get(section), name) for section, name in places)
    return {str(values[name]) for values, name in sections if isinstance(values, dict) and name in values}


def _recipe(kind: type[Kind], names: tuple[str, ...], path: Path | None, options: dict[str, Any], seed: int) -> Recipe:
    chosen = names or (() if torch.cuda.is_available() else ("small",))
    own = options.get("data", {})
    data = own | {"path": None if path is None else absolute_places(str(path))}
    if kind.path() != kind.name:  # a kind of the user's own
        data |= {"kind": kind.path()}
    training = options.get("training", {})
    if isinstance(training, dict):
        training = {"devices": 1} | training  # more would run the user's script several times
    recipe_names = [recipe_of_kind(kind), *(recipe_of_kind(kind, name) for name in chosen)]
    return recipe_from(recipe_names, {"seed": seed, **options, "data": data, "training": training})
