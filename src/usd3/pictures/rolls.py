"""Melodies as piano rolls."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from usd3._internal.checks import as_count
from usd3.pictures.figures import (
    GENERATED,
    GIVEN,
    INK,
    LINE,
    PADDING,
    SOFT_INK,
    STRIP,
    Bools,
    Ints,
    as_mask,
    as_titles,
    as_tokens,
    legend,
    new_figure,
    runs,
    save,
    style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["MOST_ROLLS", "REST", "label_roll", "note_colours", "piano_roll", "pitch_range"]

REST = 128
MOST_ROLLS = 8  # in one picture


def piano_roll(
    rows: Any,
    path: Path | str,
    titles: Sequence[str] | None = None,
    given: Any = None,
    pad: Any = None,
    steps_per_bar: int = 16,
) -> None:
    """Draw melodies as piano rolls, one strip for each, all on the same scale.

    Neighbouring elements of the same pitch are one note.

    Args:
        rows: Integers (N, L), N <= 8: pitches 0..127, and 128 for a rest.
        path: The file: .png, .pdf, .svg, ...
        titles: One for each melody.
        given: Booleans that broadcast to (N, L): given elements, which have a colour of their own.
        pad: Booleans that broadcast to (N, L): elements that are not drawn but shaded.
        steps_per_bar: Elements in a bar.
    """
    x = as_tokens(rows, "rows", REST + 1, MOST_ROLLS)
    is_given, hidden = as_mask(given, x.shape, "given"), as_mask(pad, x.shape, "pad")
    titles, steps = as_titles(titles, len(x)), as_count(steps_per_bar, "steps_per_bar", 1)
    figure = new_figure(9, 0.5 + len(x) * (1.25 if titles else 1.05))
    strips = figure.subplots(len(x), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for i, axes in enumerate(strips):
        style(axes)
        axes.set_facecolor(STRIP)
        _draw_notes(axes, x[i], is_given[i], hidden[i])
        if titles:
            axes.set_title(titles[i], loc="left", fontsize=9, color=INK, pad=3)
    label_roll(strips[-1], x.shape[1], steps, *pitch_range(x[~hidden], around=2))
    legend(figure, note_colours(is_given) | (PADDING if hidden.any() else {}))
    save(figure, path)


def note_colours(given: Bools) -> dict[str, str]:
    """The colours of notes by their meaning, for a legend; empty if nothing is given."""
    if not given.any():
        return {}
    return {"given": GIVEN} if given.all() else {"given": GIVEN, "generated": GENERATED}


def pitch_range(tokens: Ints, around: int) -> tuple[int, int]:
    """The lowest and highest pitch to draw: `around` semitones beyond those that occur, and at least two octaves."""
    notes = tokens[tokens < REST]
    low, high = (int(notes.min()), int(notes.max())) if notes.size else (60, 72)
    extra = max(around, math.ceil((24 - (high - low)) / 2))
    return max(0, low - extra), min(REST - 1, high + extra)


def _draw_notes(axes: "Axes", row: Ints, given: Bools, pad: Bools) -> None:
    """Draw one melody (L,) and shade its padding."""
    for start, length in runs(np.stack([row, given, pad])):
        if pad[start]:
            axes.axvspan(start, start + length, color=LINE, linewidth=0)
        elif row[start] < REST:
            bar, colour = [(start + 0.08, length - 0.16)], GIVEN if given[start] else GENERATED
            axes.broken_barh(bar, (row[start] - 0.8, 1.6), color=colour, linewidth=0)


def label_roll(axes: "Axes", length: int, steps: int, low: int, high: int) -> None:
    """Label the bars by their numbers and the Cs by their names, fewer of them if there are many."""
    bars = np.arange(0, length, steps)
    bars = bars[:: 2 ** max(0, math.ceil(math.log2(len(bars) / 16)))]
    axes.set_xticks(bars, [str(bar // steps + 1) for bar in bars])
    pitches = [p for p in range(0, REST, 12) if low <= p <= high]
    pitches = pitches[:: 2 if len(pitches) > 4 else 1]
    axes.set_yticks(pitches, [f"C{p // 12 - 1}" for p in pitches])
    axes.set(xlim=(0, length), ylim=(low - 0.5, high + 0.5))
    axes.set_xlabel("bar", color=SOFT_INK, fontsize=9)
