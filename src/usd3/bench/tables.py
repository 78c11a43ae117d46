"""The rows of a measurement as tables: a CSV file, and text for a terminal."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from usd3._internal.files import write_whole
from usd3._internal.tables import Table
from usd3.bench.rows import Row

__all__ = ["TITLES", "as_table", "slopes_table", "write_csv"]

TITLES = {
    "loss": "loss and gradient from logits",
    "projection": "loss and gradients from hidden states",
    "step": "one sampling step from logits",
}
_NUMBERS: dict[str, Callable[[Row], str]] = {
    "ms": lambda row: _digits(row.ms),
    "20-80 %": lambda row: "" if row.ms_low is None else f"{_digits(row.ms_low)}-{_digits(row.ms_high)}",
    "graph ms": lambda row: _digits(row.graph_ms),
    "x floor": lambda row: _digits(row.times_floor),
    "x CE": lambda row: _digits(row.times_cross_entropy),
    "x logits": lambda row: _digits(row.peak_logits),
    "value": lambda row: _digits(row.value),
}


def write_csv(path: Path | str, rows: Sequence[Row], about: Mapping[str, str], **more: Sequence[Any]) -> None:
    """Write a line for each row. `about` describes the machine; `more` are further columns, with one value a row."""
    names = [field.name for field in fields(Row)]
    lines = [
        [*(getattr(row, name) for name in names), *(column[i] for column in more.values()), *about.values()]
        for i, row in enumerate(rows)
    ]
    cells = [["" if value is None else str(value) for value in line] for line in lines]
    write_whole(path, Table([*names, *more, *about], [cells]).csv())


def as_table(rows: Sequence[Row]) -> Table:
    """The contestants of each problem below each other, without columns that have no entries."""
    several = len({row.diffusion for row in rows}) > 1
    columns: dict[str, list[str]] = {name: [] for name in ("B, D, K", "diffusion", "contestant", *_NUMBERS, "note")}
    for i, row in enumerate(rows):
        begins = i == 0 or row.problem != rows[i - 1].problem
        columns["B, D, K"].append(f"{row.B}, {row.D}, {row.K}" if begins else "")
        columns["diffusion"].append(row.diffusion if begins and several else "")
        columns["contestant"].append(row.contestant)
        for name, number in _NUMBERS.items():
            columns[name].append(number(row))
        columns["note"].append(row.note)
    filled = {name: cells for name, cells in columns.items() if any(cells)}
    return Table(list(filled), [list(zip(*filled.values()))])


def slopes_table(slopes: Mapping[str, Mapping[tuple[str, str], float]]) -> Table:
    """The exponents of time: a row for each kind and contestant, a column for each size that grows."""
    contestants = dict.fromkeys(key for fitted in slopes.values() for key in fitted)
    rows = []
    for kind, name in contestants:
        exponents = [fitted.get((kind, name)) for fitted in slopes.values()]
        rows.append([kind, name, *("" if exponent is None else f"{exponent:.2f}" for exponent in exponents)])
    return Table(["kind", "contestant", *slopes], [rows])


def _digits(value: float | None) -> str:
    """Three digits."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:#.3g}"
