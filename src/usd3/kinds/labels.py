"""The classes of objects: a number for each object, and names for the numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from usd3._internal.checks import require
from usd3.kinds.rows import Rows, Sequences

__all__ = ["LABEL", "class_numbers", "labels_of", "require_fits", "with_labels"]

LABEL = "label"
"""The name of the label that files and arrays of classes give."""

_MOST_CLASSES = 2**16  # of a label
_NAMES = (f"{LABEL}_classes", "classes")  # of the array with the names of the classes


def class_numbers(labels: Any, name: str) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """The number of the class of each object, (N,), -1 where it is unknown, and the names of the classes.

    Args:
        labels: (N,) integers, which are the numbers, or names; None, NaN and "" stand for unknown ones.
        name: what errors call them.
    """
    array = np.asarray(labels.cpu() if isinstance(labels, torch.Tensor) else labels)
    require(array.ndim == 1 and array.size > 0, f"{name}.shape", array.shape, "(N,), the class of each object")
    if array.dtype.kind in "iu":
        _require_range([array], name)
        return array.astype(np.int64), tuple(map(str, range(int(array.max()) + 1)))
    words = ["" if value is None or value != value else str(value) for value in array.tolist()]
    classes = sorted(set(words) - {""})
    require(0 < len(classes) <= _MOST_CLASSES, f"classes in {name}", len(classes), f"1 to {_MOST_CLASSES}")
    number = {word: i for i, word in enumerate(classes)} | {"": -1}
    return np.array([number[word] for word in words], np.int64), tuple(classes)


def labels_of(
    stored: Mapping[str, NDArray[Any]], names: Sequence[str], origin: str
) -> tuple[list[NDArray[np.int64]] | None, tuple[str, ...]]:
    """The labels of these arrays of an .npz file, (N,) each or None, and the names of the classes.

    The labels of the array `train` are in `train_label` or `train_labels`, -1 where one is unknown, and the names of
    the classes in `label_classes` or `classes`; without names, classes are named by their numbers.
    """
    keys = [next((key for key in _keys(name) if key in stored), "") for name in names]
    found = [key for key in keys if key]
    if not found:
        return None, ()
    missing = [_keys(name)[0] for name, key in zip(names, keys) if not key]
    require(not missing, f"arrays of {origin}", ", ".join(found), f"{', '.join(missing)} too, or no labels at all")
    labels = [stored[key] for key in keys]
    for array, key, name in zip(labels, keys, names):
        require_fits(array, len(stored[name]), f"{origin}[{key}]")
    _require_range(labels, f"label of {origin}")
    named = next((stored[key] for key in _NAMES if key in stored), None)
    most = max(int(array.max()) for array in labels)
    classes = map(str, range(most + 1)) if named is None else (str(name) for name in named.reshape(-1))
    return [array.astype(np.int64) for array in labels], tuple(classes)


def _keys(name: str) -> tuple[str, str]:
    """The names of the array with the labels of the array `name`."""
    return f"{name}_{LABEL}", f"{name}_{LABEL}s"


def require_fits(array: NDArray[Any], count: int, name: str) -> None:
    """Raise an error unless there is an integer for each of `count` objects."""
    fits = array.dtype.kind in "iu" and array.shape == (count,)
    require(fits, name, f"{array.dtype} {array.shape}", f"integers ({count},), one for each object")


def _require_range(arrays: Sequence[NDArray[Any]], name: str) -> None:
    """Raise an error unless all numbers are -1 or those of classes, and at least one is that of a class."""
    least, most = min(int(array.min()) for array in arrays), max(int(array.max()) for array in arrays)
    fits = least >= -1 and 0 <= most < _MOST_CLASSES
    require(fits, name, f"{least}..{most}", f"0..{_MOST_CLASSES - 1}, or -1 where a class is unknown, but not all -1")


def with_labels(rows: Rows, labels: NDArray[np.int64]) -> Sequences:
    """The rows with these labels (N,)."""
    assert isinstance(rows, Sequences)  # arrays of an .npz file are in memory
    return replace(rows, labels=torch.from_numpy(labels)[:, None])
