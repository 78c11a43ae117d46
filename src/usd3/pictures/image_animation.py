"""Images that take shape, as an animated GIF. All frames share one palette, so that colours do not flicker."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from usd3._internal.checks import require
from usd3.pictures.figures import INK, LINE, UNKNOWN, Pixels, rgb
from usd3.pictures.gif import frame_durations, progress_bar, require_gif, save_gif
from usd3.pictures.sheets import MARGIN, as_images, default_columns, fitting_scale, in_rows, sheet

__all__ = ["animate_images"]

FIXED = ("#FFFFFF", LINE, INK, UNKNOWN)  # the first entries of the palette
WHITE_PX, LINE_PX, INK_PX, UNKNOWN_PX = range(len(FIXED))
PALETTE_PIXELS = 2**17  # pixels from which the colours are chosen
AT_ONCE = 2**16
USUAL_WIDTH = 560  # larger animations load slowly


def animate_images(
    frames: Sequence[Any],
    path: Path | str,
    columns: int | None = None,
    scale: int | None = None,
    frames_per_second: float = 15.0,
    hold: float = 2.0,
) -> None:
    """Write the states of a sampler of images as an animated GIF, with a progress bar at the bottom.

    Args:
        frames: Bytes (N, 3, H, W) each, from the noise to the images.
        path: The file, .gif.
        columns: Images in a row; None: about as many as rows.
        scale: Side of the square that a pixel becomes; None: so that the file stays small.
        frames_per_second: Speed.
        hold: Seconds that the last frame stays.
    """
    require_gif(path)
    durations = frame_durations(len(frames), frames_per_second, hold)
    require(len(frames) > 0, "len(frames)", len(frames), "at least one frame")
    first = as_images(frames[0], "frames[0]")
    x = np.stack([as_images(frame, f"frames[{i}]", first.shape) for i, frame in enumerate(frames)])
    count = default_columns(len(first), columns)
    scale = fitting_scale(in_rows(first, count), scale, USUAL_WIDTH)
    palette = _palette(x)
    pages = []
    for i, frame in enumerate(_nearest_entries(x, palette)):
        missing = np.full((-len(frame) % count, *frame.shape[1:]), WHITE_PX, dtype=np.uint8)
        cells = np.concatenate([frame, missing]).reshape(-1, count, *frame.shape[1:])
        pages.append(_with_progress(sheet(cells, scale, WHITE_PX), i + 1, len(x)))
    save_gif(pages, palette, durations, path)


def _palette(frames: Pixels) -> Pixels:
    """(256, 3): the fixed colours, and colours chosen half from all frames and half from the last one."""
    from PIL import Image

    rng = np.random.default_rng(0)
    samples = []
    for pixels in (frames.reshape(-1, 3), frames[-1].reshape(-1, 3)):
        known = pixels[(pixels != rgb(UNKNOWN)).any(1)]
        known = known if len(known) else pixels
        size = PALETTE_PIXELS // 2
        samples.append(known if len(known) <= size else known[rng.integers(len(known), size=size)])
    row = Image.fromarray(np.concatenate(samples)[None])
    chosen = row.quantize(256 - len(FIXED), method=Image.Quantize.MEDIANCUT, kmeans=2).getpalette() or []
    colours = np.array(chosen, dtype=np.uint8).reshape(-1, 3)
    palette = np.full((256, 3), 255, dtype=np.uint8)
    palette[: len(FIXED)] = [rgb(colour) for colour in FIXED]
    palette[len(FIXED) : len(FIXED) + len(colours)] = colours[: 256 - len(FIXED)]
    return palette


def _nearest_entries(frames: Pixels, palette: Pixels) -> Pixels:
    """The palette entry nearest to each pixel, (F, N, H, W)."""
    colours = palette.astype(np.float32)
    squares = (colours**2).sum(1)
    pixels = frames.reshape(-1, 3)
    entries = np.empty(len(pixels), dtype=np.uint8)
    for start in range(0, len(pixels), AT_ONCE):
        part = pixels[start : start + AT_ONCE].astype(np.float32)
        entries[start : start + AT_ONCE] = (squares - 2 * part @ colours.T).argmin(1)
    return entries.reshape(frames.shape[:-1])


def _with_progress(page: Pixels, done: int, total: int) -> Pixels:
    """The page with a progress bar below."""
    bar = progress_bar(page.shape[1] - 2 * MARGIN, done, total, INK_PX, LINE_PX)
    return np.concatenate([page, np.pad(bar, ((0, MARGIN), (MARGIN, MARGIN)), constant_values=WHITE_PX)])
