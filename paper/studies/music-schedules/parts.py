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
    """The metrics of each training of a method that is measured."""
    files = [folder / label / "comparison.json" for label in labels]
    rows = [read_row(file.parent.name, json.loads(file.read_text())) for file in files if file.is_file()]
    return [{key: summary.mean for key, summary in row.metrics.items()} for row in rows]


def difference(more: list[dict[str, float]], less: list[dict[str, float]]) -> dict[str, Any]:
    """Mean and standard deviation of each metric's difference over the trainings that both have."""
    pairs = list(zip(more, less))
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
    known = {name: pair for name, pair in PARTS.items() if all(measured.get(method) for method in pair)}
    rows = {name: difference(measured[more], measured[less]) for name, (more, less) in known.items()}
    options.out.write_text(json.dumps({"references": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
