"""pandas, which tables need, imported on first use; and columns of its frames from arrays."""

import importlib
import sys
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["is_frame", "is_text_dtype", "require_pandas", "require_pyarrow", "typed_series"]


def require_pandas(caller: str = "a table") -> ModuleType:
    """pandas; raises an error that says how to install it. `caller` says what needs it."""
    return _required("pandas", caller)


def require_pyarrow(caller: str = "a .parquet file") -> ModuleType:
    """pyarrow's reader and writer of Parquet files; raises an error that says how to install it."""
    return _required("pyarrow.parquet", caller)


def _required(name: str, caller: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ImportError(f"{caller} needs {name.partition('.')[0]}: pip install 'usd3[tables]'") from None


def is_frame(objects: Any) -> bool:
    """Whether `objects` is a DataFrame of pandas; does not import it."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(objects, pandas.DataFrame)


def is_text_dtype(dtype: str) -> bool:
    """Whether a column of this dtype holds texts or any Python objects."""
    return dtype in ("object", "str") or dtype.startswith("string")


def typed_series(values: NDArray[Any], missing: NDArray[np.bool_], dtype: str) -> Any:
    """A pandas Series of this dtype: `values`, with nothing where `missing` is True."""
    pd = require_pandas()
    if dtype in ("str", "object"):
        cells = values.astype(object)
        cells[missing] = None
        inferred = dtype == "str" and len(cells) > 0  # text of today's default type, whatever the version calls it
        return pd.Series(cells, dtype=None if inferred else "object")
    if missing.all() and len(missing):
        nothing = pd.Series([None] * len(values), dtype="object")
        has_no_missing = dtype == "bool" or (dtype.startswith(("int", "uint")) and "[" not in dtype)
        return nothing if has_no_missing else nothing.astype(dtype)
    series = pd.Series(values)
    if not missing.any():
        return series.astype(dtype)
    if np.dtype(values.dtype).kind in "iuf" and dtype.startswith("float"):
        return pd.Series(np.where(missing, np.nan, values.astype(float))).astype(dtype)
    if dtype.startswith(("int", "uint")) and "[" not in dtype:  # training had no missing cell, so no place for one
        return pd.Series(values).astype("Int64").mask(pd.Series(missing))
    if dtype == "bool":
        return pd.Series(values).astype("boolean").mask(pd.Series(missing))
    return series.astype(dtype).mask(pd.Series(missing))
