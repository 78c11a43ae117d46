"""Cells of text: which are numbers, and how these are written."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from usd3.kinds.table.frames import require_pandas

__all__ = ["as_texts", "decimals_of", "is_number", "parse_numbers", "written"]

_NUMBER = r"[+-]?(?:0|[1-9][0-9]*)?(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,3})?"  # no leading zeros: 007 is a name
_DIGITS_FIRST = r"[+-]?\.?[0-9].*"
_INTEGER = r"[+-]?[0-9]+"
_SHORT = 4
_MOST_DECIMALS = 15
_EXACT = 2**53  # float64 holds all integers up to this one


def as_texts(values: Any) -> Any:
    """A pandas Series of texts without spaces around them."""
    pd = require_pandas()
    return pd.Series(values, dtype="object").astype(str).str.strip()


def is_number(texts: Any, comma: bool = False) -> NDArray[np.bool_]:
    """Which of the texts, a Series, are numbers. With `comma`, a comma stands before the decimals."""
    pd = require_pandas()
    plain = _plain(texts, comma)
    found = np.array(plain.str.fullmatch(_NUMBER) & plain.str.match(_DIGITS_FIRST), dtype=bool)
    if found.any() and int(plain.str.len().max()) > _SHORT:  # a long one may be too large for float64
        found[found] = np.isfinite(pd.to_numeric(plain[found]).astype(np.float64))
    return found


def _plain(texts: Any, comma: bool) -> Any:
    """The texts with a point before the decimals; with `comma`, one with a point is no number."""
    if not comma:
        return texts
    return texts.str.replace(".", " ", regex=False).str.replace(",", ".", regex=False)


def parse_numbers(texts: Any, comma: bool = False) -> NDArray[Any]:
    """The numbers that texts stand for: int64 where all are integers that fit, otherwise float64."""
    pd = require_pandas()
    plain = _plain(texts, comma)
    if len(plain) and bool(plain.str.fullmatch(_INTEGER).all()) and int(plain.str.len().max()) <= 18:
        return np.asarray(pd.to_numeric(plain), dtype=np.int64)
    return np.asarray(pd.to_numeric(plain), dtype=np.float64)


def decimals_of(texts: Any, comma: bool = False) -> tuple[int, int] | None:
    """The least and the most decimals of the numbers in texts; None: some have an exponent, so they do not say."""
    plain = _plain(texts, comma)
    if bool(plain.str.contains("[eE]").any()):
        return None
    after = plain.str.partition(".")[2].str.len()
    return int(after.min()), int(after.max())


def numeric_decimals(values: NDArray[Any]) -> int | None:
    """The smallest number of decimals that writes all values exactly; None: more than float64 can say."""
    kind = values.dtype
    wide = values.astype(np.float64)
    largest = float(np.abs(wide).max(initial=0.0))
    for decimals in range(_MOST_DECIMALS + 1):
        if largest * 10.0**decimals >= _EXACT:
            return None
        if bool((np.round(wide, decimals).astype(kind) == values).all()):
            return decimals
    return None


def written(value: float, decimals: int, least: int) -> str:
    """A number with at most `decimals` decimals, without zeros at the end but for the `least` first decimals."""
    text = f"{value:.{decimals}f}"
    if decimals == 0:
        return text
    whole, _, after = text.partition(".")
    after = after[:least] + after[least:].rstrip("0")
    return f"{whole}.{after}" if after else whole
