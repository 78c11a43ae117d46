"""Classes that a recipe names by their import path."""

import importlib
from collections.abc import Iterable
from typing import TypeVar

from usd3._internal.checks import require

__all__ = ["imported_class"]

Kind = TypeVar("Kind")


def imported_class(path: str, kind: type[Kind], option: str, known: Iterable[str]) -> type[Kind]:
    """The class at an import path, which must be of this kind."""
    module, _, name = path.rpartition(".")
    expected = f"one of {sorted(known)} or the import path of a class derived from {kind.__module__}.{kind.__name__}"
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        reason = f" ({error})" if module else ""
        raise ValueError(f"{option} = {path}: expected {expected}{reason}") from None
    require(isinstance(found, type) and issubclass(found, kind), option, path, expected)
    return found  # type: ignore[no-any-return]
