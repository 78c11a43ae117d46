"""CIFAR-10 in its published form: batches that Python 2 pickled. They are read without running code."""

import io
import pickle
import pickletools
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from usd3.kinds.image.images import Part, joined

__all__ = ["cifar_folder", "read_cifar"]

_SUBFOLDER = "cifar-10-batches-py"
_SIDE = 32


def cifar_folder(folder: Path) -> Path | None:
    """The folder with CIFAR-10's batches: `folder` or its subfolder cifar-10-batches-py; None if neither has any."""
    return next((place for place in (folder, folder / _SUBFOLDER) if _batches(place)), None)


def read_cifar(folder: Path) -> tuple[Part, Part | None, tuple[str, ...]]:
    """The training images, the test images if there are some, and the names of the classes."""
    train = [_read_batch(batch) for batch in _batches(folder)]
    test = folder / "test_batch"
    return joined(train), _read_batch(test) if test.is_file() else None, _read_names(folder / "batches.meta")


def _batches(folder: Path) -> list[Path]:
    numbered = [(re.fullmatch(r"data_batch_(\d+)", file.name), file) for file in folder.glob("data_batch_*")]
    return [file for _, file in sorted((int(match[1]), file) for match, file in numbered if match)]


def _read_batch(path: Path) -> Part:
    stored = _unpickled(path)
    data, labels = stored.get("data"), stored.get("labels")
    rows = data.array if isinstance(data, _Pixels) else np.empty(0, np.uint8)
    is_pixels = rows.ndim == 2 and rows.shape[1] == 3 * _SIDE**2
    if not is_pixels or not isinstance(labels, list) or len(labels) != len(rows):
        raise ValueError(f"{path}: expected a CIFAR-10 batch, data (N, {3 * _SIDE**2}) uint8 and a list of N labels")
    images = torch.from_numpy(rows.copy()).reshape(-1, 3, _SIDE, _SIDE)
    return Part(images, torch.tensor([int(label) for label in labels]))


def _read_names(path: Path) -> tuple[str, ...]:
    if not path.is_file():
        return ()
    names = _unpickled(path).get("label_names", [])
    if not isinstance(names, list) or not all(isinstance(name, bytes | str) for name in names):
        raise ValueError(f"{path}: expected label_names, a list of words")
    return tuple(name.decode() if isinstance(name, bytes) else name for name in names)


def _unpickled(path: Path) -> dict[str, Any]:
    """The dictionary in a pickle file, with keys as text."""
    content = path.read_bytes()
    try:
        _require_small(content)
        stored = _BytesOnly(io.BytesIO(content), encoding="bytes").load()
        return {key.decode() if isinstance(key, bytes) else key: value for key, value in stored.items()}
    except MemoryError:
        raise
    except Exception as error:  # a broken pickle can raise anything
        raise ValueError(f"{path}: not a readable CIFAR-10 batch ({error})") from None


def _require_small(content: bytes) -> None:
    """Raise an error if unpickling would allocate more memory than the file is large."""
    for code, value, _ in pickletools.genops(content):
        if code.name == "BYTEARRAY8" or ("PUT" in code.name and isinstance(value, int) and value > len(content)):
            raise pickle.UnpicklingError(f"{code.name} {value!r:.20}, which no batch needs")


class _BytesOnly(pickle.Unpickler):
    """Reads arrays of bytes and plain containers. If the file names another function or class, it raises an error."""

    def find_class(self, module: str, name: str) -> Any:
        """The stand-in for one of the few names that an array needs."""
        module = module.replace("numpy._core", "numpy.core")
        if (module, name) in _STAND_INS:
            return _STAND_INS[module, name]
        raise pickle.UnpicklingError(f"it names {module}.{name}, which no batch needs")


class _UInt8:
    """Stands in for a NumPy dtype, which must be uint8."""

    def __init__(self, name: Any, *_: Any):
        if name not in ("u1", b"u1"):
            raise pickle.UnpicklingError(f"it has an array of type {name!r}, not u1")

    def __setstate__(self, state: Any) -> None:
        """Ignore the byte order, which bytes do not have."""


class _Pixels:
    """Stands in for an array. NumPy's own array would trust what the file says about its memory."""

    def __init__(self, *_: Any):
        self.array: NDArray[np.uint8] = np.empty(0, np.uint8)

    def __setstate__(self, state: Any) -> None:
        _, shape, _, is_fortran, content = state
        self.array = np.frombuffer(content, np.uint8).reshape(shape, order="F" if is_fortran else "C")


def _latin1(text: str, _: Any) -> bytes:
    # Python 3 writes bytes in this way for Python 2
    return text.encode("latin1")


_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Pixels,
    ("numpy", "ndarray"): _Pixels,
    ("numpy", "dtype"): _UInt8,
    ("_codecs", "encode"): _latin1,
}
