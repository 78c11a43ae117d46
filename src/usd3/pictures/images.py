"""Images as sharp pixels: grids, reconstructions, nearest neighbours and filled holes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from usd3._internal.checks import as_count, require
from usd3.pictures.figures import UNKNOWN, rgb
from usd3.pictures.sheets import (
    GAP,
    WIDE_GAP,
    as_image_rows,
    as_images,
    default_columns,
    fitting_scale,
    in_rows,
    save_page,
    sheet,
    with_column_names,
    with_row_names,
)

__all__ = ["image_grid", "image_rows", "inpainting_grid", "neighbour_grid", "reconstruction_grid", "with_hole"]

_MOST_BELOW = 8  # rows of an inpainting grid; more images go into further blocks of columns


def image_grid(images: Any, path: Path | str, columns: int | None = None, scale: int | None = None) -> None:
    """Draw images in rows and columns.

    Args:
        images: Bytes (N, 3, H, W).
        path: The file, .png.
        columns: Images in a row; None: about as many as rows.
        scale: Side of the square that a pixel becomes; None: so that the picture fits on a screen.
    """
    x = as_images(images, "images")
    cells = in_rows(x, default_columns(len(x), columns))
    save_page(sheet(cells, fitting_scale(cells, scale)), path)


def image_rows(rows: Mapping[str, Any], path: Path | str, scale: int | None = None) -> None:
    """Draw rows of images with a name beside each row.

    Args:
        rows: Bytes (N, 3, H, W) by name, all of the same shape.
        path: The file, .png.
        scale: Side of the square that a pixel becomes; None: so that the picture fits on a screen.
    """
    require(len(rows) > 0, "rows", rows, "at least one row")
    first = as_images(*next((images, f"rows[{name!r}]") for name, images in rows.items()))
    cells = np.stack([as_images(images, f"rows[{name!r}]", first.shape) for name, images in rows.items()])
    save_page(with_row_names(cells, scale, list(rows), [GAP] * len(rows)), path)


def reconstruction_grid(
    originals: Any,
    reconstructions: Any,
    path: Path | str,
    columns: int | None = None,
    scale: int | None = None,
    names: tuple[str, str] = ("image", "reconstruction"),
) -> None:
    """Draw rows of images, and below each row the reconstructions of its images.

    Args:
        originals: Bytes (N, 3, H, W).
        reconstructions: Bytes of the same shape.
        path: The file, .png.
        columns: Images in a row; None: at most 10, so that all rows are about equally long.
        scale: Side of the square that a pixel becomes; None: so that the picture fits on a screen.
        names: The names beside the two kinds of rows.
    """
    x = as_images(originals, "originals")
    y = as_images(reconstructions, "reconstructions", x.shape)
    count = -(-len(x) // -(-len(x) // 10)) if columns is None else as_count(columns, "columns", 1)
    above, below = in_rows(x, count), in_rows(y, count)
    cells = np.stack([above, below], axis=1).reshape(-1, *above.shape[1:])
    save_page(with_row_names(cells, scale, list(names) * len(above), [WIDE_GAP, GAP] * len(above)), path)


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
        path: The file, .png.
        scale: Side of the square that a pixel becomes; None: so that the picture fits on a screen.
        names: The names above the samples and above their neighbours.
    """
    x = as_images(samples, "samples")
    cells = np.concatenate([x[:, None], as_image_rows(neighbours, "neighbours", x.shape)], axis=1)
    save_page(with_column_names(cells, scale, {0: names[0], 1: names[1]}), path)


def inpainting_grid(
    originals: Any,
    masked: Any,
    fills: Any,
    path: Path | str,
    scale: int | None = None,
    names: tuple[str, str, str] = ("image", "given", "filled"),
) -> None:
    """Draw each image, its given part, and several ways to fill the rest; at most 8 images below each other.

    Args:
        originals: Bytes (N, 3, H, W).
        masked: Bytes of the same shape, with holes.
        fills: Bytes (N, k, 3, H, W), k fills of each image.
        path: The file, .png.
        scale: Side of the square that a pixel becomes; None: so that the picture fits on a screen.
        names: The names above the images, above their given parts and above the fills.
    """
    x = as_images(originals, "originals")
    y = as_images(masked, "masked", x.shape)
    cells = np.concatenate([x[:, None], y[:, None], as_image_rows(fills, "fills", x.shape)], axis=1)
    blocks, width = -(-len(cells) // _MOST_BELOW), cells.shape[1]
    rows = -(-len(cells) // blocks)
    cells = np.pad(cells, ((0, blocks * rows - len(cells)), *[(0, 0)] * 4), constant_values=255)
    cells = np.concatenate(np.split(cells, blocks), axis=1)
    column_names = {width * block + i: name for block in range(blocks) for i, name in enumerate(names)}
    save_page(with_column_names(cells, scale, column_names), path)


def with_hole(images: Tensor, given: Tensor) -> Tensor:
    """Images (N, 3, H, W) with grey patches where elements are not given.

    Args:
        images: Bytes (N, 3, H, W).
        given: Booleans (h, w) or (N, h, w). An element is a patch of H/h x W/w pixels.
    """
    (height, width), (rows, columns) = images.shape[-2:], given.shape[-2:]
    fits = height % rows == 0 and width % columns == 0
    require(fits, "given.shape", tuple(given.shape), f"(h, w) that divide {(height, width)}")
    is_given = given.repeat_interleave(height // rows, -2).repeat_interleave(width // columns, -1)
    grey = torch.tensor(rgb(UNKNOWN), dtype=torch.uint8, device=images.device)[:, None, None]
    return torch.where(is_given.reshape(-1, 1, height, width), images, grey)
