"""Arguments as checked NumPy arrays."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from torch import Tensor

from usd3._internal.checks import require, require_type

__all__ = ["Bools", "Floats", "Ints", "as_array", "as_pad", "as_sequences", "require_categories"]

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]


def as_array(x: Any) -> Any:
    """A tensor as a NumPy array; anything else unchanged."""
    return x.detach().cpu().numpy() if isinstance(x, Tensor) else x


def as_sequences(x: Any, name: str, shape: str) -> Ints:
    """`x` as an int64 array that is not empty. `shape`, such as "(N, L)", says how many dimensions it must have."""
    array = as_array(x)
    _require_kind(array, "iu", name, "a NumPy array or a tensor of integers")
    fits = array.ndim == shape.count(",") + 1 and array.size > 0
    require(fits, f"{name}.shape", array.shape, f"{shape}, none of them 0")
    if array.dtype == np.uint64:
        require(array.max() < 2**63, f"{name}.max()", array.max(), "categories below 2**63")
    return np.asarray(array, dtype=np.int64)


def as_pad(pad: Any, shape: tuple[int, ...]) -> Bools | None:
    """`pad` as a boolean array of exactly this shape; None stays None."""
    if pad is None:
        return None
    array = as_array(pad)
    _require_kind(array, "b", "pad", "a boolean array or tensor, True = padding")
    require(array.shape == shape, "pad.shape", array.shape, f"{shape}, that of the sequences")
    return np.asarray(array)


def require_categories(x: Ints, pad: Bools | None, name: str) -> None:
    """Raise a ValueError if a category is negative, except under padding."""
    lowest = int(x.min() if pad is None else np.where(pad, 0, x).min())
    require(lowest >= 0, f"{name}.min()", lowest, "categories >= 0 (pad=... leaves elements out)")


def _require_kind(array: Any, kinds: str, name: str, expected: str) -> None:
    """Raise a TypeError unless `array` is an array whose dtype is of one of NumPy's `kinds`, such as "iu"."""
    require_type(isinstance(array, np.ndarray), name, array, expected)
    if array.dtype.kind not in kinds:
        raise TypeError(f"{name} has dtype {array.dtype}: expected {expected}")
