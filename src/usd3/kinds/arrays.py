"""Data from NumPy files: .npy of shape (N, ...), or .npz with a training and a test array."""

import math
import os
import warnings
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np
import torch
from numpy.lib import format as npy
from numpy.typing import NDArray

from usd3._internal.checks import as_count, require
from usd3.kinds.dataset import MUSIC_CLASSES, Dataset, Sequences, compact
from usd3.kinds.splits import is_test_group

__all__ = ["MOST_CLASSES", "load_arrays", "read_arrays", "read_tokens", "sequences"]

MOST_CLASSES = 2**24  # a network has weights for each, and a single token says how many there are
_MANY = 2**16  # categories; fewer are never asked about
_SPARSE = 10  # more categories than so many times those that occur are asked about
_ANY_SIZE = 2**28  # bytes that a file may have when unpacked, however small it is,
_MOST_PACKED = 100  # and how many times larger it may become beyond; tokens as int64 become 30 times smaller
_UNREADABLE = (OSError, ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error, TokenError)


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
    the largest token of both + 1 (129 for music), with a warning where the test array has larger tokens than the
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
        num_classes = MUSIC_CLASSES if music else _count((train_tokens, test_tokens), pad_value, path)
        if test in stored and test != train and not music:
            _warn_unseen(train_tokens, test_tokens, pad_value, path)
    num_classes = as_count(num_classes, "num_classes", 2, MOST_CLASSES)
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
    small = tokens.astype(np.int32 if num_classes > 256 else np.uint8)  # never larger than it need be
    return Sequences(
        compact(torch.from_numpy(small), num_classes), torch.from_numpy(pad) if pad is not None and pad.any() else None
    )


def read_arrays(path: Path) -> NDArray[Any] | dict[str, NDArray[Any]]:
    """The array of a .npy file, or those of a .npz file by name; nothing is unpickled.

    How large they are is looked up first: few bytes can say that they are terabytes, or be compressed ones.
    """
    if not path.is_file():
        seen = "a folder" if path.is_dir() else "no such file"
        raise FileNotFoundError(f"{path}: {seen}; expected a .npy or .npz file")
    try:
        with path.open("rb") as stream:
            size, most = _unpacked_size(path), max(_ANY_SIZE, _MOST_PACKED * path.stat().st_size)
            if size <= most:
                stored = np.load(stream, allow_pickle=False)
                return stored if isinstance(stored, np.ndarray) else {name: stored[name] for name in stored.files}
    except _UNREADABLE:
        raise ValueError(f"{path}: expected a .npy or .npz file of plain numbers") from None
    uncompressed = "numpy.savez instead of savez_compressed, if that is right"
    raise ValueError(f"{path}: {size:,} bytes when unpacked: expected at most {most:,}, or {uncompressed}")


def _unpacked_size(path: Path) -> int:
    """Bytes of the arrays in a file; refuses arrays that are larger than what is there."""
    with path.open("rb") as stream:
        packed = stream.read(4) in (b"PK\x03\x04", b"PK\x05\x06")  # as NumPy tells them apart
        if not packed:
            stream.seek(0)
            _require_whole(stream, path.stat().st_size)
            return path.stat().st_size
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            with archive.open(member) as stream:
                _require_whole(stream, member.file_size)
        return sum(member.file_size for member in archive.infolist())


def _require_whole(stream: IO[bytes], size: int) -> None:
    """Refuse an array whose header says more than the `size` bytes of its file, or nothing that can be counted."""
    header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[npy.read_magic(stream)]
    shape, _, dtype = header(stream)
    if dtype.itemsize == 0 or min(shape, default=0) < 0 or stream.tell() + math.prod(shape) * dtype.itemsize > size:
        raise ValueError("not whole")


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
