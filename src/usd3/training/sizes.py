"""Sizes of network and training by the number of training objects, where a recipe leaves them open."""

from dataclasses import replace
from typing import Any

from usd3._internal.checks import require
from usd3.kinds.dataset import Dataset
from usd3.training.options import Recipe

__all__ = ["sized"]

_SIZES = {"model": ("dim", "depth", "heads"), "training": ("steps", "batch_size")}


def sized(recipe: Recipe, dataset: Dataset) -> Recipe:
    """The recipe with a number in place of each 0 that leaves a size to the kind of the data."""
    sizes, changed = dataset.kind.sizes(len(dataset.train)), dict[str, Any]()
    for section, names in _SIZES.items():
        options = getattr(recipe, section)
        open_names = [name for name in names if getattr(options, name) == 0]
        for name in open_names:
            require(name in sizes, f"{section}.{name}", 0, f"a number >= 1 for {dataset.kind.plural}")
        changed[section] = replace(options, **{name: sizes[name] for name in open_names})
    return replace(recipe.recipe, **changed)
