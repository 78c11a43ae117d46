"""Attention over short sequences as two Triton kernels; `usd3.kernels.attention` has the formulas.

Forward, one program for some queries of a head: all its keys are one block, so the softmax is plain.

Backward, one program for a head. It keeps K, V, dK and dV on the chip and visits the queries a few rows at a time. The
weights are computed again from the log-sum-exp, transposed (keys along rows), so that they can stay in registers as
the first factor of two of the products:

    P^T = 2^(c K Q^T - lse)                  dV += (P keep / (1 - p))^T dO
    dP^T = V dO^T                            dS^T = P^T (dP^T keep - (1 - p) delta) / (1 - p),  delta = rowsum(dO O)
    dK += dS^T Q / sqrt(d)                   dQ = dS K / sqrt(d)

with c = log2(e) / sqrt(d). What multiplies all weights alike multiplies the sums instead. Products are those of tensor
cores in the type of the input, sums are float32.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from usd3.kernels.attention import padded
from usd3.kernels.dropout import dropped_levels, kept_scale
from usd3.kernels.triton_common import LANES, LOG2_E, fast_exp2, kept_bits, random_words, where_kept

__all__ = ["backward", "backward_tile", "forward", "forward_tile"]


def forward(
    q: Tensor, k: Tensor, v: Tensor, p: float, seed: Tensor | None, **changes: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """The result (B, L, H d), the log-sum-exp and the mask, see `usd3.kernels.attention.short_attention_parts`.

    q, k and v are (B, L, H, d), q and k with the same strides. `changes` replace entries of `forward_tile`.
    """
    B, L, H, d = q.shape
    N = padded(L)
    out, lse = q.new_empty(B, L, H * d), q.new_empty(B, H, L, dtype=torch.float32)
    bits = q.new_empty((B, H, L, N // 8) if p > 0 else 0, dtype=torch.uint8)
    if out.numel() == 0:
        return out, lse, bits
    cut = forward_tile(N, d) | changes
    _forward_kernel[(B * H, triton.cdiv(L, cut["ROWS"]))](
        q,
        k,
        v,
        lse if seed is None else seed,
        out,
        lse,
        bits,
        L,
        H,
        *q.stride()[:3],
        *v.stride()[:3],
        LOG2_E.value / math.sqrt(d),
        kept_scale(p),
        DROPPED=dropped_levels(p) if p > 0 else -1,
        FULL=L == N,
        N=N,
        D=d,
        **cut,
    )
    return out, lse, bits


def backward(
    q: Tensor, k: Tensor, v: Tensor, p: float, out: Tensor, lse: Tensor, bits: Tensor, grad: Tensor, **changes: Any
) -> Tensor:
    """The gradients of q, k and v, (B, L, 3, H, d), from that of the result, contiguous as the result is."""
    B, L, H, d = q.shape
    N = padded(L)
    gradients = q.new_empty(B, L, 3, H, d)
    if out.numel() == 0:
        return gradients
    _backward_kernel[(B * H,)](
        q,
        k,
        v,
        out,
        lse,
        bits,
        grad,
        gradients,
        L,
        H,
        *q.stride()[:3],
        *v.stride()[:3],
        LOG2_E.value / math.sqrt(d),
        1 / math.sqrt(d),
        kept_scale(p),
        DROPOUT=p > 0,
        FULL=L == N,
        N=N,
        D=d,
        **(backward_tile(N, d) | changes),
    )
    return gradients


def forward_tile(N: int, d: int) -> dict[str, Any]:
    """ROWS, the queries of a program, and num_warps."""
    return {"ROWS": min(64, N), "num_warps": 4}


def backward_tile(N: int, d: int) -> dict[str, Any]:
    """ROWS, the queries of one visit, num_warps, and num_stages of the loop over visits."""
    return {"ROWS": min(32, N), "num_warps": 8 if N >= 128 else 4, "num_stages": 2}


@triton.jit
def _forward_kernel(
    q,
    k,
    v,
    seed,
    out,
    lse,
    bits,
    L,
    H,
    stride_b,
    stride_l,
    stride_h,
    v_stride_b,
    v_stride_l,
    v_stride_h,
    to_log2,
    kept_scale,
    DROPPED: tl.constexpr,
    FULL: tl.constexpr,
    N: tl.constexpr,
    D: tl.constexpr,
    ROWS: tl.constexpr,
):
    """The result of ROWS queries of one head. Program (b H + h, i) computes queries from i ROWS on.

    Pointers:
        q, k: (B, L, H, D) queries and keys, in float16 or bfloat16, with three strides in common.
        v: (B, L, H, D) values of the same type, with strides of their own.
        seed: one int64; unused without dropout.
        out: (B, L, H, D) contiguous; receives the result.
        lse: (B, H, L) contiguous float32; receives the base-2 log-sum-exp.
        bits: (B, H, L, N / LANES) contiguous uint8; receives the mask. Unused without dropout.

    Numbers:
        L, H: elements and heads.
        to_log2: log2(e) / sqrt(D).
        kept_scale: 1 / (1 - p).

    Compile-time constants:
        DROPPED: p as a number of 2^-15; -1: no dropout.
        FULL: L = N, so that no key is left out.
        N: number of keys that are computed, a power of two.
        D: size of a head.
        ROWS: queries of a program.
    """
    head = tl.program_id(0)
    b, h = (head // H).to(tl.int64), head % H
    i, j, c = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.arange(0, N), tl.arange(0, D)
    start = b * stride_b + h * stride_h
    queries = tl.load(q + start + i[:, None] * stride_l + c[None, :], mask=(i < L)[:, None], other=0.0)
    keys = tl.load(k + start + j[:, None] * stride_l + c[None, :], mask=(j < L)[:, None], other=0.0)
    s = tl.dot(queries, tl.trans(keys))
    if not FULL:
        s = tl.where((j < L)[None, :], s, float("-inf"))
    top = tl.max(s, 1) * to_log2
    weights = fast_exp2(s * to_log2 - top[:, None])
    total = tl.sum(weights, 1)
    tl.store(lse + head * L + i, top + tl.log2(total), mask=i < L)
    if DROPPED >= 0:
        w = tl.arange(0, N // LANES)
        place = (head * L + i)[:, None] * (N // LANES) + w[None, :]
        mask = kept_bits(random_words(tl.load(seed), place), DROPPED)
        tl.store(bits + place, mask.to(tl.uint8), mask=(i < L)[:, None])
        spread = tl.reshape(tl.broadcast_to(mask[:, None, :], (ROWS, LANES, N // LANES)), (ROWS, N))
        weights = where_kept(weights, spread, (1 << (j // (N // LANES)))[None, :])
    values = v + b * v_stride_b + h * v_stride_h + j[:, None] * v_stride_l + c[None, :]
    values = tl.load(values, mask=(j < L)[:, None], other=0.0)
    mixed = tl.dot(weights.to(values.dtype), values) * (kept_scale / total)[:, None]
    at = out + ((b * L + i) * H + h)[:, None] * D + c[None, :]
    tl.store(at, mixed.to(out.dtype.element_ty), mask=(i < L)[:, None])


@triton.jit
def _backward_kernel(
    q,
    k,
    v,
    out,
    lse,
    bits,
    grad,
    gradients,
    L,
    H,
    stride_b,
    stride_l,
    stride_h,
    v_stride_b,
    v_stride_l,
    v_stride_h,
    to_log2,
    scale,
    kept_scale,
    DROPOUT: tl.constexpr,
    FULL: tl.constexpr,
    N: tl.constexpr,
    D: tl.constexpr,
    ROWS: tl.constexpr,
):
    """The gradients of one head. Program b H + h computes head h of object b.

    Pointers:
        q, k, v, lse, bits: as in the forward kernel, which wrote the last two.
        out: (B, L, H, D) contiguous, the result.
        grad: (B, L, H, D) contiguous, its gradient.
        gradients: (B, L, 3, H, D) contiguous; receives the gradients of queries, keys and values.

    Numbers:
        L, H: elements and heads.
        to_log2: log2(e) / sqrt(D).
        scale: 1 / sqrt(D).
        kept_scale: 1 / (1 - p).

    Compile-time constants:
        DROPOUT: there is a mask.
        FULL, N, D: as in the forward kernel.
        ROWS: queries of one visit.
    """
    head = tl.program_id(0)
    b, h = (head // H).to(tl.int64), head % H
    j, c = tl.arange(0, N), tl.arange(0, D)
    q += b * stride_b + h * stride_h
    keys = tl.load(
        k + b * stride_b + h * stride_h + j[:, None] * stride_l + c[None, :], mask=(j < L)[:, None], other=0.0
    )
    values = v + b * v_stride_b + h * v_stride_h + j[:, None] * v_stride_l + c[None, :]
    values = tl.load(values, mask=(j < L)[:, None], other=0.0)
    key_gradient = tl.zeros((N, D), tl.float32)
    value_gradient = tl.zeros((N, D), tl.float32)
    for first in range(0, L, ROWS):
        i = first + tl.arange(0, ROWS)
        here = i < L
        queries = tl.load(q + i[:, None] * stride_l + c[None, :], mask=here[:, None], other=0.0)
        at = ((b * L + i) * H + h)[:, None] * D + c[None, :]
        g = tl.load(grad + at, mask=here[:, None], other=0.0)
        mixed = tl.load(out + at, mask=here[:, None], other=0.0)
        delta = tl.sum(g.to(tl.float32) * mixed.to(tl.float32), 1) / kept_scale
        norm = tl.load(lse + head * L + i, mask=here, other=0.0)
        weights = fast_exp2(tl.dot(keys, tl.trans(queries)) * to_log2 - norm[None, :])
        if not FULL:
            weights = tl.where((j < L)[:, None], weights, 0.0)
        weight_gradient = tl.dot(values, tl.trans(g))
        used = weights
        if DROPOUT:
            w = tl.arange(0, N // LANES)
            mask = tl.load(bits + (head * L + i)[None, :] * (N // LANES) + w[:, None], mask=here[None, :], other=0).to(
                tl.int32
            )
            spread = tl.reshape(tl.broadcast_to(mask[None, :, :], (LANES, N // LANES, ROWS)), (N, ROWS))
            bit = (1 << (j // (N // LANES)))[:, None]
            used = where_kept(weights, spread, bit)
            weight_gradient = where_kept(weight_gradient, spread, bit)
        value_gradient = tl.dot(used.to(g.dtype), g, value_gradient)
        score_gradient = (weights * (weight_gradient - delta[None, :])).to(g.dtype)
        key_gradient = tl.dot(score_gradient, queries, key_gradient)
        query_gradient = tl.dot(tl.trans(score_gradient), keys) * (scale * kept_scale)
        to = gradients + (((b * L + i) * 3) * H + h)[:, None] * D + c[None, :]
        tl.store(to, query_gradient.to(gradients.dtype.element_ty), mask=here[:, None])
    to = gradients + (((b * L + j) * 3 + 1) * H + h)[:, None] * D + c[None, :]
    tl.store(to, (key_gradient * (scale * kept_scale)).to(gradients.dtype.element_ty), mask=(j < L)[:, None])
    tl.store(to + H * D, (value_gradient * kept_scale).to(gradients.dtype.element_ty), mask=(j < L)[:, None])
