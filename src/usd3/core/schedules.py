"""Noise schedules: how much of the data survives until time t in [0, 1] (paper: "Noise Scheduling in Training").

    alpha_bar(t, s) = alpha_bar(t) / alpha_bar(s)      what survives from s until t; from clean data without s
    lost(t, s)      = 1 - alpha_bar(t, s)              computed by itself, so that both ends are exact
    beta(t)         = -d log alpha_bar / dt            rate of the forward process, per unit of t
    decay(t)        = -d alpha_bar / dt                = beta alpha_bar, finite where beta is not
    time(alpha_bar)                                    the inverse

Answers have the dtype of t; the formulas below them work on float64.
"""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from usd3._internal.checks import Checks, as_count, as_number, require

__all__ = ["Constant", "Cosine", "Exponential", "Geometric", "Linear", "LogLinear", "Schedule", "Time"]

Time = Tensor | float


class Schedule(ABC):
    """Base class. A schedule of your own gives four formulas on float64 tensors and then calls `super().__init__()`:

    `_kept(t, s)` is alpha_bar(t, s), `_lost(t, s)` is 1 - alpha_bar(t, s), both from clean data where s is None;
    `_decay(t)` is -d alpha_bar / dt; `_time(alpha_bar)` is the inverse. They are checked against each other.
    """

    def __init__(self) -> None:
        self._require_consistency()
        left = float(self.alpha_bar(1.0))
        if left > 0.05:
            warnings.warn(
                f"{self!r} leaves signal at the end: alpha_bar(1) = {left:.4g}, expected at most 0.05. Samples start "
                "from pure noise, and the forward process does not end there.",
                UserWarning,
                stacklevel=3,
            )

    def _require_consistency(self) -> None:
        t, h = torch.tensor([0.3, 0.6, 0.9], dtype=torch.float64), 1e-6
        kept, s = self._kept(t), t / 2
        seen = {  # formula: (what it says, what `_kept(t)` implies)
            "_kept(t, s)": (self._kept(t, s) * self._kept(s), kept),
            "_lost(t)": (self._lost(t), 1 - kept),
            "_lost(t, s)": (self._lost(t, s), 1 - self._kept(t, s)),
            "_decay(t)": (self._decay(t), (self._kept(t - h) - self._kept(t + h)) / (2 * h)),
            "_time": (torch.where(kept > 1e-12, self._time(kept), t), t),
        }
        for name, (value, implied) in seen.items():
            consistent = torch.allclose(value, implied, rtol=1e-4, atol=1e-7)
            require(
                consistent, f"{type(self).__name__}.{name}", value.tolist(), f"{implied.tolist()}, as _kept(t) implies"
            )

    @abstractmethod
    def _kept(self, t: Tensor, s: Tensor | None = None) -> Tensor: ...

    @abstractmethod
    def _lost(self, t: Tensor, s: Tensor | None = None) -> Tensor: ...

    @abstractmethod
    def _decay(self, t: Tensor) -> Tensor: ...

    @abstractmethod
    def _time(self, alpha_bar: Tensor) -> Tensor: ...

    def _beta(self, t: Tensor) -> Tensor:
        return self._decay(t) / self._kept(t)

    def alpha_bar(self, t: Time, s: Time | None = None) -> Tensor:
        """What survives until t, of clean data or of the data at s."""
        return _evaluate(self._kept, t, s, at_s=1.0)

    def lost(self, t: Time, s: Time | None = None) -> Tensor:
        """1 - alpha_bar(t, s), without cancellation."""
        return _evaluate(self._lost, t, s, at_s=0.0)

    def beta(self, t: Time) -> Tensor:
        """-d log alpha_bar / dt; infinite at t = 1 where alpha_bar(1) = 0."""
        return _evaluate(self._beta, t)

    def decay(self, t: Time) -> Tensor:
        """-d alpha_bar / dt = beta alpha_bar, finite everywhere."""
        return _evaluate(self._decay, t)

    def time(self, alpha_bar: Time) -> Tensor:
        """The time until which `alpha_bar` survives, clipped to [0, 1]."""
        return _evaluate(self._time, alpha_bar, name="alpha_bar").clamp(0, 1)

    def __repr__(self) -> str:
        fields = ", ".join(f"{k.strip('_')}={v}" for k, v in vars(self).items() if k not in self._derived)
        return f"{type(self).__name__}({fields})"

    _derived: tuple[str, ...] = ()


class Cosine(Schedule):
    """alpha_bar(t) = h(t) / h(0) with h(t) = cos((t + a) / (1 + a) pi/2).

    Written from the other end, h(t) = sin(c (1 - t)), c = pi / 2 / (1 + a): exactly 0 at t = 1.
    """

    _derived = ("_c",)

    def __init__(self, a: float = 0.008):
        self.a = as_number(a, "a", 0, closed=True)
        self._c = math.pi / 2 / (1 + a)
        super().__init__()

    def _kept(self, t: Tensor, s: Tensor | None = None) -> Tensor:
        return torch.sin(self._c * (1 - t)) / torch.sin(self._c * (1 - _or_0(s, t)))

    def _lost(self, t: Tensor, s: Tensor | None = None) -> Tensor:
        c, s = self._c, _or_0(s, t)  # sin p - sin q = 2 cos((p + q) / 2) sin((p - q) / 2)
        return 2 * torch.cos(c * (1 - (t + s) / 2)) * torch.sin(c * (t - s) / 2) / torch.sin(c * (1 - s))

    def _decay(self, t: Tensor) -> Tensor:
        return self._c * torch.cos(self._c * (1 - t)) / math.sin(self._c)

    def _time(self, alpha_bar: Tensor) -> Tensor:
        return 1 - torch.asin(alpha_bar * math.sin(self._c)) / self._c


class LogLinear(Schedule):
    """alpha_bar(t) = 1 - (1 - eps) t: the integrated rate is -log(1 - (1 - eps) t), SEDD's name for it."""

    def __init__(self, eps: float = 1e-3):
        self.eps = as_number(eps, "eps", 0, 1, closed=True)
        super().__init__()

    def _kept(self, t: Tensor, s: Tensor | None = None) -> Tensor:
        kept = (1 - t) + self.eps * t
        return kept if s is None else kept / self._kept(s)

    def _lost(self, t: Tensor, s: Tensor | None = None) -> Tensor:
        return (1 - self.eps) * (t if s is None else (t - s) / self._kept(s))

    def _decay(self, t: Tensor) -> Tensor:
        return torch.full_like(t, 1 - self.eps)

    def _time(self, alpha_bar: Tensor) -> Tensor:
        return (1 - alpha_bar) / (1 - self.eps)


class Linear(LogLinear):
    """alpha_bar(t) = 1 - t."""

    _derived = ("eps",)

    def __init__(self) -> None:
        super().__init__(eps=0.0)


class _Integrated(Schedule):
    """alpha_bar(t, s) = exp(-sigma(t, s)), sigma the integral of beta."""

    @abstractmethod
    def _sigma(self, t: Tensor, s: Tensor | None) -> Tensor: ...

    @abstractmethod
    def _beta(self, t: Tensor) -> Tensor: ...

    def _kept(self, t: Tensor, s: Tensor | None = None) -> Tensor:
        return torch.exp(-self._sigma(t, s))

    def _lost(self, t: Tensor, s: Tensor | None = None) -> Tensor:
        return -torch.expm1(-self._sigma(t, s))

    def _decay(self, t: Tensor) -> Tensor:
        return self._beta(t) * self._kept(t)


class Constant(_Integrated):
    """beta(t) = beta: alpha_bar(t) = exp(-beta t)."""

    def __init__(self, beta: float):
        self._beta_ = as_number(beta, "beta", 0)
        super().__init__()

    @classmethod
    def from_rate(cls, rate: float, num_classes: int) -> "Constant":
        """The schedule of the uniform rate matrix `rate (11^T - K I)`: beta = rate K."""
        return cls(as_number(rate, "rate", 0) * as_count(num_classes, "num_classes", 2))

    def _sigma(self, t: Tensor, s: Tensor | None) -> Tensor:
        return self._beta_ * (t - _or_0(s, t))

    def _beta(self, t: Tensor) -> Tensor:
        return torch.full_like(t, self._beta_)

    def _time(self, alpha_bar: Tensor) -> Tensor:
        return -torch.log(alpha_bar) / self._beta_


class Exponential(_Integrated):
    """beta(t) = a b^t log b: alpha_bar(t) = exp(a (1 - b^t))."""

    def __init__(self, a: float = 0.5, b: float = 10.0):
        self.a, self.b = as_number(a, "a", 0), as_number(b, "b", 1)
        super().__init__()

    def _sigma(self, t: Tensor, s: Tensor | None) -> Tensor:
        start, log_b = _or_0(s, t), math.log(self.b)
        return self.a * torch.exp(log_b * start) * torch.expm1(log_b * (t - start))

    def _beta(self, t: Tensor) -> Tensor:
        return self.a * math.log(self.b) * torch.exp(math.log(self.b) * t)

    def _time(self, alpha_bar: Tensor) -> Tensor:
        return torch.log1p(-torch.log(alpha_bar) / self.a) / math.log(self.b)


class Geometric(Exponential):
    """sigma(t) = lo^(1-t) hi^t - lo: `Exponential(lo, hi / lo)` by other names.

    With `offset=True` sigma keeps its value lo at t = 0, as SEDD has it: alpha_bar(0) = exp(-lo).
    """

    _derived = ("a", "b")

    def __init__(self, lo: float = 1e-4, hi: float = 20.0, offset: bool = False):
        hi = as_number(hi, "hi", 0)
        self.lo, self.hi, self.offset = as_number(lo, "lo", 0, hi), hi, offset
        super().__init__(lo, hi / lo)

    def _sigma(self, t: Tensor, s: Tensor | None) -> Tensor:
        return super()._sigma(t, s) + (self.lo if self.offset and s is None else 0.0)

    def _time(self, alpha_bar: Tensor) -> Tensor:
        return super()._time(alpha_bar * math.exp(self.lo) if self.offset else alpha_bar)


def _or_0(s: Tensor | None, t: Tensor) -> Tensor:
    return torch.zeros_like(t) if s is None else s


def _evaluate(
    formula: Callable[..., Tensor], t: Time, s: Time | None = None, name: str = "t", at_s: float = math.nan
) -> Tensor:
    """The formula in float64 at times in [0, 1], s <= t, with its value at t = s; the answer in the dtype of t."""
    given = [
        torch.as_tensor(v, dtype=None if isinstance(v, Tensor) else torch.float64) for v in (t, s) if v is not None
    ]
    dtype = given[0].dtype if given[0].is_floating_point() else torch.float64
    time, *before = (v.to(torch.float64) for v in given)
    checks = Checks(enabled=True)
    for value, label in zip((time, *before), (name, "s")):
        checks.refuse(label, value, lambda v: ~((v >= 0) & (v <= 1)), "numbers in [0, 1]")
    for start in before:
        checks.refuse("s", start, lambda v: v > time, "at most t")
    checks.raise_first()
    answer = formula(time, *before)
    return (torch.where(time == before[0], at_s, answer) if before else answer).to(dtype)
