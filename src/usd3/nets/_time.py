"""Sinusoidal features of the time, the first step of every network."""

import math

import torch
from torch import Tensor

__all__ = ["time_features"]


def time_features(t: Tensor, size: int) -> Tensor:
    """Features (B, size) of times t (B,): sin(1000 t w_i), then cos(1000 t w_i), w_i = 10000^(-i / (size/2 - 1))."""
    half = size // 2
    frequencies = torch.exp(torch.arange(half, device=t.device, dtype=t.dtype) * (-math.log(1e4) / (half - 1)))
    angles = 1000 * t[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], -1)
