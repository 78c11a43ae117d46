"""The options of tables: how they are read, in the section `data.table` of a recipe, and how they are measured."""

import os
from dataclasses import dataclass, field, replace

from usd3._internal.checks import as_count, require
from usd3._internal.fields import require_fields
from usd3._internal.messages import suggestion

__all__ = ["COLUMN_TYPES", "MISSING", "TableOptions", "TableSettings"]

COLUMN_TYPES = ("category", "ordered", "number", "date", "ignore")
"""What `columns` can say about a column."""
MISSING = ("", "?", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null")
"""The cells of a file that mean "no value" unless `missing` says otherwise."""


@dataclass
class TableOptions:
    """How a table is read.

    Args:
        header: whether the first line has the names of the columns; null: detected.
        names: names of the columns, for a file without them or instead of its own; null: those of the file, or
            column_1, column_2, ...
        delimiter: what stands between cells, such as ";" or "\\t"; null: detected.
        encoding: of the text, such as "latin-1"; null: detected.
        missing: cells that mean "no value"; null: empty cells, "?", "NA", "N/A", "NaN", "null" and the like.
        columns: types of columns by name, where the detected ones are not meant: "category", "ordered" (numbers, each
            a category of its own), "number" (numbers in bins), "date" or "ignore". A date may say its format, as in
            "date:%d/%m/%Y".
        bins: most bins of a column of numbers; null: chosen by the number of rows.
        categories: most categories of a column; the rarest others become one category, with a warning.
        test_path: another file of the same form, whose rows are held out; null: a part of the rows is held out.
    """

    header: bool | None = None
    names: list[str] | None = None
    delimiter: str | None = None
    encoding: str | None = None
    missing: list[str] | None = None
    columns: dict[str, str] = field(default_factory=dict)
    bins: int | None = None
    categories: int = 1000
    test_path: str | None = None

    def __post_init__(self) -> None:
        require_fields(self, "data.table")
        for name, text in self.columns.items():
            word = text if not text.startswith("date:") else "date"
            hint = suggestion(text, COLUMN_TYPES)
            expected = f"one of {', '.join(COLUMN_TYPES)}, or a date with its format, date:%d/%m/%Y{hint}"
            require(word in COLUMN_TYPES, f"data.table.columns.{name}", text, expected)
        different = self.names is None or len(set(self.names)) == len(self.names)
        require(different, "data.table.names", self.names, "different names")
        if self.bins is not None:
            as_count(self.bins, "data.table.bins", 2)
        as_count(self.categories, "data.table.categories", 2)
        self.delimiter = "\t" if self.delimiter == "\\t" else self.delimiter  # as one types a tab in a shell
        single = self.delimiter is None or (len(self.delimiter) == 1 and self.delimiter not in '"\r\n')
        require(single, "data.table.delimiter", repr(self.delimiter), "one character, such as ; or a tab")
        if self.encoding is not None:
            known = _is_encoding(self.encoding)
            require(known, "data.table.encoding", self.encoding, "a name such as utf-8 or latin-1")
        self.test_path = None if self.test_path is None else str(self.test_path)

    def without_places(self) -> "TableOptions":
        """The options with the name of the file of held-out rows instead of its path."""
        return replace(self, test_path=None if self.test_path is None else os.path.basename(self.test_path))

    def made_absolute(self) -> "TableOptions":
        """The options with the whole path of the file of held-out rows."""
        return replace(self, test_path=None if self.test_path is None else os.path.abspath(self.test_path))


def _is_encoding(name: str) -> bool:
    try:
        return "".encode(name) is not None
    except LookupError:
        return False


@dataclass
class TableSettings:
    """How tables are measured; only for a model of tables.

    Args:
        num: number of rows in a run, drawn from nothing; null: as many as are held out, of `limit` at most.
        train: compare with at most this many training rows, chosen at random, where distances to them are measured.
    """

    num: int | None = None
    train: int = 50_000

    def __post_init__(self) -> None:
        require_fields(self, "tables")
        as_count(4 if self.num is None else self.num, "tables.num", 4)
        as_count(self.train, "tables.train", 4)
