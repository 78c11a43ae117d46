"""Imputation: how well are hidden cells of Mushroom and Adult guessed?

Four steps in two environments, because the competitors need scikit-learn, which usd3 does not:

    python benchmarks/imputation.py hide --data DIR --table mushroom --out runs/imputation/mushroom
    python benchmarks/imputation.py fill --out runs/imputation/mushroom        # trains and fills; needs usd3
    pip install scikit-learn pandas                                            # in an environment of their own
    python benchmarks/imputation.py compete --out runs/imputation/mushroom     # needs these, not usd3
    python benchmarks/imputation.py score --out runs/imputation/mushroom       # needs pandas alone

DIR has agaricus-lepiota.data, of which a random fifth of the rows is held out, or adult.data and adult.test of UCI.
`hide` hides a share of the cells of the held-out rows: truth.csv has them, holes.csv does not, mask.csv has 1 where a
cell is hidden. Cells that the data lack ("?") are holes as well, but nobody knows their values, so they do not count.
Columns of a single value are not hidden.

Every filler reads train.csv and holes.csv, and writes filled-NAME.csv:

    mode, draw   usd3: the likeliest value of each cell, of numbers the median; a draw of all cells of a row together
    column       the most frequent value of the column, of numbers the median
    random       the cell of a random training row
    boosting     HistGradientBoosting, a model for each column; cells of its training rows are hidden at the same rate
    boosting-3   the same on three copies of the training rows, each with other hidden cells
    iterative    IterativeImputer; categories are integers, and guesses are rounded to the nearest

`score` measures all of them, with an interval of 95 % by resampling rows, and beside the best competitor:

    accuracy_columns, accuracy_cells   share of the hidden categories that are right: mean over columns, over cells
    error                              absolute error of hidden numbers over the standard deviation of the column in
                                       training; mean over columns
    total_variation                    distance of the column's filled cells from the true ones as distributions,
                                       numbers in ten bins; mean over columns. Chance alone makes that of `random`
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
from adult import NAMES, NUMBERS
from numpy.typing import NDArray

MEASURES = {"accuracy_columns": 1, "accuracy_cells": 1, "error": -1, "total_variation": -1}  # 1: higher is better
RESAMPLINGS, AT_ONCE = 1000, 50
Floats = NDArray[np.float64]


def read(path: Path, numbers: Sequence[str] = (), names: Sequence[str] | None = None) -> pd.DataFrame:
    """A table of texts and of these columns of numbers; nothing where a cell is missing. `names`: it has no header."""
    form = {"names": names, "header": 0 if names is None else None, "skipinitialspace": True, "comment": "|"}
    table = pd.read_csv(path, dtype=str, keep_default_na=False, na_values=["", "?"], **form)
    return table.astype(dict.fromkeys(numbers, float))


def write(folder: Path, name: str, table: pd.DataFrame, about: dict[str, Any]) -> None:
    """Write what a filler made of the holes, and how it did it."""
    table.to_csv(folder / f"filled-{name}.csv", index=False)
    (folder / f"filled-{name}.json").write_text(json.dumps(about, indent=2) + "\n")
    trained = f"trained in {about['train_seconds']:.1f} s, " if about.get("train_seconds") is not None else ""
    print(f"{name}: {trained}filled in {about['fill_seconds']:.1f} s", flush=True)


def versions(*modules: ModuleType) -> dict[str, str]:
    """The versions of Python, of the libraries that all steps need, and of `modules`."""
    return {"python": platform.python_version()} | {m.__name__: m.__version__ for m in (np, pd, *modules)}


# ---- holes --------------------------------------------------------------------------------------------------------


def hide(options: argparse.Namespace) -> None:
    """Write the training rows, and held-out rows with and without their hidden cells."""
    out, rng = Path(options.out), np.random.default_rng(options.seed)
    out.mkdir(parents=True)  # a new folder: each filled table in it belongs to this mask
    train, truth = _split(Path(options.data), options.table, rng)
    numbers = [name for name in NUMBERS if name in train]
    known = [truth[name].isna() | truth[name].isin(train[name]) for name in train if name not in numbers]
    seen = np.all(known, axis=0)
    truth = truth[seen].iloc[: options.rows]
    constant = (train.nunique() == 1).to_numpy()
    hidden = (rng.random(truth.shape) < options.share) & truth.notna() & ~constant
    train.to_csv(out / "train.csv", index=False)
    truth.to_csv(out / "truth.csv", index=False)
    truth.mask(hidden).to_csv(out / "holes.csv", index=False)
    hidden.astype(int).to_csv(out / "mask.csv", index=False)
    about = {"table": options.table, "seed": options.seed, "share": options.share, "numbers": numbers}
    (out / "hide.json").write_text(json.dumps(about, indent=2) + "\n")
    unseen = f"; {(~seen).sum()} rows left out, with categories that training lacks" if not seen.all() else ""
    print(f"{len(train)} rows to train on, {len(truth)} rows with {hidden.to_numpy().sum()} hidden cells{unseen}")


def _split(data: Path, table: str, rng: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Training rows and held-out rows, these in a random order."""
    if table == "mushroom":
        rows = read(data / "agaricus-lepiota.data")
        order = rng.permutation(len(rows))
        cut = len(rows) // 5
        return rows.iloc[np.sort(order[cut:])], rows.iloc[order[:cut]]
    train, test = (read(data / f"adult.{part}", names=NAMES) for part in ("data", "test"))
    test["income"] = test.income.str.rstrip(".")
    return train, test.iloc[rng.permutation(len(test))]


def _load(out: str) -> tuple[Path, dict[str, Any], pd.DataFrame, pd.DataFrame]:
    """The folder, what `hide` said about it, the training rows, and the rows with holes."""
    folder = Path(out)
    about = json.loads((folder / "hide.json").read_text())
    train, holes = (read(folder / f"{name}.csv", about["numbers"]) for name in ("train", "holes"))
    return folder, about, train, holes


# ---- fillers ------------------------------------------------------------------------------------------------------


def fill(options: argparse.Namespace) -> None:
    """Train usd3, or load a model, and fill the holes with it in both ways."""
    import torch

    import usd3

    folder, about, train, holes = _load(options.out)
    began = time.monotonic()
    if options.model is None:
        categories = {name: "category" for name in train if name not in about["numbers"]}
        how = {"seed": options.seed, "minutes": options.minutes, "run": options.run, "progress": options.progress}
        how |= {"columns": categories, "data": {"table": {"header": True}}}
        model = usd3.TableModel().fit(folder / "train.csv", *options.recipes, **how)
    else:
        model = usd3.TableModel.load(options.model)
    trained = time.monotonic() - began if options.model is None else None
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or "CPU"
    made = {"competitor": False, "device": device, "threads": torch.get_num_threads(), "train_seconds": trained}
    made |= {"recipes": " ".join(options.recipes), "model": options.model}
    made |= {"filler_seed": options.seed, "versions": versions(torch, usd3)}
    holes = holes.set_axis(model.kind.names, axis=1)  # a run on a file without a header has names of its own
    for name in ("mode", "draw"):
        began = time.monotonic()
        filled = model.impute(holes, how=name, seed=options.seed).set_axis(list(train), axis=1)
        write(folder, name, filled, made | {"fill_seconds": time.monotonic() - began})


def compete(options: argparse.Namespace) -> None:
    """Fill the holes with what scikit-learn has, and in two simple ways."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as in usd3: on a busy machine, spinning threads are slow
    import sklearn
    from imputers import fillers

    folder, about, train, holes = _load(options.out)
    made = {"competitor": True, "device": platform.processor() or "CPU", "threads": os.cpu_count()}
    made |= {"filler_seed": options.seed, "versions": versions(sklearn)}
    for name, filler in fillers(about["numbers"], about["share"], options.seed).items():
        began = time.monotonic()
        filled = filler(train, holes)
        write(folder, name, filled, made | {"fill_seconds": time.monotonic() - began})


# ---- scores -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Guesses:
    """What a filler made of the hidden cells of N rows and C columns; 0 where a cell is not hidden.

    Args:
        hidden: (N, C) 1 where a cell is hidden.
        scores: (N, C) 1 where a category is right; of numbers the scaled error.
        shifts: for each column (N, K) its filled cells minus the true ones, both one-hot.
        is_number: (C,) which columns are numbers.
    """

    hidden: Floats
    scores: Floats
    shifts: list[Floats]
    is_number: NDArray[np.bool_]

    def measures(self, weights: Floats) -> dict[str, Floats]:
        """Each measure (B,) of the rows with these weights (B, N)."""
        counts, sums = weights @ self.hidden, weights @ self.scores
        shifted = np.stack([np.abs(weights @ shift).sum(1) / 2 for shift in self.shifts], 1)
        number, category = self.is_number, ~self.is_number
        with np.errstate(invalid="ignore"):  # a small table drawn again may lack the hidden cells of a column
            found = {"total_variation": np.nanmean(shifted / counts, 1)}
            if category.any():
                found["accuracy_columns"] = np.nanmean((sums / counts)[:, category], 1)
                found["accuracy_cells"] = sums[:, category].sum(1) / counts[:, category].sum(1)
            if number.any():
                found["error"] = np.nanmean((sums / counts)[:, number], 1)
        return {name: found[name] for name in MEASURES if name in found}


def guesses_of(
    filled: pd.DataFrame, truth: pd.DataFrame, mask: pd.DataFrame, train: pd.DataFrame, numbers: Sequence[str]
) -> Guesses:
    """The hidden cells of a filled table beside the true ones."""
    names, scores, shifts = [name for name in truth if mask[name].any()], [], []
    for name in names:
        hidden, guess, true = mask[name].to_numpy(), filled[name], truth[name]
        if guess[hidden].isna().any():
            raise ValueError(f"column {name} of the filled table: expected a value in each hidden cell")
        if name in numbers:
            scores.append(np.where(hidden, (guess - true).abs() / train[name].std(), 0.0))
            edges = np.unique(train[name].quantile(np.linspace(0.1, 0.9, 9)))
            guess, true = (pd.Series(np.searchsorted(edges, column)) for column in (guess, true))
        else:
            scores.append(np.where(hidden, guess == true, 0.0))
        one_hot = pd.get_dummies(pd.concat([guess, true])).to_numpy(float)
        shifts.append((one_hot[: len(true)] - one_hot[len(true) :]) * hidden[:, None])
    is_number = np.array([name in numbers for name in names])
    return Guesses(mask[names].to_numpy(float), np.stack(scores, 1), shifts, is_number)


def _resampled(guesses: Guesses) -> dict[str, Floats]:
    """Each measure (1 + RESAMPLINGS,): of the rows as they are, then of rows drawn with replacement."""
    rng, rows = np.random.default_rng(0), len(guesses.hidden)  # the same rows for all fillers: differences are paired
    parts = [guesses.measures(np.ones((1, rows)))]
    for _ in range(RESAMPLINGS // AT_ONCE):
        parts.append(guesses.measures(rng.multinomial(rows, np.full(rows, 1 / rows), size=AT_ONCE).astype(float)))
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def _with_interval(values: Floats, name: str) -> dict[str, float]:
    """The value of the rows as they are, which is the first, and 1.96 standard deviations of the others around it."""
    value, spread = float(values[0]), 1.96 * float(values[1:].std(ddof=1))
    return {name: value, f"{name}_low": value - spread, f"{name}_high": value + spread}


def score(options: argparse.Namespace) -> None:
    """Measure every filled table, and write scores.csv."""
    folder, about, train, _ = _load(options.out)
    numbers = about.pop("numbers")
    truth, mask = read(folder / "truth.csv", numbers), pd.read_csv(folder / "mask.csv").astype(bool)
    about |= {"train_rows": len(train), "rows": len(truth), "hidden_cells": int(mask.to_numpy().sum())}
    measured, how = {}, {}
    for file in sorted(folder.glob("filled-*.csv")):
        name = file.stem.removeprefix("filled-")
        measured[name] = _resampled(guesses_of(read(file, numbers), truth, mask, train, numbers))
        how[name] = json.loads(file.with_suffix(".json").read_text())
        how[name]["versions"] = " ".join(f"{key} {value}" for key, value in how[name]["versions"].items())
    rivals = [name for name in measured if how[name]["competitor"]]
    rows = [row for key in next(iter(measured.values())) for row in _compared(key, measured, rivals)]
    for row in rows:
        _print(row)
    pd.DataFrame([row | about | how[row["filler"]] for row in rows]).to_csv(folder / "scores.csv", index=False)


def _compared(key: str, measured: dict[str, dict[str, Floats]], rivals: Sequence[str]) -> Iterator[dict[str, Any]]:
    """A row for each filler with one measure, and what it has more than the best of the rivals, if it is none."""
    best = max(rivals, key=lambda name: MEASURES[key] * measured[name][key][0], default=None)
    for name, values in measured.items():
        row = {"filler": name, "measure": key, **_with_interval(values[key], "value")}
        if best is not None and name not in rivals:
            row |= {"best_competitor": best, **_with_interval(values[key] - measured[best][key], "difference")}
        yield row


def _print(row: dict[str, Any]) -> None:
    line = (
        f"{row['measure']:17} {row['filler']:10} {row['value']:.4f} [{row['value_low']:.4f}, {row['value_high']:.4f}]"
    )
    if "best_competitor" in row:
        interval = f"[{row['difference_low']:+.4f}, {row['difference_high']:+.4f}]"
        line += f"   minus {row['best_competitor']}: {row['difference']:+.4f} {interval}"
    print(line)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["hide", "fill", "compete", "score"])
    parser.add_argument("--out", required=True, help="the folder of one table with one mask")
    parser.add_argument("--data", help="hide: the folder of the files of UCI")
    parser.add_argument("--table", choices=["mushroom", "adult"], default="mushroom", help="hide: which table")
    parser.add_argument("--share", type=float, default=0.2, help="hide: share of the cells")
    parser.add_argument("--rows", type=int, default=None, help="hide: most held-out rows")
    parser.add_argument("--seed", type=int, default=0, help="of the split and the mask; of a filler")
    parser.add_argument("--recipes", nargs="*", default=[], help="fill: recipes after that of tables")
    parser.add_argument("--minutes", type=float, default=None, help="fill: most minutes of the training")
    parser.add_argument("--run", default=None, help="fill: keep the run in this new folder")
    parser.add_argument("--model", default=None, help="fill: a run that exists, which saw none of the held-out rows")
    parser.add_argument("--progress", action="store_true", help="fill: show progress")
    options = parser.parse_args(arguments)
    if options.action == "hide" and options.data is None:
        parser.error("hide needs --data")
    {"hide": hide, "fill": fill, "compete": compete, "score": score}[options.action](options)


if __name__ == "__main__":
    main()
