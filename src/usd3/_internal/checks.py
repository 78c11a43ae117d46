"""Bad input is refused here, in one sentence: the argument, the value seen, and what was expected.

Checks on shapes and types are free. Checks on values need the device's answer, so a call collects them in one `Checks`
and asks once.
"""

import math
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

__all__ = [
    "Checks",
    "LoopChecks",
    "as_bool_mask",
    "as_categories",
    "as_count",
    "as_mask",
    "as_number",
    "as_tokens",
    "expanded",
    "is_integral",
    "require",
    "require_logits",
    "require_type",
]


def require(condition: bool, name: str, value: Any, expected: str) -> None:
    """Raise a ValueError about argument `name` unless the condition holds."""
    if not condition:
        text = str(value)
        raise ValueError(f"{name} = {text if len(text) <= 80 else text[:77] + '...'}: expected {expected}")


def require_type(condition: bool, name: str, value: Any, expected: str) -> None:
    """Raise a TypeError about argument `name` unless the condition holds."""
    if not condition:
        seen = f"a {type(value).__name__}"
        if isinstance(value, Tensor):
            seen = f"a {value.dtype} tensor"
        elif isinstance(value, type):
            seen = f"the class {value.__name__}"
        raise TypeError(f"{name} is {seen}: expected {expected}")


def as_count(value: Any, name: str, least: int, most: int | None = None) -> int:
    """An integer of any kind (also NumPy's), at least `least` and at most `most`."""
    allowed = f"an integer >= {least}" if most is None else f"an integer {least}..{most}"
    require_type(hasattr(value, "__index__") and not isinstance(value, bool | Tensor), name, value, allowed)
    require(least <= value and (most is None or value <= most), name, value, allowed)
    return operator.index(value)


def as_number(value: Any, name: str, above: float, below: float = math.inf, closed: bool = False) -> float:
    """A number strictly between `above` and `below`; with `closed`, `above` itself is allowed."""
    allowed = f"a number in {'[' if closed else '('}{above:g}, {below:g})"
    is_number = isinstance(value, int | float) or hasattr(value, "__float__")
    require_type(is_number and not isinstance(value, bool | Tensor | str), name, value, allowed)
    require((value >= above if closed else value > above) and value < below, name, value, allowed)
    return float(value)


class _Check(NamedTuple):
    failed: Tensor
    name: str
    values: Tensor
    bad: Tensor
    expected: str


class Checks:
    """Value checks of one call: collected on the device, answered by a single synchronisation."""

    def __init__(self, enabled: bool):
        self.enabled = enabled
        self._pending: list[_Check] = []

    def refuse(self, name: str, values: Tensor, bad: Callable[[Tensor], Tensor], expected: str) -> None:
        """Refuse the call if any of `values` is bad."""
        if self.enabled:
            found = bad(values)
            self._pending.append(_Check(found.any(), name, values, found, expected))

    def raise_early(self, device: torch.device) -> None:
        """Raise now where asking costs nothing, on the CPU; a GPU is asked once, at the end of the call."""
        if device.type == "cpu":
            self.raise_first()

    def raise_first(self) -> None:
        """Raise a ValueError for the first check that failed, if any did."""
        pending, self._pending = self._pending, []
        if not pending:
            return
        for failed, check in zip(torch.stack([check.failed for check in pending]).tolist(), pending):
            if failed:
                first = check.values.expand(check.bad.shape)[check.bad][0].item()
                raise ValueError(f"{check.name} contains {first:g}: expected {check.expected}")


class LoopChecks(Checks):
    """The checks of a loop: one record of each, in which what was bad once stays bad. A CUDA graph may hold them."""

    def __init__(self, enabled: bool):
        super().__init__(enabled)
        self._kept: dict[tuple[str, torch.Size], tuple[Tensor, Tensor, str]] = {}

    def refuse(self, name: str, values: Tensor, bad: Callable[[Tensor], Tensor], expected: str) -> None:
        """Refuse the call if any of `values` is bad, now or in an earlier round of the loop."""
        if not self.enabled:
            return
        found, key = bad(values), (name, values.shape)
        if key not in self._kept:
            with torch.inference_mode(False):  # a graph, captured outside of it, writes to them too
                self._kept[key] = values.clone(), found.clone(), expected
        else:
            kept, before, _ = self._kept[key]
            kept.copy_(torch.where(found, values, kept))
            before.logical_or_(found)

    def raise_first(self) -> None:
        """Raise a ValueError for the first check that failed in any round, if one did."""
        kept = self._kept.items()
        self._pending = [_Check(bad.any(), name, values, bad, expected) for (name, _), (values, bad, expected) in kept]
        super().raise_first()


def as_categories(x: Tensor, num_classes: int, name: str, checks: Checks) -> Tensor:
    """`x` as int64 categories 0..K-1 of at least one dimension, the batch.

    Bad values are clamped, so that no index runs out of range before the checks are asked.
    """
    is_tensor = isinstance(x, Tensor) and is_integral(x)
    require_type(is_tensor, name, x, "an integer tensor (torch.as_tensor makes one of an array)")
    require(x.dim() >= 1, f"{name}.shape", tuple(x.shape), "(B, N1, ..., Nk)")
    x = x.long()
    checks.refuse(name, x, lambda v: (v < 0) | (v >= num_classes), f"categories 0..{num_classes - 1}")
    return x.clamp(0, num_classes - 1) if checks.enabled else x


def is_integral(x: Tensor) -> bool:
    """Whether x holds integers; booleans are none."""
    return not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool)


def as_bool_mask(mask: Tensor | None, shape: torch.Size, name: str, device: torch.device) -> Tensor | None:
    """`mask` expanded to `shape` on `device`, or None."""
    if mask is None:
        return None
    require_type(isinstance(mask, Tensor) and mask.dtype == torch.bool, name, mask, "a boolean tensor")
    return expanded(mask.to(device), shape, name)


def expanded(x: Tensor, shape: torch.Size, name: str) -> Tensor:
    """`x` broadcast to `shape`."""
    try:
        return x.expand(shape)
    except RuntimeError:
        seen = tuple(x.shape)
        raise ValueError(f"{name}.shape = {seen}: expected a shape that broadcasts to {tuple(shape)}") from None


def require_logits(logits: Tensor, x: Tensor, num_classes: int, name: str) -> None:
    """Logits are floating point and have one more dimension than x, of size K."""
    is_float = isinstance(logits, Tensor) and logits.is_floating_point()
    require_type(is_float, name, logits, "a floating-point tensor")
    expected = (*x.shape, num_classes)
    require(tuple(logits.shape) == expected, f"{name}.shape", tuple(logits.shape), f"{expected}, (*x_t.shape, K)")


def as_tokens(tokens: ArrayLike | Tensor) -> Tensor:
    """Integers (N, ...) as int64, from a tensor, a NumPy array or lists."""
    found = _as_tensor(tokens, "tokens", "integers, a tensor, an array or lists (N, ...)", is_integral)
    require(found.dim() > 0, "tokens.shape", (), "(N, ...)")
    return found.long()


def as_mask(mask: ArrayLike | Tensor | None, shape: tuple[int, ...], name: str) -> Tensor | None:
    """Booleans expanded to `shape`, from a tensor, a NumPy array or lists; or None."""
    if mask is None:
        return None
    found = _as_tensor(mask, name, "booleans, a tensor, an array or lists", lambda m: m.dtype == torch.bool)
    return expanded(found, torch.Size(shape), name)


def _as_tensor(x: ArrayLike | Tensor, name: str, expected: str, fits: Callable[[Tensor], bool]) -> Tensor:
    made = x
    if not isinstance(x, Tensor):
        try:
            made = torch.from_numpy(np.array(x, order="C"))
        except (TypeError, ValueError):
            require_type(False, name, x, expected)
    require_type(isinstance(made, Tensor) and fits(made), name, made, expected)
    return made  # type: ignore[return-value]
