"""ReLU with dropout as one Triton kernel; `usd3.kernels.dropout` has the formula."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from usd3.kernels.dropout import dropped_levels, kept_scale
from usd3.kernels.triton_common import LANES, kept_bits, random_words, where_kept

__all__ = ["relu_dropout", "tile"]


def relu_dropout(h: Tensor, p: float, seed: Tensor, **changes: Any) -> Tensor:
    """relu(h) keep / (1 - p) of a contiguous tensor. `changes` replace entries of `tile`."""
    y = torch.empty_like(h)
    if h.numel() == 0:
        return y
    cut = tile() | changes
    grid = (triton.cdiv(h.numel(), LANES.value * cut["BLOCK"]),)
    _relu_dropout_kernel[grid](h, y, seed, h.numel(), kept_scale(p), DROPPED=dropped_levels(p), **cut)
    return y


def tile() -> dict[str, Any]:
    """BLOCK and num_warps. A thread reads LANES neighbours of two bytes at once."""
    return {"BLOCK": 512, "num_warps": 4}


@triton.jit
def _relu_dropout_kernel(h, y, seed, size, scale, DROPPED: tl.constexpr, BLOCK: tl.constexpr):
    """BLOCK times LANES neighbours. Counter c decides on elements from LANES c on.

    Pointers:
        h: (size,) any float type.
        y: (size,) of the same type; receives the result.
        seed: one int64.

    Numbers:
        size: number of elements.
        scale: 1 / (1 - p).

    Compile-time constants:
        DROPPED: p as a number of 2^-15.
        BLOCK: counters of a program.
    """
    program = tl.program_id(0)
    c, lane = tl.arange(0, BLOCK), tl.arange(0, LANES)
    bits = kept_bits(random_words(tl.load(seed), program * BLOCK + c), DROPPED)
    at = program.to(tl.int64) * (BLOCK * LANES) + c[:, None] * LANES + lane[None, :]
    v = tl.load(h + at, mask=at < size, other=0.0).to(tl.float32)
    v = where_kept(tl.where(v <= 0, 0.0, v * scale), bits[:, None], (1 << lane)[None, :])  # NaN stays NaN
    tl.store(y + at, v.to(y.dtype.element_ty), mask=at < size)
