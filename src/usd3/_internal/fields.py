"""Dataclasses of settings: their fields hold what their types say, however they were made."""

import os
import types
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from usd3._internal.checks import require, require_type
from usd3._internal.messages import KINDS, near

__all__ = ["made_of", "require_fields"]

Made = TypeVar("Made")


def require_fields(settings: Any, part: str = "") -> None:
    """Refuse a field whose value its type does not allow; errors call it `part`.name.

    A choice that is not known is a ValueError with the nearest one, any other kind of value a TypeError.
    """
    for name, kind in _kinds(type(settings)).items():
        value, called = getattr(settings, name), f"{part}.{name}" if part else name
        if _fits(value, kind):
            continue
        choices = [str(choice) for one in _options(kind) for choice in get_args(one) if get_origin(one) is Literal]
        if isinstance(value, str) and choices:
            require(False, called, value, f"{_said(kind)}{near(value, choices)}")
        require_type(False, called, value, _said(kind))


def made_of(kind: type[Made], values: Any, name: str) -> Made:
    """A dataclass from what a file says, a mapping of its fields; errors call it `name`."""
    require_type(isinstance(values, dict), name, values, "a mapping of names and values")
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    for key in values:
        require(key in known, f"a field of {name}", key, f"one of {', '.join(known)}{near(str(key), known)}")
    for key, field in known.items():
        needed = field.default is MISSING and field.default_factory is MISSING
        require(not needed or key in values, f"{name} without", key, "it among the fields")
    return kind(**values)


def _kinds(settings: type[Any]) -> dict[str, Any]:
    hints = get_type_hints(settings)
    return {field.name: hints[field.name] for field in fields(settings)}


def _options(kind: Any) -> tuple[Any, ...]:
    """The parts of a union, or the kind alone."""
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _fits(value: Any, kind: Any) -> bool:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is Literal:
        return any(value == choice and type(value) is type(choice) for choice in inner)
    if origin is list:
        return isinstance(value, list | tuple) and all(_fits(one, inner[0]) for one in value)
    if origin is tuple:
        return isinstance(value, list | tuple) and len(value) == len(inner) and all(map(_fits, value, inner))
    if origin is dict:
        return isinstance(value, dict) and all(_fits(k, inner[0]) and _fits(v, inner[1]) for k, v in value.items())
    if kind is int:
        return hasattr(value, "__index__") and not isinstance(value, bool)
    if kind is float:
        return (hasattr(value, "__index__") or hasattr(value, "__float__")) and not isinstance(value, bool | str)
    return kind is Any or isinstance(value, str | os.PathLike if kind is str else kind)


def _said(kind: Any) -> str:
    """In words."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(_said, get_args(kind))))
    if origin is Literal:
        choices = [str(choice) for choice in get_args(kind)]
        return choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"
    if origin in (list, tuple):
        return f"a list, each {_said(get_args(kind)[0])}"
    name = (origin or kind).__name__
    return "a mapping" if is_dataclass(kind) else KINDS.get(name, name)
