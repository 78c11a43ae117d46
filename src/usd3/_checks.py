"""Bad input is refused here, in one sentence: the argument, the value seen, and what was expected.

Checks on shapes and dtypes are free. Checks on values need the device's answer, so a call collects them in
one `Checks` and asks once.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["Checks", "as_bool_mask", "as_categories", "require", "require_logits", "require_type"]

_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32)


def require(condition: bool, name: str, value: Any, expected: str) -> None:
    """Raise a ValueError about argument `name` unless the condition holds."""
    if not condition:
        raise ValueError(f"{name} = {_short(value)}: expected {expected}")


def require_type(condition: bool, name: str, value: Any, expected: str) -> None:
    """Raise a TypeError about argument `name` unless the condition holds."""
    if not condition:
        seen = f"{value.dtype} tensor" if isinstance(value, Tensor) else type(value).__name__
        raise TypeError(f"{name} is a {seen}: expected {expected}")


class Checks:
    """Value checks of one call: collected on the device, answered by a single synchronisation."""

    def __init__(self, enabled: bool):
        self.enabled = enabled
        self._pending: list[tuple[Tensor, Callable[[], str]]] = []

    def refuse(self, bad: Callable[[], Tensor], message: Callable[[], str]) -> None:
        """Refuse the call with `message` if any entry of `bad` is true."""
        if self.enabled:
            self._pending.append((bad().any(), message))

    def raise_early(self, device: torch.device) -> None:
        """Raise now where asking costs nothing, on the CPU; a GPU is asked once, at the end of the call."""
        if device.type == "cpu":
            self.raise_first()

    def raise_first(self) -> None:
        """Raise a ValueError for the first check that failed, if any did."""
        pending, self._pending = self._pending, []
        if not pending:
            return
        for failed, (_, message) in zip(torch.stack([bad for bad, _ in pending]).tolist(), pending):
            if failed:
                raise ValueError(message())


def as_categories(x: Tensor, num_classes: int, name: str, checks: Checks) -> Tensor:
    """`x` as int64 categories 0..K-1 of at least one dimension, the batch.

    Bad values are clamped, so that no index runs out of range before the checks are asked.
    """
    require_type(isinstance(x, Tensor), name, x, "an integer tensor")
    require_type(x.dtype in _INTEGERS, name, x, "an integer tensor")
    require(x.dim() >= 1, f"{name}.shape", tuple(x.shape), "(B, N1, ..., Nk)")
    x = x.long()
    bad = (x < 0) | (x >= num_classes)
    checks.refuse(lambda: bad, lambda: f"{name} contains {int(x[bad][0])}: expected categories 0..{num_classes - 1}")
    return x.clamp(0, num_classes - 1) if checks.enabled else x


def as_bool_mask(
    mask: Tensor | None, shape: torch.Size, name: str, device: torch.device | None = None
) -> Tensor | None:
    """`mask` expanded to `shape`, on `device` where one is named, or None."""
    if mask is None:
        return None
    require_type(isinstance(mask, Tensor) and mask.dtype == torch.bool, name, mask, "a boolean tensor")
    try:
        return mask.expand(shape).to(device)
    except RuntimeError:
        raise ValueError(
            f"{name}.shape = {tuple(mask.shape)}: expected a shape that broadcasts to {tuple(shape)}"
        ) from None


def require_logits(logits: Tensor, x: Tensor, num_classes: int, name: str) -> None:
    """Logits are floating point and have one more dimension than x, of size K."""
    require_type(isinstance(logits, Tensor), name, logits, "a floating-point tensor")
    require_type(logits.is_floating_point(), name, logits, "a floating-point tensor")
    expected = (*x.shape, num_classes)
    require(
        tuple(logits.shape) == expected, f"{name}.shape", tuple(logits.shape), f"{expected}, that is (*x_t.shape, K)"
    )


def _short(value: Any) -> str:
    if isinstance(value, Tensor):
        value = value.detach().flatten()[:5].tolist() if value.dim() else value.item()
    text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."
