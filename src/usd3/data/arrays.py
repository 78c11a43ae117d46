"""Data from NumPy files: .npy of shape (N, ...), or .npz with a training and a test array."""

import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from usd3._checks import as_count, require
from usd3.data.dataset import MUSIC_CLASSES, Dataset, Sequences, compact
from usd3.data.splits import is_test_group

__all__ = ["load_arrays", "read_arrays", "read_tokens", "sequences"]

_LARGEST = 2**31 - 1


def load_arrays(
    path: str | os.PathLike[str],
    num_classes: int | None = None,
    test_fraction: float = 0.1,
    seed: int = 0,
    train: str = "train",
    test: str = "test",
    pad_value: int | None = None,
    music: bool = False,
) -> Dataset:
    """The integer array of a .npy file, or the arrays named `train` and `test` of a .npz file, all of shape (N, ...).

    Without a test array, `test_fraction` of the rows, drawn at random, are the test split. `num_classes` is by default
    the largest token + 1 (129 for music). Elements equal to `pad_value` are padding, and become token 0 there.
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
        num_classes = MUSIC_CLASSES if music else 1 + max(_largest(x, pad_value) for x in (train_tokens, test_tokens))
    num_classes = as_count(num_classes, "num_classes", 2)
    return Dataset(
        path.stem,
        num_classes,
        train=sequences(train_tokens, num_classes, "train", pad_value),
        test=sequences(test_tokens, num_classes, "test", pad_value),
        music=music,
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
    return Sequences(
        compact(torch.from_numpy(tokens.astype(np.int64)), num_classes),
        torch.from_numpy(pad) if pad is not None and pad.any() else None,
    )


def read_arrays(path: Path) -> NDArray[Any] | dict[str, NDArray[Any]]:
    """The array of a .npy file, or those of a .npz file by name; nothing is unpickled."""
    if not path.is_file():
        seen = "a folder" if path.is_dir() else "no such file"
        raise FileNotFoundError(f"{path}: {seen}; expected a .npy or .npz file")
    try:
        with path.open("rb") as stream:
            stored = np.load(stream, allow_pickle=False)
            return stored if isinstance(stored, np.ndarray) else {name: stored[name] for name in stored.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error):
        raise ValueError(f"{path}: expected a .npy or .npz file of plain numbers") from None


def _checked(tokens: NDArray[Any], name: str, pad_value: int | None) -> NDArray[Any]:
    require(tokens.dtype.kind in "iu", f"{name}.dtype", tokens.dtype, "integers")
    require(tokens.ndim >= 2 and tokens.size > 0, f"{name}.shape", tokens.shape, "(N, ...), at least one object")
    real = tokens if pad_value is None else tokens[tokens != pad_value]
    require(real.size > 0, name, f"nothing but {pad_value}", "some elements that are no padding")
    for value in (int(real.min()), int(real.max())):
        padding = f" (where it is padding: --data.pad_value {value})" if value < 0 and pad_value is None else ""
        require(0 <= value <= _LARGEST, f"token of {name}", value, f"categories, integers 0, 1, ...{padding}")
    return tokens


def _split(tokens: NDArray[Any], fraction: float, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    is_test = np.array(is_test_group([1] * len(tokens), fraction, seed))
    return tokens[~is_test], tokens[is_test]


def _largest(tokens: NDArray[Any], pad_value: int | None) -> int:
    real = tokens if pad_value is None else tokens[tokens != pad_value]
    return int(real.max()) if real.size else 0
