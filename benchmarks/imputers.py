"""The competitors of imputation.py: what scikit-learn and two simple rules make of holes. Needs scikit-learn."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

__all__ = ["Filler", "fillers"]

Filler = Callable[[pd.DataFrame, pd.DataFrame], pd.DataFrame]
"""Fills the missing cells of the second table, from what it learns of the first."""


def fillers(numbers: Sequence[str], share: float, seed: int) -> dict[str, Filler]:
    """All competitors by name.

    Args:
        numbers: the columns of numbers; the others are categories.
        share: the share of hidden cells, at which boosting hides cells of its training rows.
        seed: of every draw.
    """
    return {
        "column": lambda train, holes: by_column(train, holes, numbers),
        "random": lambda train, holes: by_random_rows(train, holes, seed),
        "iterative": lambda train, holes: by_iterative_imputer(train, holes, numbers, seed),
        "boosting": lambda train, holes: by_boosting(train, holes, numbers, share, 1, seed),
        "boosting-3": lambda train, holes: by_boosting(train, holes, numbers, share, 3, seed),
    }


def by_column(train: pd.DataFrame, holes: pd.DataFrame, numbers: Sequence[str]) -> pd.DataFrame:
    """The most frequent category of the column, or the median of its numbers."""
    return holes.fillna({name: train[name].median() if name in numbers else train[name].mode()[0] for name in train})


def by_random_rows(train: pd.DataFrame, holes: pd.DataFrame, seed: int) -> pd.DataFrame:
    """The cell of a random training row, another for each hole."""
    rng = np.random.default_rng((seed, 1))
    return holes.fillna(pd.DataFrame({name: rng.choice(train[name].dropna(), len(holes)) for name in train}))


def by_iterative_imputer(train: pd.DataFrame, holes: pd.DataFrame, numbers: Sequence[str], seed: int) -> pd.DataFrame:
    """Linear regressions of each column on the others, in turns; the integer of a category is rounded."""
    codes = _codes(train, numbers)
    rows = _coded(train, codes)
    centre, scale = rows.mean(), rows.std().replace(0.0, 1.0)  # its tolerance is one number for all columns
    imputer = IterativeImputer(random_state=seed).fit((rows - centre) / scale)
    guesses = imputer.transform((_coded(holes, codes) - centre) / scale)
    table = pd.DataFrame(guesses, columns=list(holes)) * scale + centre
    for name, values in codes.items():
        nearest = table[name].round().clip(0, len(values) - 1).astype(int)
        table[name] = np.array(list(values), dtype=object)[nearest]
    return holes.fillna(table)


def by_boosting(
    train: pd.DataFrame, holes: pd.DataFrame, numbers: Sequence[str], share: float, copies: int, seed: int
) -> pd.DataFrame:
    """Boosted trees for each column, given the others. Each copy of the training rows has its own hidden cells."""
    codes, filled = _codes(train, numbers), holes.copy()
    rows = pd.concat([train] * copies, ignore_index=True)
    inputs = _coded(rows, codes).mask(np.random.default_rng((seed, 2)).random(rows.shape) < share)
    given = _coded(holes, codes)
    for name in train:
        empty, target = holes[name].isna(), rows[name].dropna()
        settings = {"categorical_features": [other for other in codes if other != name], "random_state": seed}
        if name in codes:
            target = target[target.map(target.value_counts()) > 1]  # early stopping cannot split a single row
            model = HistGradientBoostingClassifier(**settings)
        else:
            model = HistGradientBoostingRegressor(loss="absolute_error", **settings)
        if empty.any() and target.nunique() > 1:
            model.fit(inputs.loc[target.index].drop(columns=name), target)
            filled.loc[empty, name] = model.predict(given[empty].drop(columns=name))
    return filled


def _codes(train: pd.DataFrame, numbers: Sequence[str]) -> dict[str, dict[str, int]]:
    """The integer of each category of each column of categories."""
    names = [name for name in train if name not in numbers]
    return {name: {value: i for i, value in enumerate(sorted(train[name].dropna().unique()))} for name in names}


def _coded(table: pd.DataFrame, codes: dict[str, dict[str, int]]) -> pd.DataFrame:
    """The table with integers for categories; missing cells stay missing."""
    return table.assign(**{name: table[name].map(values).astype(float) for name, values in codes.items()})
