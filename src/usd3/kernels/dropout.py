"""ReLU with dropout after it, in one pass, and the numbers that dropout is made of.

    y = relu(h) keep / (1 - p)        keep = [u >= p], u uniform

torch.compile runs a Philox generator for every number it draws, and stores a mask. Here one Philox gives eight numbers
of 15 bits, and nothing is stored but y: its sign says where a gradient passes.

p is rounded to a multiple of 2^-15, and 1 / (1 - p) is that of the rounded p, so the mean of y is exactly relu(h).
"""

from typing import Any

import torch
from torch import Tensor

__all__ = ["LEVELS", "dropped_levels", "kept_scale", "relu_dropout"]

LEVELS = 2**15
"""Number of values that a random number of 15 bits takes."""


def dropped_levels(p: float) -> int:
    """How many of the `LEVELS` values drop an element: p of them, and never all."""
    return min(round(p * LEVELS), LEVELS - 1)


def kept_scale(p: float) -> float:
    """What kept elements are multiplied by, so that the mean stays: 1 / (1 - p)."""
    return LEVELS / (LEVELS - dropped_levels(p))


def relu_dropout(h: Tensor, p: float, seed: Tensor) -> Tensor:
    """relu(h) with dropout. On a GPU, or in Triton's interpreter.

    Args:
        h: float tensor of any shape.
        p: probability to drop an element, in [0, 1).
        seed: (1,) int64 on the same device. The same seed drops the same elements.
    """
    y: Tensor = _operation(h, p, seed)
    return y


@torch.library.custom_op("usd3::relu_dropout", mutates_args=())
def _operation(h: Tensor, p: float, seed: Tensor) -> Tensor:
    """One operation that torch.compile does not look into."""
    from usd3.kernels.triton_dropout import relu_dropout as run  # needs Triton

    with torch.cuda.device_of(h):  # a kernel starts on the current device
        return run(h.contiguous(), p, seed)


@_operation.register_fake
def _fake(h: Tensor, p: float, seed: Tensor) -> Tensor:
    return torch.empty_like(h, memory_format=torch.contiguous_format)


def _keep(ctx: Any, inputs: tuple[Tensor, float, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(output)
    ctx.p = inputs[1]


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
    """g [y > 0] / (1 - p), in operations of torch, which torch.compile fuses with their neighbours."""
    (y,) = ctx.saved_tensors
    return torch.ops.aten.threshold_backward(grad, y, 0) * kept_scale(ctx.p), None, None


_operation.register_autograd(_backward, setup_context=_keep)
