"""The type of each column, told from its cells or chosen by the user."""

import json
import re

import numpy as np

from usd3._internal.checks import require
from usd3._internal.messages import suggestion
from usd3.kinds.table.columns import Column
from usd3.kinds.table.making import ColumnMaker
from usd3.kinds.table.nearly import Misfit, misfit_of, missing_with
from usd3.kinds.table.options import TableOptions
from usd3.kinds.table.summary import TableSummary

__all__ = ["columns_of"]

_MOSTLY_DIFFERENT = 0.9  # texts of which more differ are names of the rows
_FEWEST_FOR_ID = 10  # rows
_LIKE_AN_ID = 10**6  # numbers of seven digits may be names of persons, if they all differ
_FEW_WORDS = 0.02  # of the cells of a column of numbers or dates: they are rather mistakes
_EXPOSED = "it cannot be learnt, and may expose persons"
_ID_NAME = re.compile(r"(^|[\W_])(id|ids|uuid|guid|index|idx|key|pk|rowid|rownum)$|[a-z](Id|ID|Key|UUID)$", re.ASCII)


def columns_of(summary: TableSummary, options: TableOptions, is_text: bool) -> list[Column]:
    """The columns of a table; those that the user or their cells leave out are not among them.

    Args:
        summary: what is known of the table.
        options: what the user says.
        is_text: whether the table is a file of text, so that numbers have no dtype.
    """
    names = [column.name for column in summary.columns]
    for name in options.columns:
        hint = suggestion(name, names)
        require(name in names, "column in data.table.columns", name, f"one of {', '.join(names)}{hint}")
    found = [
        _Detection(ColumnMaker(column, summary, options, is_text)).column(options.columns.get(column.name))
        for column in summary.columns
    ]
    columns = [column for column in found if column is not None]
    left = "a column that is not left out; if cells are cut in the wrong places, say --data.table.delimiter"
    require(len(columns) > 0, "columns", ", ".join(names), left)
    return columns


class _Detection:
    """The choice for one column, which `make` makes."""

    def __init__(self, make: ColumnMaker):
        self.make, self.summary, self.name = make, make.summary, make.summary.name

    def column(self, chosen: str | None) -> Column | None:
        """The column of the type that the user chose, or of the detected one; None: it is left out."""
        summary, make = self.summary, self.make
        if chosen == "ignore":
            return None
        if summary.present == 0:
            make.warn("has no values; it stays empty")
            return make.categories()
        if chosen is not None:
            return self._chosen(chosen)
        if make.is_boolean or summary.kind in ("category", "object"):
            return make.categories()
        if summary.is_beyond:
            return self._names_or_categories(None)
        if summary.kind == "number" or (summary.kind == "text" and summary.num_words == 0):
            if self._is_date_number():
                return make.dates()
            return None if self._is_row_number() else make.numbers()
        if summary.kind == "date" or summary.formats:
            return make.dates()
        if summary.kind == "duration":
            return make.durations()
        return self._names_or_categories(misfit_of(make))

    def _chosen(self, chosen: str) -> Column:
        """The column of a type that the user chose."""
        word, _, form = chosen.partition(":")
        if self.summary.kind == "duration":
            expected = "number, ordered or ignore for a column of durations"
            require(word in ("number", "ordered"), f"data.table.columns.{self.name}", chosen, expected)
            return self.make.durations(word)
        if word == "category":
            expected = "date or ignore for a column of dates"
            require(self.summary.kind != "date", f"data.table.columns.{self.name}", chosen, expected)
            return self.make.categories()
        if word == "date":
            return self.make.dates(form or None)
        own = f"data.table.columns.{self.name}"
        require(not self.summary.is_beyond, own, chosen, "category or ignore, as some integers are beyond int64")
        is_number = self.summary.kind == "number" or (self.summary.kind == "text" and self.summary.num_words == 0)
        row, text = self.summary.first_word if self.summary.kind == "text" else (0, self.summary.dtype)
        seen = f'"{text}" in row {row}' if row else f"cells of dtype {text}"
        cure = f'; if that means "no value": --data.table.missing {missing_with(self.summary, text)}'
        require(is_number, f"column {self.name}", seen, f"numbers, as data.table.columns says{cure if row else ''}")
        return self.make.numbers(word)

    def _names_or_categories(self, misfit: Misfit | None) -> Column | None:
        """A column of categories; None if nearly all texts differ, as names and addresses do. Warns of a misfit."""
        summary, make = self.summary, self.make
        if misfit is not None and misfit.count < _FEW_WORDS * summary.present:
            make.warn(f"has {misfit}, so it becomes categories; {misfit.cure}")
            return make.categories()
        if summary.distinct <= _MOSTLY_DIFFERENT * summary.present or summary.present < _FEWEST_FOR_ID:
            return make.categories()
        what = "integers" if summary.is_beyond else "texts"
        why = f"{summary.distinct:,} of {summary.present:,} {what} differ, so {_EXPOSED}"
        why = why if misfit is None else f"it has {misfit}; {misfit.cure}"
        self._warn_left_out(why, "category")
        return None

    def _is_row_number(self) -> bool:
        """Whether the numbers are all different integers that number the rows, by their name or as they follow."""
        summary = self.summary
        most = int(0.98 * summary.present) if summary.pruned else summary.present
        if summary.distinct < most or summary.present < _FEWEST_FOR_ID:
            return False
        values = self.make.values_and_counts()[0]
        if values.dtype.kind not in "iu" and not (values == np.rint(values)).all():
            return False
        follow = not summary.pruned and values[-1].item() - values[0].item() == len(values) - 1
        if _ID_NAME.search(self.name) is None and not follow:
            if _LIKE_AN_ID <= float(np.median(np.abs(values.astype(np.float64)))) < 2**63:
                option = json.dumps({self.name: "ignore"}, ensure_ascii=False)
                why = "its numbers are long and all different, as those of telephones and passports, which name persons"
                self.make.warn(f"is kept, although {why} (--data.table.columns '{option}' leaves it out)")
            return False
        what = "its numbers follow each other" if follow else "its numbers are all different"
        self._warn_left_out(f"{what}, so {_EXPOSED}", "number")
        return True

    def _warn_left_out(self, why: str, kept_as: str) -> None:
        option = json.dumps({self.name: kept_as}, ensure_ascii=False)
        self.make.warn(f"is left out: {why} (--data.table.columns '{option}' keeps it)")

    def _is_date_number(self) -> bool:
        """Whether all numbers are dates such as 20201231."""
        summary = self.summary
        dates = summary.kind == "text" and summary.formats == ("%Y%m%d",) and len(summary.counts) > 1
        return dates and all("1900" <= str(value)[:4] <= "2100" for value in summary.counts)
