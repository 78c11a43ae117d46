"""Weak scaling of a training on the CPU: as many objects for each process, by one process and by two.

    python benchmarks/weak_scaling.py

One thread a process, which talk through gloo. "two alone" are two trainings that know nothing of each other: what they
lose, they lose to the memory and caches they share. What `ddp` and `fsdp` lose beyond that is the price of working
together. The ways take turns, so that what else the machine does hits all of them. Seconds are those between two rows
of the log; the first steps, the estimates of the bound and the checkpoints do not count.
"""

import argparse
import csv
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from shared import write_rows

from usd3.bench import machine

WAYS = {"one": (1, "auto", 1), "two alone": (1, "auto", 2), "ddp": (2, "ddp", 1), "fsdp": (2, "fsdp", 1)}
"""For each way: the processes of a training, its strategy, and how many trainings run side by side."""

WIDTHS = (64, 192)
LENGTH, CATEGORIES = 128, 129
OBJECTS = 16  # of a step, for each process
FIRST = 10  # steps before the first row of the log that counts


def main() -> None:
    """Measure all, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--widths", nargs="+", type=int, default=list(WIDTHS), help="of the network")
    parser.add_argument("--steps", type=int, default=60, help=f"of a training, more than {FIRST}")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--csv", type=Path, default=Path(__file__).parent / "results" / "weak_scaling.csv")
    given = parser.parse_args()
    if given.steps <= FIRST:
        parser.error(f"--steps {given.steps}: expected more than {FIRST}")
    about = {**machine(), "threads": 1, "repeats": given.repeats}
    rows: list[dict[str, Any]] = []
    for width in given.widths:
        found = [{way: seconds_a_step(way, width, given.steps) for way in WAYS} for _ in range(given.repeats)]
        rows += [row | about for row in table(width, found)]
        for row in rows[-len(WAYS) :]:
            print(
                f"width {width}, {row['way']}: {row['ms']} ms a step ({row['ms_low']} to {row['ms_high']}), "
                f"efficiency {row['efficiency']} ({row['efficiency_low']} to {row['efficiency_high']})",
                flush=True,
            )
        write_rows(given.csv, rows)
    print(f"wrote {given.csv}")


def table(width: int, found: Sequence[dict[str, float]]) -> list[dict[str, Any]]:
    """A row for each way: median, least and most milliseconds of a step, and of the time of one process over its own.

    Args:
        width: of the network.
        found: seconds of a step for each way, in each repetition.
    """
    rows = []
    for way in WAYS:
        ms, shares = [1000 * one[way] for one in found], [one["one"] / one[way] for one in found]
        row: dict[str, Any] = {"width": width, "way": way}
        for name, values, digits in (("ms", ms, 1), ("efficiency", shares, 3)):
            three = statistics.median(values), min(values), max(values)
            row |= {name + end: f"{value:.{digits}f}" for end, value in zip(("", "_low", "_high"), three)}
        rows.append(row)
    return rows


def seconds_a_step(way: str, width: int, steps: int) -> float:
    """Seconds of a step; the mean of all trainings that run side by side."""
    processes, strategy, trainings = WAYS[way]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        np.save(folder / "data.npy", np.random.default_rng(0).integers(0, CATEGORIES, (512, LENGTH)))
        words = [sys.executable, "-m", "usd3", "train", "array", "--data.path", str(folder / "data.npy")]
        settings = {
            "model.dim": width,
            "model.depth": 4,
            "model.heads": 4,
            "training.accelerator": "cpu",
            "training.devices": processes,
            "training.strategy": strategy,
            "training.batch_size": processes * OBJECTS,
            "training.steps": steps,
            "training.log_every": FIRST,
            "training.validate_every": 0,
            "training.patience": 0,
            "training.precision": "fp32",
        }
        words += [f"--{name}={value}" for name, value in settings.items()]
        own = os.environ | {"OMP_NUM_THREADS": "1"}
        running = []
        for i in range(trainings):
            command = [*words, "--run", str(folder / f"{i}")]
            running.append(
                subprocess.Popen(command, env=own, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            )
        for process in running:
            _, errors = process.communicate()
            if process.returncode:
                raise SystemExit(f"usd3 train failed:\n{errors[-2000:]}")
        return statistics.mean(between_rows(folder / f"{i}") for i in range(trainings))


def between_rows(run: Path) -> float:
    """Seconds of a step between the first and the last row of a run's log."""
    with (run / "logs" / "version_0" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    first, last = rows[0], rows[-1]
    return 60 * (float(last["minutes"]) - float(first["minutes"])) / (int(last["step"]) - int(first["step"]))


if __name__ == "__main__":
    main()
