"""The grid that the numbers of a column lie on: integers, or decimals with so many places."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usd3.kinds.table.bins import Interval

__all__ = ["Grid", "grid_of"]

_NEAR = 1e-6  # of a step: so close to a place of the grid is on it
_EXACT = 2**53
_INT64 = (-(2**63), 2**63 - 1)


@dataclass(frozen=True)
class Grid:
    """The numbers that a column can have: (offset + step k) / 10^decimals for k = 0, 1, ...

    Args:
        offset: where it begins.
        step: how far two neighbours are apart; 0: the numbers are real, and any can occur.
        decimals: most decimals of a number.
    """

    offset: int = 0
    step: int = 0
    decimals: int = 0

    @property
    def is_real(self) -> bool:
        """Whether any number can occur."""
        return self.step == 0

    def raw(self, values: NDArray[Any]) -> NDArray[Any]:
        """The nearest place k of each number; of real numbers the number itself."""
        if self.is_real:
            return values.astype(np.float64)
        if values.dtype.kind == "i" and self.decimals == 0:
            reach = [min(max(self.offset + end, _INT64[0]), _INT64[1]) for end in _INT64]
            place, left = np.divmod(np.clip(values.astype(np.int64), reach[0], reach[1]) - self.offset, self.step)
            return np.asarray(place + (left >= self.step - self.step // 2), dtype=np.int64)
        place = (values.astype(np.float64) * 10.0**self.decimals - self.offset) / self.step
        return np.rint(np.clip(place, -(2.0**62), 2.0**62)).astype(np.int64)

    def values(self, raw: NDArray[Any]) -> NDArray[Any]:
        """The numbers at places: int64 without decimals, otherwise float64."""
        if self.is_real:
            return raw.astype(np.float64)
        ticks = self.offset + self.step * raw.astype(np.int64)
        return ticks / 10.0**self.decimals if self.decimals else ticks

    def interval(self, low: float, high: float) -> Interval:
        """The places of the numbers from `low` to `high`, both included. An int without decimals counts exactly."""
        if self.is_real:
            return float(low), float(high)
        return self._place(low, math.ceil, -_NEAR), self._place(high, math.floor, _NEAR)

    def _place(self, end: float, rounded: Callable[[Any], int], slack: float) -> float:
        if isinstance(end, int) and self.decimals == 0:
            return rounded(Fraction(end - self.offset, self.step))
        place = (end * 10.0**self.decimals - self.offset) / self.step
        return rounded(place + slack) if math.isfinite(place) else place


def grid_of(values: NDArray[Any], decimals: int | None) -> Grid:
    """The coarsest grid that has all of the values, which have at most so many decimals; None: they are real."""
    if decimals is None:
        return Grid()
    if values.dtype.kind == "i" and decimals == 0:
        ticks = values.astype(np.int64)
    else:
        scaled = values.astype(np.float64) * 10.0**decimals
        if float(np.abs(scaled).max(initial=0.0)) >= _EXACT:
            return Grid()
        ticks = np.rint(scaled).astype(np.int64)
    if int(ticks.max()) - int(ticks.min()) > _INT64[1]:
        return Grid()
    offset = int(ticks.min())
    return Grid(offset, max(1, int(np.gcd.reduce(ticks - offset))), decimals)
