"""Imports by name: classes that a recipe names, and names of a package that are loaded on first use."""

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

__all__ = ["imported_class", "lazily"]

Base = TypeVar("Base")


def imported_class(path: str, base: type[Base], option: str, packaged: Iterable[str]) -> type[Base]:
    """The class at the import path `path`, "package.module.Class", which must derive from `base`.

    Args:
        path: The import path.
        base: The class that it must derive from.
        option: The option that named the class, for error messages.
        packaged: The short names that the option also accepts, for error messages.
    """
    module, _, name = path.rpartition(".")
    expected = f"one of {sorted(packaged)} or the import path of a class derived from {base.__module__}.{base.__name__}"
    try:
        imported = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        reason = f" ({error})" if module else ""
        raise ValueError(f"{option} = {path}: expected {expected}{reason}") from None
    if not (isinstance(imported, type) and issubclass(imported, base)):
        raise ValueError(f"{option} = {path}: expected {expected}")
    return imported


def lazily(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package that imports a module only when one of its names is first used.

    Args:
        package: The package's name.
        modules: For each name that the package offers, the module that defines it.
    """

    def __getattr__(name: str) -> Any:
        if name in modules:
            return getattr(importlib.import_module(modules[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return __getattr__
