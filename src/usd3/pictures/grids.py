"""Sequences of any categories as rows of coloured cells."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from usd3._checks import as_count
from usd3.pictures._common import (
    INK,
    LINE,
    SOFT_INK,
    UNKNOWN,
    Pixels,
    as_mask,
    as_titles,
    as_tokens,
    legend,
    new_figure,
    rgb,
    runs,
    save,
    style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["UNDERLINED", "category_colours", "token_grid"]

FEW = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#1F2933")
UNDERLINED = {"underlined: given": INK}
MOST_ROWS = 64


def token_grid(
    rows: Any,
    path: Path | str,
    num_classes: int,
    given: Any = None,
    titles: Sequence[str] | None = None,
    mask: int | None = None,
    pad: Any = None,
) -> None:
    """Draw sequences as rows of coloured cells, one colour for each category.

    Args:
        rows: Integers (N, L) in 0..num_classes-1, N <= 64.
        path: The picture's file: .png, .pdf, .svg, ...
        num_classes: K. Up to 8 categories get colours of their own, more get a scale.
        given: Booleans that broadcast to (N, L): given elements are underlined.
        titles: One for each row.
        mask: A category drawn in grey: not known yet.
        pad: Booleans that broadcast to (N, L): elements left out and shaded, whatever their category.
    """
    classes = as_count(num_classes, "num_classes", 2)
    x = as_tokens(rows, "rows", classes, MOST_ROWS)
    hidden, titles = as_mask(pad, x.shape, "pad"), as_titles(titles, len(x))
    known = as_mask(given, x.shape, "given") & ~hidden
    colours = category_colours(classes, mask)
    figure = new_figure(9, 0.75 + 0.34 * len(x))
    axes = figure.subplots()
    style(axes, grid=False)
    for i, row in enumerate(x):
        cells = np.where(hidden[i, :, None], np.array(rgb(LINE), np.uint8), colours[row])
        axes.imshow(cells[None], extent=(0, len(row), i + 0.36, i - 0.36), interpolation="nearest")
        for start, length in runs(known[i : i + 1]):
            if known[i, start]:
                axes.plot([start, start + length], [i + 0.43] * 2, color=INK, linewidth=1.5, solid_capstyle="butt")
    axes.set(xlim=(0, x.shape[1]), ylim=(len(x) - 0.5, -0.5), aspect="auto")
    axes.set_yticks(range(len(x)), titles or [str(i + 1) for i in range(len(x))])
    axes.set_xlabel("element", color=SOFT_INK, fontsize=9)
    _add_key(figure, axes, colours)
    legend(figure, (UNDERLINED if known.any() else {}) | ({"padding": LINE} if hidden.any() else {}))
    save(figure, path)


def category_colours(num_classes: int, mask: int | None) -> Pixels:
    """(K, 3) colours: a few that differ, or a scale; grey for the mask."""
    from matplotlib import colormaps

    if num_classes - (mask is not None) <= len(FEW):
        colours = np.array([rgb(colour) for colour in (FEW * 2)[:num_classes]], dtype=np.uint8)
    else:
        scale = colormaps["viridis"](np.linspace(0, 1, num_classes))[:, :3]
        colours = np.round(scale * 255).astype(np.uint8)
    if mask is not None:
        colours[as_count(mask, "mask", 0, num_classes - 1)] = rgb(UNKNOWN)
    return colours


def _add_key(figure: "Figure", axes: "Axes", colours: Pixels) -> None:
    """The colours of the categories, beside the grid."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import BoundaryNorm, ListedColormap

    count = len(colours)
    norm = BoundaryNorm(np.arange(count + 1) - 0.5, count)
    key = figure.colorbar(ScalarMappable(norm, ListedColormap(colours / 255)), ax=axes, aspect=12, pad=0.01)
    marks = list(range(count)) if count <= len(FEW) else [0, count // 2, count - 1]
    key.set_ticks(marks, labels=[str(k) for k in marks])
    key.minorticks_off()
    key.ax.tick_params(length=0, labelsize=8, labelcolor=SOFT_INK)
    key.outline.set_visible(False)
