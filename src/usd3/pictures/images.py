"""Images as sharp pixels: grids, reconstructions, nearest neighbours and filled holes."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from usd3._internal.checks import as_count, require
from usd3._internal.files import written_whole
from usd3.pictures._common import SOFT_INK, UNKNOWN, Pixels, as_array, rgb

__all__ = [
    "as_images",
    "default_columns",
    "fitting_scale",
    "image_grid",
    "image_rows",
    "inpainting_grid",
    "laid_out",
    "neighbour_grid",
    "reconstruction_grid",
    "sheet",
    "with_hole",
]

MARGIN, GAP, WIDE_GAP, TEXT = 12, 4, 18, 14
USUAL_WIDTH, MOST_SCALE = 1000, 6
_MOST_BELOW = 8  # images with holes below each other


def image_grid(images: Any, path: Path | str, columns: int | None = None, scale: int | None = None) -> None:
    """Draw images beside and below each other, their pixels as squares.

    Args:
        images: Bytes (N, 3, H, W).
        path: The picture's file, .png.
        columns: Images in a row; None: about as many as rows.
        scale: Side of the square that a pixel becomes; None: so that the picture fits on a screen.
    """
    x = as_images(images, "images")
    cells = laid_out(x, default_columns(len(x), columns))
    _save(sheet(cells, fitting_scale(cells, scale)), path)


def image_rows(rows: Mapping[str, Any], path: Path | str, scale: int | None = None) -> None:
    """Draw rows of images, the name of each beside it.

    Args:
        rows: Bytes (N, 3, H, W) by name, all of one shape.
        path: The picture's file, .png.
        scale: Side of the square that a pixel becomes; None: so that the picture fits on a screen.
    """
    require(len(rows) > 0, "rows", rows, "at least one row")
    first = as_images(*next((images, f"rows[{name!r}]") for name, images in rows.items()))
    cells = np.stack([as_images(images, f"rows[{name!r}]", first.shape) for name, images in rows.items()])
    _save(_beside(cells, scale, list(rows), [GAP] * len(rows)), path)


def reconstruction_grid(
    originals: Any,
    reconstructions: Any,
    path: Path | str,
    columns: int | None = None,
    scale: int | None = None,
    names: tuple[str, str] = ("image", "reconstruction"),
) -> None:
    """Draw images in rows, and under each row what became of them.

    Args:
        originals: Bytes (N, 3, H, W).
        reconstructions: Bytes of the same shape.
        path: The picture's file, .png.
        columns: Images in a row; None: about 10, so that the rows are full.
        scale: Side of the square that a pixel becomes; None: so that the picture fits on a screen.
        names: What stands beside the two kinds of rows.
    """
    x = as_images(originals, "originals")
    y = as_images(reconstructions, "reconstructions", x.shape)
    count = -(-len(x) // -(-len(x) // 10)) if columns is None else as_count(columns, "columns", 1)
    above, below = laid_out(x, count), laid_out(y, count)
    cells = np.stack([above, below], axis=1).reshape(-1, *above.shape[1:])
    _save(_beside(cells, scale, list(names) * len(above), [WIDE_GAP, GAP] * len(above)), path)


def neighbour_grid(
    samples: Any,
    neighbours: Any,
    path: Path | str,
    scale: int | None = None,
    names: tuple[str, str] = ("sample", "nearest training images"),
) -> None:
    """Draw each sample beside its nearest training images.

    Args:
        samples: Bytes (N, 3, H, W).
        neighbours: Bytes (N, k, 3, H, W), the nearest first.
        path: The picture's file, .png.
        scale: Side of the square that a pixel becomes; None: so that the picture fits on a screen.
        names: What stands above the samples and above their neighbours.
    """
    x = as_images(samples, "samples")
    cells = np.concatenate([x[:, None], _as_rows(neighbours, "neighbours", x.shape)], axis=1)
    _save(_in_columns(cells, scale, {0: names[0], 1: names[1]}), path)


def inpainting_grid(
    originals: Any,
    masked: Any,
    fills: Any,
    path: Path | str,
    scale: int | None = None,
    names: tuple[str, str, str] = ("image", "given", "filled"),
) -> None:
    """Draw each image, what was given of it, and ways to fill the rest; at most 8 below each other.

    Args:
        originals: Bytes (N, 3, H, W).
        masked: Bytes of the same shape, with holes.
        fills: Bytes (N, k, 3, H, W), k fills of each image.
        path: The picture's file, .png.
        scale: Side of the square that a pixel becomes; None: so that the picture fits on a screen.
        names: What stands above the images, above what was given and above the fills.
    """
    x = as_images(originals, "originals")
    y = as_images(masked, "masked", x.shape)
    cells = np.concatenate([x[:, None], y[:, None], _as_rows(fills, "fills", x.shape)], axis=1)
    blocks, width = -(-len(cells) // _MOST_BELOW), cells.shape[1]
    rows = -(-len(cells) // blocks)
    cells = np.pad(cells, ((0, blocks * rows - len(cells)), *[(0, 0)] * 4), constant_values=255)
    cells = np.concatenate(np.split(cells, blocks), axis=1)
    above = {width * block + i: name for block in range(blocks) for i, name in enumerate(names)}
    _save(_in_columns(cells, scale, above), path)


def with_hole(images: Tensor, given: Tensor) -> Tensor:
    """Images (N, 3, H, W) in grey where elements (h, w) or (N, h, w), which are patches of them, are not given."""
    (height, width), (rows, columns) = images.shape[-2:], given.shape[-2:]
    fits = height % rows == 0 and width % columns == 0
    require(fits, "given.shape", tuple(given.shape), f"(h, w) that divide {(height, width)}")
    shown = given.repeat_interleave(height // rows, -2).repeat_interleave(width // columns, -1)
    grey = torch.tensor(rgb(UNKNOWN), dtype=torch.uint8, device=images.device)[:, None, None]
    return torch.where(shown.reshape(-1, 1, height, width), images, grey)


# ---- arrays -----------------------------------------------------------------------------------------------------


def as_images(images: Any, name: str, shape: tuple[int, ...] | None = None) -> Pixels:
    """Bytes (N, 3, H, W) as (N, H, W, 3); `shape` is that of images they must match."""
    x = as_array(images)
    if x.dtype != np.uint8:
        raise TypeError(f"{name} has dtype {x.dtype}: expected uint8")
    require(x.ndim == 4 and x.shape[1] == 3 and x.size > 0, f"{name}.shape", x.shape, "(N, 3, H, W), none of them 0")
    pixels = np.moveaxis(x, 1, -1)
    if shape is not None:
        require(pixels.shape == shape, f"{name}.shape", x.shape, f"{(shape[0], shape[3], *shape[1:3])}")
    return pixels


def _as_rows(images: Any, name: str, shape: tuple[int, ...]) -> Pixels:
    """Bytes (N, k, 3, H, W) as (N, k, H, W, 3)."""
    x = as_array(images)
    wanted = (shape[0], "k", shape[3], *shape[1:3])
    require(x.ndim == 5 and x.size > 0, f"{name}.shape", x.shape, f"{wanted}, k at least 1")
    count, k = x.shape[:2]
    rows = as_images(x.reshape(count * k, *x.shape[2:]), name)
    fits = count == shape[0] and rows.shape[1:] == shape[1:]
    require(fits, f"{name}.shape", x.shape, f"{wanted}, k at least 1")
    return rows.reshape(count, k, *shape[1:])


def default_columns(count: int, columns: int | None) -> int:
    """The columns asked for, or about as many as there will be rows: a few more where that leaves no gap."""
    if columns is not None:
        return min(count, as_count(columns, "columns", 1))
    least, most = int(np.ceil(np.sqrt(count))), int(1.6 * np.sqrt(count))
    return next((own for own in range(least, most + 1) if count % own == 0), least)


def laid_out(images: Pixels, columns: int) -> Pixels:
    """Images (N, H, W, 3) in rows, (R, columns, H, W, 3); white where none is left."""
    missing = -len(images) % columns
    whole = np.pad(images, ((0, missing), (0, 0), (0, 0), (0, 0)), constant_values=255)
    return whole.reshape(-1, columns, *images.shape[1:])


def fitting_scale(cells: Pixels, scale: int | None, width: int = USUAL_WIDTH) -> int:
    """The scale asked for, or one at which the cells (R, C, H, W, 3) are at most so wide, and twice as high."""
    if scale is not None:
        return as_count(scale, "scale", 1)
    rows, columns, tall, wide = map(int, cells.shape[:4])
    return max(1, min(MOST_SCALE, width // (columns * wide), 2 * width // (rows * tall)))


# ---- pages ------------------------------------------------------------------------------------------------------


def sheet(cells: npt.NDArray[Any], scale: int, white: Any = 255) -> npt.NDArray[Any]:
    """Cells (R, C, H, W, ...) as one page with thin gaps; `white` is the value of the paper."""
    return _page(cells, scale, [GAP] * cells.shape[1], [GAP] * len(cells), white=white)[0]


def _page(
    cells: npt.NDArray[Any],
    scale: int,
    across: Sequence[int],
    down: Sequence[int],
    left: int = 0,
    top: int = 0,
    white: Any = 255,
) -> tuple[npt.NDArray[Any], list[int], list[int]]:
    """The cells upscaled on white paper, and where their rows and columns begin.

    `across` and `down` are the gaps before each column and row, of which the first are the margin instead; `left`
    and `top` is room for text.
    """
    height, width = cells.shape[2] * scale, cells.shape[3] * scale
    tops = list(accumulate((height + gap for gap in down[1:]), initial=MARGIN + top))
    lefts = list(accumulate((width + gap for gap in across[1:]), initial=MARGIN + left))
    size = (tops[-1] + height + MARGIN, lefts[-1] + width + MARGIN)
    page = np.full((*size, *cells.shape[4:]), white, dtype=cells.dtype)
    for row, y in zip(cells, tops):
        for cell, x in zip(row, lefts):
            page[y : y + height, x : x + width] = cell.repeat(scale, axis=0).repeat(scale, axis=1)
    return page, tops, lefts


def _beside(cells: Pixels, scale: int | None, names: Sequence[str], down: Sequence[int]) -> Pixels:
    """Cells (R, C, H, W, 3) with a name beside each row; `down` are the gaps above the rows."""
    scale = fitting_scale(cells, scale)
    left = max(map(_text_width, names)) + MARGIN
    page, tops, _ = _page(cells, scale, [GAP] * cells.shape[1], down, left=left)
    middle = cells.shape[2] * scale // 2 - TEXT // 2
    return _with_text(page, [(MARGIN, top + middle, name) for top, name in zip(tops, names)])


def _in_columns(cells: Pixels, scale: int | None, names: dict[int, str]) -> Pixels:
    """Cells (R, C, H, W, 3) with names above the columns where a group begins, and wide gaps between the groups."""
    scale = fitting_scale(cells, scale, USUAL_WIDTH * 4 // 5)
    width = cells.shape[3] * scale
    across = [WIDE_GAP if i in names else GAP for i in range(cells.shape[1])]
    for column, before in zip(list(names)[1:], names.values()):  # a short group must not run into the next name
        if column - 1 in names:
            across[column] = max(across[column], _text_width(before) - width + WIDE_GAP)
    page, _, lefts = _page(cells, scale, across, [GAP] * len(cells), top=TEXT + 8)
    right = lefts[-1] + width + MARGIN
    wanted = max(lefts[column] + _text_width(name) + MARGIN for column, name in names.items())
    page = np.pad(page, ((0, 0), (0, max(0, wanted - right)), (0, 0)), constant_values=255)
    return _with_text(page, [(lefts[column], MARGIN, name) for column, name in names.items()])


def _font() -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(TEXT)


def _text_width(text: str) -> int:
    return int(np.ceil(_font().getlength(text)))


def _with_text(page: Pixels, texts: Sequence[tuple[int, int, str]]) -> Pixels:
    """The page with texts at (left, top)."""
    from PIL import Image, ImageDraw

    image = Image.fromarray(page)
    draw, font = ImageDraw.Draw(image), _font()
    for left, top, text in texts:
        draw.text((left, top + TEXT // 2), text, fill=rgb(SOFT_INK), font=font, anchor="lm")
    return np.asarray(image)


def _save(page: Pixels, path: Path | str) -> None:
    from PIL import Image

    require(Path(path).suffix.lower() == ".png", "path", path, "a name that ends with .png")
    with written_whole(path) as part:
        Image.fromarray(page).save(part, format="PNG", optimize=True)
