"""Checks of arguments. An error names the argument, the value seen and what was expected, in one sentence.

Checks of shapes and types cost nothing. A check of values has to wait for the device, so a call collects all of them in
one `Checks` and waits once.
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
    "as_share",
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
    """`value` as an int; it may be of any integer type, also NumPy's, in `least`..`most`."""
    allowed = f"an integer >= {least}" if most is None else f"an integer {least}..{most}"
    require_type(hasattr(value, "__index__") and not isinstance(value, bool | Tensor), name, value, allowed)
    require(least <= value and (most is None or value <= most), name, value, allowed)
    return operator.index(value)


def as_number(value: Any, name: str, above: float, below: float = math.inf, closed: bool = False) -> float:
    """`value` as a float, which must lie in the interval (above, below), or [above, below) with `closed`."""
    allowed = f"a number in {'[' if closed else '('}{above:g}, {below:g})"
    _require_number(value, name, allowed)
    require((value >= above if closed else value > above) and value < below, name, value, allowed)
    return float(value)


def as_share(value: Any, name: str, least: float = 0.0, most: float = 1.0, positive: bool = False) -> float:
    """`value` as a float, which must lie in the closed interval [least, most], or with `positive` in (0, most]."""
    allowed = f"a number in {'(0' if positive else f'[{least:g}'}, {most:g}]"
    _require_number(value, name, allowed)
    require((value > 0 if positive else least <= value) and value <= most, name, value, allowed)
    return float(value)


def _require_number(value: Any, name: str, expected: str) -> None:
    is_number = isinstance(value, int | float) or hasattr(value, "__float__")
    require_type(is_number and not isinstance(value, bool | Tensor | str), name, value, expected)


class _Check(NamedTuple):
    name: str
    numbers: tuple[Tensor, ...]  # () each, on the device: what the check has to know
    failed: Callable[..., bool]  # whether it failed, from these numbers
    first: Callable[[], float]  # a bad value; asked only if it failed
    expected: str


class Checks:
    """The value checks of one call, collected on the device and read in a single synchronisation.

    Disabled, it checks nothing.
    """

    def __init__(self, enabled: bool):
        self.enabled = enabled
        self._pending: list[_Check] = []

    def refuse(self, name: str, values: Tensor, bad: Callable[[Tensor], Tensor], expected: str) -> None:
        """Add a check: the call fails if any of `values` is bad.

        Args:
            name: The argument, for the error message.
            values: The values to check.
            bad: A function that maps `values` to booleans that broadcast with them, True where a value is bad.
            expected: What was expected, for the error message.
        """
        if self.enabled:
            self._refuse_where(name, values, bad(values), expected)

    def _refuse_where(self, name: str, values: Tensor, is_bad: Tensor, expected: str) -> None:
        def first() -> float:
            return values.expand(is_bad.shape)[is_bad][0].item()

        self._pending.append(_Check(name, (is_bad.any(),), bool, first, expected))

    def refuse_outside(self, name: str, values: Tensor, least: float, most: float, expected: str) -> None:
        """Add a check: the call fails if any of `values` is NaN or outside of [least, most]. One pass over them."""

        def fails(low: float, high: float) -> bool:
            return not (least <= low and high <= most)

        def first() -> float:
            return values[~((values >= least) & (values <= most))][0].item()

        if self.enabled and values.numel():
            self._pending.append(_Check(name, values.aminmax(), fails, first, expected))

    def refuse_number(self, name: str, value: float, fails: bool, expected: str) -> None:
        """Add a check of a number that the host knows: the call fails if `fails`."""
        if self.enabled and fails:
            self._pending.append(_Check(name, (), lambda: True, lambda: value, expected))

    def refuse_nan(self, name: str, number: Tensor, expected: str) -> None:
        """Add a check: the call fails if this number, (), is NaN. It costs no operation of the device."""
        if self.enabled:
            self._pending.append(_Check(name, (number,), math.isnan, lambda: math.nan, expected))

    def flag(self, name: str, device: torch.device, seen: float, expected: str) -> Tensor | None:
        """Add a check: a bool () on the device, and the call fails if it is true in the end. None: disabled.

        Whoever finds the value `seen` sets it, without another operation of the device.
        """
        if not self.enabled:
            return None
        flag = torch.zeros((), dtype=torch.bool, device=device)
        self._refuse_flag(name, flag, seen, expected)
        return flag

    def _refuse_flag(self, name: str, flag: Tensor, seen: float, expected: str) -> None:
        self._pending.append(_Check(name, (flag,), bool, lambda: seen, expected))

    def raise_early(self, device: torch.device) -> None:
        """On the CPU, raise now: it costs nothing. A GPU is read once, at the end of the call."""
        if device.type == "cpu":
            self.raise_first()

    def raise_first(self) -> None:
        """Raise a ValueError for the first check that failed, if any did."""
        pending, self._pending = self._pending, []
        if not pending:
            return
        numbers = iter(_read([number for check in pending for number in check.numbers]))
        for check in pending:
            if check.failed(*(next(numbers) for _ in check.numbers)):
                raise ValueError(f"{check.name} contains {check.first():g}: expected {check.expected}")


def _read(numbers: list[Tensor]) -> list[float]:
    """Numbers () of one device, read in one synchronisation."""
    waits = torch.compiler.is_compiling() or any(number.device.type != "cpu" for number in numbers)
    if not (waits and numbers):
        return [number.item() for number in numbers]
    halves = (torch.bfloat16, torch.float16)  # in which categories, stacked with such a number, would be rounded
    return torch.stack([number.float() if number.dtype in halves else number for number in numbers]).tolist()


class LoopChecks(Checks):
    """The value checks of a loop: one record per check, in which a bad value stays. A CUDA graph can contain them."""

    def __init__(self, enabled: bool):
        super().__init__(enabled)
        self._kept: dict[tuple[str, torch.Size], tuple[Tensor, Tensor, str]] = {}
        self._flags: dict[tuple[str, float], tuple[Tensor, str]] = {}

    def refuse(self, name: str, values: Tensor, bad: Callable[[Tensor], Tensor], expected: str) -> None:
        """Add a check, or update it in a later round: the call fails if any of `values` is bad in any round."""
        if not self.enabled:
            return
        is_bad, key = bad(values), (name, values.shape)
        if key not in self._kept:
            with torch.inference_mode(False):  # a CUDA graph is captured outside of it and writes to these tensors
                self._kept[key] = values.clone(), is_bad.clone(), expected
        else:
            kept, was_bad, _ = self._kept[key]
            kept.copy_(torch.where(is_bad, values, kept))
            was_bad.logical_or_(is_bad)

    def refuse_outside(self, name: str, values: Tensor, least: float, most: float, expected: str) -> None:
        """Add a check, or update it in a later round: no value may be NaN or outside of [least, most]."""
        self.refuse(name, values, lambda v: ~((v >= least) & (v <= most)), expected)

    def refuse_nan(self, name: str, number: Tensor, expected: str) -> None:
        """Add a check, or update it in a later round: the number, (), may not be NaN."""
        self.refuse(name, number, torch.isnan, expected)

    def flag(self, name: str, device: torch.device, seen: float, expected: str) -> Tensor | None:
        """Add a check: a bool () that may not be true after any round, the same in every round."""
        if self.enabled and (name, seen) not in self._flags:
            with torch.inference_mode(False):
                self._flags[name, seen] = torch.zeros((), dtype=torch.bool, device=device), expected
        return self._flags[name, seen][0] if self.enabled else None

    def raise_first(self) -> None:
        """Raise a ValueError for the first check that failed in any round, if one did."""
        once = Checks(self.enabled)
        for (name, _), (values, bad, expected) in self._kept.items():
            once._refuse_where(name, values, bad, expected)
        for (name, seen), (flag, expected) in self._flags.items():
            once._refuse_flag(name, flag, seen, expected)
        once.raise_first()


def as_categories(x: Tensor, num_classes: int, name: str, checks: Checks) -> Tensor:
    """`x` as int64 categories 0..K-1 with at least one dimension, the batch.

    Bad values are clamped, so that no index is out of range before the checks are read.
    """
    is_tensor = isinstance(x, Tensor) and is_integral(x)
    require_type(is_tensor, name, x, "an integer tensor (torch.as_tensor makes one of an array)")
    require(x.dim() >= 1, f"{name}.shape", tuple(x.shape), "(B, N1, ..., Nk)")
    x = x.long()
    checks.refuse_outside(name, x, 0, num_classes - 1, f"categories 0..{num_classes - 1}")
    return x.clamp(0, num_classes - 1) if checks.enabled else x


def is_integral(x: Tensor) -> bool:
    """Whether the dtype of x is an integer type; bool is not."""
    return not (x.is_floating_point() or x.is_complex() or x.dtype == torch.bool)


def as_bool_mask(mask: Tensor | None, shape: torch.Size, name: str, device: torch.device) -> Tensor | None:
    """The boolean tensor `mask` expanded to `shape` on `device`; None stays None."""
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
    """Raise an error unless the logits are floating point and have the shape (*x.shape, K)."""
    is_float = isinstance(logits, Tensor) and logits.is_floating_point()
    require_type(is_float, name, logits, "a floating-point tensor")
    expected = (*x.shape, num_classes)
    require(tuple(logits.shape) == expected, f"{name}.shape", tuple(logits.shape), f"{expected}, (*x_t.shape, K)")


def as_tokens(tokens: ArrayLike | Tensor) -> Tensor:
    """An int64 tensor (N, ...) from a tensor, a NumPy array or lists of integers."""
    tensor = _as_tensor(tokens, "tokens", "integers, a tensor, an array or lists (N, ...)", is_integral)
    require(tensor.dim() > 0, "tokens.shape", (), "(N, ...)")
    return tensor.long()


def as_mask(mask: ArrayLike | Tensor | None, shape: tuple[int, ...], name: str) -> Tensor | None:
    """A boolean tensor expanded to `shape`, from a tensor, a NumPy array or lists; None stays None."""
    if mask is None:
        return None
    tensor = _as_tensor(mask, name, "booleans, a tensor, an array or lists", lambda m: m.dtype == torch.bool)
    return expanded(tensor, torch.Size(shape), name)


def _as_tensor(x: ArrayLike | Tensor, name: str, expected: str, fits: Callable[[Tensor], bool]) -> Tensor:
    """`x` as a tensor, which must fit."""
    tensor = x
    if not isinstance(x, Tensor):
        try:
            tensor = torch.from_numpy(np.array(x, order="C"))
        except (TypeError, ValueError):
            require_type(False, name, x, expected)
    require_type(isinstance(tensor, Tensor) and fits(tensor), name, tensor, expected)
    return tensor  # type: ignore[return-value]
