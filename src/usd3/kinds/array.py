"""Arrays of integers from NumPy files: .npy of shape (N, ...), or .npz with a training and a test array."""

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from usd3._internal.checks import as_count, require
from usd3.kinds.base import Kind
from usd3.kinds.dataset import Dataset, Sequences, compact
from usd3.kinds.numpy_files import read_arrays
from usd3.kinds.splits import is_test_group

if TYPE_CHECKING:
    from usd3.kinds.options import DataConfig

__all__ = ["MOST_CLASSES", "Array", "load_arrays", "read_tokens", "sequences"]

MOST_CLASSES = 2**24  # a network has weights for each, and a single token says how many there are
_MANY = 2**16  # categories; fewer are never asked about
_SPARSE = 10  # more categories than so many times those that occur are asked about


@dataclass(frozen=True)
class Array(Kind):
    """Integers that mean nothing further."""

    name: ClassVar[str] = "array"
    plural: ClassVar[str] = "arrays"
    sources: ClassVar[tuple[str, ...]] = ("array",)

    @classmethod
    def upgraded(cls, config: Mapping[str, Any]) -> dict[str, Any]:
        """Whatever is nothing else."""
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
    def describe_split(cls, data: "DataConfig") -> str:
        """The arrays of the file, or the part that is held out of one."""
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
    """The integer array of a .npy file, or the arrays named `train` and `test` of a .npz file, all of shape (N, ...).

    Without a test array, `test_fraction` of the rows, drawn at random, are the test split. `num_classes` is by default
    the largest token of both + 1, with a warning where the test array has larger tokens than the
    training array. It is asked for where that is more than 65,536 and ten times the number of tokens that occur.
    Elements equal to `pad_value` are padding, and become token 0 there.
    """
    path = Path(path)
    stored = read_arrays(path)
    if not isinstance(stored, dict):
        stored = {train: stored}
    elif train not in stored and len(stored) == 1:
        stored = {train: next(iter(stored.values()))}
    require(train in stored, f"arrays of {path}", ", ".join(stored) or "none", f"one named {train!r}")
    train_tokens = _checked(stored[train], f"{path}[{train}]", pad_value)
    if test in stored and test != train:
        test_tokens = _checked(stored[test], f"{path}[{test}]", pad_value)
    else:
        enough = f"at least 2, one to train on and one held out, or an .npz with an array {test!r} of held-out ones"
        require(len(train_tokens) >= 2, f"objects of {path}", len(train_tokens), enough)
        train_tokens, test_tokens = _split(train_tokens, test_fraction, seed)
    if num_classes is None:
        num_classes = _count((train_tokens, test_tokens), pad_value, path)
        if test in stored and test != train:
            _warn_unseen(train_tokens, test_tokens, pad_value, path)
    num_classes = as_count(num_classes, "num_classes", 2, MOST_CLASSES)
    return Dataset(
        path.stem,
        num_classes,
        train=sequences(train_tokens, num_classes, "train", pad_value),
        test=sequences(test_tokens, num_classes, "test", pad_value),
    )


def read_tokens(path: Path) -> NDArray[Any]:
    """The integer array of shape (N, ...) in a .npy file."""
    stored = read_arrays(path)
    if isinstance(stored, dict):
        raise ValueError(f"{path}: expected a single array (.npy)")
    return _checked(stored, str(path), None)


def sequences(tokens: NDArray[Any], num_classes: int, name: str, pad_value: int | None = None) -> Sequences:
    """`tokens` as a split called `name`; the pad value is taken out, and refused is what is not a category."""
    pad = None if pad_value is None else tokens == pad_value
    if pad is not None:
        tokens = np.where(pad, 0, tokens)
    for value in (int(tokens.min()), int(tokens.max())):
        require(0 <= value < num_classes, f"token of {name}", value, f"categories 0..{num_classes - 1}")
    small = tokens.astype(np.int32 if num_classes > 256 else np.uint8)  # never larger than it need be
    return Sequences(
        compact(torch.from_numpy(small), num_classes), torch.from_numpy(pad) if pad is not None and pad.any() else None
    )


def _checked(tokens: NDArray[Any], name: str, pad_value: int | None) -> NDArray[Any]:
    require(tokens.dtype.kind in "iu", f"{name}.dtype", tokens.dtype, "integers")
    require(tokens.ndim >= 2 and tokens.size > 0, f"{name}.shape", tokens.shape, "(N, ...), at least one object")
    real = _real(tokens, pad_value)
    require(real.size > 0, name, f"nothing but {pad_value}", "some elements that are no padding")
    for value in (int(real.min()), int(real.max())):
        padding = f" (where it is padding: --data.pad_value {value})" if value < 0 and pad_value is None else ""
        require(
            0 <= value < MOST_CLASSES, f"token of {name}", value, f"categories, integers 0..{MOST_CLASSES - 1}{padding}"
        )
    return tokens


def _split(tokens: NDArray[Any], fraction: float, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    is_test = np.array(is_test_group([1] * len(tokens), fraction, seed))
    return tokens[~is_test], tokens[is_test]


def _count(splits: Sequence[NDArray[Any]], pad_value: int | None, path: Path) -> int:
    """The number of categories, the largest token + 1; refused where hardly any of so many occur."""
    real = [_real(tokens, pad_value) for tokens in splits]
    count = 1 + max(_largest(tokens) for tokens in real)
    if count > _MANY:
        most = _most_distinct(real, count)
        told = f"{path} has tokens up to {count - 1}, and at most {most} different ones"
        number = f"number those that occur 0, 1, ..., or say --data.num_classes {count} where so many are meant"
        require(count <= _SPARSE * most, "num_classes", None, f"how many categories there are: {told}; {number}")
    return count


def _most_distinct(splits: Sequence[NDArray[Any]], count: int) -> int:
    """How many of `count` tokens occur; the number of all elements where even these would be too few."""
    elements = sum(tokens.size for tokens in splits)
    if count > _SPARSE * elements:
        return elements
    seen = np.zeros(count, dtype=bool)
    for tokens in splits:
        seen[tokens] = True
    return int(seen.sum())


def _warn_unseen(train: NDArray[Any], test: NDArray[Any], pad_value: int | None, path: Path) -> None:
    """Say that held-out tokens are larger than all of training: a model learns nothing about them."""
    seen, held_out = (_largest(_real(tokens, pad_value)) for tokens in (train, test))
    if held_out > seen:
        warnings.warn(
            f"{path}: the largest held-out token is {held_out}, that of training {seen}; there are {held_out + 1} "
            f"categories, the last of which training never shows (--data.num_classes {held_out + 1} if that is meant)",
            stacklevel=3,
        )


def _real(tokens: NDArray[Any], pad_value: int | None) -> NDArray[Any]:
    return tokens if pad_value is None else tokens[tokens != pad_value]


def _largest(real: NDArray[Any]) -> int:
    return int(real.max()) if real.size else 0
