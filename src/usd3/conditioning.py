"""Which elements are given: the masks of a conditional task, drawn in training and made for generation."""

from typing import Literal

import torch
from torch import Tensor

from usd3._checks import as_count, require

__all__ = ["draw_given", "prefix_given", "region_given"]


def prefix_given(length: int, prefix: int) -> Tensor:
    """The first `prefix` of `length` elements, (L,)."""
    return torch.arange(length) < as_count(prefix, "prefix", 0, length)


def region_given(length: int, start: int, stop: int) -> Tensor:
    """All of `length` elements but start..stop-1, which are to be filled, (L,)."""
    require(0 <= start < stop <= length, "region", f"{start}:{stop}", f"0 <= start < stop <= {length}")
    position = torch.arange(length)
    return (position < start) | (position >= stop)


def draw_given(mode: Literal["none", "prefix", "random"], x_0: Tensor, prefix: int = 0) -> Tensor | None:
    """Masks for training on the objects x_0 (B, ...), drawn from torch's own generator.

    "random" takes one of four kinds for each object: nothing, a prefix, all but a gap, scattered elements; how
    many is uniform.
    """
    if mode == "none":
        return None
    length = x_0[0].numel()
    position = torch.arange(length, device=x_0.device)
    if mode == "prefix":
        require(prefix < length, "prefix", prefix, f"fewer than the {length} elements of an object")
        given = (position < prefix).expand(len(x_0), -1)
    else:
        kind, a, b = torch.rand(3, len(x_0), 1, device=x_0.device)
        start, stop = torch.minimum(a, b) * length, torch.maximum(a, b) * length
        gap = (position < start) | (position > stop)
        scattered = torch.rand(len(x_0), length, device=x_0.device) < a
        chosen = torch.where(kind < 0.5, position < a * (length - 1), torch.where(kind < 0.75, gap, scattered))
        given = (kind >= 0.25) & chosen
    return given.reshape(x_0.shape)
