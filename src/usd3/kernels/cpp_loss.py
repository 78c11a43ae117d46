"""The losses and their gradient on the CPU by `cpp_loss.cpp`: one visit to each row, in all of torch's threads.

The arithmetic is that of `chunked_loss.py`, which runs in its place where the library could not be built, and where the
logits are on another device.
"""

import ctypes
from typing import Any

import torch
from torch import Tensor

from usd3.kernels import chunked_loss
from usd3.kernels.cpp_common import library, parallel
from usd3.kernels.loss import Problem

__all__ = ["loss_rows"]

_TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)  # in the order of `Type` in the source
_ALONE = 1 << 15  # logits that one thread takes sooner than several: torch's own limit

_POINTERS = ("logits", "gradient", "terms", "x", "x_0", "coefficients", "weights", "tables", "supports", "free")
_NUMBERS = (
    *("type", "rows", "classes", "logits_stride", "gradient_stride", "objects", "elements", "first"),
    *("num_weights", "weights_by_row", "num_tables", "num_supports", "mask", "absorbing", "is_step", "with_l2"),
)


class _Arguments(ctypes.Structure):
    """`Arguments` of the source, which says what each of them is."""

    _fields_ = [(name, ctypes.c_void_p) for name in _POINTERS] + [(name, ctypes.c_int64) for name in _NUMBERS]


def loss_rows(logits: Tensor, p: Problem, weights: Tensor, with_l2: bool, gradient: Tensor | None) -> Tensor:
    """Terms (4, R) of each row: vlb, ce, l2 and their weighted sum; see `usd3.kernels.loss.loss_rows`."""
    built = library() if logits.device.type == "cpu" else None
    if built is None or logits.dtype not in _TYPES:
        return chunked_loss.loss_rows(logits, p, weights, with_l2, gradient)
    R, K = logits.shape
    terms = logits.new_empty(4, R, dtype=torch.promote_types(logits.dtype, torch.float32))
    if R == 0:
        return terms
    tensors = (logits, gradient, terms, p.x, p.x_0, p.coefficients, weights, p.noise.m, p.noise.support, p.free)
    kept = [*tensors[:3], *(None if v is None else v.contiguous() for v in tensors[3:])]  # alive during the call
    pointers: list[Any] = [None if v is None else v.data_ptr() for v in kept]
    numbers = (
        *(_TYPES.index(logits.dtype), R, K, logits.stride(0), 0 if gradient is None else gradient.stride(0)),
        *(p.coefficients.shape[1], p.elements, p.first),
        *(weights.shape[1], weights.shape[1] != p.coefficients.shape[1]),
        *(1 if p.noise.m is None else len(p.noise.m), 1 if p.noise.support is None else len(p.noise.support)),
        *(p.noise.mask, p.noise.absorbing, p.is_step, with_l2),
    )
    threads = 1 if R * K < _ALONE else torch.get_num_threads()
    if not built.usd3_loss_rows(ctypes.byref(_Arguments(*pointers, *numbers)), parallel(), threads):
        raise IndexError(f"x or x_0 is out of range: expected 0 to {K - 1}")
    return terms
