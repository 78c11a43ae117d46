"""Lay images out on a page: in rows and columns, upscaled as sharp pixels, with names beside or above them."""

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from usd3._internal.checks import as_count, require
from usd3._internal.files import written_whole
from usd3.pictures.figures import SOFT_INK, Pixels, as_array, rgb

__all__ = [
    "as_image_rows",
    "as_images",
    "default_columns",
    "fitting_scale",
    "in_rows",
    "save_page",
    "sheet",
    "with_column_names",
    "with_row_names",
]

MARGIN, GAP, WIDE_GAP, TEXT = 12, 4, 18, 14  # in pixels; TEXT is the size of the font
USUAL_WIDTH, MOST_SCALE = 1000, 6


def as_images(images: Any, name: str, shape: tuple[int, ...] | None = None) -> Pixels:
    """Bytes (N, 3, H, W) as an array (N, H, W, 3).

    Args:
        images: An array or a tensor.
        name: The argument, for error messages.
        shape: The shape (N, H, W, 3) that the result must have; None: any.
    """
    x = as_array(images)
    if x.dtype != np.uint8:
        raise TypeError(f"{name} has dtype {x.dtype}: expected uint8")
    require(x.ndim == 4 and x.shape[1] == 3 and x.size > 0, f"{name}.shape", x.shape, "(N, 3, H, W), none of them 0")
    pixels = np.moveaxis(x, 1, -1)
    if shape is not None:
        require(pixels.shape == shape, f"{name}.shape", x.shape, f"{(shape[0], shape[3], *shape[1:3])}")
    return pixels


def as_image_rows(images: Any, name: str, shape: tuple[int, ...]) -> Pixels:
    """Bytes (N, k, 3, H, W) as an array (N, k, H, W, 3); N, H and W must be those of `shape`, (N, H, W, 3)."""
    x = as_array(images)
    expected = f"{(shape[0], 'k', shape[3], *shape[1:3])}, k at least 1"
    require(x.ndim == 5 and x.size > 0, f"{name}.shape", x.shape, expected)
    count, k = x.shape[:2]
    rows = as_images(x.reshape(count * k, *x.shape[2:]), name)
    require(count == shape[0] and rows.shape[1:] == shape[1:], f"{name}.shape", x.shape, expected)
    return rows.reshape(count, k, *shape[1:])


def default_columns(count: int, columns: int | None) -> int:
    """`columns`, at most `count`. None: the square root of `count`, or a little more if that fills the last row."""
    if columns is not None:
        return min(count, as_count(columns, "columns", 1))
    least, most = int(np.ceil(np.sqrt(count))), int(1.6 * np.sqrt(count))
    return next((candidate for candidate in range(least, most + 1) if count % candidate == 0), least)


def in_rows(images: Pixels, columns: int) -> Pixels:
    """Images (N, H, W, 3) in rows, (R, columns, H, W, 3), with white cells after the last image."""
    missing = -len(images) % columns
    padded = np.pad(images, ((0, missing), (0, 0), (0, 0), (0, 0)), constant_values=255)
    return padded.reshape(-1, columns, *images.shape[1:])


def fitting_scale(cells: Pixels, scale: int | None, width: int = USUAL_WIDTH) -> int:
    """`scale`. None: the largest up to 6 at which cells (R, C, H, W, 3) are at most `width` wide and twice as high."""
    if scale is not None:
        return as_count(scale, "scale", 1)
    rows, columns, cell_height, cell_width = map(int, cells.shape[:4])
    return max(1, min(MOST_SCALE, width // (columns * cell_width), 2 * width // (rows * cell_height)))


def sheet(cells: npt.NDArray[Any], scale: int, white: Any = 255) -> npt.NDArray[Any]:
    """Cells (R, C, H, W, ...) as one page with thin gaps; `white` is the value of the paper."""
    return _page(cells, scale, [GAP] * cells.shape[1], [GAP] * len(cells), white=white)[0]


def with_row_names(cells: Pixels, scale: int | None, names: Sequence[str], gaps: Sequence[int]) -> Pixels:
    """Cells (R, C, H, W, 3) as one page, with a name beside each row; `gaps` are the gaps above the rows."""
    scale = fitting_scale(cells, scale)
    left = max(map(_text_width, names)) + MARGIN
    page, tops, _ = _page(cells, scale, [GAP] * cells.shape[1], gaps, left=left)
    middle = cells.shape[2] * scale // 2 - TEXT // 2
    return _with_text(page, [(MARGIN, top + middle, name) for top, name in zip(tops, names)])


def with_column_names(cells: Pixels, scale: int | None, names: dict[int, str]) -> Pixels:
    """Cells (R, C, H, W, 3) as one page, in groups of columns with wide gaps between them.

    Args:
        cells: The images.
        scale: Side of the square that a pixel becomes; None: chosen.
        names: The name of each group by its first column. It stands above that column.
    """
    scale = fitting_scale(cells, scale, USUAL_WIDTH * 4 // 5)
    width = cells.shape[3] * scale
    gaps = [WIDE_GAP if i in names else GAP for i in range(cells.shape[1])]
    for column, name_before in zip(list(names)[1:], names.values()):
        if column - 1 in names:  # the group before has one column: its name must not run into this one
            gaps[column] = max(gaps[column], _text_width(name_before) - width + WIDE_GAP)
    page, _, lefts = _page(cells, scale, gaps, [GAP] * len(cells), top=TEXT + 8)
    right = lefts[-1] + width + MARGIN
    right_of_text = max(lefts[column] + _text_width(name) + MARGIN for column, name in names.items())
    page = np.pad(page, ((0, 0), (0, max(0, right_of_text - right)), (0, 0)), constant_values=255)
    return _with_text(page, [(lefts[column], MARGIN, name) for column, name in names.items()])


def save_page(page: Pixels, path: Path | str) -> None:
    """Write a page (H, W, 3) as a PNG file."""
    from PIL import Image

    require(Path(path).suffix.lower() == ".png", "path", path, "a name that ends with .png")
    with written_whole(path) as part:
        Image.fromarray(page).save(part, format="PNG", optimize=True)


def _page(
    cells: npt.NDArray[Any],
    scale: int,
    column_gaps: Sequence[int],
    row_gaps: Sequence[int],
    left: int = 0,
    top: int = 0,
    white: Any = 255,
) -> tuple[npt.NDArray[Any], list[int], list[int]]:
    """Upscaled cells on white paper.

    Args:
        cells: (R, C, H, W, ...).
        scale: Side of the square that a pixel becomes.
        column_gaps: The gap before each column. The first is ignored: there is the margin.
        row_gaps: The gap above each row. The first is ignored.
        left: Room for text on the left.
        top: Room for text at the top.
        white: The value of the paper.

    Returns:
        The page, the first line of each row, and the first pixel of each column.
    """
    height, width = cells.shape[2] * scale, cells.shape[3] * scale
    tops = list(accumulate((height + gap for gap in row_gaps[1:]), initial=MARGIN + top))
    lefts = list(accumulate((width + gap for gap in column_gaps[1:]), initial=MARGIN + left))
    size = (tops[-1] + height + MARGIN, lefts[-1] + width + MARGIN)
    page = np.full((*size, *cells.shape[4:]), white, dtype=cells.dtype)
    for row, y in zip(cells, tops):
        for cell, x in zip(row, lefts):
            page[y : y + height, x : x + width] = cell.repeat(scale, axis=0).repeat(scale, axis=1)
    return page, tops, lefts


def _font() -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(TEXT)


def _text_width(text: str) -> int:
    return int(np.ceil(_font().getlength(text)))


def _with_text(page: Pixels, texts: Sequence[tuple[int, int, str]]) -> Pixels:
    """The page with texts (left, top, text) on it."""
    from PIL import Image, ImageDraw

    image = Image.fromarray(page)
    draw, font = ImageDraw.Draw(image), _font()
    for left, top, text in texts:
        draw.text((left, top + TEXT // 2), text, fill=rgb(SOFT_INK), font=font, anchor="lm")
    return np.asarray(image)
