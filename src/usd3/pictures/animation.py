"""The frames of a sampler as an animated GIF: grids of categories, or melodies as piano rolls."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from usd3._internal.checks import as_count, require
from usd3.pictures.figures import (
    GENERATED,
    GIVEN,
    INK,
    LINE,
    STRIP,
    UNKNOWN,
    Bools,
    Ints,
    Pixels,
    as_mask,
    as_tokens,
    rgb,
)
from usd3.pictures.gif import frame_durations, progress_bar, require_gif, save_gif
from usd3.pictures.grids import UNDERLINED, category_colours
from usd3.pictures.rolls import MOST_ROLLS, REST, note_colours, pitch_range

__all__ = ["animate_denoising", "animate_roll", "as_frames", "basic_palette", "cell_width", "pages"]

BASIC = ("#FFFFFF", STRIP, LINE, UNKNOWN, GIVEN, GENERATED, INK)  # the first entries of the palette
WHITE_PX, STRIP_PX, LINE_PX, UNKNOWN_PX, GIVEN_PX, GENERATED_PX, INK_PX = range(len(BASIC))
GREYS = 16  # the next entries: shades from ink to white, for smooth text
CATEGORIES = len(BASIC) + GREYS  # the first entry of the categories' colours
MARGIN, GAP, HEADER = 12, 8, 30


def animate_denoising(
    frames: Sequence[Any],
    path: Path | str,
    num_classes: int,
    given: Any = None,
    mask: int | None = None,
    frames_per_second: float = 15.0,
    hold: float = 2.0,
    colours: Sequence[str] | None = None,
) -> None:
    """Write the states of a sampler as an animated GIF: rows of coloured cells as in `token_grid`, and a progress bar.

    Args:
        frames: Integers (N, L) each, N <= 8, from the noise to the sample.
        path: The file, .gif.
        num_classes: K.
        given: Booleans that broadcast to (N, L): given elements, which are underlined.
        mask: The category that means "not known yet", drawn in grey.
        frames_per_second: Speed.
        hold: Seconds that the last frame stays.
        colours: "#RRGGBB" of each category; None: those of `token_grid`.
    """
    require_gif(path)
    durations = frame_durations(len(frames), frames_per_second, hold)
    classes = as_count(num_classes, "num_classes", 2)
    x = as_frames(frames, classes)
    is_given = as_mask(given, x.shape[1:], "given")
    palette = basic_palette()
    own = category_colours(classes, mask) if colours is None else _as_colours(colours, classes)
    entries = _add_categories(palette, own, mask)
    strips = [[_grid_strip(entries[row], flags) for row, flags in zip(frame, is_given)] for frame in x]
    save_gif(pages(strips, _entries(UNDERLINED if is_given.any() else {})), palette, durations, path)


def animate_roll(
    frames: Sequence[Any],
    path: Path | str,
    given: Any = None,
    steps_per_bar: int = 16,
    frames_per_second: float = 15.0,
    hold: float = 2.0,
) -> None:
    """Write the states of a sampler of melodies as an animated GIF: piano rolls, and a progress bar.

    Pitches far outside the range of the last frame are not drawn.

    Args:
        frames: Integers (N, L) each, N <= 8, from the noise to the sample: pitches 0..127, and 128 for a rest. Greater
            numbers mean "not known yet" and are drawn in grey.
        path: The file, .gif.
        given: Booleans that broadcast to (N, L): given elements, which have a colour of their own.
        steps_per_bar: Elements in a bar.
        frames_per_second: Speed.
        hold: Seconds that the last frame stays.
    """
    require_gif(path)
    durations = frame_durations(len(frames), frames_per_second, hold)
    steps = as_count(steps_per_bar, "steps_per_bar", 1)
    x = as_frames(frames, num_classes=2**31)
    is_given = as_mask(given, x.shape[1:], "given")
    low, high = pitch_range(x[-1], around=7)
    strips = [[_roll_strip(row, flags, low, high, steps) for row, flags in zip(frame, is_given)] for frame in x]
    names = note_colours(is_given) | ({"not known yet": UNKNOWN} if (x > REST).any() else {})
    save_gif(pages(strips, _entries(names)), basic_palette(), durations, path)


def as_frames(frames: Sequence[Any], num_classes: int) -> Ints:
    """The frames as one array (F, N, L)."""
    require(len(frames) > 0, "len(frames)", len(frames), "at least one frame")
    arrays = [as_tokens(frame, f"frames[{i}]", num_classes, MOST_ROLLS) for i, frame in enumerate(frames)]
    shape = arrays[0].shape
    for i, array in enumerate(arrays):
        require(array.shape == shape, f"frames[{i}].shape", array.shape, f"that of the first, {shape}")
    return np.stack(arrays)


# ---- palette ----------------------------------------------------------------------------------------------------


def basic_palette() -> Pixels:
    """A palette (256, 3) with the basic colours and the shades of ink."""
    palette = np.zeros((256, 3), dtype=np.uint8)
    palette[: len(BASIC)] = [rgb(colour) for colour in BASIC]
    ink = np.array(rgb(INK))
    palette[len(BASIC) : CATEGORIES] = ink + (255 - ink) * np.arange(GREYS)[:, None] // (GREYS - 1)
    return palette


def _entries(names: Mapping[str, str]) -> dict[str, int]:
    """The entries of basic colours in the palette, by their meaning."""
    return {name: BASIC.index(colour) for name, colour in names.items()}


def _as_colours(colours: Sequence[str], num_classes: int) -> Pixels:
    """Colours "#RRGGBB" as an array (K, 3)."""
    require(len(colours) == num_classes, "len(colours)", len(colours), f"one for each category, {num_classes}")
    return np.array([rgb(colour) for colour in colours], dtype=np.uint8)


def _add_categories(palette: Pixels, colours: Pixels, mask: int | None) -> Pixels:
    """Add the categories' colours (K, 3) to the palette, and return the entry of each, (K,). Many share entries."""
    count = len(colours)
    entries = CATEGORIES + np.arange(count) * min(count, 256 - CATEGORIES) // count
    if mask is not None:
        entries[mask] = UNKNOWN_PX
    palette[entries] = colours
    return entries.astype(np.uint8)


# ---- strips: one row of a frame as pixels -----------------------------------------------------------------------


def cell_width(length: int) -> int:
    """Pixels of a step, so that a row of so many fits on a page."""
    return max(1, min(16, 1024 // length))


def _roll_strip(row: Ints, given: Bools, low: int, high: int, steps: int) -> Pixels:
    """A melody: four pixels for each semitone; a note extends by one pixel above and below."""
    width = cell_width(len(row))
    pixels = np.full((4 * (high - low + 1), width * len(row)), STRIP_PX, dtype=np.uint8)
    pixels[:, :: width * steps] = LINE_PX
    for i, token in enumerate(row.tolist()):
        cell = pixels[:, width * i : width * (i + 1)]
        if token > REST:
            cell[:] = UNKNOWN_PX
        elif low <= token <= high:
            top = 4 * (high - token)
            cell[max(0, top - 1) : top + 5] = GIVEN_PX if given[i] else GENERATED_PX
    return pixels


def _grid_strip(entries: Pixels, given: Bools) -> Pixels:
    """A row of coloured cells, with a line under the given ones."""
    line = np.where(given, INK_PX, WHITE_PX).astype(np.uint8)
    return np.stack([entries, line]).repeat([24, 2], axis=0).repeat(cell_width(len(entries)), axis=1)


# ---- pages ------------------------------------------------------------------------------------------------------


def pages(frames: list[list[Pixels]], names: Mapping[str, int]) -> list[Pixels]:
    """One page for each frame, which is a list of strips; `names` are entries of the palette by their meaning."""
    return [_page(strips, names, i, len(frames)) for i, strips in enumerate(frames)]


def _page(strips: list[Pixels], names: Mapping[str, int], index: int, count: int) -> Pixels:
    """The strips below each other, with margins, a legend and the progress of frame `index` of `count`."""
    width = strips[0].shape[1]
    gap = np.full((GAP, width), WHITE_PX, dtype=np.uint8)
    bar = progress_bar(width, index + 1, count, INK_PX, LINE_PX)
    body = np.concatenate([part for strip in strips for part in (strip, gap)] + [bar])
    page = np.pad(body, ((HEADER, MARGIN), (MARGIN, MARGIN)), constant_values=WHITE_PX)
    _write_header(page[:HEADER], names, f"{round(100 * index / max(1, count - 1))} %")
    return page


def _write_header(header: Pixels, names: Mapping[str, int], done: str) -> None:
    """Write the legend, and on the right how much is done if there is room, into the pixels of the header."""
    from PIL import Image, ImageDraw, ImageFont

    height, width = header.shape
    image = Image.new("L", (width, height), 255)
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(14)
    swatches, left = [], MARGIN
    for name, entry in names.items():
        swatches.append((left, entry))
        draw.text((left + 18, height // 2), name, fill=0, font=font, anchor="lm")
        left += 36 + round(draw.textlength(name, font=font))
    if left + draw.textlength(done, font=font) + MARGIN <= width:
        draw.text((width - MARGIN, height // 2), done, fill=0, font=font, anchor="rm")
    header[:] = len(BASIC) + np.asarray(image, dtype=np.int64) * (GREYS - 1) // 255
    for start, entry in swatches:
        header[height // 2 - 6 : height // 2 + 6, start : start + 12] = entry
