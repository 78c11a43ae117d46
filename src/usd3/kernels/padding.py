"""Output layers for any number of categories at full speed.

Tensor cores read rows in pieces of 16 bytes. Where K is no multiple of 8 the rows of bfloat16 logits begin anywhere,
and the three matrix products of an output layer (logits, and the gradients of hidden states and weight) take slower
ways. So logits of many categories are formed a little wider, with weights of zero, and everybody else sees a view
(..., K) of them, whose rows lie `padded_size` apart. Weights keep their shape.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["PADDED_ON", "empty_as_wide", "padded_linear", "padded_rows", "padded_size"]

PADDED_ON = {"cuda"}
"""Types of devices where logits are padded."""

_MULTIPLE = 64
_LEAST = 1024  # fewer categories are cheap, and padding takes a few launches


def padded_size(K: int, device: torch.device) -> int:
    """How many columns the logits of K categories have in memory on this device."""
    is_padded = device.type in PADDED_ON and K >= _LEAST
    return -(-K // _MULTIPLE) * _MULTIPLE if is_padded else K


def padded_rows(table: Tensor, size: int) -> Tensor:
    """A table (K, ...) with rows of zeros below, (size, ...); the table itself where it has as many."""
    missing = size - len(table)
    return table if missing == 0 else F.pad(table, [0, 0] * (table.dim() - 1) + [0, missing])


def padded_linear(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Logits hidden @ weight.T + bias, (..., K): a view of padded logits where that is faster."""
    size = padded_size(len(weight), hidden.device)
    if size == len(weight):
        return F.linear(hidden, weight, bias)
    if torch.compiler.is_compiling():  # it joins the copy of the gradient, see below, with its other work
        return _wide_logits(hidden, weight, bias, size)
    return _PaddedLinear.apply(hidden, weight, bias, size)  # type: ignore[no-any-return]


def _wide_logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, size: int) -> Tensor:
    wide = F.linear(hidden, padded_rows(weight, size), None if bias is None else padded_rows(bias, size))
    return wide[..., : len(weight)]


class _PaddedLinear(torch.autograd.Function):
    """The logits of a padded layer, with a gradient that is not copied into a wider tensor.

    Products read the gradient where it lies if its rows begin at multiples of 16 bytes, as those of our losses do.
    """

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, size: int) -> Tensor:
        ctx.save_for_backward(hidden, weight)
        ctx.bias_dtype, ctx.size = None if bias is None else bias.dtype, size
        return _wide_logits(hidden, weight, bias, size)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight = ctx.saved_tensors
        K = len(weight)
        rows, h, W = grad.flatten(0, -2), hidden.flatten(0, -2).to(grad.dtype), weight.to(grad.dtype)
        if rows.stride(0) * rows.element_size() % 16 or rows.stride(1) != 1:
            rows, W = F.pad(rows, (0, ctx.size - K)), padded_rows(W, ctx.size)
        needs_hidden, needs_weight, needs_bias, _ = ctx.needs_input_grad
        return (
            (rows @ W).reshape(hidden.shape).to(hidden.dtype) if needs_hidden else None,
            (rows.T @ h)[:K].to(weight.dtype) if needs_weight else None,
            grad.flatten(0, -2).sum(0, dtype=ctx.bias_dtype) if needs_bias else None,
            None,
        )


def empty_as_wide(rows: Tensor) -> Tensor:
    """Uninitialised (R, width) for numbers of these logits (R, K): the width is K, or that of padded logits."""
    (R, K), width = rows.shape, rows.stride(0)
    return rows.new_empty(R, width if K < width < K + _MULTIPLE else K)
