"""Choose the device that a network runs on."""

import os

import torch
from torch import Tensor

from usd3._internal.checks import require

__all__ = ["device_named", "moved_to"]


def device_named(name: str | None) -> torch.device:
    """The device of this name. None: the GPU of this process if there is one, else the CPU."""
    if name is None:
        local = int(os.environ.get("LOCAL_RANK", 0)) % max(1, torch.cuda.device_count())
        return torch.device(f"cuda:{local}" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"device = {name}: expected cpu, cuda or cuda:0, cuda:1, ...") from None
    count = torch.cuda.device_count()
    exists = device.type == "cpu" or (device.type == "cuda" and (device.index or 0) < count)
    require(exists, "device", name, f"cpu, or one of the {count} GPUs that torch sees")
    return device


def moved_to(tensor: Tensor, device: torch.device) -> Tensor:
    """A small CPU tensor on the device; the host does not wait for the copy."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor
