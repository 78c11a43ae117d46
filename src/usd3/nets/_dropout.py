"""Dropout after a ReLU, as the layers of our networks call it.

On a GPU, in 16 bits, it has a kernel of its own (`usd3.kernels.dropout`). torch computes everything else.
"""

import importlib.util

import torch
from torch import Tensor
from torch.nn import functional as F

from usd3.kernels.dropout import relu_dropout

__all__ = ["dropped_relu"]

_HAS_TRITON = importlib.util.find_spec("triton") is not None


def dropped_relu(h: Tensor, p: float) -> Tensor:
    """relu(h), of which elements are dropped with probability p."""
    if p > 0 and _has_kernel(h):
        # a seed of torch's own generator on the device: torch's seed decides, and a CUDA graph draws anew
        return relu_dropout(h, p, torch.randint(2**62, (1,), device=h.device))
    return F.dropout(F.relu(h), p)


def _has_kernel(h: Tensor) -> bool:
    """Whether our kernel computes with tensors like this one: 16 bits, on an NVIDIA GPU.

    It asks nothing at which torch.compile would have to stop.
    """
    if not _HAS_TRITON or h.device.type != "cuda" or h.dtype not in (torch.float16, torch.bfloat16):
        return False
    return torch.version.hip is None and torch.cuda.get_device_properties(h.device).major >= 8
