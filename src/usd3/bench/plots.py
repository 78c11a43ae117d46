"""Plots of time and memory against K."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from usd3.bench.rows import Row
from usd3.bench.scaling import FLOOR, series
from usd3.pictures.figures import INK, SOFT_INK, new_figure, save, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["memory_plot", "time_plot"]

COLOURS = {
    "usd3": "#0072B2",
    "usd3 eager": "#E69F00",
    "usd3 compiled": "#009E73",
    "cross entropy": "#CC79A7",
    FLOOR: "#616E7C",
}
OTHER = "#D55E00"
KINDS = {"loss": "loss and gradient", "step": "one sampling step"}


def time_plot(rows: Sequence[Row], path: Path | str) -> None:
    """Milliseconds against K, log-log: a panel for the loss, and one for the sampling step if it was measured."""
    kinds = [kind for kind in KINDS if any(row.kind == kind for row in rows)]
    figure = new_figure(6 * len(kinds), 4.5)
    for axes, kind in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds):
        _lines(axes, rows, kind, "ms")
        axes.set_ylabel("milliseconds", color=SOFT_INK)
        axes.set_title(KINDS[kind], color=INK, fontsize=10)
    _finish(figure, rows, path)


def memory_plot(rows: Sequence[Row], path: Path | str) -> bool:
    """Peak memory of the loss beyond its inputs, in multiples of the logits and in MiB; False if it is unknown."""
    if not any(row.kind == "loss" and row.peak_bytes for row in rows):
        return False
    from matplotlib.ticker import LogLocator

    figure = new_figure(12, 4.5)
    multiples, absolute = figure.subplots(1, 2)
    _lines(multiples, rows, "loss", "peak_logits")
    multiples.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    multiples.yaxis.set_major_formatter("{x:g}")
    multiples.set_ylabel("peak memory / memory of the logits", color=SOFT_INK)
    _lines(absolute, rows, "loss", "peak_bytes", 2.0**-20)
    absolute.set_ylabel("peak memory, MiB", color=SOFT_INK)
    multiples.set_title("loss and gradient: memory beyond the logits", color=INK, fontsize=10)
    _finish(figure, rows, path)
    return True


def _lines(axes: "Axes", rows: Sequence[Row], kind: str, column: str, unit: float = 1.0) -> None:
    style(axes)
    for name, points in series(rows, kind, "K", column).items():
        x, y = zip(*points)
        dashed = name == FLOOR
        axes.plot(
            x,
            [value * unit for value in y],
            color=COLOURS.get(name, OTHER),
            linestyle="--" if dashed else "-",
            linewidth=1.6,
            marker="" if dashed else "o",
            markersize=3.5,
            label="bandwidth floor" if dashed else name,
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.set_xlabel("categories K", color=SOFT_INK)
    axes.legend(frameon=False, labelcolor=INK, fontsize=8)


def _finish(figure: "Figure", rows: Sequence[Row], path: Path | str) -> None:
    row = rows[0]
    about = f"B = {row.B}, D = {row.D}, {row.noise} noise, {row.time} time, {row.objective}, {row.dtype}"
    figure.suptitle(about, color=SOFT_INK, fontsize=9)
    save(figure, path)
