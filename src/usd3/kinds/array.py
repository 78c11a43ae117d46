"""Arrays of integers from NumPy files: .npy of shape (N, ...), or .npz with a training and a test array."""

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from usd3._internal.checks import as_count, is_integral, require
from usd3.kinds.base import Kind
from usd3.kinds.dataset import Dataset, Rows, Sequences, compact
from usd3.kinds.labels import LABEL, labels_of, require_fits, with_labels
from usd3.kinds.mapped import Facts, MappedRows, facts_of, mapped_splits, row_chunks
from usd3.kinds.numpy_files import read_arrays
from usd3.kinds.splits import is_test_row

if TYPE_CHECKING:
    from usd3.kinds.options import DataConfig

__all__ = ["MOST_CLASSES", "Array", "load_arrays", "read_tokens", "sequences"]

MOST_CLASSES = 2**24  # a network has weights for each category, and one large token could ask for any number of them
_MANY = 2**16  # up to this number of categories, `num_classes` need not be given
_NAMES = ("train", "test")  # of the splits, in messages
_GROUPS = ("group", "song")  # as in test_song: the ending of the array that says which objects belong together
_SPARSE = 10  # nor if at least one in this many categories occurs


@dataclass(frozen=True)
class Array(Kind):
    """Integers without a further meaning."""

    name: ClassVar[str] = "array"
    plural: ClassVar[str] = "arrays"
    takes_labels: ClassVar[bool] = True
    sources: ClassVar[tuple[str, ...]] = ("array",)
    files: ClassVar[tuple[str, ...]] = (".npy", ".npz")

    @classmethod
    def upgraded(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """Every config.json that is of no other kind."""
        return {"name": cls.name}

    @classmethod
    def read(cls, data: "DataConfig") -> Dataset:
        """The arrays of an .npy or .npz file."""
        return load_arrays(
            data.file("an .npy or .npz file"),
            data.num_classes,
            data.test_fraction,
            data.seed,
            data.train_key,
            data.test_key,
            data.pad_value,
        )

    @classmethod
    def claims_objects(cls, objects: Any) -> bool:
        """Whether the objects are an array or a tensor of integers with at least two dimensions, or such lists."""
        if isinstance(objects, list | tuple):
            try:
                objects = np.asarray(objects) if not any(isinstance(one, str) for one in objects) else None
            except ValueError:  # rows of different lengths
                return False
        kind = getattr(getattr(objects, "dtype", None), "kind", "")
        integers = kind in "iu" if kind else isinstance(objects, Tensor) and is_integral(objects)
        return integers and getattr(objects, "ndim", 0) >= 2

    @classmethod
    def from_objects(
        cls,
        objects: Any,
        data: "DataConfig",
        numbers: NDArray[np.int64] | None = None,
        classes: tuple[str, ...] = (),
    ) -> Dataset:
        """The objects of an array (N, ...), a random part of which is held out; `numbers` (N,) are their classes."""
        tokens = objects.cpu().numpy() if isinstance(objects, Tensor) else np.asarray(objects)
        split = (data.num_classes, data.test_fraction, data.seed, data.pad_value)
        if numbers is None:
            return _dataset("array", "data", {"data": tokens}, *split)
        require_fits(numbers, len(tokens), "labels")
        return _dataset("array", "data", {"data": tokens}, *split, [numbers], classes)

    @classmethod
    def describe_split(cls, data: "DataConfig") -> str:
        """The arrays of the file that are the splits, or the fraction that was held out."""
        stored = read_arrays(Path(str(data.path)))
        if isinstance(stored, dict) and data.test_key in stored:
            return f"the arrays {data.train_key} and {data.test_key} of the file"
        return super().describe_split(data)


def load_arrays(
    path: str | os.PathLike[str],
    num_classes: int | None = None,
    test_fraction: float = 0.1,
    seed: int = 0,
    train: str = "train",
    test: str = "test",
    pad_value: int | None = None,
) -> Dataset:
    """The data in an .npy file with one array, or in an .npz file; arrays are of shape (N, ...).

    A large .npy file is memory-mapped: its objects stay on the disk. An .npz file may have labels too, see `labels_of`,
    and names or numbers of the groups of held-out objects: `test_group` or `test_song` beside the array `test`.

    Args:
        path: the file.
        num_classes: number of categories; None: the largest token + 1. It must be given if that is more than 65,536
            and more than ten times the number of different tokens. If the test array has larger tokens than the
            training array, there is a warning.
        test_fraction: the fraction of rows that are drawn at random as the test split, if there is no test array.
        seed: seed of that split.
        train: name of the training array in an .npz file.
        test: name of the test array in an .npz file.
        pad_value: the token that marks padding. It becomes token 0.
    """
    path = Path(path)
    stored = read_arrays(path)
    if not isinstance(stored, dict):
        stored = {train: stored}
    elif train not in stored and len(stored) == 1:
        stored = {train: next(iter(stored.values()))}
    require(train in stored, f"arrays of {path}", ", ".join(stored) or "none", f"one named {train!r}")
    names = [train] if test == train or test not in stored else [train, test]
    arrays = {f"{path}[{name}]": stored[name] for name in names}
    labels, classes = labels_of(stored, names, str(path))
    dataset = _dataset(path.stem, str(path), arrays, num_classes, test_fraction, seed, pad_value, labels, classes)
    groups = _groups_of(stored, names[-1], str(path))
    if groups is None:
        return dataset
    held_out = slice(None) if names[1:] else is_test_row(len(groups), test_fraction, seed)
    assert isinstance(dataset.test, Sequences)  # arrays of an .npz file are in memory
    return replace(dataset, test=replace(dataset.test, groups=torch.from_numpy(groups[held_out])))


def _groups_of(stored: Mapping[str, NDArray[Any]], name: str, origin: str) -> NDArray[np.int64] | None:
    """(N,) the groups of the objects in an array of an .npz file; None: the file does not say them."""
    key = next((key for ending in _GROUPS if (key := f"{name}_{ending}") in stored), None)
    if key is None:
        return None
    names, count = stored[key], len(stored[name])
    require(names.shape == (count,), f"{origin}[{key}].shape", names.shape, f"({count},), the group of each object")
    return np.unique(names, return_inverse=True)[1].reshape(-1)


def _dataset(
    name: str,
    origin: str,
    arrays: Mapping[str, NDArray[Any]],
    num_classes: int | None,
    test_fraction: float,
    seed: int,
    pad_value: int | None,
    labels: list[NDArray[np.int64]] | None = None,
    classes: tuple[str, ...] = (),
) -> Dataset:
    """The data in one array, of which a part is held out, or in two, by their names in messages."""
    facts = [_checked(array, called, pad_value) for called, array in arrays.items()]
    whole, *others = arrays.values()
    if not others:
        enough = "at least 2, one to train on and one held out, or an .npz with an array 'test' of held-out ones"
        require(len(whole) >= 2, f"objects of {origin}", len(whole), enough)
    if num_classes is None:
        num_classes = _count([whole, *others], facts, pad_value, origin)
        if others:
            _warn_unseen(facts[0], facts[1], origin)
    num_classes = as_count(num_classes, "num_classes", 2, MOST_CLASSES)
    if others:
        first, second = (sequences(array, num_classes, part, pad_value) for array, part in zip(arrays.values(), _NAMES))
    else:
        first, second = _split(whole, facts[0], num_classes, pad_value, test_fraction, seed)
    if labels is None:
        return Dataset(name, num_classes, first, second)
    if not others:
        is_test = is_test_row(len(whole), test_fraction, seed)
        labels = [labels[0][~is_test], labels[0][is_test]]
    first, second = (with_labels(rows, values) for rows, values in zip((first, second), labels))
    return Dataset(name, num_classes, first, second, labels={LABEL: classes})


def read_tokens(path: Path) -> NDArray[Any]:
    """The integer array of shape (N, ...) in a .npy file."""
    stored = read_arrays(path)
    if isinstance(stored, dict):
        raise ValueError(f"{path}: expected a single array (.npy)")
    _checked(stored, str(path), None)
    return stored


def sequences(tokens: NDArray[Any], num_classes: int, name: str, pad_value: int | None = None) -> Rows:
    """The split with these tokens (N, ...). Padding becomes token 0. Tokens that are memory-mapped stay on the disk.

    Args:
        tokens: the array.
        num_classes: number of categories. Other tokens raise an error.
        name: name of the split, for error messages.
        pad_value: the token that marks padding; None: there is none.
    """
    if isinstance(tokens, np.memmap):
        return MappedRows(tokens, num_classes, facts_of(tokens, pad_value), pad_value)
    pad = None if pad_value is None else tokens == pad_value
    if pad is not None:
        tokens = np.where(pad, 0, tokens)
    for value in (int(tokens.min()), int(tokens.max())):
        require(0 <= value < num_classes, f"token of {name}", value, f"categories 0..{num_classes - 1}")
    small = tokens.astype(np.int32 if num_classes > 256 else np.uint8)  # saves memory
    return Sequences(
        compact(torch.from_numpy(small), num_classes), torch.from_numpy(pad) if pad is not None and pad.any() else None
    )


def _split(
    tokens: NDArray[Any], facts: Facts, num_classes: int, pad_value: int | None, fraction: float, seed: int
) -> Iterator[Rows]:
    """Rows to train on and, drawn at random, held-out rows."""
    if isinstance(tokens, np.memmap):
        return iter(mapped_splits(tokens, num_classes, fraction, seed, pad_value, facts))
    is_test = is_test_row(len(tokens), fraction, seed)
    halves = zip((tokens[~is_test], tokens[is_test]), _NAMES)
    return (sequences(half, num_classes, name, pad_value) for half, name in halves)


def _checked(tokens: NDArray[Any], name: str, pad_value: int | None) -> Facts:
    """Facts on an array of tokens (N, ...); raises an error if it is none."""
    require(tokens.dtype.kind in "iu", f"{name}.dtype", tokens.dtype, "integers")
    require(tokens.ndim >= 2 and tokens.size > 0, f"{name}.shape", tokens.shape, "(N, ...), at least one object")
    facts = facts_of(tokens, pad_value)
    require(facts.largest >= facts.least, name, f"nothing but {pad_value}", "some elements that are no padding")
    for value in (facts.least, facts.largest):
        padding = f" (where it is padding: --data.pad_value {value})" if value < 0 and pad_value is None else ""
        require(
            0 <= value < MOST_CLASSES, f"token of {name}", value, f"categories, integers 0..{MOST_CLASSES - 1}{padding}"
        )
    return facts


def _count(arrays: Sequence[NDArray[Any]], facts: Sequence[Facts], pad_value: int | None, origin: str) -> int:
    """The number of categories, the largest token + 1. Raises an error if few of very many categories occur."""
    count = 1 + max(fact.largest for fact in facts)
    if count > _MANY:
        most = _most_distinct(arrays, count, pad_value)
        tokens = f"{origin} has tokens up to {count - 1}, and at most {most} different ones"
        advice = f"number those that occur 0, 1, ..., or say --data.num_classes {count} where so many are meant"
        require(count <= _SPARSE * most, "num_classes", None, f"how many categories there are: {tokens}; {advice}")
    return count


def _most_distinct(arrays: Sequence[NDArray[Any]], count: int, pad_value: int | None) -> int:
    """The number of different tokens, or the number of all elements if that alone shows that they are too few."""
    elements = sum(tokens.size for tokens in arrays)
    if count > _SPARSE * elements:
        return elements
    seen = np.zeros(count, dtype=bool)
    for part in (part for tokens in arrays for part in row_chunks(tokens)):
        seen[part if pad_value is None else part[part != pad_value]] = True
    return int(seen.sum())


def _warn_unseen(train: Facts, test: Facts, origin: str) -> None:
    """Warn if held-out tokens are larger than all training tokens: a model learns nothing about them."""
    seen, held_out = train.largest, test.largest
    if held_out > seen:
        warnings.warn(
            f"{origin}: the largest held-out token is {held_out}, that of training {seen}; there are {held_out + 1} "
            f"categories, the last of which training never shows (--data.num_classes {held_out + 1} if that is meant)",
            stacklevel=3,
        )
