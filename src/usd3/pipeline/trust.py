"""Whose code may run: ours, and what the user typed. What a file names is imported where the user trusts it.

A recipe, the folder of a run and that of a model say by name which kind, network and method they want. A name that is
not one of ours is an import path, and importing it runs code.
"""

from collections.abc import Collection
from typing import Protocol

from usd3._internal.checks import require
from usd3.kinds.options import DataConfig
from usd3.kinds.registry import KINDS
from usd3.methods import METHODS
from usd3.methods.options import MethodConfig
from usd3.nets.options import NETS, ModelConfig

__all__ = ["foreign_classes", "require_trusted"]


class _Names(Protocol):
    """A recipe, or what config.json says."""

    data: DataConfig
    model: ModelConfig
    method: MethodConfig


def foreign_classes(names: _Names) -> set[str]:
    """The import paths of the classes that are not ours."""
    return {path for _, path, ours in _classes(names) if path not in ours}


def require_trusted(names: _Names, trusted: Collection[str]) -> None:
    """Refuse classes that are neither ours nor trusted, before they are imported."""
    for option, path, ours in _classes(names):
        runs = f"one of {sorted(ours)}, or trust_code: true, which runs the code of the class"
        require(path in ours or path in trusted, option, path, runs)


def _classes(names: _Names) -> list[tuple[str, str, Collection[str]]]:
    """Each class that is named: by which option, its name or import path, and those that are ours."""
    classes: list[tuple[str, str, Collection[str]]] = [
        ("model.net", names.model.net, NETS),
        ("method.name", names.method.name, METHODS),
    ]
    if names.data.kind is not None:
        classes.append(("data.kind", names.data.kind, KINDS))
    saved = getattr(names, "kind", None)  # of a model folder
    if saved is not None:
        classes.append(("kind.name", str(saved.get("name")), KINDS))
    return classes
