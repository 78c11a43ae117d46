"""The sampler's path as an animated GIF. Pixels are numbers of palette entries."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from usd3._internal.checks import as_count, as_number, require
from usd3._internal.files import written_whole
from usd3.pictures._common import (
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
from usd3.pictures.grids import UNDERLINED, category_colours
from usd3.pictures.rolls import MOST_ROLLS, REST, note_colours, pitch_range

__all__ = ["BAR", "animate_denoising", "save_gif"]

BASIC = ("#FFFFFF", STRIP, LINE, UNKNOWN, GIVEN, GENERATED, INK)
WHITE_PX, STRIP_PX, LINE_PX, UNKNOWN_PX, GIVEN_PX, GENERATED_PX, INK_PX = range(len(BASIC))
GREYS = 16  # shades from ink to white, after the basic colours: for smooth text
CATEGORIES = len(BASIC) + GREYS  # where the colours of categories begin
MARGIN, GAP, HEADER, BAR = 12, 8, 30, 4


def animate_denoising(
    frames: Sequence[Any],
    path: Path | str,
    num_classes: int | None = None,
    given: Any = None,
    mask: int | None = None,
    steps_per_bar: int = 16,
    frames_per_second: float = 15.0,
    hold: float = 2.0,
) -> None:
    """Write the sampler's path as an animated GIF, with the progress as a thin bar at the bottom.

    Without `num_classes` the frames are music: pitches 0..127, rest 128, and everything above is drawn in grey as not
    known yet. Pitches far outside those of the last frame are left out. With `num_classes` the frames are grids of
    categories, see `token_grid`.

    Args:
        frames: Integers (N, L) each, N <= 8, from the noise to the sample.
        path: The picture's file, .gif.
        num_classes: K, for sequences that are not music.
        given: Booleans that broadcast to (N, L): elements that were given. They keep their colour.
        mask: The category that means "not known yet", for sequences that are not music.
        steps_per_bar: Elements in a bar of music.
        frames_per_second: Speed.
        hold: Seconds the last frame stays.
    """
    require(Path(path).suffix.lower() == ".gif", "path", path, "a name that ends with .gif")
    require(mask is None or num_classes is not None, "mask", mask, "none for music, or num_classes as well")
    speed, last = as_number(frames_per_second, "frames_per_second", 0), as_number(hold, "hold", 0, closed=True)
    classes = 2**31 if num_classes is None else as_count(num_classes, "num_classes", 2)
    steps = as_count(steps_per_bar, "steps_per_bar", 1)
    x = _as_frames(frames, classes)
    known = as_mask(given, x.shape[1:], "given")
    palette = _basic_palette()
    if num_classes is None:
        names = note_colours(known) | ({"not known yet": UNKNOWN} if (x > REST).any() else {})
        low, high = pitch_range(x[-1], around=7)
        strips = [[_roll_strip(row, k, low, high, steps) for row, k in zip(frame, known)] for frame in x]
    else:
        names = UNDERLINED if known.any() else {}
        entries = _add_categories(palette, classes, mask)
        strips = [[_grid_strip(entries[row], k) for row, k in zip(frame, known)] for frame in x]
    pages = [_page(strip, names, i, len(x)) for i, strip in enumerate(strips)]
    durations = [round(1000 / speed)] * (len(x) - 1) + [round(1000 * max(last, 1 / speed))]
    save_gif(pages, palette, durations, path)


def _as_frames(frames: Sequence[Any], num_classes: int) -> Ints:
    """(F, N, L)."""
    require(len(frames) > 0, "len(frames)", len(frames), "at least one frame")
    arrays = [as_tokens(frame, f"frames[{i}]", num_classes, MOST_ROLLS) for i, frame in enumerate(frames)]
    shape = arrays[0].shape
    for i, array in enumerate(arrays):
        require(array.shape == shape, f"frames[{i}].shape", array.shape, f"that of the first, {shape}")
    return np.stack(arrays)


def _basic_palette() -> Pixels:
    """(256, 3): the basic colours and the shades of ink."""
    palette = np.zeros((256, 3), dtype=np.uint8)
    palette[: len(BASIC)] = [rgb(colour) for colour in BASIC]
    ink = np.array(rgb(INK))
    palette[len(BASIC) : CATEGORIES] = ink + (255 - ink) * np.arange(GREYS)[:, None] // (GREYS - 1)
    return palette


def _add_categories(palette: Pixels, num_classes: int, mask: int | None) -> Pixels:
    """The palette's entry of each category. Very many categories share entries."""
    entries = CATEGORIES + np.arange(num_classes) * min(num_classes, 256 - CATEGORIES) // num_classes
    colours = category_colours(num_classes, mask)
    if mask is not None:
        entries[mask] = UNKNOWN_PX
    palette[entries] = colours
    return entries.astype(np.uint8)


def _cell_width(length: int) -> int:
    return max(1, min(16, 1024 // length))


def _roll_strip(row: Ints, given: Bools, low: int, high: int, steps: int) -> Pixels:
    """A row of music: four pixels for each semitone, and a note is thicker by one each way."""
    width = _cell_width(len(row))
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
    """A row of coloured cells, and the line under the given ones."""
    line = np.where(given, INK_PX, WHITE_PX).astype(np.uint8)
    return np.stack([entries, line]).repeat([24, 2], axis=0).repeat(_cell_width(len(entries)), axis=1)


def _page(strips: list[Pixels], names: Mapping[str, str], index: int, count: int) -> Pixels:
    """The strips below each other, with margins, names of the colours and how far it is."""
    width = strips[0].shape[1]
    gap = np.full((GAP, width), WHITE_PX, dtype=np.uint8)
    progress = np.full((BAR, width), LINE_PX, dtype=np.uint8)
    progress[:, : round(width * (index + 1) / count)] = INK_PX
    body = np.concatenate([part for strip in strips for part in (strip, gap)] + [progress])
    page = np.pad(body, ((HEADER, MARGIN), (MARGIN, MARGIN)), constant_values=WHITE_PX)
    _write_header(page[:HEADER], names, f"{round(100 * index / max(1, count - 1))} %")
    return page


def _write_header(header: Pixels, names: Mapping[str, str], done: str) -> None:
    from PIL import Image, ImageDraw, ImageFont

    height, width = header.shape
    image = Image.new("L", (width, height), 255)
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(14)
    swatches, left = [], MARGIN
    for name, colour in names.items():
        swatches.append((left, BASIC.index(colour)))
        draw.text((left + 18, height // 2), name, fill=0, font=font, anchor="lm")
        left += 36 + round(draw.textlength(name, font=font))
    if left + draw.textlength(done, font=font) + MARGIN <= width:
        draw.text((width - MARGIN, height // 2), done, fill=0, font=font, anchor="rm")
    header[:] = len(BASIC) + np.asarray(image, dtype=np.int64) * (GREYS - 1) // 255
    for start, entry in swatches:
        header[height // 2 - 6 : height // 2 + 6, start : start + 12] = entry


def save_gif(pages: list[Pixels], palette: Pixels, durations: list[int], path: Path | str) -> None:
    """Write pages of palette entries as a GIF that repeats."""
    from PIL import Image

    images = [Image.fromarray(page) for page in pages]
    used = palette[: max(int(page.max()) for page in pages) + 1]  # a short palette makes a smaller file
    for image in images:
        image.putpalette(used.tobytes())
    with written_whole(path) as part:
        images[0].save(part, save_all=True, append_images=images[1:], duration=durations, loop=0, optimize=False)
