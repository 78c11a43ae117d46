"""Masks of given elements: drawn at random in training, built from a prefix, a region or a text for sampling."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from usd3._internal.checks import as_count, require

__all__ = ["box_given", "draw_given", "named_elements", "prefix_given", "region_given"]


def prefix_given(length: int, prefix: int) -> Tensor:
    """Mask of the first `prefix` of `length` elements, bool (L,)."""
    return torch.arange(length) < as_count(prefix, "prefix", 0, length)


def region_given(length: int, start: int, stop: int) -> Tensor:
    """Mask of all of `length` elements except start..stop-1, which are to be filled, bool (L,)."""
    require(0 <= start < stop <= length, "region", f"{start}:{stop}", f"0 <= start < stop <= {length}")
    position = torch.arange(length)
    return (position < start) | (position >= stop)


def box_given(shape: Sequence[int], ranges: Sequence[tuple[int, int]]) -> Tensor:
    """Mask of all elements except a box, which is to be filled: start..stop-1 in each dimension; bool, of `shape`."""
    require(len(ranges) == len(shape), "ranges", ranges, f"one START, STOP for each dimension of {tuple(shape)}")
    given = torch.ones(tuple(shape), dtype=torch.bool)
    for size, (start, stop) in zip(shape, ranges):
        require(0 <= start < stop <= size, "range", f"{start}:{stop}", f"0 <= start < stop <= {size}")
    given[tuple(slice(start, stop) for start, stop in ranges)] = False
    return given


def named_elements(shape: Sequence[int], text: str, name: str = "ranges") -> Tensor:
    """Mask of the elements that a text names, bool of `shape`: "0:20;26:80" are 0..19 and 26..79.

    START:STOP counts elements in row-major order. One range per dimension, separated by commas, is a box, as in
    "2:6,0:4". Without START or STOP a range begins or ends with the object, as in ":,0:1". Semicolons separate several
    ranges or boxes. Errors call the text `name`.
    """
    size, count = torch.Size(shape), len(shape)
    boxes = "" if count == 1 else f", or {count} of them with commas between, one a dimension"
    expected = f"START:STOP, as in 64:128{boxes}; between several of these a semicolon"
    mask = torch.zeros(size, dtype=torch.bool)
    for part in text.split(";"):
        texts = part.split(",")
        most_of = [size.numel()] if len(texts) == 1 else list(size)
        ranges = [ends for ends in map(_range, texts, most_of) if ends is not None]
        require(len(ranges) == len(texts) and len(ranges) in (1, count), name, text, expected)
        for (start, stop), most in zip(ranges, most_of):
            require(0 <= start < stop <= most, name, text, f"0 <= START < STOP <= {most}, not {start}:{stop}")
        others = region_given(size.numel(), *ranges[0]) if len(ranges) == 1 else box_given(size, ranges)
        mask |= ~others.reshape(size)
    return mask


def _range(text: str, most: int) -> tuple[int, int] | None:
    """START:STOP as two numbers, which are 0 and `most` where they are missing; None: it is no range."""
    start, colon, stop = text.strip().partition(":")
    start, stop = start or "0", stop or str(most)
    return (int(start), int(stop)) if colon and start.isdecimal() and stop.isdecimal() else None


def draw_given(
    mode: Literal["none", "prefix", "random", "data"],
    x_0: Tensor,
    prefix: int = 0,
    given: Tensor | None = None,
    share: float = 1.0,
) -> Tensor | None:
    """Masks for training on the objects x_0 (B, ...), in their shape, drawn from torch's global generator.

    "none" gives None, "prefix" the first `prefix` elements. "random" draws one of four kinds for each object: nothing,
    a prefix, all but a gap, scattered elements; their number is uniform. In several dimensions the gap is a box. "data"
    gives the elements `given` of the data for a random `share` of the objects, and nothing for the others.
    """
    if mode == "none":
        return None
    if mode == "data":
        assert given is not None
        return given & (torch.rand(len(x_0), *[1] * (x_0.dim() - 1), device=x_0.device) < share)
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
        if x_0.dim() > 2:
            gap = ~_boxes(x_0).flatten(1)
        chosen = torch.where(kind < 0.5, position < a * (length - 1), torch.where(kind < 0.75, gap, scattered))
        given = (kind >= 0.25) & chosen
    return given.reshape(x_0.shape)


def _boxes(x_0: Tensor) -> Tensor:
    """Mask of a random box in each object, (B, ...): all elements that it touches, so at least one."""
    batch, *shape = x_0.shape
    inside = torch.ones_like(x_0, dtype=torch.bool)
    ends = torch.rand(len(shape), 2, batch, *[1] * len(shape), device=x_0.device)
    for dim, size in enumerate(shape):
        position = torch.arange(size, device=x_0.device).reshape(-1, *[1] * (len(shape) - dim - 1))
        start, stop = ends[dim].amin(0) * size, ends[dim].amax(0) * size
        inside &= (position + 1 > start) & (position <= stop)
    return inside
