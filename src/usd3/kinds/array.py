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

MOST_CLASSES = 2**24  # a network has weights for each category, and one large token could ask for any number of them
_MANY = 2**16  # up to this number of categories, `num_classes` need not be given
_SPARSE = 10  # nor if at least one in this many categories occurs


@dataclass(frozen=True)
class Array(Kind):
    """Integers without a further meaning."""

    name: ClassVar[str] = "array"
    plural: ClassVar[str] = "arrays"
    sources: ClassVar[tuple[str, ...]] = ("array",)

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
    """The split with these tokens (N, ...). Padding becomes token 0.

    Args:
        tokens: the array.
        num_classes: number of categories. Other tokens raise an error.
        name: name of the split, for error messages.
        pad_value: the token that marks padding; None: there is none.
    """
    pad = None if pad_value is None else tokens == pad_value
    if pad is not None:
        tokens = np.where(pad, 0, tokens)
    for value in (int(tokens.min()), int(tokens.max())):
        require(0 <= value < num_classes, f"token of {name}", value, f"categories 0..{num_classes - 1}")
    small = tokens.astype(np.int32 if num_classes > 256 else np.uint8)  # saves memory
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
    """The number of categories, the largest token + 1. Raises an error if few of very many categories occur."""
    real = [_real(tokens, pad_value) for tokens in splits]
    count = 1 + max(_largest(tokens) for tokens in real)
    if count > _MANY:
        most = _most_distinct(real, count)
        tokens = f"{path} has tokens up to {count - 1}, and at most {most} different ones"
        advice = f"number those that occur 0, 1, ..., or say --data.num_classes {count} where so many are meant"
        require(count <= _SPARSE * most, "num_classes", None, f"how many categories there are: {tokens}; {advice}")
    return count


def _most_distinct(splits: Sequence[NDArray[Any]], count: int) -> int:
    """The number of different tokens, or the number of all elements if that alone shows that they are too few."""
    elements = sum(tokens.size for tokens in splits)
    if count > _SPARSE * elements:
        return elements
    seen = np.zeros(count, dtype=bool)
    for tokens in splits:
        seen[tokens] = True
    return int(seen.sum())


def _warn_unseen(train: NDArray[Any], test: NDArray[Any], pad_value: int | None, path: Path) -> None:
    """Warn if held-out tokens are larger than all training tokens: a model learns nothing about them."""
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
