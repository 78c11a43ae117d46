"""Which implementation runs. "auto" decides by the device; a caller can force one."""

import importlib.util
import os

import torch

from usd3._internal.checks import require
from usd3.kernels.cpp_common import compiler

__all__ = ["IMPLEMENTATIONS", "chosen", "cpp_runs", "triton_runs_on"]

IMPLEMENTATIONS = ("auto", "eager", "chunked", "cpp", "triton")


def chosen(impl: str, device: torch.device) -> str:
    """Implementation for tensors on this device: "eager", "chunked", "cpp" or "triton".

    Args:
        impl: one of `IMPLEMENTATIONS`. "auto" is "triton" on a GPU that runs Triton, "cpp" on a CPU with a C++
            compiler, else "chunked". All others stay as they are; "triton" and "cpp" are errors where they do not run.
        device: where the logits are.
    """
    if impl == "auto" and device.type == "cpu":
        return "cpp" if cpp_runs() else "chunked"
    if impl == "auto":
        return "triton" if device.type == "cuda" and triton_runs_on("cuda") else "chunked"
    if impl == "cpp":
        runs = device.type == "cpu" and cpp_runs()
        require(runs, "impl", impl, f"auto, eager or chunked: C++ does not run on {device}, or there is no compiler")
    if impl == "triton":
        require(triton_runs_on(device.type), "impl", impl, f"auto, eager or chunked: Triton does not run on {device}")
    return impl


def cpp_runs() -> bool:
    """Whether there is a compiler for the C++ kernels, and nobody switched them off."""
    if "cpp" not in _RUNS_ON:
        _RUNS_ON["cpp"] = compiler() is not None
    return _RUNS_ON["cpp"]


def triton_runs_on(device_type: str) -> bool:
    """Whether Triton kernels run on this type of device: a GPU, or the CPU with Triton's interpreter."""
    if device_type not in _RUNS_ON:
        _RUNS_ON[device_type] = _triton_runs_on(device_type)
    return _RUNS_ON[device_type]


def _triton_runs_on(device_type: str) -> bool:
    if importlib.util.find_spec("triton") is None:
        return False
    if device_type == "cpu":
        return os.environ.get("TRITON_INTERPRET") == "1"
    if device_type != "cuda" or not torch.cuda.is_available():
        return False
    return all(torch.cuda.get_device_capability(i) >= (7, 0) for i in range(torch.cuda.device_count()))


_RUNS_ON: dict[str, bool] = {}  # torch.compile cannot trace functools.cache
