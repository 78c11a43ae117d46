"""Pieces that the networks for images share."""

import math

import torch
from torch import Tensor, nn

from usd3._internal.checks import require, require_type

__all__ = ["NormedConv", "group_norm", "require_images"]


def group_norm(channels: int) -> nn.GroupNorm:
    """At most 32 groups, of at least four channels where these can be divided so."""
    return nn.GroupNorm(math.gcd(channels, max(1, min(32, channels // 4))), channels)


class NormedConv(nn.Sequential):
    """GroupNorm, SiLU, and a convolution that keeps the size."""

    def __init__(self, channels: int, out: int, kernel: int = 3):
        super().__init__(group_norm(channels), nn.SiLU(), nn.Conv2d(channels, out, kernel, padding=kernel // 2))


def require_images(images: Tensor, name: str = "images") -> None:
    """Refuse what is not a batch of colour images as bytes."""
    require_type(isinstance(images, Tensor) and images.dtype == torch.uint8, name, images, "a uint8 tensor")
    require(images.dim() == 4 and images.shape[1] == 3, f"{name}.shape", tuple(images.shape), "(N, 3, H, W)")
