"""A plot of the loss of a training run."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from usd3._internal.checks import require
from usd3.pictures.figures import GENERATED, INK, SOFT_INK, new_figure, save, style
from usd3.training.logs import Floats, column, read_log

__all__ = ["loss_plot"]

VALIDATION = "#D55E00"


def loss_plot(metrics_csv: Path | str | Sequence[Path | str], path: Path | str) -> None:
    """Plot bits per element against the step, from the CSV file that Lightning's CSVLogger writes.

    The columns are "train/bits_per_element", drawn raw and smoothed, and "val/bits_per_element"; cells may be empty.
    Several files are the parts of one run, in order: where a run was resumed, the later part counts.
    """
    log = read_log([metrics_csv] if isinstance(metrics_csv, str | os.PathLike) else metrics_csv)
    train, val = column(log, "train/bits_per_element"), column(log, "val/bits_per_element")
    some = len(train) + len(val) > 0
    require(some, "metrics_csv", metrics_csv, "numbers under train/bits_per_element or val/bits_per_element")
    smooth = _smooth(train[:, 1])
    figure = new_figure(8, 4)
    axes = figure.subplots()
    style(axes)
    if len(train):
        marker = "o" if len(train) < 3 else ""
        axes.plot(*train.T, color=GENERATED, alpha=0.25, linewidth=0.8)
        axes.plot(train[:, 0], smooth, color=GENERATED, linewidth=1.8, marker=marker, label="train")
    if len(val):
        axes.plot(*val.T, color=VALIDATION, linewidth=1.5, marker="o", markersize=4, label="validation")
    values = np.r_[smooth, val[:, 1]]
    if len(values) >= 20:  # the first steps are far above the rest: leave the top of the curve out
        low, top = values.min(), np.quantile(values, 0.97)
        axes.set_ylim(low - 0.05 * (top - low) - 1e-9, top + 0.25 * (top - low) + 1e-9)
    axes.set_xlabel("step", color=SOFT_INK)
    axes.set_ylabel("bits per element", color=SOFT_INK)
    axes.legend(frameon=False, labelcolor=INK, loc="upper right")
    save(figure, path)


def _smooth(values: Floats) -> Floats:
    """Mean over neighbours, a fortieth of the curve; where it begins only as many as there are on both sides."""
    reach, at = len(values) // 80, np.arange(len(values))
    before = np.minimum(reach, at)
    after = np.minimum(before, len(values) - 1 - at)
    sums = np.r_[0.0, np.cumsum(values)]
    return np.asarray((sums[at + after + 1] - sums[at - before]) / (before + after + 1))
