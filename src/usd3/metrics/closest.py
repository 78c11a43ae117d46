"""Distances of rows to the closest records of another table: whether generated rows are copies of training rows."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from usd3._internal.checks import require

__all__ = ["RowFeatures", "equal_rows", "nearest_distances", "share_nearer", "standardised"]

_CELLS = 2**22  # distances computed at once
_DIFFERENT = 2.0  # the distance of two different categories


class RowFeatures(NamedTuple):
    """Rows of a table for distances.

    Args:
        numbers: (N, A) float32 numbers on a common scale; 0 where a cell is missing.
        categories: (N, B) int64 categories; also, for each column of numbers with missing cells, whether it is missing.
    """

    numbers: Tensor
    categories: Tensor


def standardised(numbers: NDArray[np.float64], like: NDArray[np.float64]) -> Tensor:
    """Numbers (N, A) minus the mean of those of `like` (M, A), by their standard deviation; 0 where they are nan."""
    mean, std = np.nanmean(like, axis=0), np.nanstd(like, axis=0)
    scaled = (numbers - mean) / np.where(std > 0, std, 1)
    return torch.from_numpy(np.nan_to_num(scaled).astype(np.float32))


def nearest_distances(rows: RowFeatures, others: RowFeatures) -> Tensor:
    """For each row (N,) the distance to the closest of the others.

    The distance of two rows is the sum of the absolute differences of their numbers, and 2 for each different category.
    """
    for a, b in zip(rows, others):
        require(a.shape[1] == b.shape[1], "columns of others", b.shape[1], f"{a.shape[1]}, as rows have")
    require(len(others.numbers) > 0, "others", "no rows", "at least one row")
    return torch.cat([part.amin(1) for part in _distances(rows, others)])


def _distances(rows: RowFeatures, others: RowFeatures) -> Iterator[Tensor]:
    """The distances (n, M) of some rows at a time."""
    size = max(1, _CELLS // len(others.numbers))
    columns = [column.contiguous() for column in others.categories.to(torch.int32).T]
    for numbers, categories in zip(rows.numbers.split(size), rows.categories.to(torch.int32).split(size)):
        found = torch.cdist(numbers, others.numbers, p=1)
        for mine, theirs in zip(categories.T, columns):
            found += _DIFFERENT * (mine[:, None] != theirs)
        yield found


def share_nearer(rows: RowFeatures, train: RowFeatures, held_out: RowFeatures) -> float:
    """The share of rows that are nearer to a training row than to a held-out row; a tie counts as half.

    With as many training rows as held-out rows, 0.5 is what rows of the same distribution have that are no copies.
    """
    to_train, to_held_out = nearest_distances(rows, train), nearest_distances(rows, held_out)
    close = 1e-5 * (1 + to_held_out.abs())  # rounding
    nearer, tie = to_train < to_held_out - close, (to_train - to_held_out).abs() <= close
    return float((nearer.double() + 0.5 * tie.double()).mean())


def equal_rows(rows: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(N,) which of the rows (N, D) of integers are equal to one of the others (M, D) in all columns."""
    joined = np.concatenate([others, rows])
    place = np.zeros(len(joined), dtype=np.int64)
    for column in joined.T:  # number the different beginnings of rows
        _, codes = np.unique(column, return_inverse=True)
        _, place = np.unique(place * (int(codes.max(initial=0)) + 1) + codes, return_inverse=True)
    return np.isin(place[len(others) :], place[: len(others)])
