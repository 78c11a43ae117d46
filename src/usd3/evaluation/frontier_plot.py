"""The page of `usd3 frontier`: quality against network calls, and quality against diversity."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from usd3._internal.checks import require
from usd3.evaluation.frontier import Point, Way
from usd3.metrics.summary import Metric, Summary
from usd3.pictures.figures import INK, SOFT_INK, new_figure, plain, save, style
from usd3.pictures.labels import Label, write_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["frontier_plot", "look"]

_COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#1F2933", "#8C6BB1"),
    *("#A65628", "#7F8C1F", "#B2182B", "#35978F"),
)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
_DASHES: tuple[Any, ...] = ((0, (6, 3)), (0, (1.5, 2)), (0, (6, 2, 1.5, 2)), (0, (3, 1.5)))
_GREY = "#9AA5B1"
_ROUNDING = 0.01  # of a power of 2: 3.98 calls begin at the tick 4
_ROOM = 0.5  # how far beyond the points a reference line may stand, in heights of the points


def frontier_plot(
    points: Sequence[Point],
    path: Path | str,
    metric: tuple[str, Metric],
    diversity: tuple[str, str],
    references: Mapping[str, float],
    data_diversity: float | None = None,
    title: str = "",
    runs: int = 1,
) -> None:
    """Draw two panels: the metric against network calls (log scale), and against diversity.

    A line joins the points of one sampler at one temperature, in the order of their steps. Its colour is that of the
    sampler, its marker that of the temperature. Error bars are two standard errors over the runs.

    Args:
        points: the points.
        path: the file to write.
        metric: the key of the quality, and what it is.
        diversity: the key of the measure of diversity, and its title.
        references: the metric of reference rows, by their names; drawn as grey lines.
        data_diversity: the diversity of held-out objects; None: unknown.
        title: a line above the panels.
        runs: number of runs of each point.
    """
    require(len(points) > 0, "points", points, "at least one point")
    key, about = metric
    figure = new_figure(11, 4.8)
    panels = figure.subplots(1, 2, sharey=True)
    lines = _lines(points)
    samplers = list(dict.fromkeys(point.way.sampler for point in points))
    looks = list(dict.fromkeys(look(point.way) for point in points))
    labels, curves = [], []
    for (sampler, words), line in lines.items():
        colour = _COLOURS[samplers.index(sampler) % len(_COLOURS)]
        drawn: dict[str, Any] = {
            "color": colour,
            "marker": _MARKERS[looks.index(words) % len(_MARKERS)],
            "linestyle": "-" if looks.index(words) == 0 else "--",
            "markersize": 5.5,
            "linewidth": _width(len(samplers) - 1 - samplers.index(sampler), len(samplers) - 1),
            "capsize": 2.5,
            "elinewidth": 1,
        }
        mean, error = zip(*(_with_error(point.metrics.get(key), runs) for point in line))
        spread, spread_error = zip(*(_with_error(point.metrics.get(diversity[0]), runs) for point in line))
        panels[0].errorbar([point.calls for point in line], mean, yerr=error, **drawn)
        panels[1].errorbar(spread, mean, yerr=error, xerr=spread_error, **drawn)
        curves.append(list(zip(spread, mean)))
        most = max(range(len(line)), key=lambda i: line[i].calls)
        labels.append(Label(f"{line[most].calls:.3g}", curves[-1][most], colour))
    for axes in panels:
        style(axes)
    panels[0].set_xscale("log", base=2)
    panels[0].xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    calls = [point.calls for point in points if point.calls > 0]
    if calls:  # whole powers of 2 at both ends, so that there are ticks
        panels[0].set_xlim(
            0.93 * 2 ** math.floor(math.log2(min(calls)) + _ROUNDING),
            1.07 * 2 ** math.ceil(math.log2(max(calls)) - _ROUNDING),
        )
    panels[0].set_xlabel("network calls for each object", color=SOFT_INK)
    panels[0].set_ylabel(about.titled, color=SOFT_INK)
    panels[1].set_xlabel(f"{diversity[1]} (numbers: most calls of a line)", color=SOFT_INK)
    values = [point.metrics[key].mean for point in points if key in point.metrics]
    dashes = _draw_references(panels, references, [value for value in values if math.isfinite(value)])
    if data_diversity is not None:
        panels[1].axvline(data_diversity, color=_GREY, linewidth=1.2, linestyle=":", zorder=1)
        low, high = panels[1].get_ylim()
        crowded = sum(value < (low + high) / 2 for value in values) > len(values) / 2  # at the bottom
        end: dict[str, Any] = {"y": 0.98, "va": "top"} if crowded else {"y": 0.02, "va": "bottom"}
        end |= {"transform": panels[1].get_xaxis_transform(), "zorder": 1, "fontsize": 7, "color": SOFT_INK}
        panels[1].text(x=data_diversity, s="held-out data ", rotation=90, ha="right", **end)
    if title:
        figure.suptitle(plain(title), color=INK, fontsize=10)
    _explain(figure, samplers, looks, dashes)
    write_labels(panels[1], labels, curves, 7)
    save(figure, path)


def _width(above: int, most: int) -> float:
    """The width of a line that so many are drawn above, at most `most`: equal lines stay visible below each other."""
    return 1.4 + above * min(0.4, 1.8 / max(most, 1))


def _lines(points: Sequence[Point]) -> dict[tuple[str, str], list[Point]]:
    """The points of each line, from few to many calls."""
    lines: dict[tuple[str, str], list[Point]] = {}
    for point in sorted(points, key=lambda point: point.way.steps):
        lines.setdefault((point.way.sampler, look(point.way)), []).append(point)
    return lines


def look(way: Way) -> str:
    """What a line of one marker has in common, in words: temperature and further options."""
    more = {"top p": way.top_p, "top k": way.top_k, "guidance": way.guidance}
    parts = [f"temperature {way.temperature:g}", *(f"{k} {v:g}" for k, v in more.items() if v is not None)]
    return ", ".join([*parts, *([] if way.grid == "even" else [f"{way.grid} grid"])])


def _with_error(summary: Summary | None, runs: int) -> tuple[float, float]:
    """A mean and two standard errors."""
    if summary is None or not math.isfinite(summary.mean):
        return math.nan, 0.0
    return summary.mean, 2 * summary.std / math.sqrt(runs) if math.isfinite(summary.std) else 0.0


def _draw_references(panels: Sequence["Axes"], references: Mapping[str, float], values: list[float]) -> dict[str, Any]:
    """Grey lines at the reference rows; one that is far from all points would press them together and is left out.

    Returns:
        The dashes of each line by its label, for the legend.
    """
    known = {name: value for name, value in references.items() if math.isfinite(value)}
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    room = _ROOM * max(high - low, 0.1 * abs(high), 1e-9)
    dashes: dict[str, Any] = {}
    for number, (name, value) in enumerate(known.items()):
        dash = _DASHES[number % len(_DASHES)]
        is_near = low - room <= value <= high + room
        dashes[f"{name}: {value:.3g}" + ("" if is_near else " (not shown)")] = dash
        for axes in panels if is_near else ():
            axes.axhline(value, color=_GREY, linewidth=1.2, linestyle=dash, zorder=1)
    return dashes


def _explain(figure: Any, samplers: Sequence[str], looks: Sequence[str], dashes: Mapping[str, Any]) -> None:
    """The legend, at the right: colours, markers, reference lines."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=_COLOURS[i % len(_COLOURS)], linewidth=2.4, label=plain(name))
        for i, name in enumerate(samplers)
    ]
    handles += [
        Line2D(
            [],
            [],
            color=SOFT_INK,
            marker=_MARKERS[i % len(_MARKERS)],
            linestyle="-" if i == 0 else "--",
            label=plain(words),
        )
        for i, words in enumerate(looks)
    ]
    handles += [Line2D([], [], color=_GREY, linestyle=dash, label=plain(name)) for name, dash in dashes.items()]
    figure.legend(handles=handles, loc="outside right upper", frameon=False, fontsize=8.5, labelcolor=INK)
