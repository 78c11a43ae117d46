"""Whole tables: measure one problem after the other with progress, keep the CSV file up to date, print."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from usd3._internal.progress import progress
from usd3.bench.problem import Problem, Size
from usd3.bench.rows import Bench, Row
from usd3.bench.scaling import fit_slopes
from usd3.bench.tables import TITLES, as_table, slopes_table, write_csv

__all__ = ["Job", "measured", "run", "run_scaling", "show", "show_machine"]


class Job(NamedTuple):
    """One problem, and what to measure of it: see `Bench.rows`."""

    kind: str
    problem: Problem
    brief: bool = False


def measured(bench: Bench, title: str, jobs: Sequence[Job]) -> Iterator[list[Row]]:
    """Measure one job after the other with progress; after each, all rows so far."""
    rows: list[Row] = []
    ticks = itertools.count(1)
    with progress(title, sum(bench.count(job.kind, job.brief) for job in jobs)) as advance:
        for job in jobs:

            def tick(name: str, size: Size = job.problem.size) -> None:
                advance(next(ticks), f"{size} {name}")

            rows += bench.rows(job.kind, job.problem, job.brief, tick)
            yield rows


def run(bench: Bench, title: str, jobs: Sequence[Job], csv: Path | None = None) -> list[Row]:
    """Measure all jobs. If the rest is interrupted, the CSV file has the rows of the jobs that are done."""
    rows: list[Row] = []
    for rows in measured(bench, title, jobs):
        if csv is not None:
            write_csv(csv, rows, bench.about)
    return rows


def run_scaling(
    bench: Bench, problems: Mapping[str, Sequence[Problem]], csv: Path | None = None
) -> dict[str, list[Row]]:
    """Measure loss and sampling step while K, B or D grows, print the exponents of time; the rows of each."""
    rows: dict[str, list[Row]] = {}
    slopes: dict[str, dict[tuple[str, str], float]] = {}
    for name, grown in problems.items():
        jobs = [Job(kind, problem, brief=True) for problem in grown for kind in ("loss", "step")]
        rows[name] = run(bench, f"scaling {name}", jobs)
        slopes[name] = fit_slopes(rows[name], name)
        if csv is not None:
            pairs = [(varied, row) for varied, several in rows.items() for row in several]
            exponents = [slopes[varied].get((row.kind, row.contestant)) for varied, row in pairs]
            varied = [varied for varied, _ in pairs]
            write_csv(csv, [row for _, row in pairs], bench.about, varied=varied, slope=exponents)
        show(rows[name], f"{name} grows, ")
    print(f"exponents of time on the larger half of the sizes; 1: linear\n{slopes_table(slopes).text()}\n")
    return rows


def show(rows: Sequence[Row], title: str = "") -> None:
    """Print the rows, those of each kind in a table of their own."""
    for kind in dict.fromkeys(row.kind for row in rows):
        several = [row for row in rows if row.kind == kind]
        diffusions = {row.diffusion for row in several}
        about = f": {diffusions.pop()}" if len(diffusions) == 1 else ""
        print(f"{title}{TITLES[kind]}{about}\n{as_table(several).text()}\n", flush=True)


def show_machine(bench: Bench) -> None:
    """Print the machine, the versions and the bandwidth."""
    about = bench.about
    versions = ", ".join(f"{name} {about[name]}" for name in ("torch", "triton", "usd3", "commit") if about[name])
    threads = "" if bench.device.type == "cuda" else f", threads: {about['threads']}"
    bandwidth = f"a large copy reads and writes {about['bandwidth_gb_s']} GB/s"
    print(f"{about['machine']}{threads}; {versions}\n{bandwidth}: the floor moves the data once at that speed\n")
