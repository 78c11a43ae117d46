"""The paper's noise schedules against ours: a picture, and the largest differences.

    python paper/schedules/schedules.py --out schedules.json

The picture, schedules.png, comes beside the file.
"""

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import usd3
from usd3._internal.files import write_whole
from usd3.evaluation.plots import LINES
from usd3.pictures.figures import INK, SOFT_INK, new_figure, save, style

Array = NDArray[np.float64]
Formula = Callable[[Array], Array]
A, RATE, BASE = 0.008, 0.05, 100.0


def cosine_angle(t: Array) -> Array:
    """The argument of the paper's h(t), for T = 1."""
    return (t + A) / (1 + A) * math.pi / 2


# By name: ours, and the paper's alpha-bar(t) and beta(t) as its table prints them, for T = 1.
SCHEDULES: dict[str, tuple[usd3.Schedule, Formula, Formula]] = {
    "cosine": (
        usd3.Cosine(a=A),
        lambda t: np.cos(cosine_angle(t)) / math.cos(A / (1 + A) * math.pi / 2),
        lambda t: math.pi * np.tan(cosine_angle(t)) / (2 * (1 + A)),
    ),
    "linear": (usd3.Linear(), lambda t: 1 - t, lambda t: 1 / (1 - t)),
    "exponential": (
        usd3.Exponential(RATE, BASE),
        lambda t: np.exp(RATE * (1 - BASE**t)),
        lambda t: RATE * BASE**t * math.log(BASE),
    ),
}


def differences(name: str) -> dict[str, dict[str, float]]:
    """The largest differences on a grid of 0 < s < t < 1."""
    ours, alpha_bar, beta = SCHEDULES[name]
    grid = np.linspace(0, 1, 203)[1:-1]
    s, t = (np.concatenate(part) for part in zip(*((grid[:i], np.full(i, grid[i])) for i in range(1, len(grid)))))
    at = torch.tensor(grid)
    found = {
        "alpha_bar": np.abs(ours.alpha_bar(at).numpy() - alpha_bar(grid)),
        "alpha_bar_ts": np.abs(ours.alpha_bar(torch.tensor(t), torch.tensor(s)).numpy() - alpha_bar(t) / alpha_bar(s)),
        "beta": np.abs(ours.beta(at).numpy() / beta(grid) - 1),
    }
    return {key: {"mean": float(values.max()), "std": 0.0} for key, values in found.items()}


def picture(path: Path) -> None:
    """alpha-bar and beta against time."""
    time = torch.linspace(0, 1, 400, dtype=torch.float64)[1:-1]
    figure = new_figure(9, 3.4)
    left, right = figure.subplots(1, 2)
    for (name, (schedule, _, _)), colour in zip(SCHEDULES.items(), LINES):
        left.plot(time, schedule.alpha_bar(time), label=name, color=colour, linewidth=1.8)
        right.plot(time, schedule.beta(time), label=name, color=colour, linewidth=1.8)
    right.set_yscale("log")
    for axes, told in ((left, "ᾱ(t), what is left of the data"), (right, "β(t), the rate of the noise")):
        style(axes)
        axes.set_xlabel("t", color=SOFT_INK)
        axes.set_ylabel(told, color=SOFT_INK)
    left.legend(frameon=False, labelcolor=INK)
    save(figure, path)


def main() -> None:
    """Write both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the .json file to write")
    out: Path = parser.parse_args().out
    out.parent.mkdir(parents=True, exist_ok=True)
    picture(out.with_suffix(".png"))
    options = f"cosine a = {A}, exponential a = {RATE} and b = {BASE:g}"
    rows = {name: differences(name) for name in SCHEDULES}
    write_whole(out, json.dumps({"about": f"float64, 201 times, {options}", "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
