"""Labels by name: which class each object of a call has, and what else a condition says."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from usd3._internal.checks import require
from usd3._internal.messages import suggestion
from usd3.kinds.base import Kind

__all__ = ["Labels", "Where", "label_rows", "split_where"]

Names = Mapping[str, Sequence[str]]
Where = Mapping[str, Any] | str | Tensor
Labels = Mapping[str, Any] | str | ArrayLike


def split_where(where: Where, names: Names, kind: Kind) -> tuple[dict[str, Any] | None, Where | None]:
    """The labels that a condition names, with their classes, and the rest of the condition; None: there is none.

    Args:
        where: "label=cat", {"label": "cat"}, or shares of categories (..., K), which name no label.
        names: the labels of the model by name, each with the names of its classes.
        kind: the kind of data, whose elements may have names.
    """
    if isinstance(where, Tensor) or not names:
        return None, where
    found: dict[str, Any]
    if isinstance(where, str):
        parts = _parts(where)
        found = _assigned([part for part in parts if _name_in(part) in names], "where")
        others = [part for part in parts if _name_in(part) not in names]
        rest: Where | None = ",".join(others) or None
        unknown = [_name_in(part) for part in others]
    else:
        found = {name: value for name, value in where.items() if name in names}
        rest = {name: value for name, value in where.items() if name not in names} or None
        unknown = [str(name) for name in rest or ()]
    if unknown and type(kind).weights is Kind.weights:  # its elements have no names
        expected = f"one of {', '.join(names)}{suggestion(unknown[0], names)}"
        require(False, "name in where", unknown[0], f"{expected}, as in {_example(names)}")
    return found or None, rest


def label_rows(labels: Labels | None, names: Names, num: int, argument: str = "labels") -> Tensor | None:
    """(num, J) int64 the class of each label of each object, -1 where it is absent; None: all are absent.

    Args:
        labels: {"label": "cat"} or "label=cat" for all objects; or (num,) names or numbers of classes, or (num, J)
            numbers. The number -1, None and an empty name mean "absent".
        names: the labels of the model by name, each with the names of its classes.
        num: number of objects.
        argument: what errors call `labels`.
    """
    if labels is None:
        return None
    require(len(names) > 0, argument, labels, "None, as the model was trained on data without labels")
    if isinstance(labels, str):
        labels = _assigned(_parts(labels), argument)
    if isinstance(labels, Mapping):
        for name in labels:
            expected = f"one of {', '.join(names)}{suggestion(str(name), names)}"
            require(name in names, f"name in {argument}", name, f"{expected}, as in {_example(names)}")
        row = [_class_number(labels.get(name), name, classes) for name, classes in names.items()]
        return torch.tensor([row]).expand(num, -1)
    sizes = [len(classes) for classes in names.values()]
    try:
        array = labels.cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    except ValueError:  # rows of different lengths
        array = np.asarray(None)
    expected = f"integers {(num, len(names))}, or {_example(names)} for all objects"
    require(array.ndim > 0, argument, labels, expected)
    if array.ndim == 1 and len(names) == 1:
        (name, classes), *_ = names.items()
        if array.dtype.kind not in "iu":
            array = np.array([_class_number(value, name, classes) for value in array.tolist()], np.int64)
        array = array[:, None]
    fits = array.dtype.kind in "iu" and array.shape == (num, len(names))
    require(fits, argument, f"{array.dtype} {array.shape}", expected)
    for column, (name, size) in enumerate(zip(names, sizes)):
        bad = array[(array[:, column] < -1) | (array[:, column] >= size), column]
        require(len(bad) == 0, f"{name} in {argument}", bad[:1].tolist(), f"0..{size - 1}, or -1 for absent")
    return torch.from_numpy(array.astype(np.int64))


def _class_number(value: Any, name: str, classes: Sequence[str]) -> int:
    """The number of a class by its name, or a number itself; -1: absent.

    A name comes first, and where names are numbers themselves, a text is always a name.
    """
    if value is None or value == "":
        return -1
    if str(value) in classes:
        return list(classes).index(str(value))
    is_number = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if isinstance(value, str) and not any(re.fullmatch(r"-?\d+", one) for one in classes):
        is_number = re.fullmatch(r"-1|\d{1,9}", value) is not None
    if is_number and -1 <= int(value) < len(classes):
        return int(value)
    listed = ", ".join(classes[:20]) + (", ..." if len(classes) > 20 else "")
    hint = suggestion(str(value), classes) if "|" not in str(value) else ""
    raise ValueError(f"{name} = {value}: expected one class, of {listed}{hint}")


def _example(names: Names) -> str:
    name, classes = next(iter(names.items()))
    return f"{name}={classes[0]}"


def _name_in(part: str) -> str:
    """The name in "name=value" or "name!=value"."""
    return part.partition("=")[0].rstrip("!").strip()


def _assigned(parts: Sequence[str], argument: str) -> dict[str, str]:
    """The value of each name in parts "name=value"."""
    found: dict[str, str] = {}
    for part in parts:
        name, sign, value = part.partition("=")
        fits = bool(sign) and not name.endswith("!") and name.strip() not in found
        require(fits, argument, part, "NAME=CLASS for a label, once")
        found[name.strip()] = value.strip().strip('"')
    return found


def _parts(text: str) -> list[str]:
    """The parts of a text between commas; quotes protect a comma."""
    parts, quoted = [""], False
    for letter in text:
        quoted ^= letter == '"'
        if letter == "," and not quoted:
            parts.append("")
        else:
            parts[-1] += letter
    return parts
