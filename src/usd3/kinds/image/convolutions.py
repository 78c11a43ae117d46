"""Layers and checks that the networks for images share."""

import math

import torch
from torch import Tensor, nn

from usd3._internal.checks import require, require_type

__all__ = ["NormedConv", "group_norm", "require_images"]


def group_norm(channels: int) -> nn.GroupNorm:
    """A GroupNorm of at most 32 groups, with at least four channels in a group if that divides them."""
    return nn.GroupNorm(math.gcd(channels, max(1, min(32, channels // 4))), channels)


class NormedConv(nn.Sequential):
    """GroupNorm, SiLU and a convolution that keeps height and width."""

    def __init__(self, channels: int, out: int, kernel: int = 3):
        super().__init__(group_norm(channels), nn.SiLU(), nn.Conv2d(channels, out, kernel, padding=kernel // 2))


def require_images(images: Tensor, name: str = "images") -> None:
    """Raise an error unless `images` is (N, 3, H, W) uint8."""
    require_type(isinstance(images, Tensor) and images.dtype == torch.uint8, name, images, "a uint8 tensor")
    require(images.dim() == 4 and images.shape[1] == 3, f"{name}.shape", tuple(images.shape), "(N, 3, H, W)")
