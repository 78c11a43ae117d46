"""Random shifts, mirroring and rotations of a batch of images, without waiting for the device."""

import torch
from torch import Tensor

from usd3._internal.checks import as_count

__all__ = ["augmented", "moved", "turned"]


def augmented(images: Tensor, pad: int = 4, flip: bool = True) -> Tensor:
    """Images (N, 3, H, W), each shifted at random and mirrored with probability 1/2.

    Args:
        images: the images.
        pad: the largest shift in pixels, along both sides. The border is filled by reflection.
        flip: whether images are mirrored.
    """
    as_count(pad, "pad", 0, min(images.shape[2:]) - 1)
    down, right = torch.randint(-pad, pad + 1, (2, len(images)), device=images.device)
    return moved(images, down, right, torch.rand(len(images), device=images.device) < (0.5 if flip else 0.0))


def moved(images: Tensor, down: Tensor, right: Tensor, mirrored: Tensor) -> Tensor:
    """Images (N, 3, H, W), each shifted and mirrored. One gather; in memory, channels come last, which is fast on GPUs.

    Args:
        images: the images.
        down: (N,) shift in pixels. The border is filled by reflection.
        right: (N,) shift in pixels.
        mirrored: (N,) True where an image is mirrored, before it is shifted.
    """
    height, width = images.shape[2:]
    across = torch.arange(width, device=images.device)
    across = torch.where(mirrored[:, None], width - 1 - across, across)
    rows = _reflected(torch.arange(height, device=images.device) + down[:, None], height)
    columns = _reflected(across + right[:, None], width)
    each = torch.arange(len(images), device=images.device)[:, None, None]
    return images.movedim(1, -1)[each, rows[:, :, None], columns[:, None, :]].movedim(-1, 1)


def turned(images: Tensor, quarters: Tensor) -> Tensor:
    """Square images (N, 3, H, H), each rotated anticlockwise by `quarters` (N,) quarter turns, 0..3."""
    quarters = quarters[:, None, None, None]
    images = torch.where(quarters % 2 == 1, images.rot90(1, (2, 3)), images)
    return torch.where(quarters >= 2, images.flip(2, 3), images)


def _reflected(index: Tensor, size: int) -> Tensor:
    """Indices, with those before 0 or after `size` - 1 reflected at the border."""
    return size - 1 - (size - 1 - index.abs()).abs()
