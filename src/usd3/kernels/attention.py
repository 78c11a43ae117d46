"""Attention over short sequences, with dropout of its weights: L <= 256 elements, narrow heads.

    S = Q K^T / sqrt(d)    P = softmax(S)    O = (P * keep / (1 - p)) V

General attention kernels are made for long sequences and wide heads. For a short sequence one program holds all keys
and values of a head: the softmax needs no second visit, and the backward pass is one kernel without atomic additions,
in which queries, keys and values are read once. It writes the three gradients side by side, as the layer in front of
the attention wants them. `triton_attention.py` has the kernels.

The forward pass draws the dropout mask and keeps it as bits, one for each weight: to draw it again would cost the
backward pass more than to read it.
"""

from typing import Any

import torch
from torch import Tensor

__all__ = ["HEAD_DIMS", "LONGEST", "short_attention", "short_attention_parts"]

LONGEST = 256
"""The longest sequence."""

HEAD_DIMS = (16, 32)
"""Heads for which the networks take these kernels. 64 runs too, but takes 115 KB of shared memory and spills."""


def short_attention(qkv: Tensor, values: Tensor | None = None, p: float = 0.0, seed: Tensor | None = None) -> Tensor:
    """softmax(Q K^T / sqrt(d)) V of each head, heads side by side: (B, L, H d). On a GPU, or in Triton's interpreter.

    Args:
        qkv: (B, L, 3, H, d) queries, keys and values, or (B, L, 2, H, d) queries and keys. float16 or bfloat16; any
            strides but that of d, which is 1. Read in place.
        values: (B, L, H, d) where `qkv` does not hold them.
        p: probability to drop a weight, in [0, 1).
        seed: (1,) int64 on the same device, for p > 0. The same seed drops the same weights.
    """
    return short_attention_parts(qkv, values, p, seed)[0]


def short_attention_parts(
    qkv: Tensor, values: Tensor | None, p: float, seed: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The result with what the backward pass needs beside it; the arguments are those of `short_attention`.

    - (B, L, H d) the result.
    - (B, H, L) float32, the base-2 log-sum-exp of each row of S.
    - (B, H, L, N / 8) uint8, the mask, N the power of two from max(L, 16) on. Bit i of byte w is that of key
      w + i N / 8, and 1 where the weight is kept. Empty for p = 0.
    """
    parts: tuple[Tensor, Tensor, Tensor] = _operation(qkv, values, p, seed)
    return parts


def padded(length: int) -> int:
    """N, the number of keys that a kernel computes: a power of two, and 16 at least."""
    return next(n for n in (16, 32, 64, 128, LONGEST) if length <= n)


@torch.library.custom_op("usd3::short_attention", mutates_args=())
def _operation(qkv: Tensor, values: Tensor | None, p: float, seed: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The three parts, as one operation that torch.compile does not look into."""
    from usd3.kernels.triton_attention import forward  # needs Triton

    with torch.cuda.device_of(qkv):  # a kernel starts on the current device
        return forward(*_apart(qkv, values), p, seed)


@_operation.register_fake
def _fake(qkv: Tensor, values: Tensor | None, p: float, seed: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    B, L, H, d = _sizes(qkv)
    bits = qkv.new_empty((B, H, L, padded(L) // 8) if p > 0 else 0, dtype=torch.uint8)
    return qkv.new_empty(B, L, H * d), qkv.new_empty(B, H, L, dtype=torch.float32), bits


@torch.library.custom_op("usd3::short_attention_backward", mutates_args=())
def _gradient(
    qkv: Tensor, values: Tensor | None, p: float, out: Tensor, lse: Tensor, bits: Tensor, grad: Tensor
) -> Tensor:
    """The gradients of queries, keys and values, (B, L, 3, H, d), from that of the result, (B, L, H d)."""
    from usd3.kernels.triton_attention import backward

    with torch.cuda.device_of(qkv):
        return backward(*_apart(qkv, values), p, out, lse, bits, grad.contiguous())


@_gradient.register_fake
def _fake_gradient(qkv: Tensor, *_: Any) -> Tensor:
    B, L, H, d = _sizes(qkv)
    return qkv.new_empty(B, L, 3, H, d)


def _sizes(qkv: Tensor) -> tuple[int, int, int, int]:
    B, L, _, H, d = qkv.shape
    return B, L, H, d


def _apart(qkv: Tensor, values: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values (B, L, H, d), with the numbers of a head adjacent."""
    qkv = qkv if qkv.stride(-1) == 1 else qkv.contiguous()
    if values is None:
        return qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
    return qkv[:, :, 0], qkv[:, :, 1], values if values.stride(-1) == 1 else values.contiguous()


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    qkv, values, p, _ = inputs
    ctx.p = p
    ctx.save_for_backward(qkv, values, *output)
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)  # no zeros for what has no gradient


def _backward(ctx: Any, grad: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
    if grad is None:
        return None, None, None, None
    qkv, values, out, lse, bits = ctx.saved_tensors
    found = _gradient(qkv, values, ctx.p, out, lse, bits, grad)
    if values is None:
        return found, None, None, None
    return found[:, :, :2], found[:, :, 2], None, None


_operation.register_autograd(_backward, setup_context=_keep)
