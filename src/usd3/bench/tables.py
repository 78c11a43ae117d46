"""The tables of losses and of sampling steps: rows, a CSV file, and text."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from usd3._internal.files import write_whole
from usd3.bench.floor import copy_bandwidth, floor_ms
from usd3.bench.losses import CROSS_ENTROPY, loss_calls, projection_calls
from usd3.bench.machine import machine
from usd3.bench.other import Other
from usd3.bench.problem import Problem
from usd3.bench.steps import step_calls
from usd3.bench.timing import Budget, Call, Measured, measure_all

__all__ = ["Bench", "Row", "as_table", "write_csv"]

Tick = Callable[[str], None]


@dataclass(frozen=True)
class Row:
    """One line of a CSV file. Empty: not measured. Times are milliseconds, memory is beyond the inputs."""

    kind: str
    noise: str
    time: str
    objective: str
    dtype: str
    B: int
    D: int
    K: int
    H: int | None
    contestant: str
    ms: float | None
    ms_low: float | None
    ms_high: float | None
    graph_ms: float | None
    floor_ms: float | None
    times_floor: float | None
    times_cross_entropy: float | None
    peak_bytes: int | None
    peak_logits: float | None
    value: float | None
    note: str


class Bench:
    """Measures problems on one device; its bandwidth is measured once."""

    def __init__(
        self,
        device: torch.device | str,
        budget: Budget | None = None,
        compile_eager: bool = False,
        other: Other | None = None,
        hidden: int = 768,
    ):
        self.device, self.budget, self.hidden = torch.device(device), budget or Budget(), hidden
        self.compile_eager, self.other = compile_eager, other
        self.bandwidth = copy_bandwidth(self.device, self.budget)
        self.about = {**machine(self.device), "bandwidth_gb_s": f"{self.bandwidth / 1e9:.1f}"}

    def rows(self, kind: str, problem: Problem, brief: bool = False, tick: Tick = lambda name: None) -> list[Row]:
        """All contestants of a kind, or the main ones (`brief`).

        "loss" is from logits, "projection" from hidden states and the output projection, both with the gradient;
        "step" is one sampling step from logits.
        """
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        if kind == "projection":
            calls = projection_calls(problem, self.hidden)
        else:
            make = loss_calls if kind == "loss" else step_calls
            calls = make(problem, problem.sets(), self.compile_eager, self.other, brief)
        return self._rows(kind, problem, calls, tick)

    def count(self, kind: str, brief: bool = False) -> int:
        """How often `tick` is called for one problem: twice for each contestant."""
        if kind == "projection":
            return 8
        fixed = {"loss": (5, 3), "step": (3, 2)}[kind][brief]
        return 2 * (fixed + self.compile_eager + (getattr(self.other, kind, None) is not None))

    def _rows(self, kind: str, problem: Problem, calls: Sequence[Call], tick: Tick) -> list[Row]:
        found = measure_all(calls, self.device, self.budget, tick)
        plain = next((m.ms_median for c, m in zip(calls, found) if c.name.endswith(CROSS_ENTROPY)), None)
        return [self._row(kind, problem, call.name, measured, plain) for call, measured in zip(calls, found)]

    def _row(self, kind: str, problem: Problem, name: str, found: Measured, plain: float | None) -> Row:
        bound = kind == "loss" or (kind == "step" and name != CROSS_ENTROPY)  # that the floor is a bound for
        least = floor_ms(problem, kind, self.bandwidth) if bound else None
        ms, peak = found.ms_median, found.peak_bytes_beyond_inputs
        hidden = self.hidden if kind == "projection" else None
        shared = (kind, problem.noise, problem.time, problem.objective, problem.dtype, *problem.size, hidden)
        return Row(
            *shared,
            contestant=name,
            ms=_rounded(ms),
            ms_low=_rounded(found.ms_low),
            ms_high=_rounded(found.ms_high),
            graph_ms=_rounded(found.graph_ms),
            floor_ms=_rounded(least),
            times_floor=_rounded(_ratio(ms, least)),
            times_cross_entropy=_rounded(_ratio(ms, plain)),
            peak_bytes=peak,
            peak_logits=_rounded(_ratio(peak, problem.logits_bytes)),
            value=found.value if kind != "step" else None,
            note=found.note,
        )


def write_csv(path: Path | str, rows: Sequence[Row], about: dict[str, str], **more: Sequence[Any]) -> None:
    """Write the rows, each with what is known of the machine; `more` are further columns, one value a row."""
    names = [field.name for field in fields(Row)]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([*names, *more, *about])
    for i, row in enumerate(rows):
        cells = [getattr(row, name) for name in names] + [column[i] for column in more.values()]
        writer.writerow(["" if cell is None else cell for cell in [*cells, *about.values()]])
    write_whole(path, file.getvalue())


def as_table(rows: Sequence[Row], title: str) -> Table:
    """For a terminal: one section for each problem, its contestants below each other; no columns without entries."""
    abouts = {_diffusion(row) for row in rows}
    if len(abouts) == 1:
        title = f"{title}: {abouts.pop()}"
    columns: dict[str, list[str]] = {name: [] for name in ("B, D, K", "", "contestant", *_NUMBERS, "note")}
    first = [i == 0 or _problem(row) != _problem(rows[i - 1]) for i, row in enumerate(rows)]
    for row, begins in zip(rows, first):
        columns["B, D, K"].append(f"{row.B}, {row.D}, {row.K}" if begins else "")
        columns[""].append(_diffusion(row) if begins and len(abouts) > 1 else "")
        columns["contestant"].append(row.contestant)
        for name, number in _NUMBERS.items():
            columns[name].append(number(row))
        columns["note"].append(row.note)
    columns = {name: cells for name, cells in columns.items() if any(cells)}
    table = Table(title=title, title_justify="left", title_style="bold")
    for name in columns:
        table.add_column(name, justify="right" if name in _NUMBERS else "left", no_wrap=name in _NUMBERS)
    for begins, cells in zip(first, zip(*columns.values())):
        if begins:
            table.add_section()
        table.add_row(*cells)
    return table


_NUMBERS: dict[str, Callable[[Row], str]] = {
    "ms": lambda row: _shown(row.ms),
    "20-80 %": lambda row: "" if row.ms_low is None else f"{_shown(row.ms_low)}-{_shown(row.ms_high)}",
    "graph ms": lambda row: _shown(row.graph_ms),
    "x floor": lambda row: _shown(row.times_floor),
    "x CE": lambda row: _shown(row.times_cross_entropy),
    "x logits": lambda row: _shown(row.peak_logits),
    "value": lambda row: _shown(row.value),
}


def _problem(row: Row) -> tuple[Any, ...]:
    return row.kind, _diffusion(row), row.B, row.D, row.K


def _diffusion(row: Row) -> str:
    objective = "" if row.kind == "step" else f" {row.objective}"
    hidden = "" if row.H is None else f", from {row.H} hidden"
    return f"{row.noise} {row.time}{objective} {row.dtype}{hidden}"


def _ratio(value: float | None, unit: float | None) -> float | None:
    return None if value is None or not unit else value / unit


def _rounded(value: float | None) -> float | None:
    """Five digits are more than a clock is good for."""
    return None if value is None else float(f"{value:.5g}")


def _shown(value: float | None) -> str:
    """Three digits."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:#.3g}"
