"""Which code may run: ours, and the classes that the user types. A class that a file names needs the user's trust.

A recipe, a run folder and a model folder name a kind, a network and a method. A name that is not one of ours is an
import path, and an import runs code.
"""

from collections.abc import Collection
from typing import NamedTuple, Protocol

from usd3._internal.checks import require
from usd3.kinds.options import DataConfig
from usd3.kinds.registry import KINDS
from usd3.methods import METHODS
from usd3.methods.options import MethodConfig
from usd3.nets.options import NETS, ModelConfig

__all__ = ["foreign_classes", "require_trusted"]


class _Config(Protocol):
    """A recipe or the content of a config.json."""

    data: DataConfig
    model: ModelConfig
    method: MethodConfig


class _ClassName(NamedTuple):
    """A class that a config names: the option, its value (a short name or an import path), and our short names."""

    option: str
    path: str
    packaged: Collection[str]


def foreign_classes(config: _Config) -> set[str]:
    """The import paths of the classes in a config that are not ours."""
    return {name.path for name in _class_names(config) if name.path not in name.packaged}


def require_trusted(config: _Config, trusted: Collection[str]) -> None:
    """Raise an error if a config names a class that is neither ours nor one of the import paths `trusted`."""
    for option, path, packaged in _class_names(config):
        expected = f"one of {sorted(packaged)}, or trust_code: true, which runs the code of the class"
        require(path in packaged or path in trusted, option, path, expected)


def _class_names(config: _Config) -> list[_ClassName]:
    names = [
        _ClassName("model.net", config.model.net, NETS),
        _ClassName("method.name", config.method.name, METHODS),
    ]
    if config.data.kind is not None:
        names.append(_ClassName("data.kind", config.data.kind, KINDS))
    kind = getattr(config, "kind", None)  # only a config.json has it
    if kind is not None:
        names.append(_ClassName("kind.name", str(kind.get("name")), KINDS))
    return names
