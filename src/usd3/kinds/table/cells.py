"""Cells of text: which are numbers, and how these are written."""

import math
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usd3.kinds.table.frames import require_pandas

__all__ = ["as_texts", "decimals_of", "is_number", "number_of", "parse_numbers", "written"]

_NUMBER = r"[+-]?(?:0|[1-9][0-9]*)?(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,3})?"  # no leading zeros: 007 is a name
_DIGITS_FIRST = r"[+-]?\.?[0-9].*"
_INTEGER = r"[+-]?[0-9]+"
_SHORT = 4
_SHORT_INTEGER, _LONG_INTEGER = 18, 20  # letters: int64 holds all that are so short, and none that is longer
_MOST_DECIMALS = 15
_EXACT = 2**53  # float64 holds all integers up to this one


def as_texts(values: Any) -> Any:
    """A pandas Series of texts without spaces around them."""
    pd = require_pandas()
    return pd.Series(values, dtype="object").astype(str).str.strip()


def is_number(texts: Any, comma: bool = False) -> NDArray[np.bool_]:
    """Which of the texts, a Series, are numbers; an integer that int64 cannot hold is a name.

    With `comma`, a comma stands before the decimals.
    """
    pd = require_pandas()
    plain = _plain(texts, comma)
    found = np.array(plain.str.fullmatch(_NUMBER) & plain.str.match(_DIGITS_FIRST), dtype=bool)
    if found.any() and int(plain.str.len().max()) > _SHORT:  # a long one may be too large for float64
        long = found & np.array(plain.str.len() > _SHORT_INTEGER)
        found[long] = [_is_held(text) for text in plain[long]]
        found[found] = np.isfinite(pd.to_numeric(plain[found]).astype(np.float64))
    return found


def _is_held(text: str) -> bool:
    """Whether a number is no integer, or one that int64 can hold."""
    if re.fullmatch(_INTEGER, text) is None:
        return True
    return len(text) <= _LONG_INTEGER and -(2**63) <= int(text) < 2**63


def _plain(texts: Any, comma: bool) -> Any:
    """The texts with a point before the decimals; with `comma`, one with a point is no number."""
    if not comma:
        return texts
    return texts.str.replace(".", " ", regex=False).str.replace(",", ".", regex=False)


def parse_numbers(texts: Any, comma: bool = False) -> NDArray[Any]:
    """The numbers that texts stand for, all of which `is_number` calls so: int64 if all are integers, else float64."""
    pd = require_pandas()
    plain = _plain(texts, comma)
    is_whole = len(plain) > 0 and bool(plain.str.fullmatch(_INTEGER).all())
    return np.asarray(pd.to_numeric(plain), dtype=np.int64 if is_whole else np.float64)


def number_of(text: str, comma: bool = False) -> float | None:
    """The number that one text stands for, an int where it is an integer; None: it is no number.

    With `comma`, either a comma or a point may stand before the decimals.
    """
    plain = text.strip()
    plain = plain.replace(",", ".") if comma and "." not in plain else plain
    if re.fullmatch(_NUMBER, plain) is None or re.match(_DIGITS_FIRST, plain) is None:
        return None
    if re.fullmatch(_INTEGER, plain) is not None and len(plain) <= _LONG_INTEGER:
        return int(plain)
    return float(plain) if math.isfinite(float(plain)) else None


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
