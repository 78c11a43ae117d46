"""Write a CSV of the studies from results of `usd3 evaluate`, or from the logs of trainings.

    python paper/studies/to_csv.py evaluations NAME=FILE.json ... --columns "name 3g_hellinger" --out steps.csv
    python paper/studies/to_csv.py logs NAME=RUN ... --columns "name step minutes bits_per_element" --out curves.csv

A line for each file, or for each estimate of the held-out bits in the logs of a run. The columns of an evaluation are
its settings, its metrics (their mean, or with _mean or _std at the end), objects, sampling_steps, those of the training
(trained_steps, minutes, parameters), torch and usd3, and machine and commit of this program; those of a log are step,
minutes, bits_per_element, and the objective and lr of the recipe. "name" is the name before the equals sign; --title
changes the title of that column.
"""

import argparse
import csv
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from usd3._internal.yaml_json import read_yaml
from usd3.bench.machine import machine
from usd3.evaluation.comparison import read_row
from usd3.training.logs import read_log, run_logs


def evaluation(name: str, file: Path) -> Iterator[dict[str, Any]]:
    """All columns of the results of an evaluation, in a line."""
    results = json.loads(file.read_text())
    row, here = read_row("model", results), machine()
    metrics = {key: summary.mean for key, summary in row.metrics.items()}
    parts = {f"{key}_{part}": value for key, cell in row.metrics.items() for part, value in cell._asdict().items()}
    about = {key: results[key] for key in ("objects", "torch", "usd3")} | {
        key: here[key] for key in ("machine", "commit")
    }
    steps = {"sampling_steps": results["settings"]["steps"], "trained_steps": results["trained"]["steps"]}
    yield {**results["settings"], **row.costs, **metrics, **parts, **about, **steps, "name": name}


def log(name: str, run: Path) -> Iterator[dict[str, Any]]:
    """The columns of the logs of a run, a line for each estimate of the bits of held-out objects."""
    training = read_yaml(run / "recipe.yaml")["training"]
    known = {"name": name, "objective": training["objective"], "lr": training["lr"]}
    for row in read_log(run_logs(run)):
        if row.get("val/bits_per_element"):
            bits, minutes = float(row["val/bits_per_element"]), float(row["minutes"])
            yield known | {"step": int(row["step"]), "minutes": minutes, "bits_per_element": bits}


def shown(value: Any) -> str:
    """A cell: numbers that are not whole with four decimals or more, unknown ones empty."""
    if not isinstance(value, float):
        return str(value)
    if math.isnan(value):
        return ""
    return f"{value:.4f}" if abs(value) >= 0.001 and not value.is_integer() else f"{value:.12g}"


def main() -> None:
    """Read the files that the command names, and write the CSV."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kind", choices=("evaluations", "logs"))
    parser.add_argument("sources", nargs="+", help="NAME=FILE or NAME=RUN")
    parser.add_argument("--columns", required=True, help="with spaces between them")
    parser.add_argument("--title", default="name", help="of the column name")
    parser.add_argument("--out", required=True, help="the file to write")
    options = parser.parse_args()
    read = evaluation if options.kind == "evaluations" else log
    columns = options.columns.split()
    lines = []
    for source in options.sources:
        name, _, path = source.rpartition("=")
        lines += [[shown(row[column]) for column in columns] for row in read(name, Path(path))]
    with open(options.out, "w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow([options.title if column == "name" else column for column in columns])
        table.writerows(lines)


if __name__ == "__main__":
    main()
