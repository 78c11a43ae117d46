"""Noise schedules: how much of the data survives until time t in [0, 1] (paper: "Noise Scheduling in Training").

    kept(t, s)      = alpha_bar(t) / alpha_bar(s)      share that survives from s until t; from clean data without s
    lost(t, s)      = 1 - kept(t, s)                   a formula of its own, so that both ends are exact
    decay(t)        = -d alpha_bar / dt                = beta alpha_bar, finite where beta is not
    time(alpha_bar)                                    the inverse of alpha_bar(t)

These are formulas: float64 tensors in, float64 tensors out, nothing is checked. `alpha_bar(t, s)` and `beta(t)` are the
same for users: they take numbers or tensors of any dtype, check them, and answer in the dtype of t.
"""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from usd3._internal.checks import Checks, as_count, as_number, require

__all__ = ["Constant", "Cosine", "Exponential", "Geometric", "Linear", "LogLinear", "Power", "Schedule", "Time"]

Time = Tensor | float


class Schedule(ABC):
    """Base class. A schedule of your own writes `kept`, `lost`, `decay` and `time`, then calls `super().__init__()`.

    The constructor checks the four formulas against each other.

    Example:
        class Square(usd3.Schedule):
            def kept(self, t, s=None):
                return (1 - t * t) / (1 if s is None else 1 - s * s)

            def lost(self, t, s=None):
                return t * t if s is None else (t - s) * (t + s) / (1 - s * s)

            def decay(self, t):
                return 2 * t

            def time(self, alpha_bar):
                return (1 - alpha_bar).sqrt()
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
        kept, s = self.kept(t), t / 2
        pairs = {  # formula: (its value, the value that `kept(t)` implies)
            "kept(t, s)": (self.kept(t, s) * self.kept(s), kept),
            "lost(t)": (self.lost(t), 1 - kept),
            "lost(t, s)": (self.lost(t, s), 1 - self.kept(t, s)),
            "decay(t)": (self.decay(t), (self.kept(t - h) - self.kept(t + h)) / (2 * h)),
            "time": (torch.where(kept > 1e-12, self.time(kept), t), t),
        }
        for name, (value, implied) in pairs.items():
            consistent = torch.allclose(value, implied, rtol=1e-4, atol=1e-7)
            expected = f"{implied.tolist()}, as kept(t) implies"
            require(consistent, f"{type(self).__name__}.{name}", value.tolist(), expected)

    # ---- formulas on float64 tensors ----------------------------------------------------------------------------

    @abstractmethod
    def kept(self, t: Tensor, s: Tensor | None = None) -> Tensor:
        """alpha_bar(t, s) = alpha_bar(t) / alpha_bar(s); alpha_bar(t) without s."""

    @abstractmethod
    def lost(self, t: Tensor, s: Tensor | None = None) -> Tensor:
        """1 - alpha_bar(t, s), without cancellation."""

    @abstractmethod
    def decay(self, t: Tensor) -> Tensor:
        """-d alpha_bar / dt, finite on [0, 1]."""

    @abstractmethod
    def time(self, alpha_bar: Tensor) -> Tensor:
        """The time t with alpha_bar(t) = `alpha_bar`."""

    def rate(self, t: Tensor) -> Tensor:
        """beta(t) = decay(t) / kept(t)."""
        return self.decay(t) / self.kept(t)

    # ---- for users: any dtype, checked --------------------------------------------------------------------------

    def alpha_bar(self, t: Time, s: Time | None = None) -> Tensor:
        """Share of the data that survives until t, from time 0 or from s <= t. Answers in the dtype of t."""
        return _evaluate(self.kept, t, s)

    def beta(self, t: Time) -> Tensor:
        """-d log alpha_bar / dt in the dtype of t; infinite at t = 1 where alpha_bar(1) = 0."""
        return _evaluate(self.rate, t)

    def __repr__(self) -> str:
        fields = ", ".join(f"{k.strip('_')}={v}" for k, v in vars(self).items() if k not in self._derived)
        return f"{type(self).__name__}({fields})"

    _derived: tuple[str, ...] = ()


class Cosine(Schedule):
    """alpha_bar(t) = h(t) / h(0) with h(t) = cos((t + a) / (1 + a) pi/2).

    Written from the other end, h(t) = sin(c (1 - t)), c = pi / 2 / (1 + a): exactly 0 at t = 1. Its derivative and its
    differences have cos(c (1 - t)) = sin(d + c t) with d = pi / 2 - c, which loses no digits near t = 0.
    """

    _derived = ("_c",)

    def __init__(self, a: float = 0.008):
        self.a = as_number(a, "a", 0, closed=True)
        self._c = math.pi / 2 / (1 + a)
        super().__init__()

    @property
    def _d(self) -> float:
        return self._c * self.a

    def kept(self, t: Tensor, s: Tensor | None = None) -> Tensor:
        """sin(c (1 - t)) / sin(c (1 - s))."""
        c = self._c
        return torch.sin(c * (1 - t)) / (math.sin(c) if s is None else torch.sin(c * (1 - s)))

    def lost(self, t: Tensor, s: Tensor | None = None) -> Tensor:
        """1 - kept, by sin p - sin q = 2 cos((p + q) / 2) sin((p - q) / 2)."""
        c = self._c
        if s is None:
            return torch.sin(self._d + c / 2 * t) * torch.sin(c / 2 * t) * (2 / math.sin(c))
        return 2 * torch.sin(self._d + c * (t + s) / 2) * torch.sin(c * (t - s) / 2) / torch.sin(c * (1 - s))

    def decay(self, t: Tensor) -> Tensor:
        """c cos(c (1 - t)) / sin c."""
        return torch.sin(self._d + self._c * t) * (self._c / math.sin(self._c))

    def time(self, alpha_bar: Tensor) -> Tensor:
        """1 - asin(alpha_bar sin c) / c."""
        return 1 - torch.asin(alpha_bar * math.sin(self._c)) / self._c


class LogLinear(Schedule):
    """alpha_bar(t) = 1 - (1 - eps) t: the integrated rate is -log(1 - (1 - eps) t), SEDD's name for it."""

    def __init__(self, eps: float = 1e-3):
        self.eps = as_number(eps, "eps", 0, 1, closed=True)
        super().__init__()

    def kept(self, t: Tensor, s: Tensor | None = None) -> Tensor:
        """(1 - (1 - eps) t) / (1 - (1 - eps) s)."""
        kept = (1 - t) + self.eps * t
        return kept if s is None else kept / self.kept(s)

    def lost(self, t: Tensor, s: Tensor | None = None) -> Tensor:
        """(1 - eps) (t - s) / alpha_bar(s)."""
        return (1 - self.eps) * (t if s is None else (t - s) / self.kept(s))

    def decay(self, t: Tensor) -> Tensor:
        """1 - eps, whatever t is."""
        return torch.full_like(t, 1 - self.eps)

    def time(self, alpha_bar: Tensor) -> Tensor:
        """(1 - alpha_bar) / (1 - eps)."""
        return (1 - alpha_bar) / (1 - self.eps)


class Linear(LogLinear):
    """alpha_bar(t) = 1 - t."""

    _derived = ("eps",)

    def __init__(self) -> None:
        super().__init__(eps=0.0)


class Power(Schedule):
    """alpha_bar(t) = (1 - t)^p. Above p = 1 most times have little data left, below it most have much."""

    def __init__(self, power: float = 3.0):
        self.power = as_number(power, "power", 0)
        require(self.power >= 1, "power", power, "at least 1, as alpha_bar must not fall infinitely fast at t = 1")
        super().__init__()

    def kept(self, t: Tensor, s: Tensor | None = None) -> Tensor:
        """((1 - t) / (1 - s))^p."""
        return ((1 - t) / (1 - _or_0(s, t))) ** self.power

    def lost(self, t: Tensor, s: Tensor | None = None) -> Tensor:
        """1 - kept, by expm1 of p log(1 - (t - s) / (1 - s))."""
        s = _or_0(s, t)
        return -torch.expm1(self.power * torch.log1p(-(t - s) / (1 - s)))

    def decay(self, t: Tensor) -> Tensor:
        """p (1 - t)^(p - 1)."""
        return self.power * (1 - t) ** (self.power - 1)

    def time(self, alpha_bar: Tensor) -> Tensor:
        """1 - alpha_bar^(1/p), without cancellation."""
        return -torch.expm1(torch.log(alpha_bar) / self.power)


class _Integrated(Schedule):
    """alpha_bar(t, s) = exp(-sigma(t, s)), where sigma(t, s) is the integral of beta from s to t."""

    @abstractmethod
    def _sigma(self, t: Tensor, s: Tensor | None) -> Tensor: ...

    @abstractmethod
    def rate(self, t: Tensor) -> Tensor:
        """beta(t)."""

    def kept(self, t: Tensor, s: Tensor | None = None) -> Tensor:
        """exp(-sigma(t, s))."""
        return torch.exp(-self._sigma(t, s))

    def lost(self, t: Tensor, s: Tensor | None = None) -> Tensor:
        """1 - exp(-sigma(t, s))."""
        return -torch.expm1(-self._sigma(t, s))

    def decay(self, t: Tensor) -> Tensor:
        """beta(t) alpha_bar(t)."""
        return self.rate(t) * self.kept(t)


class Constant(_Integrated):
    """beta(t) = beta: alpha_bar(t) = exp(-beta t)."""

    def __init__(self, beta: float):
        self._beta = as_number(beta, "beta", 0)
        super().__init__()

    @classmethod
    def from_rate(cls, rate: float, num_classes: int) -> "Constant":
        """The schedule of the uniform rate matrix `rate (11^T - K I)`: beta = rate K."""
        return cls(as_number(rate, "rate", 0) * as_count(num_classes, "num_classes", 2))

    def _sigma(self, t: Tensor, s: Tensor | None) -> Tensor:
        return self._beta * (t - _or_0(s, t))

    def rate(self, t: Tensor) -> Tensor:
        """beta, whatever t is."""
        return torch.full_like(t, self._beta)

    def time(self, alpha_bar: Tensor) -> Tensor:
        """-log(alpha_bar) / beta."""
        return -torch.log(alpha_bar) / self._beta


class Exponential(_Integrated):
    """beta(t) = a b^t log b: alpha_bar(t) = exp(a (1 - b^t))."""

    def __init__(self, a: float = 0.5, b: float = 10.0):
        self.a, self.b = as_number(a, "a", 0), as_number(b, "b", 1)
        super().__init__()

    def _sigma(self, t: Tensor, s: Tensor | None) -> Tensor:
        start, log_b = _or_0(s, t), math.log(self.b)
        return self.a * torch.exp(log_b * start) * torch.expm1(log_b * (t - start))

    def rate(self, t: Tensor) -> Tensor:
        """a b^t log b."""
        return self.a * math.log(self.b) * torch.exp(math.log(self.b) * t)

    def time(self, alpha_bar: Tensor) -> Tensor:
        """log(1 - log(alpha_bar) / a) / log b."""
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

    def time(self, alpha_bar: Tensor) -> Tensor:
        """The inverse, with the offset taken off first."""
        return super().time(alpha_bar * math.exp(self.lo) if self.offset else alpha_bar)


def _or_0(s: Tensor | None, t: Tensor) -> Tensor:
    return torch.zeros_like(t) if s is None else s


def _evaluate(formula: Callable[..., Tensor], t: Time, s: Time | None = None) -> Tensor:
    """The formula in float64 at times 0 <= s <= t <= 1, and 1 at t = s; the answer in the dtype of t."""
    values = [
        torch.as_tensor(v, dtype=None if isinstance(v, Tensor) else torch.float64) for v in (t, s) if v is not None
    ]
    dtype = values[0].dtype if values[0].is_floating_point() else torch.float64
    time, *before = (v.to(torch.float64) for v in values)
    checks = Checks(enabled=True)
    for value, name in zip((time, *before), ("t", "s")):
        checks.refuse(name, value, lambda v: ~((v >= 0) & (v <= 1)), "numbers in [0, 1]")
    for start in before:
        checks.refuse("s", start, lambda v: v > time, "at most t")
    checks.raise_first()
    answer = formula(time, *before)
    return (torch.where(time == before[0], 1.0, answer) if before else answer).to(dtype)
