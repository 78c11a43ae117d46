"""Plots of several methods: their metrics, and their training curves."""

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from usd3._internal.checks import require
from usd3.evaluation.comparison import Row, marks, metrics_of
from usd3.evaluation.references import TRUTH
from usd3.metrics.summary import COLUMNS, RATIOS
from usd3.pictures.figures import GENERATED, GIVEN, INK, SOFT_INK, new_figure, save, style
from usd3.training.logs import held_out_curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["BEST", "OTHERS", "SECOND", "metrics_plot", "training_plot"]

_FAR = 1.7  # times the median of the methods: a larger value is written, not drawn
OTHERS, BEST, SECOND = "#9AA5B1", GENERATED, GIVEN
DASHES: tuple[Literal["--", ":"], ...] = ("--", ":")  # of the reference rows
LINES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#1F2933")
_FIRST = (*(f"{n}g_hellinger" for n in (1, 2, 3)), "edit_diversity", *(f"{n}g_outliers" for n in (1, 2, 3)))
_LAST = ("bits_per_element", *RATIOS)


def _order(rows: Sequence[Row]) -> list[str]:
    """The metrics that get a panel, in order: those of a kind only where one direction is better."""
    of_kinds = {key: metric for key, metric in metrics_of(rows).items() if key not in {*COLUMNS, *_LAST}}
    return [*_FIRST, *(key for key, metric in of_kinds.items() if metric.better is not None), *_LAST]


def metrics_plot(rows: Sequence[Row], path: Path | str, references: Sequence[Row] = ()) -> None:
    """A panel for each metric, with a dot and its standard deviation for each method; the best two are coloured.

    Grey lines are reference rows: a Markov chain and other held-out objects, or reconstructions and held-out images.

    Args:
        rows: the methods.
        path: the file to write.
        references: the reference rows.
    """
    require(len(rows) > 0, "rows", rows, "at least one method")
    measured = [key for key in _order(rows) if any(math.isfinite(row.mean(key)) for row in rows)]
    lines = -(-len(measured) // 4)
    columns = -(-len(measured) // lines)
    longest = max(len(row.label) for row in rows)
    figure = new_figure(2.6 * columns + 0.085 * longest + 0.4, lines * (0.85 + 0.27 * len(rows)) + 0.5)
    panels = figure.subplots(lines, columns, sharey=True, squeeze=False).flatten()
    for axes, key in zip(panels, measured):
        _panel(axes, rows, key, references)
    for axes in panels[len(measured) :]:
        axes.set_visible(False)
    _explain(figure, {mark for key in measured for mark in marks(rows, key)}, _dashes(references))
    save(figure, path)


def _dashes(references: Sequence[Row]) -> dict[str, Literal["--", ":"]]:
    """The line of each reference row by its label. The truth has none: its distance to itself is 0."""
    labels = [row.label for row in references if row.label != TRUTH]
    return dict(zip(labels, itertools.cycle(DASHES)))


def _panel(axes: "Axes", rows: Sequence[Row], key: str, references: Sequence[Row]) -> None:
    style(axes)
    dashes = _dashes(references)
    lines = {row.label: row.mean(key) for row in references if row.label in dashes}
    for label, value in lines.items():
        if math.isfinite(value):
            axes.axvline(value, color=OTHERS, linewidth=1.2, linestyle=dashes[label], zorder=1)
    rightmost = max((value for value in lines.values() if math.isfinite(value)), default=0.0)
    middle = float(np.median([row.mean(key) for row in rows if math.isfinite(row.mean(key))]))
    for i, (row, mark) in enumerate(zip(rows, marks(rows, key))):
        mean = row.mean(key)
        if mean > max(_FAR * middle, rightmost) > 0:  # it would press the others together
            axes.text(
                0.98, i, f"{mean:.3g} →", transform=axes.get_yaxis_transform(), ha="right", va="center", color=INK
            )
        elif math.isfinite(mean):
            std = row.metrics[key].std
            spread = std if math.isfinite(std) else 0.0
            colour = (OTHERS, BEST, SECOND)[mark]
            axes.errorbar(mean, i, xerr=spread, fmt="o", color=colour, markersize=7 if mark else 5, capsize=3, zorder=2)
    axes.set_title(metrics_of(rows)[key].titled, color=INK, fontsize=10)
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.margins(x=0.12)
    axes.locator_params(axis="x", nbins=4)


def _explain(figure: "Figure", used: set[int], dashes: Mapping[str, Literal["--", ":"]]) -> None:
    from matplotlib.lines import Line2D

    dots = {name: colour for mark, name, colour in ((1, "best", BEST), (2, "second best", SECOND)) if mark in used}
    handles = [Line2D([], [], color=colour, marker="o", linestyle="", label=name) for name, colour in dots.items()]
    handles += [Line2D([], [], color=OTHERS, linestyle=line, label=name) for name, line in dashes.items()]
    if handles:
        looks = {"frameon": False, "fontsize": 9, "labelcolor": INK, "ncols": len(handles)}
        figure.legend(handles=handles, loc="outside upper center", **looks)


def training_plot(runs: Mapping[str, Path], path: Path | str) -> bool:
    """Held-out bits per element of all runs over the minutes of training. False if no log has any: nothing is drawn.

    Args:
        runs: the folders of the runs, by label.
        path: the file to write.
    """
    unit, curves = held_out_curves(runs)
    if not curves:
        return False
    figure = new_figure(8 + 0.085 * max(map(len, curves)), max(4.0, 1 + 0.22 * len(curves)))
    axes = figure.subplots()
    style(axes)
    looks = itertools.product((("-", "o"), ("--", "s"), (":", "^"), ("-.", "D")), LINES)
    lowest = {label: float(curve[:, 1].min()) for label, curve in curves.items()}
    far = {label for label, value in lowest.items() if value > _FAR * float(np.median(list(lowest.values())))}
    for (label, curve), ((line, marker), colour) in zip(curves.items(), looks):
        name = f"{label} (above {lowest[label]:.1f})" if label in far else label
        axes.plot(*curve.T, color=colour, linestyle=line, linewidth=1.6, marker=marker, markersize=3.5, label=name)
    near = [curve[:, 1] for label, curve in curves.items() if label not in far]
    low, top, highest = min(map(np.min, near)), max(map(np.median, near)), max(map(np.max, near))
    if highest - low > 4 * (top - low) > 0:  # the first values are far above the rest: leave the top of them out
        highest = low + 2.5 * (top - low)
    if far or highest < max(map(np.max, near)):
        axes.set_ylim(low - 0.05 * (highest - low), highest + 0.05 * (highest - low))
    axes.set_xlabel(unit, color=SOFT_INK)
    axes.set_ylabel("held-out bits per element, at most", color=SOFT_INK)
    figure.legend(loc="outside right upper", frameon=False, fontsize=9, labelcolor=INK)
    save(figure, path)
    return True
