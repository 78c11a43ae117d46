"""Attention and dropout as the layers of our networks call them.

On a GPU, in 16 bits, short sequences without padding have kernels of their own (`usd3.kernels.attention`), and so has
dropout after a ReLU (`usd3.kernels.dropout`). torch computes everything else.
"""

import importlib.util

import torch
from torch import Tensor
from torch.nn import functional as F

from usd3.kernels.attention import HEAD_DIMS, LONGEST, short_attention
from usd3.kernels.dropout import relu_dropout

__all__ = ["attention", "dropped_relu"]

_HAS_TRITON = importlib.util.find_spec("triton") is not None


def attention(qkv: Tensor, attend: Tensor | None, p: float = 0.0, values: Tensor | None = None) -> Tensor:
    """softmax(Q K^T / sqrt(d)) V of each head, heads side by side: (B, L, H d).

    Args:
        qkv: (B, L, 3, H, d) queries, keys and values, or (B, L, 2, H, d) queries and keys.
        attend: True where an element is attended to, of a shape that broadcasts to (B, H, L, L). None: everywhere.
        p: probability to drop an attention weight.
        values: (B, L, H, d) where `qkv` does not hold them.
    """
    length, d = qkv.shape[1], qkv.shape[-1]
    if attend is None and length <= LONGEST and d in HEAD_DIMS and _has_kernels(qkv):
        return short_attention(qkv, values, p, _seed(qkv.device) if p > 0 else None)
    q, k, *rest = qkv.permute(2, 0, 3, 1, 4)
    v = rest[0] if values is None else values.transpose(1, 2)
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=attend, dropout_p=p)
    return mixed.transpose(1, 2).flatten(2)


def dropped_relu(h: Tensor, p: float) -> Tensor:
    """relu(h), of which elements are dropped with probability p."""
    if p > 0 and _has_kernels(h):
        return relu_dropout(h, p, _seed(h.device))
    return F.dropout(F.relu(h), p)


def _has_kernels(h: Tensor) -> bool:
    """Whether our kernels compute with tensors like this one: 16 bits, on an NVIDIA GPU with the tensor cores for it.

    It asks nothing at which torch.compile would have to stop.
    """
    if not _HAS_TRITON or h.device.type != "cuda" or h.dtype not in (torch.float16, torch.bfloat16):
        return False
    return torch.version.hip is None and torch.cuda.get_device_properties(h.device).major >= 8


def _seed(device: torch.device) -> Tensor:
    """A seed (1,) from torch's generator of the device, so that torch's seed decides, and a CUDA graph draws anew."""
    return torch.randint(2**62, (1,), device=device)
