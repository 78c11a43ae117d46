"""Categories as coloured cells: sequences as rows, two-dimensional objects as maps."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from usd3._internal.checks import as_count, require
from usd3.pictures.figures import (
    INK,
    LINE,
    PADDING,
    SOFT_INK,
    UNKNOWN,
    Bools,
    Ints,
    Pixels,
    as_array,
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
    from matplotlib.figure import Figure

__all__ = ["UNDERLINED", "category_colours", "token_grid", "token_maps"]

FEW = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#1F2933")
"""Clearly different colours, for few categories."""
UNDERLINED, DOTTED = {"underlined: given": INK}, {"dotted: given": INK}
MOST_ROWS, MAPS_IN_A_ROW = 64, 4


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
        path: The file: .png, .pdf, .svg, ...
        num_classes: K. Up to 8 categories get clearly different colours, more get a colour scale.
        given: Booleans that broadcast to (N, L): given elements, which are underlined.
        titles: One for each row.
        mask: The category that means "not known yet", drawn in grey.
        pad: Booleans that broadcast to (N, L): elements that are shaded, whatever their category.
    """
    classes = as_count(num_classes, "num_classes", 2)
    x = as_tokens(rows, "rows", classes, MOST_ROWS)
    hidden, titles = as_mask(pad, x.shape, "pad"), as_titles(titles, len(x))
    is_given = as_mask(given, x.shape, "given") & ~hidden
    colours = category_colours(classes, mask)
    figure = new_figure(9, 0.75 + 0.34 * len(x))
    axes = figure.subplots()
    style(axes, grid=False)
    for i, cells in enumerate(_coloured(x, colours, hidden)):
        axes.imshow(cells[None], extent=(0, len(cells), i + 0.36, i - 0.36), interpolation="nearest")
        for start, length in runs(is_given[i : i + 1]):
            if is_given[i, start]:
                axes.plot([start, start + length], [i + 0.43] * 2, color=INK, linewidth=1.5, solid_capstyle="butt")
    axes.set(xlim=(0, x.shape[1]), ylim=(len(x) - 0.5, -0.5), aspect="auto")
    axes.set_yticks(range(len(x)), titles or [str(i + 1) for i in range(len(x))])
    axes.set_xlabel("element", color=SOFT_INK, fontsize=9)
    _add_key(figure, axes, colours)
    legend(figure, (UNDERLINED if is_given.any() else {}) | (PADDING if hidden.any() else {}))
    save(figure, path)


def token_maps(
    objects: Any,
    path: Path | str,
    num_classes: int,
    given: Any = None,
    titles: Sequence[str] | None = None,
    pad: Any = None,
) -> None:
    """Draw two-dimensional objects as maps, in rows and columns, one colour for each category as in `token_grid`.

    Args:
        objects: Integers (N, H, W) in 0..num_classes-1, N <= 64.
        path: The file: .png, .pdf, .svg, ...
        num_classes: K.
        given: Booleans that broadcast to (N, H, W): given elements, which have a dot.
        titles: One for each object.
        pad: Booleans that broadcast to (N, H, W): elements that are shaded, whatever their category.
    """
    shape = as_array(objects).shape
    require(len(shape) == 3, "objects.shape", shape, "(N, H, W)")
    classes = as_count(num_classes, "num_classes", 2)
    x = as_tokens(as_array(objects).reshape(len(objects), -1), "objects", classes, MOST_ROWS).reshape(shape)
    hidden, titles = as_mask(pad, shape, "pad"), as_titles(titles, len(x))
    is_given, colours = as_mask(given, shape, "given") & ~hidden, category_colours(classes, None)
    columns = min(len(x), MAPS_IN_A_ROW)
    map_rows = -(-len(x) // columns)
    height = min(2.2 * shape[1] / shape[2], 6.0)
    figure = new_figure(2.2 * columns + 0.6, map_rows * (height + 0.3) + 0.4)
    panels = figure.subplots(map_rows, columns, squeeze=False).flatten()
    for i, (axes, cells) in enumerate(zip(panels, _coloured(x, colours, hidden))):
        axes.imshow(cells, interpolation="nearest")
        axes.scatter(*np.argwhere(is_given[i])[:, ::-1].T, s=5, color=INK, edgecolors="white", linewidths=0.5)
        axes.set_title(titles[i] if titles else str(i + 1), color=INK, fontsize=9)
    for axes in panels:
        axes.set_axis_off()
    _add_key(figure, panels, colours, 16 * map_rows)
    legend(figure, (DOTTED if is_given.any() else {}) | (PADDING if hidden.any() else {}))
    save(figure, path)


def _coloured(x: Ints, colours: Pixels, hidden: Bools) -> Pixels:
    """The colour of each cell, (*x.shape, 3)."""
    return np.where(hidden[..., None], np.array(rgb(LINE), np.uint8), colours[x])


def category_colours(num_classes: int, mask: int | None) -> Pixels:
    """The colour of each category, (K, 3): clearly different ones for up to 8, else a scale; grey for the mask."""
    from matplotlib import colormaps

    if num_classes - (mask is not None) <= len(FEW):
        colours = np.array([rgb(colour) for colour in (FEW * 2)[:num_classes]], dtype=np.uint8)
    else:
        scale = colormaps["viridis"](np.linspace(0, 1, num_classes))[:, :3]
        colours = np.round(scale * 255).astype(np.uint8)
    if mask is not None:
        colours[as_count(mask, "mask", 0, num_classes - 1)] = rgb(UNKNOWN)
    return colours


def _add_key(figure: "Figure", axes: Any, colours: Pixels, height: float = 12) -> None:
    """Add the colours of the categories beside one or several axes, as a bar `height` times as high as wide."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import BoundaryNorm, ListedColormap

    count = len(colours)
    norm = BoundaryNorm(np.arange(count + 1) - 0.5, count)
    key = figure.colorbar(ScalarMappable(norm, ListedColormap(colours / 255)), ax=axes, aspect=height, pad=0.01)
    labelled = list(range(count)) if count <= len(FEW) else [0, count // 2, count - 1]
    key.set_ticks(labelled, labels=[str(k) for k in labelled])
    key.minorticks_off()
    key.ax.tick_params(length=0, labelsize=8, labelcolor=SOFT_INK)
    key.outline.set_visible(False)
