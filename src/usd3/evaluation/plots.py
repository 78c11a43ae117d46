"""Plots of several methods: their metrics, and their training curves."""

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from usd3._internal.checks import require
from usd3.evaluation.comparison import Row, metrics_of
from usd3.evaluation.references import TRUTH
from usd3.metrics.summary import COLUMNS, RATIOS
from usd3.pictures.figures import INK, SOFT_INK, new_figure, save, style
from usd3.training.logs import held_out_curves

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["LINES", "OTHERS", "Look", "metrics_plot", "training_plot"]

_FAR = 1.7  # times the median of the methods: a larger value is written, not drawn
OTHERS = "#9AA5B1"  # of the reference rows
LINES = (
    *("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"),
    *("#1F2933", "#7B4FA3", "#8C6D46", "#7A8B00"),
)
_MARKERS = "os^Dv"  # one after the other, if there are more families than colours
_FIRST = (*(f"{n}g_hellinger" for n in (1, 2, 3)), "edit_diversity", *(f"{n}g_outliers" for n in (1, 2, 3)))
_LAST = ("bits_per_element", *RATIOS)


class Look(NamedTuple):
    """How a method is drawn: a colour for each family, dashes and hollow dots for discrete time.

    Methods of one family differ in the kind of time alone.
    """

    family: str
    discrete: bool = False


def metrics_plot(
    rows: Sequence[Row], path: Path | str, references: Sequence[Row] = (), looks: Mapping[str, Look] | None = None
) -> None:
    """A panel for each metric, with a dot and its standard deviation for each method.

    The axes are made for the methods, so that their differences show. Below a panel stand the reference rows, a Markov
    chain and other held-out objects, or reconstructions and held-out images; those on the axis are grey lines too.

    Args:
        rows: the methods.
        path: the file to write.
        references: the reference rows.
        looks: how each method is drawn, by its label; None: each is a family of its own.
    """
    require(len(rows) > 0, "rows", rows, "at least one method")
    drawn = _drawn({row.label: Look(row.label) for row in rows} | dict(looks or {}))
    measured = [key for key in _order(rows) if any(math.isfinite(row.mean(key)) for row in rows)]
    lines = -(-len(measured) // 4)
    columns = -(-len(measured) // lines)
    longest = max(len(row.label) for row in rows)
    figure = new_figure(2.6 * columns + 0.085 * longest + 0.4, lines * (1.1 + 0.27 * len(rows)) + 0.3)
    panels = figure.subplots(lines, columns, sharey=True, squeeze=False).flatten()
    for axes, key in zip(panels, measured):
        _panel(axes, rows, key, [row for row in references if row.label != TRUTH], drawn)
    for axes in panels[len(measured) :]:
        axes.set_visible(False)
    _explain_time(figure, (looks or {}).values())
    save(figure, path)


def _order(rows: Sequence[Row]) -> list[str]:
    """The metrics that get a panel, in order: those of a kind only where one direction is better."""
    of_kinds = {key: metric for key, metric in metrics_of(rows).items() if key not in {*COLUMNS, *_LAST}}
    return [*_FIRST, *(key for key, metric in of_kinds.items() if metric.better is not None), *_LAST]


def _drawn(looks: Mapping[str, Look]) -> dict[str, dict[str, Any]]:
    """Colour, marker and dashes of each label, as matplotlib calls them."""
    styles = dict(zip(_once(look.family for look in looks.values()), itertools.product(_MARKERS, LINES)))
    return {label: _line(*styles[look.family], look.discrete) for label, look in looks.items()}


def _line(marker: str, colour: str, discrete: bool) -> dict[str, Any]:
    fill = "white" if discrete else colour
    return {"color": colour, "marker": marker, "markerfacecolor": fill, "linestyle": "--" if discrete else "-"}


def _once(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _panel(
    axes: "Axes", rows: Sequence[Row], key: str, references: Sequence[Row], drawn: Mapping[str, Mapping[str, Any]]
) -> None:
    style(axes)
    middle = float(np.median([row.mean(key) for row in rows if math.isfinite(row.mean(key))]))
    for i, row in enumerate(rows):
        mean = row.mean(key)
        if mean > _FAR * middle > 0:  # it would press the others together
            axes.text(
                0.98, i, f"{mean:.3g} →", transform=axes.get_yaxis_transform(), ha="right", va="center", color=INK
            )
        elif math.isfinite(mean):
            std = row.metrics[key].std
            look = {**drawn[row.label], "linestyle": "", "markersize": 5}
            axes.errorbar(mean, i, xerr=std if math.isfinite(std) else 0.0, capsize=3, zorder=2, **look)
    axes.set_title(metrics_of(rows)[key].titled, color=INK, fontsize=10)
    axes.set_yticks(range(len(rows)), [row.label for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.margins(x=0.12)
    axes.locator_params(axis="x", nbins=4)
    low, high = axes.get_xlim()
    axes.set_xlim(low, high)
    values = {row.label: row.mean(key) for row in references if math.isfinite(row.mean(key))}
    for value in values.values():
        if low <= value <= high:
            axes.axvline(value, color=OTHERS, linewidth=1.2, zorder=1)
    about = [f"{label} {_beside(value, low, high)}" for label, value in values.items()]
    axes.set_xlabel("\n".join(about), color=SOFT_INK, fontsize=7)


def _explain_time(figure: "Figure", looks: Collection[Look]) -> None:
    """A legend for hollow dots and dashes, if not all methods have the same kind of time."""
    if {look.discrete for look in looks} == {False, True}:
        from matplotlib.lines import Line2D

        names = {"continuous time": False, "discrete time": True}
        handles = [Line2D([], [], label=name, **_line("o", OTHERS, discrete)) for name, discrete in names.items()]
        figure.legend(handles=handles, loc="outside upper center", frameon=False, fontsize=9, labelcolor=INK, ncols=2)


def _beside(value: float, low: float, high: float) -> str:
    """A number, and an arrow to where it lies beyond an axis."""
    return f"{value:.3f}" + (" ←" if value < low else " →" if value > high else "")


def training_plot(runs: Mapping[str, Path], path: Path | str, looks: Mapping[str, Look] | None = None) -> bool:
    """Held-out bits per element of all runs over the steps of training. False if no log has any: nothing is drawn.

    Args:
        runs: the folders of the runs, by label.
        path: the file to write.
        looks: how each run is drawn, by its label; None: each is a family of its own. The legend names the first of
            several runs with one look, which are trainings of one method.
    """
    curves = held_out_curves(runs)
    if not curves:
        return False
    looks = {label: Look(label) for label in curves} | {k: v for k, v in (looks or {}).items() if k in curves}
    drawn = _drawn(looks)
    figure = new_figure(8 + 0.085 * max(map(len, curves)), max(4.0, 1 + 0.22 * len(set(looks.values()))))
    axes = figure.subplots()
    style(axes)
    lowest = {label: float(curve[:, 1].min()) for label, curve in curves.items()}
    far = {label for label, value in lowest.items() if value > _FAR * float(np.median(list(lowest.values())))}
    named = set[Look]()
    for label, curve in curves.items():
        name = f"{label} (above {lowest[label]:.1f})" if label in far else label
        unnamed = looks[label] in named
        axes.plot(*curve.T, linewidth=1.6, markersize=3.5, label="_" if unnamed else name, **drawn[label])
        named.add(looks[label])
    near = [curve[:, 1] for label, curve in curves.items() if label not in far]
    low, top, highest = min(map(np.min, near)), max(map(np.median, near)), max(map(np.max, near))
    if highest - low > 4 * (top - low) > 0:  # the first values are far above the rest: leave the top of them out
        highest = low + 2.5 * (top - low)
    if far or highest < max(map(np.max, near)):
        axes.set_ylim(low - 0.05 * (highest - low), highest + 0.05 * (highest - low))
    axes.set_xlabel("training steps", color=SOFT_INK)
    axes.set_ylabel("held-out bits per element, at most", color=SOFT_INK)
    figure.legend(loc="outside right upper", frameon=False, fontsize=9, labelcolor=INK)
    _explain_time(figure, looks.values())
    save(figure, path)
    return True
