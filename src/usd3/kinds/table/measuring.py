"""Rows of a table as the metrics take them: numbers as floats, and features for distances and for a classifier."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from usd3.kinds.table.columns import Cells
from usd3.kinds.table.dtypes import normalised
from usd3.kinds.table.frames import require_pandas
from usd3.kinds.table.numbers import Numbers
from usd3.metrics.closest import RowFeatures, standardised

if TYPE_CHECKING:
    from usd3.kinds.table.kind import Table

__all__ = ["Features", "Measured"]

_INDICATORS = 12  # most frequent categories of a column that the classifier sees by themselves
_UNITS = 400  # random units, by which it sees several columns together


@dataclass(frozen=True, eq=False)
class Measured:
    """Rows of a table.

    Args:
        frame: a DataFrame; columns of numbers and dates are float64 on their `scale`, with nan for a missing cell.
        tokens: (N, D) int64 the same rows as categories.
        numbers: the names of the columns of numbers and dates.
    """

    frame: Any
    tokens: Tensor
    numbers: tuple[str, ...]

    @classmethod
    def of(cls, table: "Table", frame: Any, tokens: Tensor) -> "Measured":
        """The rows of a DataFrame of the table, whose tokens are known."""
        pd = require_pandas()
        columns, numbers = {}, []
        for i, column in enumerate(table.schema):
            series = frame.iloc[:, i]
            if not isinstance(column, Numbers):
                columns[column.name] = series
                continue
            cells = Cells(normalised(series)[1], table.form.missing, "the rows")
            values, known = column.parsed(cells)
            columns[column.name] = np.where(known, values.astype(np.float64) * column.scale, np.nan)
            numbers.append(column.name)
        return cls(pd.DataFrame(columns), tokens.long(), tuple(numbers))

    @classmethod
    def drawn(cls, table: "Table", tokens: Tensor, seed: int = 0) -> "Measured":
        """Rows that were drawn as tokens (N, D)."""
        return cls.of(table, table.objects(tokens, seed), tokens)

    def __len__(self) -> int:
        return len(self.tokens)

    def rows(self, chosen: Sequence[int] | NDArray[np.int64] | slice) -> "Measured":
        """Some of the rows."""
        index = np.arange(len(self))[chosen]
        return Measured(self.frame.iloc[index].reset_index(drop=True), self.tokens[index], self.numbers)

    def permuted(self, seed: int) -> "Measured":
        """The same columns, each in a random order of its own: nothing is left of how they hang together."""
        pd = require_pandas()
        rng = np.random.default_rng(seed)
        orders = [rng.permutation(len(self)) for _ in self.frame.columns]
        columns = {name: self.frame[name].to_numpy()[order] for name, order in zip(self.frame, orders)}
        tokens = torch.stack([self.tokens[order, i] for i, order in enumerate(orders)], dim=1)
        return Measured(pd.DataFrame(columns), tokens, self.numbers)

    def values(self) -> NDArray[np.float64]:
        """(N, A) the columns of numbers."""
        return np.asarray(self.frame[list(self.numbers)].to_numpy(dtype=np.float64).reshape(len(self), -1))


class Features:
    """Features of rows on the scale of some real rows.

    Args:
        real: the rows that set the scale.
    """

    def __init__(self, real: Measured):
        self.real = real
        self.is_number = np.array([name in real.numbers for name in real.frame.columns])
        self.frequent = [torch.bincount(column).argsort(descending=True)[:_INDICATORS] for column in real.tokens.T]
        self.sorted = [np.sort(column[~np.isnan(column)]) for column in real.values().T]
        generator = torch.Generator().manual_seed(0)
        size = len(self.is_number) + sum(map(len, self.frequent))
        self.weights = torch.randn(size, _UNITS, generator=generator, dtype=torch.float64)
        self.offsets = torch.randn(_UNITS, generator=generator, dtype=torch.float64)

    def for_distances(self, rows: Measured) -> RowFeatures:
        """Standardised numbers, and categories; whether a number is missing counts as a category."""
        values = rows.values()
        missing = torch.from_numpy(np.isnan(values)).long()
        categories = rows.tokens[:, torch.from_numpy(~self.is_number)]
        return RowFeatures(standardised(values, self.real.values()), torch.cat([categories, missing], dim=1))

    def for_classifier(self, rows: Measured) -> Tensor:
        """(N, F) float64: normal scores of each column, and random units of these and of frequent categories.

        A linear classifier sees single columns in the scores, and several columns together in the units.
        """
        scores = self._scores(rows)
        indicators = [rows.tokens[:, i, None] == frequent for i, frequent in enumerate(self.frequent)]
        inputs = torch.cat([scores, *(indicator.double() for indicator in indicators)], dim=1)
        return torch.cat([scores, torch.relu(inputs @ self.weights + self.offsets)], dim=1)

    def _scores(self, rows: Measured) -> Tensor:
        """(N, D) where each cell stands among the real ones, as the score of a normal distribution."""
        places = []
        for i, column in enumerate(rows.tokens.T):
            counts = torch.bincount(self.real.tokens[:, i], minlength=int(column.max()) + 1).double()
            middle = (counts.cumsum(0) - counts / 2) / counts.sum()
            places.append(middle[column])
        for values, real, number in zip(rows.values().T, self.sorted, np.flatnonzero(self.is_number).tolist()):
            if len(real):
                below = np.searchsorted(real, values, "left") + np.searchsorted(real, values, "right")
                places[number] = torch.from_numpy(np.where(np.isnan(values), 0.5, below / (2 * len(real))))
        scores: Tensor = torch.special.ndtri(torch.stack(places, dim=1).clamp(1e-3, 1 - 1e-3))
        return scores
