"""Tables as pictures: the cells of some rows, and real beside generated distributions."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from usd3._internal.checks import require
from usd3.pictures.figures import (
    GENERATED,
    GIVEN,
    INK,
    LINE,
    SOFT_INK,
    STRIP,
    as_mask,
    legend,
    new_figure,
    plain,
    save,
    style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Bars", "PairMap", "Steps", "marginals_sheet", "pair_maps", "table_sheet", "trend_map"]

_MOST_ROWS, _MOST_COLUMNS = 40, 60
_LONGEST_CELL = 20  # letters
_WIDEST_BLOCK = 150  # letters; further columns stand below
_PANELS_IN_A_ROW = 4
REAL = "#9AA5B1"


# ---- rows ---------------------------------------------------------------------------------------------------------


def table_sheet(columns: Mapping[str, Sequence[str]], path: Path | str, given: Any = None) -> None:
    """Draw rows of a table as text; columns that are too many for one width stand below the others.

    Args:
        columns: the cells of each column, by its name. At most 40 rows; of more than 60 columns the first are drawn.
        path: the file: .png, .pdf, .svg, ...
        given: booleans that broadcast to (rows, columns): given cells, which are marked.
    """
    require(len(columns) > 0, "columns", columns, "at least one column")
    cells = {name: [_short(cell) for cell in column] for name, column in list(columns.items())[:_MOST_COLUMNS]}
    rows = len(next(iter(cells.values())))
    require(0 < rows <= _MOST_ROWS, "rows", rows, f"1..{_MOST_ROWS}")
    marked = as_mask(given, (rows, len(columns)), "given")
    widths = {name: 2 + max(map(len, [_short(name), *column])) for name, column in cells.items()}
    blocks = _blocks(widths)
    width = max(sum(widths[name] for name in block) for block in blocks)
    height = len(blocks) * (rows + 2)
    figure = new_figure(0.4 + 0.078 * width, 0.35 + 0.19 * height + (0.25 if marked.any() else 0))
    axes = figure.subplots()
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    numbers = {name: i for i, name in enumerate(columns)}
    top = 0
    for block in blocks:
        _draw_block(axes, {name: cells[name] for name in block}, widths, marked, numbers, top)
        top += rows + 2
    legend(figure, {"given": GIVEN} if marked.any() else {})
    save(figure, path)


def _short(cell: str) -> str:
    text = " ".join(str(cell).split())
    return text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 1] + "…"


def _blocks(widths: Mapping[str, int]) -> list[list[str]]:
    """The columns in groups that fit beside each other."""
    blocks: list[list[str]] = [[]]
    for name, width in widths.items():
        if blocks[-1] and sum(widths[other] for other in blocks[-1]) + width > _WIDEST_BLOCK:
            blocks.append([])
        blocks[-1].append(name)
    return blocks


def _draw_block(
    axes: "Axes",
    cells: Mapping[str, Sequence[str]],
    widths: Mapping[str, int],
    marked: NDArray[np.bool_],
    numbers: Mapping[str, int],
    top: int,
) -> None:
    from matplotlib.patches import Rectangle

    look: dict[str, Any] = {"family": "monospace", "fontsize": 8, "va": "center"}
    total, rows, left = sum(widths[name] for name in cells), len(next(iter(cells.values()))), 0
    for row in range(0, rows, 2):
        axes.add_patch(Rectangle((0, top + 1 + row), total, 1, color=STRIP, linewidth=0))
    axes.plot([0, total], [top + 1] * 2, color=LINE, linewidth=1)
    for name, column in cells.items():
        axes.text(left + 1, top + 0.5, plain(_short(name)), color=SOFT_INK, weight="bold", **look)
        for row, cell in enumerate(column):
            if marked[row, numbers[name]]:
                box = Rectangle((left + 0.4, top + 1.08 + row), widths[name] - 0.8, 0.84, color=GIVEN, alpha=0.35)
                axes.add_patch(box)
            axes.text(left + 1, top + 1.5 + row, plain(cell), color=INK, **look)
        left += widths[name]


# ---- real beside generated ----------------------------------------------------------------------------------------


class Bars(NamedTuple):
    """The frequencies of categories.

    Args:
        title: the title of the panel.
        labels: the categories.
        real: (n,) their shares in the real rows.
        generated: (n,) their shares in the generated rows.
    """

    title: str
    labels: Sequence[str]
    real: NDArray[np.float64]
    generated: NDArray[np.float64]


class Steps(NamedTuple):
    """Histograms of numbers.

    Args:
        title: the title of the panel.
        edges: (n + 1,) the edges of the bins.
        real: (n,) the shares of the real rows.
        generated: (n,) the shares of the generated rows.
        ticks: places on the axis and what is written there; None: the numbers themselves.
    """

    title: str
    edges: NDArray[np.float64]
    real: NDArray[np.float64]
    generated: NDArray[np.float64]
    ticks: tuple[Sequence[float], Sequence[str]] | None = None


def marginals_sheet(panels: Sequence[Bars | Steps], path: Path | str) -> None:
    """Draw the distribution of each column in a panel, real beside generated rows.

    Args:
        panels: at least one; of more than 60 the first are drawn.
        path: the file: .png, .pdf, .svg, ...
    """
    from matplotlib.ticker import MaxNLocator

    require(len(panels) > 0, "panels", panels, "at least one panel")
    panels = panels[:_MOST_COLUMNS]
    across = min(_PANELS_IN_A_ROW, len(panels))
    lines = -(-len(panels) // across)
    figure = new_figure(3.2 * across, 2.3 * lines + 0.4)
    grid = figure.subplots(lines, across, squeeze=False).flatten()
    for axes, panel in zip(grid, panels):
        style(axes)
        axes.set_title(plain(_short(panel.title)), color=INK, fontsize=9)
        if isinstance(panel, Bars):
            _draw_bars(axes, panel)
        else:
            _draw_steps(axes, panel)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(lambda share, _: f"{share:.1%}" if 0 < share < 0.01 else f"{share:.0%}")
        axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    legend(figure, {"real": REAL, "generated": GENERATED})
    save(figure, path)


def _draw_bars(axes: "Axes", panel: Bars) -> None:
    place = np.arange(len(panel.labels))
    axes.bar(place - 0.2, panel.real, 0.4, color=REAL)
    axes.bar(place + 0.2, panel.generated, 0.4, color=GENERATED)
    labels = [plain(label if len(label) <= 12 else label[:11] + "…") for label in panel.labels]
    turned = len(labels) > 3 or max(map(len, labels)) > 8
    axes.set_xticks(place, labels, rotation=45 if turned else 0, ha="right" if turned else "center", fontsize=7)
    axes.tick_params(axis="x", labelsize=7)
    axes.grid(False, axis="x")


def _draw_steps(axes: "Axes", panel: Steps) -> None:
    axes.stairs(panel.real, panel.edges, fill=True, color=REAL, alpha=0.8)
    axes.stairs(panel.generated, panel.edges, color=GENERATED, linewidth=1.4)
    if panel.ticks is None:
        axes.locator_params(axis="x", nbins=4)
    else:
        axes.set_xticks(panel.ticks[0], panel.ticks[1], fontsize=7)
        axes.tick_params(axis="x", labelsize=7)


def trend_map(names: Sequence[str], scores: NDArray[np.float64], path: Path | str) -> None:
    """Draw how alike each pair of columns is, as a map: dark cells are pairs that differ.

    Args:
        names: the columns, D.
        scores: (D, D) the similarity of each pair, 1 if alike; nan: unknown.
        path: the file: .png, .pdf, .svg, ...
    """
    count = len(names)
    require(scores.shape == (count, count) and count > 0, "scores.shape", scores.shape, f"({count}, {count})")
    side = min(14.0, max(3.5, 1.6 + 0.34 * count))
    figure = new_figure(side + 1.2, side)
    axes = figure.subplots()
    style(axes, grid=False)
    known = scores[~np.isnan(scores) & ~np.eye(count, dtype=bool)]
    low = min(0.9, math.floor(float(known.min(initial=1.0)) * 20) / 20)
    axes.set_facecolor(LINE)  # shows through unknown cells
    image = axes.imshow(np.where(np.eye(count, dtype=bool), np.nan, scores), cmap="viridis", vmin=low, vmax=1)
    axes.set_xticks(range(count), [plain(_short(name)) for name in names], rotation=60, ha="right")
    axes.set_yticks(range(count), [plain(_short(name)) for name in names])
    if count <= 20:
        for i, j in np.argwhere(~np.isnan(scores) & ~np.eye(count, dtype=bool)):
            colour = "white" if scores[i, j] < low + 0.6 * (1 - low) else INK
            text = f"{scores[i, j]:.2f}".removeprefix("0")
            axes.text(j, i, text, ha="center", va="center", fontsize=6, color=colour)
    key = figure.colorbar(image, ax=axes, aspect=30, pad=0.01)
    key.ax.tick_params(length=0, labelsize=8, labelcolor=SOFT_INK)
    key.outline.set_visible(False)
    axes.set_title("similarity of pairs of columns, real and generated rows in the same bins", color=INK, fontsize=9)
    save(figure, path)


class PairMap(NamedTuple):
    """The joint frequencies of two columns.

    Args:
        title: the title of the panel.
        rows: labels of the first column.
        columns: labels of the second column.
        real: (R, C) shares of the real rows.
        generated: (R, C) shares of the generated rows.
    """

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    real: NDArray[np.float64]
    generated: NDArray[np.float64]


def pair_maps(pairs: Sequence[PairMap], path: Path | str) -> None:
    """Draw the joint frequencies of some pairs of columns: real and generated side by side, on one scale.

    Args:
        pairs: at least one.
        path: the file: .png, .pdf, .svg, ...
    """
    require(len(pairs) > 0, "pairs", pairs, "at least one pair")
    figure = new_figure(8.5, 3.1 * len(pairs) + 0.2)
    grid = figure.subplots(len(pairs), 2, squeeze=False)
    for (left, right), pair in zip(grid, pairs):
        highest = float(max(pair.real.max(), pair.generated.max())) ** 0.5
        for axes, shares, name in ((left, pair.real, "real"), (right, pair.generated, "generated")):
            style(axes, grid=False)
            axes.imshow(shares**0.5, cmap="magma_r", vmin=0, vmax=highest, aspect="auto")
            axes.set_xticks(range(len(pair.columns)), [_label(text) for text in pair.columns], rotation=60, ha="right")
            axes.set_yticks(range(len(pair.rows)), [_label(text) for text in pair.rows])
            axes.tick_params(labelsize=6)
            axes.set_title(plain(f"{pair.title}: {name}"), color=INK, fontsize=8)
    save(figure, path)


def _label(text: str) -> str:
    return plain(text if len(text) <= 14 else text[:13] + "…")
