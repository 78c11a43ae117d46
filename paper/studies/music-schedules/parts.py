"""Which part of the difference between two methods is the schedule's, and which the loss's.

    python paper/studies/music-schedules/parts.py runs/paper/music-schedules/compare --out parts.json

Each line is a difference between two rows of the comparison that differ in one thing, for every metric: the mean over
the trainings, and the standard deviation. Trainings with the same seed are taken together.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from usd3.evaluation.comparison import read_row
from usd3.metrics.summary import summarise

PARTS = {
    "USD3: constant rate less cosine": ("usd3-constant", "usd3-continuous"),
    "USD3: log-linear less cosine": ("usd3-loglinear", "usd3-continuous"),
    "tauLDR: constant rate less cosine": ("tauldr", "tauldr-cosine"),
    "tauLDR less USD3, both cosine": ("tauldr-cosine", "usd3-continuous"),
    "SDDM: constant rate less cosine": ("sddm", "sddm-cosine"),
    "SDDM less USD3, both cosine": ("sddm-cosine", "usd3-continuous"),
    "SEDD: log-linear less cosine": ("sedd", "sedd-cosine"),
    "SEDD less USD3, both cosine": ("sedd-cosine", "usd3-continuous"),
    "D3PM less USD3, discrete time": ("d3pm", "usd3"),
    "D3PM: without less with hollow head": ("d3pm-plain", "d3pm"),
    "D3PM: joint less marginal posterior": ("d3pm-joint", "d3pm-plain"),
}


def means(folder: Path, labels: list[str]) -> list[dict[str, float]]:
    """The metrics of each training of a method; empty for one that is not measured."""
    return [_metrics(folder / label / "comparison.json") for label in labels]


def _metrics(file: Path) -> dict[str, float]:
    row = read_row("", json.loads(file.read_text())) if file.is_file() else None
    return {} if row is None else {key: summary.mean for key, summary in row.metrics.items()}


def difference(more: list[dict[str, float]], less: list[dict[str, float]]) -> dict[str, Any]:
    """Mean and standard deviation of each metric's difference over the trainings that both have; empty without any."""
    pairs = [(a, b) for a, b in zip(more, less) if a and b]
    if not pairs:
        return {}
    differences = {key: np.array([a[key] - b[key] for a, b in pairs]) for key in pairs[0][0] if key in pairs[0][1]}
    return {key: dict(summarise(values)._asdict()) for key, values in differences.items() if np.isfinite(values).all()}


def main() -> None:
    """Read the comparison, and write the differences as rows of results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="of usd3 compare")
    parser.add_argument("--out", type=Path, required=True, help="the file to write")
    options = parser.parse_args()
    trainings = json.loads((options.folder / "comparison.json").read_text())["trainings"]
    measured = {method: means(options.folder, labels) for method, labels in trainings.items()}
    parts = {name: difference(measured.get(a, []), measured.get(b, [])) for name, (a, b) in PARTS.items()}
    rows = {name: part for name, part in parts.items() if part}
    options.out.write_text(json.dumps({"references": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
