"""Recipes put together in Python: packaged ones and YAML files, later ones and options overruling earlier ones."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, get_type_hints

from usd3._internal.checks import require, require_type
from usd3._internal.fields import from_mapping
from usd3._internal.messages import suggestion
from usd3._internal.yaml_json import read_yaml
from usd3.recipes import find_recipe
from usd3.training.options import Recipe

__all__ = ["recipe_from"]


def recipe_from(names: Sequence[str], options: Mapping[str, Any] | None = None) -> Recipe:
    """The recipe that packaged recipes or YAML files and options give together; later ones overrule earlier ones.

    Args:
        names: names of packaged recipes, or paths of YAML files.
        options: further options by section, as in {"training": {"lr": 1e-3}, "seed": 1}.
    """
    merged: dict[str, Any] = {}
    for content in [*(read_yaml(find_recipe(name)) or {} for name in names), options or {}]:
        merged = _merged(merged, content, Recipe, "")
    recipe: Recipe = _built(Recipe, merged, "recipe")
    return recipe


def _merged(first: Mapping[str, Any], then: Any, section: type[Any], name: str) -> dict[str, Any]:
    """Options of a section with those of `then` in the place of earlier ones; sections inside it are merged too."""
    require_type(isinstance(then, Mapping), name or "recipe", then, "a mapping of names and values")
    hints, merged = get_type_hints(section), dict(first)
    known = [field.name for field in fields(section)]
    for key, value in then.items():
        full = f"{name}.{key}" if name else str(key)
        require(key in known, "option", full, f"one of {', '.join(known)}{suggestion(str(key), known)}")
        inner = hints[key]
        is_section = is_dataclass(inner)
        merged[key] = _merged(merged.get(key, {}), value, inner, full) if is_section else value
    return merged


def _built(section: type[Any], values: Mapping[str, Any], name: str) -> Any:
    hints = get_type_hints(section)
    inner = {
        key: _built(hints[key], value, f"{name}.{key}") if is_dataclass(hints[key]) else value
        for key, value in values.items()
    }
    return from_mapping(section, inner, name)
