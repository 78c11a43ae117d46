"""Images as bytes in files and pictures, and as floats in networks."""

import torch
from torch import Tensor

__all__ = ["as_bytes", "as_floats"]


def as_floats(images: Tensor) -> Tensor:
    """Bytes 0..255 as floats in [-1, 1], the input of networks."""
    return images.to(torch.get_default_dtype()) / 127.5 - 1


def as_bytes(images: Tensor) -> Tensor:
    """Floats in [-1, 1] as bytes 0..255; values outside are clamped."""
    return ((images.float() + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)
