"""The bandwidth floor: no implementation can be faster than moving its data once."""

import torch

from usd3.bench.problem import Problem
from usd3.bench.timing import Budget, measure

__all__ = ["bytes_moved", "copy_bandwidth", "floor_ms"]

_COPIED = {"cuda": 1 << 30, "cpu": 1 << 27}


def copy_bandwidth(device: torch.device | str, budget: Budget | None = None) -> float:
    """Bytes per second that a large copy on the device reads and writes."""
    device = torch.device(device)
    source = torch.ones(_COPIED[device.type], dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    result = measure(lambda: target.copy_(source), device, budget)
    if result.ms_median is None:
        raise MemoryError(f"no room to copy {source.numel() >> 20} MiB on {device}: {result.note}")
    return 2 * source.numel() / (result.ms_median * 1e-3)


def bytes_moved(problem: Problem, kind: str) -> int:
    """Bytes that must be moved: a "loss" reads the logits and writes their gradient, a "step" reads the logits."""
    return problem.logits_bytes * (2 if kind == "loss" else 1)


def floor_ms(problem: Problem, kind: str, bandwidth: float) -> float:
    """Milliseconds to move these bytes at this bandwidth."""
    return bytes_moved(problem, kind) / bandwidth * 1e3
