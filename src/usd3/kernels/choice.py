"""Which implementation of the hot path runs: the choice is automatic and can be forced."""

import importlib
import importlib.util
import os
from typing import Any

import torch
from torch import Tensor

from usd3._internal.checks import require

__all__ = ["IMPLEMENTATIONS", "chosen", "run_rows", "triton_runs_on"]

IMPLEMENTATIONS = ("auto", "eager", "chunked", "triton")


def chosen(impl: str, device: torch.device) -> str:
    """The implementation for tensors on this device: "eager", "chunked" or "triton".

    "auto" takes the Triton kernels on a GPU that has them and the chunked code elsewhere.
    """
    if impl == "auto":
        return "triton" if device.type == "cuda" and triton_runs_on("cuda") else "chunked"
    if impl == "triton":
        require(triton_runs_on(device.type), "impl", impl, f"auto, eager or chunked: Triton does not run on {device}")
    return impl


def run_rows(function: str, impl: str, logits: Tensor, *args: Any) -> Tensor:
    """Call `loss_rows` or `draw_rows` of an implementation on logits (R, K); loaded when first called for."""
    modules = {
        ("loss_rows", "chunked"): "chunked",
        ("loss_rows", "triton"): "triton_loss",
        ("draw_rows", "chunked"): "chunked_draw",
        ("draw_rows", "triton"): "triton_draw",
    }
    module = importlib.import_module(f"usd3.kernels.{modules[function, impl]}")
    with torch.cuda.device_of(logits):  # a kernel starts on the current device
        rows: Tensor = getattr(module, function)(logits, *args)
    return rows


def triton_runs_on(kind: str) -> bool:
    """Whether Triton kernels run on this kind of device: a GPU, or the CPU with Triton's interpreter."""
    if kind not in _FOUND:
        _FOUND[kind] = _triton_runs_on(kind)
    return _FOUND[kind]


def _triton_runs_on(kind: str) -> bool:
    if importlib.util.find_spec("triton") is None:
        return False
    if kind == "cpu":
        return os.environ.get("TRITON_INTERPRET") == "1"
    if kind != "cuda" or not torch.cuda.is_available():
        return False
    return all(torch.cuda.get_device_capability(i) >= (7, 0) for i in range(torch.cuda.device_count()))


_FOUND: dict[str, bool] = {}  # torch.compile does not like functools.cache
