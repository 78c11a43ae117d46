"""Sequences of letters as rows of coloured letters, as viewers of alignments draw them."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from usd3._internal.checks import require, require_type
from usd3.pictures.figures import (
    INK,
    LINE,
    SOFT_INK,
    STRIP,
    UNKNOWN,
    Bools,
    as_array,
    as_mask,
    as_titles,
    legend,
    new_figure,
    plain,
    rgb,
    runs,
    save,
    style,
)
from usd3.pictures.grids import UNDERLINED, category_colours

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["NOTHING", "UNKNOWN", "letter_colours", "letter_rows"]

NOTHING = STRIP
"""The colour of places after the end of a sequence."""

_NUCLEOTIDES = {"A": "#009E73", "C": "#0072B2", "G": "#E69F00", "T": "#D55E00", "U": "#D55E00"}
_AMINO_ACIDS = {  # by what they are like
    "AILMVFWC": "#56B4E9",  # they avoid water
    "KRH": "#D55E00",  # positive charge
    "DE": "#CC79A7",  # negative charge
    "NQSTY": "#009E73",  # polar
    "GP": "#E69F00",  # they bend the chain
}
_WIDTH = 80  # letters in a line
_MOST_LINES = 64
_TINT = 0.45  # share of the colour behind a letter; the rest is white
_GAP = 1.4  # lines between two blocks
_LONGEST_TITLE = 16


def letter_colours(letters: str, form: Literal["dna", "rna", "protein", "other"]) -> dict[str, str]:
    """A colour "#RRGGBB" for each letter: of each nucleotide, of groups of similar amino acids, else one for each.

    Args:
        letters: the alphabet.
        form: what the letters stand for.
    """
    if form == "other":
        scale = category_colours(max(2, len(letters)), None)
        return {letter: "#" + bytes(colour).hex().upper() for letter, colour in zip(letters, scale)}
    groups = _AMINO_ACIDS if form == "protein" else _NUCLEOTIDES
    known = {letter: colour for group, colour in groups.items() for letter in group}
    return {letter: known.get(letter, UNKNOWN) for letter in letters}


def letter_rows(
    rows: Sequence[str],
    path: Path | str,
    colours: Mapping[str, str],
    given: Any = None,
    titles: Sequence[str] | None = None,
) -> None:
    """Draw sequences as rows of coloured letters, in blocks of 80 letters.

    At most 64 lines are drawn: of very long sequences the first few, or the beginning of the first one.

    Args:
        rows: the sequences.
        path: The file: .png, .pdf, .svg, ...
        colours: "#RRGGBB" of each letter; others are grey.
        given: Booleans (1, L) or (N, L), no sequence is longer than L: given letters, which are underlined.
        titles: One for each sequence, of which the first word is shown.
    """
    require_type(not isinstance(rows, str), "rows", rows, "a list of strings")
    require(len(rows) > 0, "len(rows)", len(rows), "at least one")
    titles = as_titles(titles, len(rows)) or [str(i + 1) for i in range(len(rows))]
    longest = max(1, max(map(len, rows)))
    width = longest if given is None else as_array(given).shape[-1]
    require(longest <= width, "given.shape", as_array(given).shape, f"(N, L), at least the {longest} letters of a row")
    is_given = as_mask(given, (len(rows), width), "given")
    blocks = min(-(-longest // _WIDTH), _MOST_LINES)
    shown = max(1, min(len(rows), _MOST_LINES // blocks))
    height = blocks * (shown + _GAP)
    figure = new_figure(9, 0.45 + 0.17 * height)
    axes = figure.subplots()
    style(axes, grid=False)
    labels, places = dict[float, str](), dict[str, list[tuple[float, float]]]()
    for block in range(blocks):
        top, letters = block * (shown + _GAP), slice(block * _WIDTH, (block + 1) * _WIDTH)
        _write_places(axes, letters.start, min(longest, letters.stop), top)
        for i, row in enumerate(rows[:shown]):
            labels[top + i] = plain(_shortened(titles[i]))
            _draw_cells(axes, row[letters], is_given[i, letters], colours, top + i)
            for x, letter in enumerate(row[letters]):
                places.setdefault(letter, []).append((x + 0.5, top + i))
    for letter, points in places.items():
        if not letter.isspace():  # matplotlib has no outline of a blank
            _draw_letters(axes, letter, points)
    axes.set(xlim=(0, min(max(longest, _WIDTH // 2), _WIDTH)), ylim=(height - _GAP - 0.4, -1.3), aspect="auto")
    axes.set_yticks(list(labels), list(labels.values()))
    axes.set_xticks([])
    legend(figure, UNDERLINED if any(is_given[i, : len(row)].any() for i, row in enumerate(rows[:shown])) else {})
    save(figure, path)


def _shortened(title: str) -> str:
    word = (title.split() or [""])[0]
    return word if len(word) <= _LONGEST_TITLE else f"{word[: _LONGEST_TITLE - 1]}…"


def _write_places(axes: "Axes", start: int, stop: int, top: float) -> None:
    """Write the number of every tenth element above a block, counted from 0 as the options of a command do."""
    for place in range(start, stop, 10):
        axes.text(place - start + 0.5, top - 0.95, str(place), color=SOFT_INK, fontsize=6, ha="center", va="center")


def _draw_cells(axes: "Axes", row: str, given: Bools, colours: Mapping[str, str], y: float) -> None:
    """Draw the colours behind the letters of a line, and the line below the given ones."""
    if not row:
        return
    tints = np.array([[rgb(colours.get(letter, LINE)) for letter in row]])
    cells = np.round(255 - _TINT * (255 - tints)).astype(np.uint8)
    axes.imshow(cells, extent=(0, len(row), y + 0.42, y - 0.42), interpolation="nearest")
    for start, length in runs(given[None, : len(row)]):
        if given[start]:
            axes.plot([start, start + length], [y + 0.44] * 2, color=INK, linewidth=1.2, solid_capstyle="butt")


def _draw_letters(axes: "Axes", letter: str, points: list[tuple[float, float]]) -> None:
    """Draw one letter at many places, its outline is made once."""
    from matplotlib.collections import PathCollection
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath
    from matplotlib.transforms import Affine2D, IdentityTransform

    font = FontProperties(family="DejaVu Sans Mono", weight="bold")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of letters that the font has not
        outline = TextPath((0, 0), letter, size=6.5, prop=font, usetex=False)
        middle = TextPath((0, 0), "H", size=6.5, prop=font).get_extents()
    if len(outline.vertices):
        box = outline.get_extents()
        centred = Affine2D().translate(-(box.x0 + box.x1) / 2, -(middle.y0 + middle.y1) / 2).transform_path(outline)
        collection = PathCollection([centred], sizes=[1], offsets=points, offset_transform=axes.transData)
        collection.set(facecolor=INK, linewidth=0, transform=IdentityTransform())
        axes.add_collection(collection, autolim=False)
