"""Images in a training and a test split, as bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from usd3._internal.checks import require, require_type

__all__ = ["Images", "Part", "joined", "spread"]


class Part(NamedTuple):
    """Images (N, 3, H, W) uint8 of one split, and their labels (N,) int64 or None."""

    images: Tensor
    labels: Tensor | None


def joined(parts: Sequence[Part]) -> Part:
    """The parts concatenated. They have labels if all parts have some."""
    labels = [part.labels for part in parts if part.labels is not None]
    is_labelled = len(labels) == len(parts)
    return Part(torch.cat([part.images for part in parts]), torch.cat(labels) if is_labelled else None)


@dataclass(frozen=True, eq=False)
class Images:
    """Colour images of one size in two splits.

    Args:
        name: name of the data.
        train: (N, 3, H, W) uint8.
        test: (M, 3, H, W) uint8.
        train_labels: (N,) int64, indices of `classes`; None: there are no labels.
        test_labels: (M,) int64, in the same way.
        classes: names of the classes.
    """

    name: str
    train: Tensor
    test: Tensor
    train_labels: Tensor | None = None
    test_labels: Tensor | None = None
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, split, labels in (
            ("train", self.train, self.train_labels),
            ("test", self.test, self.test_labels),
        ):
            is_bytes = isinstance(split, Tensor) and split.dtype == torch.uint8
            require_type(is_bytes, name, split, "a uint8 tensor")
            fits = split.dim() == 4 and split.shape[1] == 3 and split.numel() > 0
            require(fits, f"{name}.shape", tuple(split.shape), "(N, 3, H, W), at least one image")
            require(split.shape[1:] == self.train.shape[1:], f"{name}.shape", tuple(split.shape), "that of train")
            if labels is not None:
                require(len(labels) == len(split), f"len({name}_labels)", len(labels), f"{len(split)}, one an image")
                least, most = int(labels.min()), int(labels.max())
                valid = least >= 0 and most < len(self.classes)
                require(valid, f"{name}_labels", f"{least}..{most}", f"0..{len(self.classes) - 1}")

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return int(self.train.shape[2]), int(self.train.shape[3])


def spread(rows: Tensor, most: int | None) -> Tensor:
    """At most `most` rows, evenly spread, as rows may be sorted by class; None: all rows."""
    if most is None or most >= len(rows):
        return rows
    return rows[torch.arange(most, device=rows.device) * len(rows) // most]
