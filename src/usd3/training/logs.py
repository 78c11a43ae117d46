"""The logs of a run: the CSV files that Lightning's CSVLogger writes."""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from usd3._internal.tables import Table

__all__ = ["Floats", "column", "held_out_curves", "logs_as_csv", "read_log", "run_logs"]

Floats: TypeAlias = npt.NDArray[np.float64]

_TRAIN, _HELD_OUT = "train/bits_per_element", "val/bits_per_element"


def run_logs(folder: Path) -> list[Path]:
    """The logs of a run, in the order in which its parts were trained."""
    return sorted(folder.glob("logs/version_*/metrics.csv"), key=lambda path: int(path.parent.name.split("_")[1]))


def read_log(parts: Sequence[Path | str]) -> list[dict[str, str]]:
    """The rows of all parts; those of a later part replace the ones at or after its first step."""
    log: list[dict[str, str]] = []
    for part in parts:
        with open(part, newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row.get("step")]
        first = min((float(row["step"]) for row in rows), default=math.inf)
        log = [row for row in log if float(row["step"]) < first] + rows
    return log


def column(log: list[dict[str, str]], name: str) -> Floats:
    """(rows, 2): the steps, and the finite values of a column."""
    pairs = [(float(row["step"]), float(row[name])) for row in log if row.get(name)]
    table = np.array(pairs, dtype=np.float64).reshape(-1, 2)
    return table[np.isfinite(table).all(1)]


def held_out_curves(runs: Mapping[str, Path]) -> dict[str, Floats]:
    """For each run whose log has held-out bits (rows, 2): steps and bits."""
    curves = {label: column(read_log(run_logs(folder)), _HELD_OUT) for label, folder in runs.items()}
    return {label: curve for label, curve in curves.items() if len(curve)}


def logs_as_csv(runs: Mapping[str, Path]) -> str:
    """CSV with a line for each logged step: label, step, minutes, and bits per element in training and held-out."""
    lines = []
    for label, folder in runs.items():
        for row in read_log(run_logs(folder)):
            minutes, *bits = (
                f"{float(row[name]):.6g}" if row.get(name) else "" for name in ("minutes", _TRAIN, _HELD_OUT)
            )
            if any(bits):
                lines.append([label, row["step"], minutes, *bits])
    return Table(["label", "step", "minutes", "train_bits_per_element", "held_out_bits_per_element"], [lines]).csv()
