"""Logarithm and reciprocal of the GPU's special function unit, for Triton kernels.

Triton's own are exact to the last bit and cost ten to twenty instructions; these cost one, and are exact enough where
their error, at most 2^-22, is not divided by something small. In the interpreter, and on GPUs that are not NVIDIA's,
they are Triton's own.
"""

import os

import torch
import triton
import triton.language as tl

__all__ = ["fast_log2", "fast_reciprocal"]

_HARDWARE = tl.constexpr(os.environ.get("TRITON_INTERPRET") != "1" and torch.version.hip is None)


@triton.jit
def fast_log2(v):
    """log2 of a positive float32; of a float64 by Triton's own function."""
    if _HARDWARE and v.dtype == tl.float32:
        return tl.inline_asm_elementwise("lg2.approx.ftz.f32 $0, $1;", "=f,f", [v], tl.float32, is_pure=True, pack=1)
    else:
        return tl.log2(v)


@triton.jit
def fast_reciprocal(v):
    """1 / v of a float32; of a float64 by division."""
    if _HARDWARE and v.dtype == tl.float32:
        return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [v], tl.float32, is_pure=True, pack=1)
    else:
        return 1 / v
