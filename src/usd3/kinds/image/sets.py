"""Images in two splits, from CIFAR-10's batches, sheets of tiles, a folder of image files or an array file."""

import hashlib
import os
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from usd3._internal.checks import require
from usd3._internal.progress import progress
from usd3.kinds.image.cifar import cifar_folder, read_cifar
from usd3.kinds.image.files import SUFFIXES, as_side, read_image, resized
from usd3.kinds.image.images import Images, Part
from usd3.kinds.image.sheets import as_labels, as_names, read_sheets, sheets
from usd3.kinds.numpy_files import read_arrays
from usd3.kinds.splits import grouped, is_test_group

__all__ = ["load_images"]

_ACCEPTED = (
    "a folder with CIFAR-10's data_batch_1..5 and test_batch, one with sheets train_0.webp, ... and labels.npz, one "
    "of image files (with train/ and test/ or without; folders in it are classes), or an .npz file with uint8 images "
    "(N, H, W, 3) or (N, 3, H, W) named train"
)
_MANY = 1000  # files; reading so many shows progress

_Splits = tuple[Part, Part | None, tuple[str, ...]]  # training, test if there is one, names of the classes


def load_images(
    path: str | os.PathLike[str], size: int | None = None, test_fraction: float = 0.1, seed: int = 0
) -> Images:
    """The images at `path`, which has one of four forms:

    - A folder with CIFAR-10's python batches, or with the folder cifar-10-batches-py. Some batches may be missing.
    - A folder of sheets: train_0.webp, train_1.webp, ... and test*.webp (or .png), 32 x 32 tiles row by row, and
      labels.npz with an array for each sheet, or one for all sheets, `train`, in the order of their numbers from 0.
    - A folder of image files. If it has a folder train/, the splits are train/ and test/, and there are no other
      images. Folders below them are classes.
    - An .npz file with `train`, uint8 (N, H, W, 3) or (N, 3, H, W), and perhaps `test`, `train_labels`, `test_labels`
      and `classes`.

    Args:
        path: the file or folder.
        size: crop the middle square of each image and scale it to this side; None: all images must have one size.
        test_fraction: fraction of images that are drawn at random as the test split, if there is none. Equal images
            are in the same split.
        seed: seed of that split.
    """
    path = Path(path)
    size = as_side(size)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder; expected {_ACCEPTED}")
    train, test, classes = _read(path, size)
    if test is None:
        train, test = _split(train, test_fraction, seed)
    if size is not None:
        train, test = (Part(resized(part.images, size), part.labels) for part in (train, test))
    largest = [int(part.labels.max()) for part in (train, test) if part.labels is not None and len(part.labels)]
    names = classes or tuple(str(label) for label in range(max(largest, default=-1) + 1))
    place = path.resolve()
    name = place.name if place.is_dir() else place.stem
    return Images(name, train.images, test.images, train.labels, test.labels, names)


def _read(path: Path, size: int | None) -> _Splits:
    if path.is_file():
        return _read_array_file(path)
    if batches := cifar_folder(path):
        return read_cifar(batches)
    if (path / "labels.npz").is_file() and sheets(path, "train"):
        return read_sheets(path)
    if splits := _read_folder(path, size):
        return splits
    raise ValueError(f"{path}: no images; expected {_ACCEPTED}")


def _split(part: Part, fraction: float, seed: int) -> tuple[Part, Part]:
    digests = ((i, hashlib.blake2b(image.numpy().tobytes()).digest()) for i, image in enumerate(part.images))
    groups = torch.tensor(grouped(len(part.images), digests))
    is_test = torch.tensor(is_test_group(groups.bincount().tolist(), fraction, seed))[groups]
    return _rows(part, ~is_test), _rows(part, is_test)


def _rows(part: Part, chosen: Tensor) -> Part:
    return Part(part.images[chosen], None if part.labels is None else part.labels[chosen])


def _read_array_file(path: Path) -> _Splits:
    stored = read_arrays(path) if path.suffix.lower() == ".npz" else None
    if not isinstance(stored, dict) or "train" not in stored:
        raise ValueError(f"{path}: expected {_ACCEPTED}")
    parts = {}
    for name in ("train", "test"):
        if name in stored:
            images = _as_images(stored[name], f"{path}[{name}]")
            key = f"{name}_labels"
            parts[name] = Part(images, as_labels(stored[key], f"{path}[{key}]") if key in stored else None)
    return parts["train"], parts.get("test"), as_names(stored)


def _as_images(array: NDArray[Any], name: str) -> Tensor:
    require(array.dtype == np.uint8, f"{name}.dtype", array.dtype, "uint8")
    has_channels = array.ndim == 4 and array.size > 0 and 3 in (array.shape[1], array.shape[3])
    require(has_channels, f"{name}.shape", array.shape, "(N, H, W, 3) or (N, 3, H, W)")
    images = torch.from_numpy(array)
    return images if array.shape[1] == 3 else images.permute(0, 3, 1, 2).contiguous()


def _read_folder(folder: Path, size: int | None) -> _Splits | None:
    train, test = _listed(folder), {}
    if (folder / "train").is_dir():
        others = {name or "loose images" for name in train.values()} - {"train", "test"}
        beside = f"images beside {folder / 'train'}"
        require(not others, beside, ", ".join(sorted(others)), "none but those of test, or no folder named train")
        train, test = _listed(folder / "train"), _listed(folder / "test")
    if not train:
        return None
    names = {name for files in (train, test) for name in files.values()} - {None}
    classes = tuple(sorted(str(name) for name in names)) if len(names) > 1 else ()
    images = _read_all([*train, *test], size)
    parts = [
        Part(split, _class_numbers(files.values(), classes, folder))
        for files, split in zip((train, test), images.split([len(train), len(test)]))
    ]
    return parts[0], parts[1] if test else None, classes


def _listed(folder: Path) -> dict[Path, str | None]:
    """The image files below a folder, sorted by path, each with its class: the name of the folder it is in."""
    files = {file.relative_to(folder): file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES}
    visible = {name: file for name, file in files.items() if not any(part.startswith(".") for part in name.parts)}
    return {
        file: name.parts[0] if len(name.parts) > 1 else None
        for name, file in sorted(visible.items(), key=lambda item: item[0].as_posix())
        if file.is_file()
    }


def _class_numbers(names: Iterable[str | None], classes: tuple[str, ...], folder: Path) -> Tensor | None:
    given = list(names)
    loose = given.count(None)
    if not classes or loose == len(given):
        return None
    require(loose == 0, f"images of {folder} outside of its class folders", loose, "none")
    numbers = {name: number for number, name in enumerate(classes)}
    return torch.tensor([numbers[str(name)] for name in given])


def _read_all(files: list[Path], size: int | None) -> Tensor:
    images: Tensor | None = None
    broken = []
    with progress("reading images", len(files)) if len(files) >= _MANY else nullcontext() as advance:
        for i, file in enumerate(files):
            try:
                image = read_image(file, size)
            except ValueError as error:
                broken.append(str(error))
                continue
            if images is None:
                images = torch.empty(len(files), *image.shape, dtype=torch.uint8)
                first = file
            if image.shape != images.shape[1:]:
                shapes = [f"{width} x {height}" for _, height, width in (images.shape[1:], image.shape)]
                seen = f"{first} is {shapes[0]} pixels, {file} is {shapes[1]}"
                raise ValueError(f"the images differ in size: {seen}: give a size (--size) to crop and scale them to")
            images[i] = image
            if advance is not None:
                advance(i + 1)
    if broken or images is None:
        more = f"; and {len(broken) - 3} more" if len(broken) > 3 else ""
        raise ValueError(f"{len(broken)} of {len(files)} images cannot be read: {'; '.join(broken[:3])}{more}")
    return images
