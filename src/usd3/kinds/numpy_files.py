"""Safe reading of NumPy files from strangers: nothing is unpickled, and sizes are checked before memory is used."""

import math
import zipfile
import zlib
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

__all__ = ["UNREADABLE", "map_array", "read_arrays"]

# Unpacked, a file may have this many bytes, or this many times its packed size. Int64 tokens compress about 30 times.
_ALWAYS_ALLOWED = 2**28
_LARGEST_RATIO = 100
_MOST_IN_MEMORY = 2**28  # bytes of an .npy file; a larger one is memory-mapped
UNREADABLE = (OSError, ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error, TokenError)
"""What NumPy raises for a file that is damaged, or no NumPy file."""


def read_arrays(path: Path) -> NDArray[Any] | dict[str, NDArray[Any]]:
    """The array in an .npy file, or the arrays in an .npz file by name. The array of a large .npy file is an np.memmap.

    Their sizes are checked first: a small file can claim to hold terabytes, or hold them compressed.
    """
    if not path.is_file():
        seen = "a folder" if path.is_dir() else "no such file"
        raise FileNotFoundError(f"{path}: {seen}; expected a .npy or .npz file")
    try:
        with path.open("rb") as stream:
            if path.stat().st_size > _MOST_IN_MEMORY and not _is_packed(stream):
                return map_array(path)
            size, most = _unpacked_size(path), max(_ALWAYS_ALLOWED, _LARGEST_RATIO * path.stat().st_size)
            if size <= most:
                stored = np.load(stream, allow_pickle=False)
                return stored if isinstance(stored, np.ndarray) else {name: stored[name] for name in stored.files}
    except UNREADABLE:
        raise ValueError(f"{path}: expected a .npy or .npz file of plain numbers") from None
    uncompressed = "numpy.savez instead of savez_compressed, if that is right"
    raise ValueError(f"{path}: {size:,} bytes when unpacked: expected at most {most:,}, or {uncompressed}")


def map_array(path: Path) -> NDArray[Any]:
    """The array in an .npy file, memory-mapped for reading. A file that is damaged, or no .npy file, is an error."""
    with path.open("rb") as stream:
        _require_whole(stream, path.stat().st_size)
    mapped: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return mapped


def _is_packed(stream: IO[bytes]) -> bool:
    """Whether a file is a zip archive, by the test that NumPy uses."""
    packed = stream.read(4) in (b"PK\x03\x04", b"PK\x05\x06")
    stream.seek(0)
    return packed


def _unpacked_size(path: Path) -> int:
    """Size of the arrays in a file in bytes. Raises an error if an array claims to be larger than its data."""
    with path.open("rb") as stream:
        if not _is_packed(stream):
            _require_whole(stream, path.stat().st_size)
            return path.stat().st_size
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            with archive.open(member) as stream:
                _require_whole(stream, member.file_size)
        return sum(member.file_size for member in archive.infolist())


def _require_whole(stream: IO[bytes], size: int) -> None:
    """Raise an error if the header of an array asks for more than the `size` bytes of its file, or is invalid."""
    header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[npy.read_magic(stream)]
    shape, _, dtype = header(stream)
    if dtype.itemsize == 0 or min(shape, default=0) < 0 or stream.tell() + math.prod(shape) * dtype.itemsize > size:
        raise ValueError("not whole")
