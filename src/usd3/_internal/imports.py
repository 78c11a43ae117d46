"""Imports by name: classes that a recipe names, and classes and names that are imported on first use."""

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

__all__ = ["Registry", "imported_class", "lazily"]

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


class Registry(Mapping[str, type[Base]]):
    """Classes by name. Looking a class up imports its module; listing the names imports nothing.

    Args:
        places: "module.Class" for each name.
    """

    def __init__(self, places: Mapping[str, str]):
        self._places = places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __getitem__(self, name: str) -> type[Base]:
        module, _, class_name = self._places[name].rpartition(".")
        return getattr(importlib.import_module(module), class_name)  # type: ignore[no-any-return]
