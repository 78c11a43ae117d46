"""Which implementation runs. "auto" decides by the device; a caller can force one."""

import importlib.util
import os

import torch

from usd3._internal.checks import require

__all__ = ["IMPLEMENTATIONS", "chosen", "triton_runs_on"]

IMPLEMENTATIONS = ("auto", "eager", "chunked", "triton")


def chosen(impl: str, device: torch.device) -> str:
    """Implementation for tensors on this device: "eager", "chunked" or "triton".

    Args:
        impl: one of `IMPLEMENTATIONS`. "auto" is "triton" on a GPU that runs Triton, else "chunked". All others stay
            as they are; "triton" is an error where Triton does not run.
        device: where the logits are.
    """
    if impl == "auto":
        return "triton" if device.type == "cuda" and triton_runs_on("cuda") else "chunked"
    if impl == "triton":
        require(triton_runs_on(device.type), "impl", impl, f"auto, eager or chunked: Triton does not run on {device}")
    return impl


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
