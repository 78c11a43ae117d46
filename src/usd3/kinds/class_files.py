"""Data in several files, one for each class of a label: a list such as "promoter=a.fa,none=b.fa", or a folder.

Every kind takes a list, if the objects of all files are alike; sequences also take a folder.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from usd3._internal.checks import require
from usd3.kinds.dataset import Dataset
from usd3.kinds.labels import LABEL
from usd3.kinds.rows import Rows, Sequences

__all__ = ["absolute_places", "class_files", "data_name", "joined_by_class", "places_of", "shared_places"]

_SPLITS = ("train", "test")
_PART = re.compile(r"\s*([^=,/\\]+?)\s*=(.+)")


def class_files(path: str, endings: Sequence[str]) -> dict[str, Path] | None:
    """The file of each class, by the name of the class; None: the path is that of one file.

    Args:
        path: "promoter=a.fa,none=b.fa", or a folder whose files are named by their classes.
        endings: the endings of files in a folder that count; none: a folder is one place.
    """
    if listed := _listed(path):
        names = [name for name, _ in listed]
        require(len(set(names)) == len(names) >= 2, "data.path", path, "CLASS=FILE,CLASS=FILE, at least two classes")
        return {name: Path(place) for name, place in listed}
    if not endings or not Path(path).is_dir():
        return None
    ending = {file: next((e for e in endings if file.name.lower().endswith(e)), "") for file in Path(path).iterdir()}
    files = sorted(file for file, end in ending.items() if end and file.is_file() and not file.name.startswith("."))
    names = [file.name[: -len(ending[file])] for file in files]
    expected = f"a file, or a folder with one file for each class, at least two, named CLASS{endings[0]}"
    require(len(names) >= 2, "data.path", f"{path}, a folder with {len(names)} such files", expected)
    require(len(set(names)) == len(names), "data.path", f"{path} with {', '.join(names)}", "one file for each class")
    return dict(zip(names, files))


def joined_by_class(parts: Mapping[str, Dataset], path: str) -> Dataset:
    """The objects of several data sets of one kind, each of a class of its own.

    Args:
        parts: the data of each class, by its name.
        path: where they are, for error messages.
    """
    (first_name, first), *others = parts.items()
    for name, part in others:
        alike = (part.shape, part.num_classes, part.kind) == (first.shape, first.num_classes, first.kind)
        found = f"{name} has {part.kind.describe()}, {first_name} has {first.kind.describe()}"
        require(alike, "data.path", path, f"files whose objects are alike, but {found}")
    train, test = (_joined_rows([getattr(part, split) for part in parts.values()], path) for split in _SPLITS)
    return replace(first, name="-".join(parts), train=train, test=test, labels={LABEL: tuple(parts)})


def _joined_rows(parts: Sequence[Rows], path: str) -> Sequences:
    """The rows of all parts, one after the other; the number of a part is the class of its rows."""
    rows = [part for part in parts if isinstance(part, Sequences)]
    require(len(rows) == len(parts), "data.path", path, "files that fit into memory, where each is a class")
    label = torch.repeat_interleave(torch.arange(len(rows)), torch.tensor([len(part) for part in rows]))
    pad = None
    if any(part.pad is not None for part in rows):
        pads = [torch.zeros_like(part.tokens, dtype=torch.bool) if part.pad is None else part.pad for part in rows]
        pad = torch.cat(pads)
    names = tuple(name for part in rows for name in part.names) if all(part.names for part in rows) else ()
    known = [part.groups for part in rows if part.groups is not None]
    groups = None
    if len(known) == len(rows):  # equal numbers in two parts are two groups
        groups = torch.unique(torch.stack([label, torch.cat(known)], 1), dim=0, return_inverse=True)[1]
    return Sequences(torch.cat([part.tokens for part in rows]), pad, names, label[:, None], groups=groups)


def places_of(path: str) -> list[Path]:
    """The path itself, or all files of a list of classes."""
    listed = _listed(path)
    return [Path(path)] if listed is None else [Path(place) for _, place in listed]


def data_name(path: str) -> str:
    """The name of the data at a path: that of the file without its ending, or the names of the classes."""
    listed = _listed(path)
    return Path(path).stem if listed is None else "-".join(name for name, _ in listed)


def absolute_places(path: str) -> str:
    """The path made absolute; in a list of files by classes, each of them."""
    listed = _listed(path)
    if listed is None:
        return os.path.abspath(path)
    return ",".join(f"{name}={os.path.abspath(place)}" for name, place in listed)


def shared_places(path: str) -> str:
    """The name of a file without its folders; in a list of files by classes, of each of them."""
    listed = _listed(path)
    if listed is None:
        return Path(path).name
    return ",".join(f"{name}={Path(place).name}" for name, place in listed)


def _listed(path: str) -> list[tuple[str, str]] | None:
    """Classes and files of a list; None: it is a single path."""
    parts = [_PART.fullmatch(part) for part in path.split(",")]
    if os.path.exists(path) or not all(parts):
        return None
    return [(part[1], part[2].strip()) for part in parts if part]
