"""Images as bytes and as numbers."""

import torch
from torch import Tensor

__all__ = ["as_bytes", "as_floats"]


def as_floats(images: Tensor) -> Tensor:
    """Bytes as numbers in -1..1, as the networks see them."""
    return images.to(torch.get_default_dtype()) / 127.5 - 1


def as_bytes(images: Tensor) -> Tensor:
    """Numbers in -1..1 as bytes; what lies outside is cut off."""
    return ((images.float() + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)
