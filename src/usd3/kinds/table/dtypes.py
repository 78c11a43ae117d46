"""What the columns of a DataFrame hold, whatever their dtypes."""

from typing import Any

import numpy as np

from usd3.kinds.table.frames import is_text_dtype, require_pandas

__all__ = ["holds_texts", "is_plain", "normalised"]


def normalised(series: Any) -> tuple[str, Any]:
    """What a Series holds: "text", "number", "bool", "date", "duration", "category" or "object".

    Also returns the Series in this form. "object" stands for a mixture of texts, numbers and booleans; cells of other
    types become texts.
    """
    pd = require_pandas()
    types = pd.api.types
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return "category", series
    if types.is_bool_dtype(dtype):
        return "bool", series.astype("boolean")
    if types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype):
        values = series.to_numpy(dtype=float, na_value=np.nan) if types.is_extension_array_dtype(dtype) else series
        exact = types.is_integer_dtype(dtype)
        return "number", (series if exact else pd.Series(values).where(np.isfinite(np.asarray(values))))
    if types.is_datetime64_any_dtype(dtype):
        return "date", (series.astype("datetime64[us]") if str(dtype).startswith(("date32", "date64")) else series)
    if dtype.kind == "m":
        return "duration", series
    if not is_text_dtype(str(dtype)) and not types.is_object_dtype(dtype):
        return "text", series.astype(object).map(str, na_action="ignore")
    inferred = types.infer_dtype(series, skipna=True)
    if inferred in ("string", "empty"):
        return "text", series
    if inferred == "integer":
        return "number", _integers(series)
    if inferred in ("floating", "mixed-integer-float", "decimal"):
        values = pd.to_numeric(series.where(series.notna(), np.nan).astype(float))
        return "number", values.where(np.isfinite(values))
    if inferred == "boolean":
        return "bool", series.astype("boolean")
    if inferred in ("datetime", "datetime64", "date"):
        return "date", _times(series)
    if inferred in ("timedelta", "timedelta64"):
        return "duration", pd.to_timedelta(series)
    plain = series.map(lambda value: value if is_plain(value) else str(value), na_action="ignore")
    return ("text" if types.infer_dtype(plain, skipna=True) == "string" else "object"), plain


def _integers(series: Any) -> Any:
    """Integers of Python, nullable; as they are if some are beyond int64."""
    try:
        return series.astype("Int64")
    except (OverflowError, TypeError):
        return series


def _times(series: Any) -> Any:
    """Dates and times of Python; in UTC if they have different time zones."""
    pd = require_pandas()
    try:
        return pd.to_datetime(series)
    except ValueError:
        return pd.to_datetime(series, utc=True)


def is_plain(value: Any) -> bool:
    """Whether a value is a text, a number or a boolean."""
    return isinstance(value, str | int | float | bool | np.integer | np.floating | np.bool_)


def holds_texts(dtype: Any, texts: Any) -> bool:
    """Whether texts can become a Series of this dtype; those of intervals cannot."""
    try:
        texts.dropna().head(1).astype(dtype)
    except (TypeError, ValueError, NotImplementedError):
        return False
    return True
