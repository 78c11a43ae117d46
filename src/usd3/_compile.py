"""torch.compile as we use it."""

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["compiled"]


def compiled(function: Callable[..., Any], mode: str = "default", dynamic: bool | None = None) -> Callable[..., Any]:
    """torch.compile, without one fusion on which torch 2.11 fails for some of our sizes."""
    triton = importlib.import_module("torch._inductor.config").triton  # slow to import
    if hasattr(triton, "mix_order_reduction"):
        triton.mix_order_reduction = False
    # where we say float32 we mean it
    unasked = "TensorFloat32 tensor cores for float32 matrix multiplication available but not enabled"
    warnings.filterwarnings("ignore", unasked)
    return torch.compile(function, mode=mode, dynamic=dynamic)
