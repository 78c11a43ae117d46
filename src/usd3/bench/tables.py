"""The tables of losses and of sampling steps: rows, a CSV file, and text."""

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from rich.table import Table

from usd3._files import write_whole
from usd3.bench.floor import copy_bandwidth, floor_ms
from usd3.bench.losses import CROSS_ENTROPY, loss_calls, projection_calls
from usd3.bench.machine import machine
from usd3.bench.other import Other
from usd3.bench.problem import Problem
from usd3.bench.steps import step_calls
from usd3.bench.timing import Budget, Call, Measured, measure_all

__all__ = ["Bench", "Row", "as_table", "write_csv"]

Tick = Callable[[str], None]
HIDDEN = 768


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
        tick: Tick = lambda name: None,
    ):
        self.device, self.budget, self.tick = torch.device(device), budget or Budget(), tick
        self.compile_eager, self.other = compile_eager, other
        self.bandwidth = copy_bandwidth(self.device, self.budget)
        self.about: dict[str, str | float] = {
            **machine(self.device),
            "bandwidth_gb_s": round(self.bandwidth / 1e9, 1),
        }

    def loss(self, problem: Problem, brief: bool = False) -> list[Row]:
        """Loss and gradient from logits."""
        sets = problem.sets()
        calls = loss_calls(problem, sets, self.compile_eager, self.other, brief)
        return self._rows("loss", problem, calls)

    def projection(self, problem: Problem, hidden_size: int = HIDDEN) -> list[Row]:
        """Loss and gradients from hidden states and the output projection."""
        return self._rows("projection", problem, projection_calls(problem, hidden_size), hidden_size)

    def step(self, problem: Problem, brief: bool = False) -> list[Row]:
        """One sampling step from logits."""
        sets = problem.sets()
        return self._rows("step", problem, step_calls(problem, sets, self.compile_eager, self.other, brief))

    def count(self, kind: str, brief: bool = False) -> int:
        """How often `tick` is called for one problem: twice for each contestant."""
        extra = self.compile_eager + (self.other is not None and getattr(self.other, kind, None) is not None)
        fixed = {"loss": 3 if brief else 5, "projection": 4, "step": 2 if brief else 3}
        return 2 * (fixed[kind] + (0 if kind == "projection" else extra))

    def _rows(self, kind: str, problem: Problem, calls: Sequence[Call], hidden_size: int | None = None) -> list[Row]:
        found = measure_all(calls, self.device, self.budget, self.tick)
        least = None if kind == "projection" else floor_ms(problem, kind, self.bandwidth)
        plain = next((m.ms_median for c, m in zip(calls, found) if c.name.endswith(CROSS_ENTROPY)), None)
        return [self._row(kind, problem, hidden_size, c.name, m, least, plain) for c, m in zip(calls, found)]

    def _row(
        self,
        kind: str,
        problem: Problem,
        hidden_size: int | None,
        name: str,
        found: Measured,
        least: float | None,
        plain: float | None,
    ) -> Row:
        ms, peak = found.ms_median, found.peak_bytes_beyond_inputs
        shared = (kind, problem.noise, problem.time, problem.objective, problem.dtype, *problem.size, hidden_size)
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


def write_csv(path: Path | str, rows: Sequence[Row], about: dict[str, Any], **more: Sequence[Any]) -> None:
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
    """For a terminal: one section for each problem, its contestants below each other."""
    table = Table(title=title, title_justify="left", title_style="bold")
    for name in ("B, D, K", "diffusion", "contestant"):
        table.add_column(name, no_wrap=name != "diffusion")
    for name in ("ms", "20-80 %", "graph ms", "x floor", "x CE", "memory", "value"):
        table.add_column(name, justify="right", no_wrap=True)
    if any(row.note for row in rows):
        table.add_column("note")
    last = None
    for row in rows:
        problem = (row.kind, row.noise, row.time, row.objective, row.dtype, row.B, row.D, row.K)
        if last is not None and problem != last:
            table.add_section()
        size = f"{row.B}, {row.D}, {row.K}" if problem != last else ""
        about = " ".join(map(str, problem[1:5])) if problem != last else ""
        spread = "" if row.ms_low is None else f"{_shown(row.ms_low)}-{_shown(row.ms_high)}"
        numbers = (_shown(v) for v in (row.graph_ms, row.times_floor, row.times_cross_entropy, row.peak_logits))
        table.add_row(size, about, row.contestant, _shown(row.ms), spread, *numbers, _shown(row.value), row.note)
        last = problem
    return table


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
