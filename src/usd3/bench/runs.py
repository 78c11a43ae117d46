"""Whole tables: measure one problem after the other with progress, keep the CSV up to date, print."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from usd3._internal.progress import progress
from usd3.bench.problem import Problem, Size
from usd3.bench.scaling import fit_slopes
from usd3.bench.tables import Bench, Row, as_table, write_csv

__all__ = ["Job", "run", "run_scaling", "show", "show_machine"]

TITLES = {
    "loss": "loss and gradient from logits",
    "projection": "loss and gradients from hidden states",
    "step": "one sampling step from logits",
}


class Job(NamedTuple):
    """One problem, of a kind that `Bench.rows` knows."""

    kind: str
    problem: Problem
    brief: bool = False


Columns = Callable[[Sequence[Row]], Mapping[str, Sequence[Any]]]


def run(
    measuring: Bench, title: str, jobs: Sequence[Job], csv: Path | None = None, more: Columns = lambda rows: {}
) -> list[Row]:
    """Measure all jobs; what is done is in the CSV file, with `more` columns, if the rest is interrupted."""
    rows: list[Row] = []
    for found in _measured(measuring, title, jobs):
        rows += found
        if csv is not None:
            write_csv(csv, rows, measuring.about, **more(rows))
    return rows


def run_scaling(
    measuring: Bench, problems: Mapping[str, Sequence[Problem]], csv: Path | None = None
) -> dict[str, list[Row]]:
    """Loss and sampling step while K, B or D grows, the fitted exponents, and the rows of each."""
    rows: dict[str, list[Row]] = {}
    for name, grown in problems.items():
        jobs = [Job(kind, problem, brief=True) for problem in grown for kind in ("loss", "step")]
        rows[name] = [row for found in _measured(measuring, f"scaling {name}", jobs) for row in found]
        slopes = {v: fit_slopes(part, v) for v, part in rows.items()}
        if csv is not None:
            varied = [v for v, part in rows.items() for _ in part]
            slope = [slopes[v].get((row.kind, row.contestant)) for v, part in rows.items() for row in part]
            flat = [row for part in rows.values() for row in part]
            write_csv(csv, flat, measuring.about, varied=varied, slope=slope)
        show(rows[name], f"{name} grows, ")
    table = Table(title="exponents of time on the larger half of the sizes; 1: linear", title_justify="left")
    for column in ("", "contestant", *rows):
        table.add_column(column)
    for kind, contestant in dict.fromkeys(key for found in slopes.values() for key in found):
        cells = (found.get((kind, contestant)) for found in slopes.values())
        table.add_row(kind, contestant, *("" if cell is None else f"{cell:.2f}" for cell in cells))
    _console().print(table)
    return rows


def show(rows: Sequence[Row], title: str = "") -> None:
    """Print the rows, those of each kind in a table of their own."""
    for kind in dict.fromkeys(row.kind for row in rows):
        _console().print(as_table([row for row in rows if row.kind == kind], f"{title}{TITLES[kind]}"))


def show_machine(measuring: Bench) -> None:
    """Print on what this is measured."""
    about = measuring.about
    versions = ", ".join(f"{name} {about[name]}" for name in ("torch", "triton", "usd3", "commit") if about[name])
    threads = "" if measuring.device.type == "cuda" else f", threads: {about['threads']}"
    bandwidth = f"a large copy reads and writes {about['bandwidth_gb_s']} GB/s"
    print(f"{about['machine']}{threads}; {versions}\n{bandwidth}: the floor moves the data once at that speed")


def _measured(measuring: Bench, title: str, jobs: Sequence[Job]) -> Iterator[list[Row]]:
    """The rows of each job, with progress."""
    ticks = itertools.count(1)
    with progress(title, sum(measuring.count(job.kind, job.brief) for job in jobs)) as advance:
        for job in jobs:

            def tick(name: str, size: Size = job.problem.size) -> None:
                advance(next(ticks), f"{size} {name}")

            yield measuring.rows(job.kind, job.problem, job.brief, tick)


def _console() -> Console:
    """Wide enough for the tables where nobody looks at a terminal."""
    console = _Console()
    return console if console.is_terminal else _Console(width=160)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # the command says how it ends
