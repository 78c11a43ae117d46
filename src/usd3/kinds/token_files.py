"""Tokens of data that are larger than memory, in files of their own that are made once and then memory-mapped.

A token file is a plain .npy file in the folder `tokens` of the cache ($USD3_CACHE, or ~/.cache/usd3). It can be removed
at any time: the next run that needs it makes it again.
"""

import errno
import fcntl
import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import torch
from numpy.lib import format as npy
from numpy.typing import NDArray
from torch import Tensor

from usd3._internal.checks import require
from usd3._internal.files import cache_folder, full_disk, remove_unfinished, written_whole
from usd3._internal.progress import say
from usd3.kinds.mapped import facts_of
from usd3.kinds.numpy_files import UNREADABLE, map_array

__all__ = ["as_tensor", "map_bytes", "token_dtype", "token_file"]

_VERSION = 1  # increase it when the form of a token file changes
_DAY = 24 * 60 * 60  # seconds


def token_dtype(num_classes: int) -> np.dtype[Any]:
    """The smallest type of tokens of K categories that torch can index: uint8, int16 or int32."""
    return np.dtype(np.uint8 if num_classes <= 2**8 else np.int16 if num_classes <= 2**15 else np.int32)


def token_file(
    source: Path,
    options: Mapping[str, Any],
    num_classes: int,
    chunks: Callable[[], Iterable[NDArray[Any]]],
    shape: Sequence[int] = (),
    count: int | None = None,
) -> NDArray[Any]:
    """The tokens of a file, memory-mapped (N, *shape): made now, or found in the cache.

    One process makes them, others wait for it.

    Args:
        source: the user's file. Another path, size or time of its last change means other tokens.
        options: what else shapes the tokens, as plain JSON. Other options mean other tokens.
        num_classes: number of categories.
        chunks: called if the tokens must be made: arrays (n, *shape) of tokens 0..num_classes-1, one after the other.
        shape: the shape of one entry; (): the tokens are one stream.
        count: N, if it is known: a file with another number of entries is made again.
    """
    expected = _Expected(token_dtype(num_classes), tuple(shape), num_classes, count)
    folder = cache_folder() / "tokens"
    file = folder / f"{source.stem[:40]}-{_fingerprint(source, options, num_classes, shape)}.npy"
    problem = None
    try:
        tokens = _opened(file, expected)
        if tokens is None:
            folder.mkdir(parents=True, exist_ok=True)
            with _alone(file):
                tokens = _opened(file, expected)  # another process may have made them meanwhile
                if tokens is None:
                    remove_unfinished(folder, _DAY)  # other machines, with processes of their own, may share it
                    say(f"writing the tokens of {source} to a file, once")
                    _write(file, expected, chunks())
                    tokens = map_array(file)
    except OSError as error:
        problem = _problem(error)
        if problem is None:
            raise
    if problem is not None:  # outside of the handler: the folder of a run has its own message for a full disk
        raise OSError(f"{folder}: expected {problem}; the environment variable USD3_CACHE names another folder")
    assert tokens is not None
    say(f"the tokens of {source} are in {file} ({tokens.nbytes / 1e9:.3g} GB); it can be removed at any time")
    return tokens


def _problem(error: OSError) -> str | None:
    """What a folder for tokens lacks, by the error of the system; None: the error is about something else."""
    if full := full_disk(error):
        return f"room for tokens ({full})"
    refused = error.errno in (errno.EROFS, errno.ELOOP)
    cannot = refused or isinstance(error, PermissionError | FileExistsError | NotADirectoryError)
    return f"a folder that can be written to ({os.strerror(error.errno)})" if cannot and error.errno else None


def as_tensor(array: NDArray[Any]) -> Tensor:
    """The array as a tensor on the same memory, also where that is a file which may only be read."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # nobody writes to tokens
        return torch.from_numpy(np.asarray(array))


def map_bytes(path: Path) -> Tensor:
    """(T,) uint8: the bytes of a file that is not empty, memory-mapped for reading."""
    return as_tensor(np.memmap(path, dtype=np.uint8, mode="r"))


def _fingerprint(source: Path, options: Mapping[str, Any], num_classes: int, shape: Sequence[int]) -> str:
    """16 hexadecimal digits that change if the tokens would."""
    about = source.stat()
    parts = [_VERSION, str(source.resolve()), about.st_size, about.st_mtime_ns, num_classes, list(shape)]
    text = json.dumps([*parts, dict(options)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class _Expected(NamedTuple):
    """What a token file holds: entries of a type and shape, of so many categories, and their number if it is known."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    num_classes: int
    num_entries: int | None


def _opened(file: Path, expected: _Expected) -> NDArray[Any] | None:
    """The tokens in a file; None if it is missing, damaged, or not ours. All of it is read once."""
    try:
        tokens = map_array(file)
    except UNREADABLE:
        return None
    if tokens.dtype != expected.dtype or tokens.ndim == 0 or tokens.shape[1:] != expected.shape:
        return None
    if expected.num_entries not in (None, len(tokens)):
        return None
    facts = facts_of(tokens)
    return tokens if facts.least >= 0 and facts.largest < expected.num_classes else None


def _write(file: Path, expected: _Expected, chunks: Iterable[NDArray[Any]]) -> None:
    """Write chunks (n, *shape) one after the other, whole or not at all. The header gets their number at the end."""
    dtype, shape, num_classes, num_entries = expected
    count = 0
    with written_whole(file) as part, part.open("wb") as stream:
        begin = _write_header(stream, dtype, (0, *shape))
        for chunk in chunks:
            for token in (int(chunk.min()), int(chunk.max())) if chunk.size else ():
                require(0 <= token < num_classes, "token", token, f"categories 0..{num_classes - 1}")
            stream.write(np.ascontiguousarray(chunk, dtype=dtype).data)
            count += len(chunk)
        require(num_entries in (None, count), "entries of the data", count, f"{num_entries}, as found at first")
        stream.seek(0)
        end = _write_header(stream, dtype, (count, *shape))
        assert begin == end  # NumPy leaves room for any number


def _write_header(stream: IO[bytes], dtype: np.dtype[Any], shape: tuple[int, ...]) -> int:
    npy.write_array_header_1_0(stream, {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape})
    return stream.tell()


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """Inside, no other process makes the same file; wait for one that does. Disks without locks let all begin."""
    lock = file.with_suffix(".lock")
    handle = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o666)  # a link could lead to a file of the user
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
    finally:
        os.close(handle)
