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
    "LANES",
    "LN_2",
    "LOG2_E",
    "TABLE",
    "UNIFORM",
    "bregman",
    "category_constants",
    "fast_log2",
    "fast_reciprocal",
    "kept_bits",
    "log_1_plus",
    "log_share",
    "random_words",
    "where_kept",
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


LANES = tl.constexpr(8)
"""Random numbers that one counter gives, of 15 bits each."""

_ROUNDS = tl.constexpr(7)  # of Philox: the fewest that pass BigCrush (Salmon et al., 2011)


@triton.jit
def random_words(seed, counter):
    """Four random uint32 for each counter, an int32, by Philox: `tl.randint4x(seed, counter, 7)`.

    Both halves of a product come from one instruction here, and from two there.
    """
    key_0, key_1 = seed.to(tl.uint32), (seed >> 32).to(tl.uint32)
    a = counter.to(tl.uint32)
    b, c, d = a * 0, a * 0, a * 0
    for _ in range(_ROUNDS):
        from_a, from_c = a.to(tl.uint64) * 0xD2511F53, c.to(tl.uint64) * 0xCD9E8D57
        a, c = (from_c >> 32).to(tl.uint32) ^ b ^ key_0, (from_a >> 32).to(tl.uint32) ^ d ^ key_1
        b, d = from_c.to(tl.uint32), from_a.to(tl.uint32)
        key_0 = tl.add(key_0, 0x9E3779B9, sanitize_overflow=False)
        key_1 = tl.add(key_1, 0xBB67AE85, sanitize_overflow=False)
    return a, b, c, d


@triton.jit
def kept_bits(words, DROPPED: tl.constexpr):
    """LANES bits for each counter, bits 0 to 7 of an int32: 1 with probability 1 - DROPPED / 2^15.

    Each half of a word is a number of 15 bits. Two additions at once carry into bits 15 and 31 where a number is at
    least DROPPED, so a bit takes two to three instructions.
    """
    found = words[0] * 0
    for i in tl.static_range(4):
        sums = (words[i] & 0x7FFF7FFF) + (0x8000 - DROPPED) * 0x10001
        found |= (sums & 0x80008000) >> (3 - i)
    bits = ((found >> 12) & 0xF | (found >> 24)).to(tl.int32)
    return bits


_KEEP = tl.constexpr(
    """{
    .reg .b32 bit;
    .reg .pred kept;
    and.b32 bit, $2, $3;
    setp.ne.b32 kept, bit, 0;
    selp.f32 $0, $1, 0f00000000, kept;
    }"""
)


@triton.jit
def where_kept(v, bits, bit):
    """A float32 v where `bits` have `bit`, else 0.

    With `tl.where` the compiler would round v to 16 bits first, and take pairs apart to choose each half.
    """
    if _HARDWARE:
        return tl.inline_asm_elementwise(_KEEP, "=f,f,r,r", [v, bits, bit], tl.float32, is_pure=True, pack=1)
    else:
        return tl.where(bits & bit != 0, v, 0.0)


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
