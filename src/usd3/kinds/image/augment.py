"""Images moved, mirrored and turned at random, all at once and without waiting for the device."""

import torch
from torch import Tensor

from usd3._internal.checks import as_count

__all__ = ["augmented", "moved", "turned"]


def augmented(images: Tensor, pad: int = 4, flip: bool = True) -> Tensor:
    """Move each image (N, 3, H, W) by up to `pad` pixels along both sides; with `flip`, mirror it or not, at random.

    What comes in at the border is a reflection.
    """
    as_count(pad, "pad", 0, min(images.shape[2:]) - 1)
    down, right = torch.randint(-pad, pad + 1, (2, len(images)), device=images.device)
    return moved(images, down, right, torch.rand(len(images), device=images.device) < (0.5 if flip else 0.0))


def moved(images: Tensor, down: Tensor, right: Tensor, mirrored: Tensor) -> Tensor:
    """Each image, taken from (down, right), reflected at its borders, then mirrored where that is True.

    All three are (N,). One gather; its channels come last in memory, as convolutions on a GPU like it.
    """
    height, width = images.shape[2:]
    across = torch.arange(width, device=images.device)
    across = torch.where(mirrored[:, None], width - 1 - across, across)
    rows = _reflected(torch.arange(height, device=images.device) + down[:, None], height)
    columns = _reflected(across + right[:, None], width)
    each = torch.arange(len(images), device=images.device)[:, None, None]
    return images.movedim(1, -1)[each, rows[:, :, None], columns[:, None, :]].movedim(-1, 1)


def turned(images: Tensor, quarters: Tensor) -> Tensor:
    """Each square image turned against the clock by (N,) quarters of a turn, 0..3."""
    quarters = quarters[:, None, None, None]
    images = torch.where(quarters % 2 == 1, images.rot90(1, (2, 3)), images)
    return torch.where(quarters >= 2, images.flip(2, 3), images)


def _reflected(index: Tensor, size: int) -> Tensor:
    """Positions beyond the first or the last, reflected there."""
    return size - 1 - (size - 1 - index.abs()).abs()
