"""Whose code may run: ours, and what the user typed. What a file names is imported where the user trusts it.

A recipe, the folder of a run and that of a model say by name which network and method they want. A name that is not one
of ours is an import path, and importing it runs code.
"""

from collections.abc import Collection
from typing import Protocol

from usd3._internal.checks import require
from usd3.methods import METHODS
from usd3.methods.options import MethodConfig
from usd3.nets.options import NETS, ModelConfig

__all__ = ["foreign_classes", "require_trusted"]


class _Names(Protocol):
    """A recipe, or what config.json says."""

    model: ModelConfig
    method: MethodConfig


def foreign_classes(names: _Names) -> set[str]:
    """The import paths of the classes that are not ours."""
    return {names.model.net} - set(NETS) | {names.method.name} - set(METHODS)


def require_trusted(names: _Names, trusted: Collection[str]) -> None:
    """Refuse classes that are neither ours nor trusted, before they are imported."""
    for option, path, ours in (("model.net", names.model.net, NETS), ("method.name", names.method.name, METHODS)):
        runs = f"one of {sorted(ours)}, or trust_code: true, which runs the code of the class"
        require(path in ours or path in trusted, option, path, runs)
