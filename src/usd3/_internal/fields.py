"""Checks of option dataclasses: each field holds a value of its type, however the object was created."""

import os
import types
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from usd3._internal.checks import require, require_type
from usd3._internal.messages import KINDS, suggestion

__all__ = ["from_mapping", "require_fields"]

Options = TypeVar("Options")


def require_fields(options: Any, part: str = "") -> None:
    """Raise an error if a field of the dataclass `options` holds a value that its type does not allow.

    A text that is none of the allowed choices is a ValueError, which suggests the most similar one. Any other wrong
    value is a TypeError. Messages call the field `part`.name.
    """
    for name, kind in _types(type(options)).items():
        value, full_name = getattr(options, name), f"{part}.{name}" if part else name
        if _fits(value, kind):
            continue
        choices = [str(c) for member in _members(kind) for c in get_args(member) if get_origin(member) is Literal]
        if isinstance(value, str) and choices:
            require(False, full_name, value, f"{_described(kind)}{suggestion(value, choices)}")
        require_type(False, full_name, value, _described(kind))


def from_mapping(kind: type[Options], values: Any, name: str) -> Options:
    """A dataclass of type `kind` from a mapping of its fields, as read from a file. Messages call it `name`."""
    require_type(isinstance(values, dict), name, values, "a mapping of names and values")
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    for key in values:
        require(key in known, f"a field of {name}", key, f"one of {', '.join(known)}{suggestion(str(key), known)}")
    for key, field in known.items():
        has_default = field.default is not MISSING or field.default_factory is not MISSING
        require(has_default or key in values, f"{name} without", key, "it among the fields")
    return kind(**values)


def _types(options: type[Any]) -> dict[str, Any]:
    """The type of each field, by its name."""
    hints = get_type_hints(options)
    return {field.name: hints[field.name] for field in fields(options)}


def _members(kind: Any) -> tuple[Any, ...]:
    """The members of a union; any other type alone."""
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _fits(value: Any, kind: Any) -> bool:
    """Whether the type `kind` allows the value. NumPy's numbers count as numbers, paths as texts."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return any(_fits(value, member) for member in inner)
    if origin is Literal:
        return any(value == choice and type(value) is type(choice) for choice in inner)
    if origin is list:
        return isinstance(value, list | tuple) and all(_fits(item, inner[0]) for item in value)
    if origin is tuple:
        return isinstance(value, list | tuple) and len(value) == len(inner) and all(map(_fits, value, inner))
    if origin is dict:
        return isinstance(value, dict) and all(_fits(k, inner[0]) and _fits(v, inner[1]) for k, v in value.items())
    if kind is int:
        return hasattr(value, "__index__") and not isinstance(value, bool)
    if kind is float:
        return (hasattr(value, "__index__") or hasattr(value, "__float__")) and not isinstance(value, bool | str)
    return kind is Any or isinstance(value, str | os.PathLike if kind is str else kind)


def _described(kind: Any) -> str:
    """A type in a user's words: "a whole number", "one of a, b"."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(_described, get_args(kind))))
    if origin is Literal:
        choices = [str(choice) for choice in get_args(kind)]
        return choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"
    if origin in (list, tuple):
        return f"a list, each {_described(get_args(kind)[0])}"
    name = (origin or kind).__name__
    return "a mapping" if is_dataclass(kind) else KINDS.get(name, name)
