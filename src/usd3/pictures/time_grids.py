"""Time grids as rows of ticks."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from usd3._internal.checks import require
from usd3.pictures.figures import GENERATED, LINE, SOFT_INK, new_figure, save, style

__all__ = ["draw_time_grids"]


def draw_time_grids(grids: Mapping[int, Sequence[float]], path: Path | str, first: float = 1.0) -> None:
    """Draw a row of ticks for each grid: the times at which the network is asked, from noise at the left to data.

    Args:
        grids: the times of each grid, decreasing to 0, by its number of steps.
        path: the file to write.
        first: the time of pure noise.
    """
    require(len(grids) > 0, "grids", grids, "at least one grid")
    figure = new_figure(7, 0.9 + 0.38 * len(grids))
    axes = figure.subplots()
    for row, times in enumerate(grids.values()):
        axes.axhline(row, color=LINE, linewidth=1, zorder=1)
        axes.plot(list(times), [row] * len(times), "|", color=GENERATED, markersize=13, markeredgewidth=1.6)
    style(axes)
    axes.grid(visible=False)
    axes.set_xlim(first * 1.02, -first * 0.02)
    axes.set_ylim(len(grids) - 0.5, -0.5)
    axes.set_yticks(range(len(grids)), [f"{steps} steps" for steps in grids])
    axes.set_xlabel("time, from noise to data", color=SOFT_INK)
    save(figure, path)
