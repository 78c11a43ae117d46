"""What the benchmark scripts share: their options, their CSV files, and anchors, which are numbers measured earlier.

The anchors were measured on one NVIDIA H200 (torch 2.11, triton 3.6, fp32 logits), in other processes than these
scripts. They are for orientation: only rows of one run compare exactly. "Authors" is the paper authors' released
module. Results of a CPU get no anchors.
"""

import argparse
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from usd3._internal.files import write_whole
from usd3._internal.tables import Table
from usd3.bench import Bench, Budget, Job, Row, load_other, measured, show, show_machine, write_csv

__all__ = [
    "LOSS",
    "LOSS_SIZES",
    "PROJECTION_SIZES",
    "STEP",
    "STEP_SIZES",
    "Anchor",
    "Options",
    "kernel_times",
    "measure_table",
    "options",
    "write_profile",
    "write_rows",
]

LOSS_SIZES = ("64,256,129", "256,64,512", "32,256,8192", "8,512,50257")
STEP_SIZES = ("64,256,129", "32,256,8192", "8,512,50257")
PROJECTION_SIZES = ("32,256,8192", "8,512,50257")


@dataclass(frozen=True)
class Anchor:
    """Milliseconds that the authors' module takes, and the most that ours should take."""

    authors: float
    target: float


LOSS = {  # by time and K; uniform noise, objective usd3
    ("continuous", 129): Anchor(6.26, 0.15),
    ("continuous", 512): Anchor(6.50, 0.15),
    ("continuous", 8192): Anchor(13.7, 0.32),
    ("continuous", 50257): Anchor(31.7, 1.0),
    ("discrete", 129): Anchor(7.16, 0.15),
    ("discrete", 512): Anchor(8.52, 0.15),
    ("discrete", 8192): Anchor(12.5, 0.32),
    ("discrete", 50257): Anchor(26.4, 1.0),
}
STEP = {129: Anchor(1.70, 0.06), 8192: Anchor(3.51, 0.13), 50257: Anchor(6.29, 0.40)}


@dataclass(frozen=True)
class Options:
    """The options that all scripts have."""

    device: torch.device
    sizes: Sequence[str]
    csv: Path
    bench: Bench


def options(
    doc: str | None, sizes: Sequence[str], csv: str, device: str | None = None, compiled: bool = True
) -> Options:
    """Read the command line and measure the bandwidth."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        parser.add_argument("--device", choices=("cuda", "cpu"), default=device)
    parser.add_argument("--sizes", nargs="+", default=list(sizes), metavar="B,D,K")
    parser.add_argument("--repeats", type=int, default=50, help="how often to measure each")
    parser.add_argument("--seconds", type=float, default=3.0, help="how long to measure each at most")
    parser.add_argument("--compiled", action=argparse.BooleanOptionalAction, help="the eager code compiled too (GPU)")
    parser.add_argument("--other", help="a Python file with another implementation (it is run)")
    parser.add_argument("--csv", type=Path, default=Path(__file__).parent / "results" / csv)
    given = parser.parse_args()
    chosen = torch.device(getattr(given, "device", device))
    compiled = (compiled and chosen.type == "cuda") if given.compiled is None else given.compiled
    other = None if given.other is None else load_other(given.other)
    bench = Bench(chosen, Budget(given.repeats, given.seconds), compiled, other)
    show_machine(bench)
    return Options(chosen, given.sizes, given.csv, bench)


def measure_table(given: Options, title: str, jobs: Sequence[Job]) -> list[Row]:
    """Measure, print, and write the CSV file after each job; on a GPU it has the anchors as two more columns."""
    rows: list[Row] = []
    for rows in measured(given.bench, title, jobs):
        anchors = _anchors(rows) if given.device.type == "cuda" else {}
        write_csv(given.csv, rows, given.bench.about, **anchors)
    show(rows)
    print(f"wrote {given.csv}")
    return rows


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a CSV file of rows with the same keys, which are its columns; None is empty."""
    cells = [["" if value is None else str(value) for value in row.values()] for row in rows]
    write_whole(path, Table(list(rows[0]), [cells]).csv())


def _anchors(rows: Sequence[Row]) -> dict[str, list[float | None]]:
    anchors = [_anchor(row) for row in rows]
    return {f"{name}_ms": [None if a is None else getattr(a, name) for a in anchors] for name in ("authors", "target")}


def _anchor(row: Row) -> Anchor | None:
    if (row.noise, row.dtype) != ("uniform", "fp32"):
        return None
    size = f"{row.B},{row.D},{row.K}"
    if row.kind == "loss" and row.objective == "usd3" and size in LOSS_SIZES:
        return LOSS[row.time, row.K]
    return STEP[row.K] if row.kind == "step" and size in STEP_SIZES else None


def write_profile(file: Path, profiles: list[str], title: str, kernels: Sequence[str]) -> None:
    """Add the kernels of a row to the profiles so far, and write all of them."""
    profiles += [title, *kernels, ""]
    write_whole(file, "\n".join(profiles) + "\n")


def kernel_times(step: Callable[[], object], steps: int = 5) -> list[str]:
    """A line for each kernel of a step, the longest first: microseconds, how often it runs, and its name."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    spent, count = defaultdict[str, float](float), defaultdict[str, int](int)
    for event in profile.events():
        if event.device_type == torch.profiler.DeviceType.CUDA:
            spent[event.name] += event.device_time_total / steps
            count[event.name] += 1
    order = sorted(spent, key=lambda name: -spent[name])
    total = f"{sum(spent.values()):9.1f} us {sum(count.values()) / steps:7.1f} x all kernels"
    return [total, *(f"{spent[name]:9.1f} us {count[name] / steps:7.1f} x {name[:200]}" for name in order)]
