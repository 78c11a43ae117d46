"""What the Triton kernels share: the kinds of noise, and special functions.

Triton's own logarithm and division are exact to the last bit and cost ten to twenty instructions. Those of the GPU's
special function unit cost one, with an error of at most 2^-22: exact enough where that error is not divided by
something small. In the interpreter, and on GPUs that are not NVIDIA's, `fast_log2` and `fast_reciprocal` are Triton's.
"""

import os
from typing import Any

import torch
import triton
import triton.language as tl

from usd3.kernels.loss import NoiseTables

__all__ = [
    "ABSORBING",
    "LN_2",
    "LOG2_E",
    "TABLE",
    "UNIFORM",
    "bregman",
    "category_constants",
    "fast_log2",
    "fast_reciprocal",
    "log_1_plus",
    "log_share",
]

UNIFORM, ABSORBING, TABLE = (tl.constexpr(kind) for kind in range(3))
"""Kinds of noise. UNIFORM: m_z = 1/K. ABSORBING: m = e_mask. TABLE: m is read from memory."""

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)
_HARDWARE = tl.constexpr(os.environ.get("TRITON_INTERPRET") != "1" and torch.version.hip is None)


def category_constants(noise: NoiseTables) -> dict[str, Any]:
    """KIND, the kind of noise; MASK and SUPPORT, how categories are marked that data cannot have."""
    kind = ABSORBING if noise.absorbing else UNIFORM if noise.m is None else TABLE
    return {"KIND": kind, "MASK": noise.mask >= 0, "SUPPORT": noise.support is not None}


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


@triton.jit
def bregman(u, log_v, LONG: tl.constexpr = False):
    """u - log(1 + u) from u and log_v = log(1 + u). A series near 0, where the difference would cancel.

    The error of `fast_log2` is up to 9e-6 of the difference at |u| = 0.2, and falls as 1 / u^2. It matters where all
    cells of a row have about the same u. With LONG the series goes on to 0.45.
    """
    if LONG:
        near = -1 / 19.0
        near = near * u + 1 / 18.0
        near = near * u - 1 / 17.0
        near = near * u + 1 / 16.0
        near = near * u - 1 / 15.0
        near = near * u + 1 / 14.0
        near = near * u - 1 / 13.0
        near = near * u + 1 / 12.0
        near = near * u - 1 / 11.0
        near = near * u + 1 / 10.0
        near = near * u - 1 / 9.0
    else:
        near = -1 / 9.0
    near = near * u + 1 / 8.0
    near = near * u - 1 / 7.0
    near = near * u + 1 / 6.0
    near = near * u - 1 / 5.0
    near = near * u + 1 / 4.0
    near = near * u - 1 / 3.0
    near = near * u + 1 / 2.0
    near = near * u * u
    limit = 0.01 if u.dtype == tl.float64 else (0.45 if LONG else 0.2)
    return tl.where(tl.abs(u) < limit, near, u - log_v)


@triton.jit
def log_1_plus(y):
    """log(1 + y) for y >= 0, right for small y too."""
    w = y / (2 + y)
    w_2 = w * w
    near = w * (2 + w_2 * (2 / 3 + w_2 * (2 / 5 + w_2 * (2 / 7 + w_2 * (2 / 9)))))
    return tl.where(y < (0.01 if y.dtype == tl.float64 else 0.3), near, tl.log(1 + y))


@triton.jit
def log_share(part, rest, log_part, total):
    """log(part / total), total = part + rest. Right where the part is nearly all; at least -1e30, also for part = 0."""
    most = part > rest
    log_f = tl.where(most, -log_1_plus(rest / tl.where(most, part, 1.0)), log_part - tl.log(total))
    return tl.where(log_f < -1e30, -1e30, log_f)  # NaN stays NaN
