"""Columns of texts that are nearly numbers or dates, and the cells that keep them from being so."""

import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usd3.kinds.table.cells import as_texts, is_number
from usd3.kinds.table.dates import FORMATS, parse_dates
from usd3.kinds.table.making import ColumnMaker
from usd3.kinds.table.summary import ColumnSummary

__all__ = ["Misfit", "misfit_of", "missing_with"]

_NEARLY = 0.9  # of the cells must be numbers or dates
_TRIED = 1000  # texts that tell the format of dates
_UNIT = re.compile(r"[$€£¥₹%]|\b(?:USD|EUR|GBP|CHF|JPY)\b")
_SPACE = "' \u2019\u00a0\u202f"  # also between thousands
_POINT = re.compile(rf"[+-]?[0-9]{{1,3}}(?:[,{_SPACE}][0-9]{{3}})+(?:\.[0-9]+)?")  # 1,234.50
_COMMA = re.compile(rf"[+-]?(?:[0-9]{{1,3}}(?:[.{_SPACE}][0-9]{{3}})+|[0-9]+)(?:,[0-9]+)?")  # 1.234,50


@dataclass(frozen=True)
class Misfit:
    """The cells that keep a column of texts from being one of numbers or dates.

    Args:
        count: how many they are.
        noun: what they are not: "number" or "date".
        detail: which dates: " in the format %Y-%m-%d".
        text: the first of them; None: the table is large, and a sample of its rows has none.
        row: its row, counted from 1; 0: unknown.
        cure: what the user can do.
    """

    count: int
    noun: str
    detail: str
    text: str | None
    row: int
    cure: str

    def __str__(self) -> str:
        if self.text is None:
            return f"rare cells that are no {self.noun}s{self.detail}"
        place = json.dumps(self.text, ensure_ascii=False) + (f" in row {self.row}" if self.row else "")
        if self.count == 1:
            return f"no {self.noun}{self.detail}: {place}"
        return f"{self.count:,} cells that are no {self.noun}s{self.detail}, such as {place}"


def misfit_of(make: ColumnMaker) -> Misfit | None:
    """The cells of a column of texts that are no numbers or no dates; None: fewer than 90 % of all cells are."""
    summary = make.summary
    texts, counts = make.texts_and_counts()
    if not _are_most(texts.str.contains("[0-9]").to_numpy(dtype=bool), counts):
        return None
    row, text = summary.first_word
    if summary.num_words <= (1 - _NEARLY) * summary.present:
        return Misfit(summary.num_words, "number", "", text, row, _if_missing(summary, text, "numbers"))
    if _are_most(is_number(as_texts([_bare(each) for each in texts])), counts):
        cure = "write them without currency signs, thousands separators or decimal commas"
        return Misfit(summary.num_words, "number", "", text, row, f"{cure}: {_bare(text)}")
    return _misfit_of_dates(make, texts, counts)


def _misfit_of_dates(make: ColumnMaker, texts: Any, counts: NDArray[Any]) -> Misfit | None:
    """The cells that are no dates in the format of most; None: fewer than 90 % of all cells are dates in any format."""
    tried = texts.head(_TRIED)
    fits = {form: ~np.isnat(parse_dates(tried, form)) for form in FORMATS}
    if not _are_most(np.logical_or.reduce(list(fits.values())), counts[:_TRIED]):
        return None
    best = max(fits, key=lambda form: int(counts[:_TRIED][fits[form]].sum()))
    detail, wrong = f" in the format {best}", np.isnat(parse_dates(texts, best))
    if not wrong.any():
        return Misfit(1, "date", detail, None, 0, "correct them, or name them in --data.table.missing")
    text = str(texts[wrong].iloc[0])
    cure = "write all dates in one format"
    if _are_most(~wrong, counts):
        cure = _if_missing(make.summary, text, "dates")
    count = round(make.summary.present * counts[wrong].sum() / counts.sum())  # of many values there is a sample
    return Misfit(max(1, count), "date", detail, text, _row_of(make, text), cure)


def _are_most(chosen: NDArray[np.bool_], counts: NDArray[Any]) -> bool:
    return bool(counts[chosen].sum() >= _NEARLY * counts.sum())


def _bare(text: str) -> str:
    """A number without its unit and its thousands separators, with a point before the decimals; or the text."""
    bare = _UNIT.sub("", text).strip()
    if _POINT.fullmatch(bare):
        return re.sub(f"[,{_SPACE}]", "", bare)
    return re.sub(f"[.{_SPACE}]", "", bare).replace(",", ".") if _COMMA.fullmatch(bare) else bare


def _row_of(make: ColumnMaker, text: str) -> int:
    """The first row with this text, counted from 1; 0: the table is too large to be in memory."""
    sample = make.table.sample
    if len(sample) < make.table.rows:
        return 0
    return int(np.argmax(as_texts(sample[make.name]).to_numpy() == text)) + 1


def _if_missing(summary: ColumnSummary, text: str, noun: str) -> str:
    return f'if that means "no value", --data.table.missing {missing_with(summary, text)} makes it {noun}'


def missing_with(summary: ColumnSummary, text: str) -> str:
    """The option `missing` with one more text, as the shell takes it."""
    return "'" + json.dumps([*sorted(summary.missing), text], ensure_ascii=False) + "'"
