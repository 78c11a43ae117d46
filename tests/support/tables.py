"""Small tables: files of text made in a test, and how they are read."""

from pathlib import Path

import numpy as np

from usd3.kinds.options import DataConfig
from usd3.kinds.table.kind import Table
from usd3.kinds.table.options import TableOptions
from usd3.kinds.table.reading import TableDataset

__all__ = ["adult_text", "all_rows", "mixed_frame", "mushroom_text", "read_frame", "read_text"]

ADULT = """39, State-gov, 77516, Bachelors, 13, Male, 2174, 40, <=50K
50, Self-emp, 83311, Bachelors, 13, Male, 0, 13, <=50K
38, ?, 215646, HS-grad, 9, Male, 0, 40, >50K
28, Private, 338409, Bachelors, 13, Female, 0, 40, <=50K
37, Private, 284582, Masters, 14, Female, 0, 40, >50K
"""


def adult_text(rows: int = 300) -> str:
    """A table in the form of UCI's adult.data: no header, padded cells, `?` for missing, an empty line at the end."""
    rng = np.random.default_rng(0)
    parts = [line.split(", ") for line in ADULT.splitlines()]
    lines = []
    for i in range(rows):
        cells = list(parts[i % 5])
        cells[0], cells[2] = str(rng.integers(17, 91)), str(rng.integers(12285, 1484705))
        cells[6] = str(rng.choice([0, 0, 0, 2174, 7298]))
        lines.append(", ".join(cells))
    return "\n".join(lines) + "\n\n"


def mushroom_text(rows: int = 200) -> str:
    """A table in the form of agaricus-lepiota.data: a header, categories of one letter, `?` for missing."""
    rng = np.random.default_rng(1)
    letters = {"edibility": "ep", "cap-shape": "bcxf", "odor": "alcn", "stalk-root": "bce?", "veil-type": "p"}
    columns = [rng.choice(list(values), size=rows) for values in letters.values()]
    return "\n".join([",".join(letters), *(",".join(row) for row in zip(*columns))]) + "\n"


def read_text(folder: Path, text: str | bytes, name: str = "table.csv", **options) -> TableDataset:
    """The table in a file with this text; `options` are those of `data.table`."""
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return DataConfig("table", str(path), table=TableOptions(**options)).load()


def read_frame(frame, **options) -> TableDataset:
    """The table in a DataFrame."""
    return Table.from_objects(frame, DataConfig("table", table=TableOptions(**options)))


def all_rows(dataset: TableDataset):
    """The rows of both splits of a table as tokens (N, D), training rows first."""
    return np.concatenate([dataset.train.tokens.numpy(), dataset.test.tokens.numpy()])


def mixed_frame(rows: int = 200):
    """A DataFrame with a column of each dtype that comes back."""
    import pandas as pd

    rng = np.random.default_rng(2)
    holes = rng.random(rows) < 0.1
    words = np.array(["red", "green", "blue"])[rng.integers(3, size=rows)]
    return pd.DataFrame(
        {
            "whole": rng.integers(0, 9, size=rows),
            "small": rng.integers(0, 200, size=rows).astype("int16"),
            "nullable": pd.array(np.where(holes, None, rng.integers(0, 5, size=rows)), dtype="Int64"),
            "real": rng.normal(size=rows),
            "holes": np.where(holes, np.nan, rng.normal(size=rows).round(2)),
            "single": rng.normal(size=rows).astype("float32"),
            "flag": rng.random(rows) < 0.5,
            "maybe": pd.array(np.where(holes, None, rng.random(rows) < 0.5), dtype="boolean"),
            "text": pd.Series(words, dtype="str"),
            "object": pd.Series(np.where(holes, None, words), dtype="object"),
            "string": pd.Series(words, dtype="string"),
            "level": pd.Categorical(words, categories=["red", "green", "blue", "never"], ordered=True),
            "time": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 10**6, size=rows), unit="s"),
            "zone": pd.Series(pd.date_range("2021-05-01", periods=rows, freq="h")).dt.tz_localize("Europe/Berlin"),
        }
    )
