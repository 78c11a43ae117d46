"""Sheets: large pictures made of many small images (tiles), and a file of labels."""

import re
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from usd3._internal.checks import require
from usd3.kinds.image.files import read_image
from usd3.kinds.image.images import Part, joined
from usd3.kinds.numpy_files import read_arrays

__all__ = ["as_labels", "as_names", "read_sheets", "sheets"]

_TILE = 32
_SUFFIXES = (".webp", ".png")


def sheets(folder: Path, split: str) -> dict[int, Path]:
    """The files of a split's sheets by number, in order. A sheet without a number has number 0."""
    named = [file for file in folder.iterdir() if file.suffix in _SUFFIXES and re.match(rf"{split}(_|$)", file.stem)]
    numbers = [(re.search(r"_(\d+)$", file.stem), file) for file in named]
    numbered = sorted((int(number[1]) if number else 0, file) for number, file in numbers)
    for (a, first), (b, second) in pairwise(numbered):
        require(a != b, f"sheets of {folder}", f"{first.name} and {second.name}", f"one sheet with number {a}")
    return dict(numbered)


def read_sheets(folder: Path) -> tuple[Part, Part | None, tuple[str, ...]]:
    """The tiles of the training and the test split with their labels from labels.npz, and the names of the classes.

    All sheets of a split but the last have the same number of tiles. So the number of a sheet says where its labels
    begin, even if the sheets before it are missing.
    """
    stored = read_arrays(folder / "labels.npz")
    if not isinstance(stored, dict):
        raise ValueError(f"{folder / 'labels.npz'}: expected an .npz file")
    train = _read_split(folder, "train", stored)
    test = _read_split(folder, "test", stored) if sheets(folder, "test") else None
    return train, test, as_names(stored)


def _read_split(folder: Path, split: str, stored: dict[str, NDArray[Any]]) -> Part:
    places = sheets(folder, split)
    tiles = {number: _tiles(sheet) for number, sheet in places.items()}
    full, last = max(map(len, tiles.values())), max(tiles)
    parts = []
    for number, sheet in places.items():
        count = len(tiles[number])
        even = count == full or number == last
        require(even, f"tiles of {sheet}", count, f"{full}, as the other sheets have; only the last may have fewer")
        key = sheet.stem if sheet.stem in stored else split
        require(key in stored, f"arrays of {folder / 'labels.npz'}", ", ".join(stored), f"one named {split}")
        labels = as_labels(stored[key], f"{folder / 'labels.npz'}[{key}]")
        if key == split:
            has_start = number == 0 or len(tiles) > 1 or len(labels) % count == 0
            require(has_start, f"sheets of {folder}", sheet.name, "the sheets before it: where its labels begin")
            labels = labels[number * full :]
        parts.append(_labelled(sheet, tiles[number], labels[:count]))
    part = joined(parts)
    if split in stored and len(stored[split]) > len(part.images):
        present = ", ".join(sheet.name for sheet in places.values())
        seen = f"{len(stored[split])} labels, but sheets for {len(part.images)} images only ({present})"
        warnings.warn(f"{folder}: {split} has {seen}", stacklevel=5)
    return part


def _tiles(sheet: Path) -> Tensor:
    picture = read_image(sheet)
    _, height, width = picture.shape
    divides = height % _TILE == 0 and width % _TILE == 0
    require(divides, f"size of {sheet}", f"{width} x {height}", f"a multiple of {_TILE} x {_TILE} tiles")
    grid = picture.reshape(3, height // _TILE, _TILE, width // _TILE, _TILE)
    return grid.permute(1, 3, 0, 2, 4).reshape(-1, 3, _TILE, _TILE)


def _labelled(sheet: Path, tiles: Tensor, labels: Tensor) -> Part:
    """The tiles that have labels. The others must be blank: they fill the last row."""
    left = tiles[len(labels) :].flatten(1)
    blank = len(labels) > 0 and bool((left == left[:, :1]).all())
    require(blank, f"labels of {sheet}", len(labels), f"{len(tiles)}, one a tile")
    return Part(tiles[: len(labels)], labels)


def as_labels(array: NDArray[Any], name: str) -> Tensor:
    """Labels (N,) as int64."""
    require(array.dtype.kind in "iu" and array.ndim == 1, name, f"{array.dtype} {array.shape}", "integers (N,)")
    return torch.from_numpy(array.astype(np.int64))


def as_names(stored: dict[str, NDArray[Any]]) -> tuple[str, ...]:
    """The names of the classes, if the array file has them."""
    return tuple(str(name) for name in stored["classes"].reshape(-1)) if "classes" in stored else ()
