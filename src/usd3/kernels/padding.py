"""Output layers for any number of categories at full speed.

Tensor cores read rows in pieces of 16 bytes. Where K is no multiple of 8 the rows of bfloat16 logits begin anywhere,
and the three matrix products of an output layer (logits, and the gradients of hidden states and weight) take slower
ways. So logits of many categories are formed a little wider, with weights of zero, and everybody else sees a view
(..., K) of them, whose rows lie `padded_size` apart. Weights keep their shape.
"""

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
    K = len(weight)
    size = padded_size(K, hidden.device)
    if size == K:
        return F.linear(hidden, weight, bias)
    wide = F.linear(hidden, padded_rows(weight, size), None if bias is None else padded_rows(bias, size))
    return wide[..., :K]


def empty_as_wide(rows: Tensor) -> Tensor:
    """Uninitialised (R, width) for numbers of these logits (R, K): the width is K, or that of padded logits."""
    (R, K), width = rows.shape, rows.stride(0)
    return rows.new_empty(R, width if K < width < K + _MULTIPLE else K)
