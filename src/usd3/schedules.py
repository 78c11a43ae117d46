"""Noise schedules: how much of the data survives until time t.

A schedule is `alpha_bar(t)` on t in [0, 1], falling from 1 towards 0. The same numbers also answer

    alpha_bar(t, s) = alpha_bar(t) / alpha_bar(s)          what survives from s to t
    beta(t)         = -d log alpha_bar(t) / dt             the rate of the forward process, per unit of t
    decay(t)        = -d alpha_bar(t) / dt                 = beta(t) alpha_bar(t), finite where beta is not
    time(alpha_bar) = the t at which that much survives    the inverse

`lost(t, s) = 1 - alpha_bar(t, s)` is computed by itself, never by the subtraction, so that both ends are
right to machine precision. Paper: section "Noise Scheduling in Training" and its table.
"""

import math
import warnings
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from usd3._checks import require

__all__ = ["Constant", "Cosine", "Exponential", "Geometric", "Linear", "LogLinear", "Schedule"]

Time = Tensor | float


class Schedule(ABC):
    """Base class. A subclass defines the five quantities of the module docstring on float64 tensors."""

    def __init__(self) -> None:
        left = float(self.alpha_bar(1.0))
        if left > 0.05:
            warnings.warn(
                f"{self!r} leaves signal at the end: alpha_bar(1) = {left:.4g}, expected at most 0.05. "
                "Samples start from pure noise, which is then not where the forward process ends.",
                UserWarning,
                stacklevel=3,
            )

    @abstractmethod
    def _survival(self, t: Tensor) -> Tensor: ...

    @abstractmethod
    def _transition(self, t: Tensor, s: Tensor) -> Tensor: ...

    @abstractmethod
    def _lost(self, t: Tensor, s: Tensor) -> Tensor: ...

    @abstractmethod
    def _beta(self, t: Tensor) -> Tensor: ...

    @abstractmethod
    def _time(self, alpha_bar: Tensor) -> Tensor: ...

    def _decay(self, t: Tensor) -> Tensor:
        return self._beta(t) * self._survival(t)

    def _lost_from_start(self, t: Tensor) -> Tensor:
        return self._lost(t, torch.zeros_like(t))

    def alpha_bar(self, t: Time, s: Time | None = None) -> Tensor:
        """What survives until t, or from s until t."""
        t64, dtype = _float64(t, "t")
        if s is None:
            return self._survival(t64).to(dtype)
        s64, _ = _float64(s, "s")
        _require_order(t64, s64)
        return self._transition(t64, s64).to(dtype)

    def lost(self, t: Time, s: Time | None = None) -> Tensor:
        """1 - alpha_bar(t, s), without cancellation."""
        t64, dtype = _float64(t, "t")
        if s is None:
            return self._lost_from_start(t64).to(dtype)
        s64, _ = _float64(s, "s")
        _require_order(t64, s64)
        return self._lost(t64, s64).to(dtype)

    def beta(self, t: Time) -> Tensor:
        """-d log alpha_bar / dt; infinite at t = 1 where alpha_bar(1) = 0."""
        t64, dtype = _float64(t, "t")
        return self._beta(t64).to(dtype)

    def decay(self, t: Time) -> Tensor:
        """-d alpha_bar / dt = beta alpha_bar, finite everywhere."""
        t64, dtype = _float64(t, "t")
        return self._decay(t64).to(dtype)

    def time(self, alpha_bar: Time) -> Tensor:
        """The time at which `alpha_bar` survives, clipped to [0, 1]."""
        alpha_bar64, dtype = _float64(alpha_bar, "alpha_bar")
        return self._time(alpha_bar64).clamp(0.0, 1.0).to(dtype)

    def __repr__(self) -> str:
        fields = ", ".join(f"{k}={v:g}" for k, v in vars(self).items() if not k.startswith("_"))
        return f"{type(self).__name__}({fields})"


class Cosine(Schedule):
    """alpha_bar(t) = h(t) / h(0), h(t) = cos((t + a) / (1 + a) pi/2).

    Written from the other end, h(t) = sin(c (1 - t)) with c = pi / 2 / (1 + a): exactly 0 at t = 1.
    """

    def __init__(self, a: float = 0.008):
        require(a >= 0, "a", a, "a number >= 0")
        self.a = a
        self._c = math.pi / 2 / (1 + a)
        super().__init__()

    def _survival(self, t: Tensor) -> Tensor:
        return self._transition(t, torch.zeros_like(t))

    def _transition(self, t: Tensor, s: Tensor) -> Tensor:
        return torch.sin(self._c * (1 - t)) / torch.sin(self._c * (1 - s))

    def _lost(self, t: Tensor, s: Tensor) -> Tensor:
        c = self._c  # sin p - sin q = 2 cos((p + q) / 2) sin((p - q) / 2)
        return 2 * torch.cos(c * (1 - (t + s) / 2)) * torch.sin(c * (t - s) / 2) / torch.sin(c * (1 - s))

    def _beta(self, t: Tensor) -> Tensor:
        return self._c / torch.tan(self._c * (1 - t))

    def _decay(self, t: Tensor) -> Tensor:
        return self._c * torch.cos(self._c * (1 - t)) / math.sin(self._c)

    def _time(self, alpha_bar: Tensor) -> Tensor:
        return 1 - torch.asin(alpha_bar * math.sin(self._c)) / self._c


class _Straight(Schedule):
    """alpha_bar(t) = 1 - (1 - eps) t: a straight line from 1 to eps."""

    def __init__(self, eps: float):
        self._slope = 1 - eps
        super().__init__()

    def _survival(self, t: Tensor) -> Tensor:
        return (1 - t) + (1 - self._slope) * t

    def _transition(self, t: Tensor, s: Tensor) -> Tensor:
        return self._survival(t) / self._survival(s)

    def _lost(self, t: Tensor, s: Tensor) -> Tensor:
        return self._slope * (t - s) / self._survival(s)

    def _beta(self, t: Tensor) -> Tensor:
        return self._slope / self._survival(t)

    def _decay(self, t: Tensor) -> Tensor:
        return torch.full_like(t, self._slope)

    def _time(self, alpha_bar: Tensor) -> Tensor:
        return (1 - alpha_bar) / self._slope


class Linear(_Straight):
    """alpha_bar(t) = 1 - t."""

    def __init__(self) -> None:
        super().__init__(0.0)


class LogLinear(_Straight):
    """alpha_bar(t) = 1 - (1 - eps) t, whose integrated rate is -log(1 - (1 - eps) t) (SEDD's schedule)."""

    def __init__(self, eps: float = 1e-3):
        require(0 <= eps < 1, "eps", eps, "a number in [0, 1)")
        self.eps = eps
        super().__init__(eps)


class _Integrated(Schedule):
    """alpha_bar(t) = exp(-sigma(t)), from the integrated rate sigma."""

    @abstractmethod
    def _sigma(self, t: Tensor, s: Tensor) -> Tensor:
        """The rate integrated from s to t."""

    def _offset(self) -> float:
        return 0.0

    def _survival(self, t: Tensor) -> Tensor:
        return torch.exp(-self._offset() - self._sigma(t, torch.zeros_like(t)))

    def _transition(self, t: Tensor, s: Tensor) -> Tensor:
        return torch.exp(-self._sigma(t, s))

    def _lost(self, t: Tensor, s: Tensor) -> Tensor:
        return -torch.expm1(-self._sigma(t, s))

    def _lost_from_start(self, t: Tensor) -> Tensor:
        return -torch.expm1(-self._offset() - self._sigma(t, torch.zeros_like(t)))


class Constant(_Integrated):
    """beta(t) = beta: alpha_bar(t) = exp(-beta t)."""

    def __init__(self, beta: float):
        require(beta > 0, "beta", beta, "a number > 0")
        self._value = beta
        super().__init__()

    @classmethod
    def from_rate(cls, rate: float, num_classes: int) -> "Constant":
        """The schedule of the uniform rate matrix `rate (11^T - K I)`: beta = rate K."""
        require(rate > 0, "rate", rate, "a number > 0")
        require(num_classes >= 2, "num_classes", num_classes, "an integer >= 2")
        return cls(rate * num_classes)

    def _sigma(self, t: Tensor, s: Tensor) -> Tensor:
        return self._value * (t - s)

    def _beta(self, t: Tensor) -> Tensor:
        return torch.full_like(t, self._value)

    def _time(self, alpha_bar: Tensor) -> Tensor:
        return -torch.log(alpha_bar) / self._value

    def __repr__(self) -> str:
        return f"Constant(beta={self._value:g})"


class Exponential(_Integrated):
    """beta(t) = a b^t log b: alpha_bar(t) = exp(a (1 - b^t))."""

    def __init__(self, a: float = 0.5, b: float = 10.0):
        require(a > 0, "a", a, "a number > 0")
        require(b > 1, "b", b, "a number > 1")
        self.a, self.b = a, b
        super().__init__()

    def _sigma(self, t: Tensor, s: Tensor) -> Tensor:
        log_b = math.log(self.b)
        return self.a * torch.exp(log_b * s) * torch.expm1(log_b * (t - s))

    def _beta(self, t: Tensor) -> Tensor:
        log_b = math.log(self.b)
        return self.a * log_b * torch.exp(log_b * t)

    def _time(self, alpha_bar: Tensor) -> Tensor:
        return torch.log1p((-torch.log(alpha_bar) - self._offset()) / self.a) / math.log(self.b)


class Geometric(Exponential):
    """sigma(t) = lo^(1-t) hi^t - lo, so that alpha_bar(0) = 1: `Exponential(lo, hi / lo)` by other names.

    With `offset=True` the integrated rate keeps its value lo at t = 0, as SEDD has it: alpha_bar(0) = exp(-lo).
    """

    def __init__(self, lo: float = 1e-4, hi: float = 20.0, offset: bool = False):
        require(0 < lo < hi, "lo, hi", (lo, hi), "0 < lo < hi")
        self.lo, self.hi, self.offset = lo, hi, offset
        super().__init__(lo, hi / lo)

    def _offset(self) -> float:
        return self.lo if self.offset else 0.0

    def __repr__(self) -> str:
        return f"Geometric(lo={self.lo:g}, hi={self.hi:g}, offset={self.offset})"


def _float64(value: Time, name: str) -> tuple[Tensor, torch.dtype]:
    """`value` as float64 within [0, 1], and the dtype the answer should have."""
    tensor = torch.as_tensor(value, dtype=None if isinstance(value, Tensor) else torch.float64)
    dtype = tensor.dtype if tensor.is_floating_point() else torch.float64
    tensor = tensor.to(torch.float64)
    outside = ~((tensor >= 0) & (tensor <= 1))
    require(not bool(outside.any()), name, value, "values in [0, 1]")
    return tensor, dtype


def _require_order(t: Tensor, s: Tensor) -> None:
    require(bool((s <= t).all()), "s", s, f"values <= t = {t}")
