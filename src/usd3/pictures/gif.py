"""Write pages of pixels as an animated GIF. A pixel is the number of a colour in a palette."""

from pathlib import Path

import numpy as np

from usd3._internal.checks import as_number, require
from usd3._internal.files import written_whole
from usd3.pictures.figures import Pixels

__all__ = ["BAR", "frame_durations", "progress_bar", "require_gif", "save_gif"]

BAR = 4  # height of the progress bar in pixels


def require_gif(path: Path | str) -> None:
    """Raise a ValueError unless the name of a file ends with .gif."""
    require(Path(path).suffix.lower() == ".gif", "path", path, "a name that ends with .gif")


def frame_durations(count: int, frames_per_second: float, hold: float) -> list[int]:
    """Milliseconds that each of `count` frames is shown; the last one stays for `hold` seconds."""
    speed, last = as_number(frames_per_second, "frames_per_second", 0), as_number(hold, "hold", 0, closed=True)
    return [round(1000 / speed)] * (count - 1) + [round(1000 * max(last, 1 / speed))]


def progress_bar(width: int, done: int, total: int, colour: int, background: int) -> Pixels:
    """A bar (BAR, width) of which the share done / total has the palette entry `colour`."""
    bar = np.full((BAR, width), background, dtype=np.uint8)
    bar[:, : round(width * done / total)] = colour
    return bar


def save_gif(pages: list[Pixels], palette: Pixels, durations: list[int], path: Path | str) -> None:
    """Write pages (H, W) of palette entries as a GIF that repeats forever.

    Args:
        pages: One page for each frame.
        palette: Colours (256, 3).
        durations: Milliseconds of each frame.
        path: The file, .gif.
    """
    from PIL import Image

    images = [Image.fromarray(page) for page in pages]
    used = palette[: max(int(page.max()) for page in pages) + 1]  # a shorter palette makes a smaller file
    for image in images:
        image.putpalette(used.tobytes())
    with written_whole(path) as part:
        images[0].save(part, save_all=True, append_images=images[1:], duration=durations, loop=0, optimize=False)
