"""Images that take shape, as an animated GIF. One palette serves all frames, so that colours do not flicker."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from usd3._internal.checks import as_number, require
from usd3.pictures._common import INK, LINE, UNKNOWN, Pixels, rgb
from usd3.pictures.animation import BAR, save_gif
from usd3.pictures.images import MARGIN, as_images, default_columns, fitting_scale, laid_out, sheet

__all__ = ["animate_images"]

FIXED = ("#FFFFFF", LINE, INK, UNKNOWN)  # entries of the palette before those of the images
WHITE_PX, LINE_PX, INK_PX, UNKNOWN_PX = range(len(FIXED))
SEEN_BY_PALETTE = 2**17  # pixels from which the colours are chosen
AT_ONCE = 2**16
USUAL_WIDTH = 560  # a film of larger frames is slow to load


def animate_images(
    frames: Sequence[Any],
    path: Path | str,
    columns: int | None = None,
    scale: int | None = None,
    frames_per_second: float = 15.0,
    hold: float = 2.0,
) -> None:
    """Write the way to the images as an animated GIF, with the progress as a thin bar at the bottom.

    Args:
        frames: Bytes (N, 3, H, W) each, from the noise to the images.
        path: The picture's file, .gif.
        columns: Images in a row; None: about as many as rows.
        scale: Side of the square that a pixel becomes; None: so that the file stays small.
        frames_per_second: Speed.
        hold: Seconds the last frame stays.
    """
    require(Path(path).suffix.lower() == ".gif", "path", path, "a name that ends with .gif")
    speed, last = as_number(frames_per_second, "frames_per_second", 0), as_number(hold, "hold", 0, closed=True)
    require(len(frames) > 0, "len(frames)", len(frames), "at least one frame")
    first = as_images(frames[0], "frames[0]")
    x = np.stack([as_images(frame, f"frames[{i}]", first.shape) for i, frame in enumerate(frames)])
    count = default_columns(len(first), columns)
    scale = fitting_scale(laid_out(first, count), scale, USUAL_WIDTH)
    palette = _palette(x)
    pages = []
    for i, frame in enumerate(_entries(x, palette)):
        missing = np.full((-len(frame) % count, *frame.shape[1:]), WHITE_PX, dtype=np.uint8)
        cells = np.concatenate([frame, missing]).reshape(-1, count, *frame.shape[1:])
        pages.append(_with_bar(sheet(cells, scale, WHITE_PX), i + 1, len(x)))
    durations = [round(1000 / speed)] * (len(x) - 1) + [round(1000 * max(last, 1 / speed))]
    save_gif(pages, palette, durations, path)


def _palette(frames: Pixels) -> Pixels:
    """(256, 3): the fixed colours, and those that suit all frames; half of them are chosen for the last frame."""
    from PIL import Image

    rng = np.random.default_rng(0)
    chosen = []
    for pixels in (frames.reshape(-1, 3), frames[-1].reshape(-1, 3)):
        known = pixels[(pixels != rgb(UNKNOWN)).any(1)]
        known = known if len(known) else pixels
        size = SEEN_BY_PALETTE // 2
        chosen.append(known if len(known) <= size else known[rng.integers(len(known), size=size)])
    row = Image.fromarray(np.concatenate(chosen)[None])
    found = row.quantize(256 - len(FIXED), method=Image.Quantize.MEDIANCUT, kmeans=2).getpalette() or []
    colours = np.array(found, dtype=np.uint8).reshape(-1, 3)
    palette = np.full((256, 3), 255, dtype=np.uint8)
    palette[: len(FIXED)] = [rgb(colour) for colour in FIXED]
    palette[len(FIXED) : len(FIXED) + len(colours)] = colours[: 256 - len(FIXED)]
    return palette


def _entries(frames: Pixels, palette: Pixels) -> Pixels:
    """The nearest entry of the palette for every pixel, (F, N, H, W)."""
    colours = palette.astype(np.float32)
    squares = (colours**2).sum(1)
    pixels = frames.reshape(-1, 3)
    found = np.empty(len(pixels), dtype=np.uint8)
    for start in range(0, len(pixels), AT_ONCE):
        part = pixels[start : start + AT_ONCE].astype(np.float32)
        found[start : start + AT_ONCE] = (squares - 2 * part @ colours.T).argmin(1)
    return found.reshape(frames.shape[:-1])


def _with_bar(page: Pixels, done: int, count: int) -> Pixels:
    """The page with a bar under the images that shows how far it is."""
    width = page.shape[1] - 2 * MARGIN
    bar = np.full((BAR, width), LINE_PX, dtype=np.uint8)
    bar[:, : round(width * done / count)] = INK_PX
    below = np.pad(bar, ((0, MARGIN), (MARGIN, MARGIN)), constant_values=WHITE_PX)
    return np.concatenate([page, below])
