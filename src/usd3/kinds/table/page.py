"""Rows of a table on the studio's page: a form with a field for each column, where an empty field is drawn."""

import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from usd3._internal.checks import require, require_type
from usd3._internal.messages import suggestion
from usd3.kinds.page import Frame, FromPage, Page, nested
from usd3.kinds.table.categories import Categories
from usd3.kinds.table.columns import Cells, Column
from usd3.kinds.table.files import write_text
from usd3.kinds.table.frames import require_pandas
from usd3.kinds.table.kind import Table
from usd3.kinds.table.numbers import Numbers
from usd3.kinds.table.rendering import TableRenderer

__all__ = ["TablePage"]

_MOST_VALUES = 200  # of a column, offered in its field
_MOST_SHARES = 20  # of a column, in its distribution
_LONGEST = 200  # letters of a cell
_FIELDS = {"ordered": "number", "number": "number", "date": "date", "category": "category"}
_LABELS_OF_OTHERS = "(others)"


class TablePage(Page):
    """Rows of a table as mappings from the name of a column to the text of its cell; None: an empty cell."""

    reads = (".csv", ".tsv", ".data")
    usual_num = 200
    shows_first = False
    most_num = 1000
    kind: Table

    def editor(self) -> dict[str, Any]:
        """The columns: their names, what they hold, and values or ends."""
        return {"name": "table", "columns": [_field(column) for column in self.kind.schema]}

    def empty(self) -> Any:
        """A row of empty fields."""
        return dict.fromkeys(self.kind.names)

    @property
    def writes(self) -> tuple[str, ...]:
        """Files of text."""
        return (".csv", ".tsv")

    # ---- tokens and rows ----------------------------------------------------------------------------------------

    def to_page(self, tokens: Tensor, prompt: FromPage | None = None, seed: int = 0, where: Any = None) -> list[Any]:
        """The rows as texts; what was typed stays as it was typed."""
        given = None if prompt is None else prompt.given
        cells = self.kind.texts(tokens, seed, where, given)
        if prompt is not None:
            for name, text in _filled(prompt.typed[0]).items():
                cells[name] = np.full(len(tokens), text, dtype=object)
        return [{name: str(texts[i]) for name, texts in cells.items()} for i in range(len(tokens))]

    def from_page(self, objects: Any) -> FromPage:
        """The tokens of rows, and which cells are filled in. A column that a row does not name is empty."""
        require_type(isinstance(objects, list), "objects", objects, "a list of rows")
        for row in objects:
            self._require_row(row)
        names, rows = self.kind.names, [_filled(row) for row in objects]
        columns = {name: [row.get(name) for row in rows] for name in names}
        frame = require_pandas().DataFrame(columns, dtype=object)
        tokens, given = self.kind.tokens(frame, name="the form")
        return FromPage(tokens, given, objects)

    def _require_row(self, row: Any) -> None:
        require_type(isinstance(row, dict), "object", row, "a mapping from columns to texts")
        for name, cell in row.items():
            hint = suggestion(name, self.kind.names)
            require(name in self.kind.names, "column", name[:40], f"one of {', '.join(self.kind.names)}{hint}")
            require_type(cell is None or isinstance(cell, str), name, cell, "a text, or null for an empty field")
            require(len(cell or "") <= _LONGEST, name, f"{len(cell or ''):,} letters", f"at most {_LONGEST}")

    def frame(self, frame: Frame, prompt: FromPage) -> dict[str, Any]:
        """The row with the likeliest category of each cell that is not typed."""
        sizes = torch.tensor([column.size for column in self.kind.schema])
        tokens = frame.tokens.minimum(sizes - 1).numpy()
        row = {column.name: column.labels[i] for column, i in zip(self.kind.schema, tokens.tolist())}
        return {
            "object": row | _filled(prompt.typed[0]),
            "sure": nested(frame.sure),
            "open": frame.open.int().tolist(),
        }

    # ---- what is said about drawn rows --------------------------------------------------------------------------

    def notes(self, tokens: Tensor, prompt: FromPage) -> list[str]:
        """Which of the typed numbers the data have not: they count as the nearest that training had."""
        typed, lines = _filled(prompt.typed[0]), []
        for column in self.kind.schema:
            if column.name in typed and isinstance(column, Numbers):
                cells = Cells(require_pandas().Series([typed[column.name]], dtype=object), self.kind.form.missing)
                raw, (low, high) = column.raw_of_data(cells)[0][0], column.distribution.ends
                if not low[0] <= raw <= high[-1]:
                    lines.append(f"{column.name} = {typed[column.name]}: treated as the nearest; {column.has()}")
        return lines

    def shares(self, tokens: Tensor, prompt: FromPage) -> dict[str, list[tuple[str, float]]] | None:
        """How often each value was drawn for each empty field. Numbers are in groups of neighbours, in their order."""
        drawn = [i for i, known in enumerate(prompt.given[0].tolist()) if not known]
        return {self.kind.schema[i].name: _shares(self.kind.schema[i], tokens[:, i]) for i in drawn}

    # ---- files --------------------------------------------------------------------------------------------------

    def read(self, path: Path) -> tuple[Any, list[str]]:
        """The first row of a file; its empty cells are empty fields."""
        renderer = self.kind.renderer(self.request_for(Path(), None))
        assert isinstance(renderer, TableRenderer)
        rows, given = renderer.prompt(path)
        frame = renderer.rows_of_prompt
        known = dict(zip(self.kind.names, given[0].tolist()))
        first = {str(name): str(cell) for name, cell in zip(frame.columns, frame.iloc[0].tolist())}
        row = {name: first[name] if known[name] else None for name in self.kind.names}
        return row, [] if len(rows) == 1 else [f"the first of {len(rows):,} rows"]

    def write(self, objects: Any, path: Path, options: Any = None) -> None:
        """Write the rows as they are, in the form of the training file."""
        self.from_page(objects)
        columns = {name: np.array([row.get(name) or "" for row in objects], dtype=object) for name in self.kind.names}
        write_text(columns, path, self.kind.form)


def _filled(row: Mapping[str, str | None]) -> dict[str, str]:
    """The fields of a row that are filled in."""
    return {name: cell for name, cell in row.items() if cell is not None and cell.strip()}


def _field(column: Column) -> dict[str, Any]:
    """A column as the form needs it."""
    values, low, high, has_more = None, None, None, False
    if isinstance(column, Categories):
        values = [str(value) for value in column.members[:_MOST_VALUES]]
        has_more = len(column.members) > _MOST_VALUES
    elif isinstance(column, Numbers) and column.num_values:
        ends = column.distribution.ends
        low, high = str(column.texts(ends[0][:1])[0]), str(column.texts(ends[1][-1:])[0])
    kind = _FIELDS.get(column.type, "text")
    return {"name": column.name, "kind": kind, "values": values, "more": has_more, "low": low, "high": high}


def _shares(column: Column, tokens: Tensor) -> list[tuple[str, float]]:
    """The share of each value among drawn categories (N,)."""
    counts = np.bincount(tokens.numpy(), minlength=column.size)
    shares, labels = (counts / counts.sum()).tolist(), column.labels
    if column.is_ordered:
        groups = _grouped(column.num_values)
        found = [(_range(labels[a], labels[b - 1]), sum(shares[a:b])) for a, b in groups]
        found += [(labels[-1], shares[-1])] if column.has_missing else []
        return [(label, round(share, 4)) for label, share in found]
    order = sorted((i for i in range(len(shares)) if shares[i]), key=lambda i: -shares[i])
    kept, rest = order[:_MOST_SHARES], sum(shares[i] for i in order[_MOST_SHARES:])
    found = [(labels[i], shares[i]) for i in kept] + ([(_LABELS_OF_OTHERS, rest)] if rest else [])
    return [(label, round(share, 4)) for label, share in found]


def _grouped(count: int) -> list[tuple[int, int]]:
    """Up to 20 groups of neighbours, (first, after the last), of about the same size."""
    ends = np.linspace(0, count, min(count, _MOST_SHARES) + 1).round().astype(int).tolist()
    return list(itertools.pairwise(ends))


def _range(first: str, last: str) -> str:
    """The label of a group from those of its first and last bin."""
    low, high = first.split("..")[0], last.split("..")[-1]
    return low if low == high else f"{low}..{high}"
