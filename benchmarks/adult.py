"""The Adult table: how good are generated rows, by the protocol of TabPC's comparison (arXiv 2603.23016)?

Two steps in two environments, because the metrics need a release of sdmetrics that is otherwise of no use:

    python benchmarks/adult.py draw --data DIR --out runs/adult        # trains and draws; needs usd3
    pip install sdmetrics==0.24.0 xgboost scikit-learn pandas          # in an environment of their own
    python benchmarks/adult.py score --data DIR --out runs/adult       # needs these, not usd3

DIR has adult.data (32,561 rows, to train on) and adult.test (16,281 rows) of UCI. `draw` writes as many rows as it
trained on, once for each seed, and bounds the likelihood of test rows in nats (numbers by their bins, so that other
bins have other nats). With --half it trains on half of the rows, for DCR. `score` measures every file of rows:

    Shape, Trend   sdmetrics' quality report: similarity of columns and of pairs of columns
    C2ST           1: XGBoost cannot tell generated from training rows; 0: it always can
    AUC            of XGBoost trained on generated rows, on the real test rows; of 36 settings the best on a ninth of
                   the generated rows
    DCR            of --half: share of the rows that are nearer to the half they were trained on than to the other
    copies         rows that equal a training row in all columns but fnlwgt

`score --references` adds the test rows, training rows drawn with replacement, and training columns permuted. For
comparison, `copula` draws from a Gaussian copula, and `ctgan` from CTGAN (pip install ctgan).
"""

import argparse
import csv
import json
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

NAMES = [
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
    "income",
]
NUMBERS = ["age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week"]
HALF_SEED = 123  # which rows are the half
TEST = 4_000  # test rows for the bound


def read(path: Path) -> pd.DataFrame:
    """One of the two files of UCI as it is, or rows that we wrote."""
    header = 0 if path.suffix == ".csv" else None
    table = pd.read_csv(path, header=header, names=NAMES, skipinitialspace=True, dtype=str, keep_default_na=False)
    table = table[table.income != ""].reset_index(drop=True)
    table["income"] = table.income.str.rstrip(".")  # of the test file
    return table.astype(dict.fromkeys(NUMBERS, float))


def halves(count: int) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of the rows of the two halves."""
    order = np.random.default_rng(HALF_SEED).permutation(count)
    return np.sort(order[: count // 2]), np.sort(order[count // 2 :])


# ---- rows ---------------------------------------------------------------------------------------------------------


def draw(options: argparse.Namespace) -> None:
    """Train a model for each seed, and write as many rows as it was trained on."""
    import torch

    import usd3

    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    path = Path(options.data, "adult.data")
    count = sum(1 for line in path.read_text().splitlines() if line.strip())
    if options.half:
        lines = [line for line in path.read_text().splitlines() if line.strip()]
        path = out / "half.data"
        path.write_text("\n".join(lines[i] for i in halves(count)[0]) + "\n")
        count = count // 2
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        name = f"{options.label}{'-half' if options.half else ''}-{seed}"
        began = time.monotonic()
        model = usd3.TableModel().fit(
            path, *options.recipes, seed=seed, minutes=options.minutes, progress=options.progress
        )
        trained = time.monotonic() - began
        rows = model.sample(count, seed=seed)
        drawn = time.monotonic() - began - trained
        config = model.pipeline.config
        if options.keep:
            model.save(out / name)
        rows.set_axis(NAMES, axis=1).to_csv(out / f"{name}.csv", index=False, na_rep="?")
        about = {
            "rows": count,
            "half": options.half,
            "train_seconds": round(trained, 1),
            "sample_seconds": round(drawn, 1),
            "steps": config.steps,
            "best_step": config.best_step,
            "test_nats": None if options.half else round(_test_nats(model, options.data, seed), 3),
            "parameters": sum(weight.numel() for weight in model.pipeline.model.parameters()),
            "device": torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or "CPU",
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "usd3": usd3.__version__,
            "recipes": " ".join(options.recipes),
        }
        (out / f"{name}.json").write_text(json.dumps(about, indent=2) + "\n")
        kept = f"{config.best_step} of {config.steps} steps kept"
        print(f"{name}: trained {trained:.0f} s ({kept}), drawn in {drawn:.0f} s, {about['test_nats']} nats a test row")


def _test_nats(model: Any, data: str, seed: int) -> float:
    """The bound on test rows, the mean of a sample of them."""
    test = read(Path(data, "adult.test")).sample(TEST, random_state=0).set_axis(model.kind.names, axis=1)
    return float(-model.log_prob(test, num_samples=64, repeats=2, seed=seed).log_prob.mean())


def ctgan(options: argparse.Namespace) -> None:
    """Rows of CTGAN with its default settings."""
    from ctgan import CTGAN

    table, out = read(Path(options.data, "adult.data")), Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        began = time.monotonic()
        model = CTGAN(epochs=options.epochs, cuda=options.cuda, verbose=True)
        model.set_random_state(seed)
        model.fit(table, [name for name in NAMES if name not in NUMBERS])
        about = {"rows": len(table), "half": False, "train_seconds": round(time.monotonic() - began, 1)}
        model.sample(len(table)).to_csv(out / f"ctgan-{seed}.csv", index=False)
        (out / f"ctgan-{seed}.json").write_text(json.dumps(about | {"epochs": options.epochs}, indent=2) + "\n")


def copula(options: argparse.Namespace) -> None:
    """Rows of a Gaussian copula, with the columns and bins of usd3."""
    from usd3.kinds.options import DataConfig
    from usd3.kinds.table.copula import GaussianCopula
    from usd3.kinds.table.kind import Table

    out, path = Path(options.out), Path(options.data, "adult.data")
    out.mkdir(parents=True, exist_ok=True)
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        began = time.monotonic()
        data = Table.read(DataConfig("table", path=str(path), seed=seed))
        model = GaussianCopula.fitted(data.train.tokens, data.num_classes)
        about = {"rows": len(data.train) + len(data.test), "half": False}
        about["train_seconds"] = round(time.monotonic() - began, 1)  # type: ignore[assignment]
        rows = data.kind.objects(model.draw(about["rows"], seed), seed)
        rows.set_axis(NAMES, axis=1).to_csv(out / f"copula-{seed}.csv", index=False, na_rep="?")
        (out / f"copula-{seed}.json").write_text(json.dumps(about, indent=2) + "\n")


# ---- scores -------------------------------------------------------------------------------------------------------


def score(options: argparse.Namespace) -> None:
    """Measure every file of rows in the folder, and write scores.csv."""
    import sdmetrics
    import xgboost

    out, train, test = (Path(options.out), *(read(Path(options.data, f"adult.{part}")) for part in ("data", "test")))
    files = sorted(file for file in out.glob("*.csv") if file.name != "scores.csv")
    tables = {file.stem: (read(file), json.loads(file.with_suffix(".json").read_text())) for file in files}
    if options.references:
        random = np.random.default_rng(0)
        permuted = pd.DataFrame({name: random.permutation(train[name]) for name in NAMES})
        again = train.sample(len(train), replace=True, random_state=0).reset_index(drop=True)
        references = {"test rows": test, "training rows, drawn again": again, "columns permuted": permuted}
        tables |= {name: (table, {"half": False}) for name, table in references.items()}
    rows = []
    for name, (table, about) in tables.items():
        row: dict[str, Any] = {"name": name, **_scores(train, test, table, about["half"]), **about}
        row |= {"sdmetrics": sdmetrics.__version__, "xgboost": xgboost.__version__}
        rows.append(row)
        numbers = {key: value for key, value in row.items() if isinstance(value, float)}
        print(f"{name:30}", "  ".join(f"{key} {value:.4f}" for key, value in numbers.items()), flush=True)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    with open(out / "scores.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    _summary(rows)


def _scores(train: pd.DataFrame, test: pd.DataFrame, table: pd.DataFrame, half: bool) -> dict[str, float]:
    if half:
        first, second = (train.iloc[part] for part in halves(len(train)))
        nearer, equal = _nearer(table, first, second)
        return {"dcr": nearer, "dcr_ties_halved": nearer + equal / 2}
    shape, trend = _shape_and_trend(train, table)
    known = set(map(tuple, train.drop(columns="fnlwgt").to_numpy()))
    copies = float(np.mean([tuple(row) in known for row in table.drop(columns="fnlwgt").to_numpy()]))
    return {"shape": shape, "trend": trend, "c2st": _c2st(train, table), "auc": _auc(table, test), "copies": copies}


def _metadata() -> dict[str, Any]:
    kinds = {name: "numerical" if name in NUMBERS else "categorical" for name in NAMES}
    return {"columns": {name: {"sdtype": kind} for name, kind in kinds.items()}}


def _shape_and_trend(train: pd.DataFrame, table: pd.DataFrame) -> tuple[float, float]:
    from sdmetrics.reports.single_table import QualityReport

    report = QualityReport()
    report.generate(train, table, _metadata(), verbose=False)
    return tuple(float(value) for value in report.get_properties()["Score"])  # type: ignore[return-value]


def _c2st(train: pd.DataFrame, table: pd.DataFrame) -> float:
    from sdmetrics.single_table.detection.sklearn import ScikitLearnClassifierDetectionMetric
    from xgboost import XGBClassifier

    class Detection(ScikitLearnClassifierDetectionMetric):  # type: ignore[misc]
        @staticmethod
        def _get_classifier() -> Any:
            return XGBClassifier(eval_metric="logloss", enable_categorical=True, random_state=0)

    return float(Detection.compute(real_data=train, synthetic_data=table, metadata=_metadata()))


def _auc(table: pd.DataFrame, test: pd.DataFrame) -> float:
    """Of the best of 36 settings, chosen on a ninth of the generated rows, on the test rows."""
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import ParameterGrid
    from sklearn.preprocessing import OneHotEncoder
    from xgboost import XGBClassifier

    words = [name for name in NAMES if name not in NUMBERS and name != "income"]
    encoder = OneHotEncoder(sparse_output=False, handle_unknown="ignore").fit(table[words])

    def features(rows: pd.DataFrame) -> np.ndarray:
        return np.concatenate([rows[NUMBERS].to_numpy(np.float32), encoder.transform(rows[words])], 1)

    inputs, labels = features(table), (table.income == ">50K").to_numpy()
    order = np.random.default_rng(0).permutation(len(table))
    chosen, used = order[: len(table) // 9], order[len(table) // 9 :]
    grid = {"n_estimators": [10, 50, 100], "min_child_weight": [1, 10], "max_depth": [5, 10, 20], "gamma": [0.0, 1.0]}
    models = [
        XGBClassifier(**settings, objective="binary:logistic", tree_method="hist").fit(inputs[used], labels[used])
        for settings in ParameterGrid(grid)
    ]
    best = max(models, key=lambda model: roc_auc_score(labels[chosen], model.predict_proba(inputs[chosen])[:, 1]))
    return float(roc_auc_score(test.income == ">50K", best.predict_proba(features(test))[:, 1]))


def _nearer(table: pd.DataFrame, first: pd.DataFrame, second: pd.DataFrame) -> tuple[float, float]:
    """The share of rows that are nearer to `first` than to `second`, and the share that are as near to both.

    Numbers differ by their distance over the range of the data, words by 2 (as one-hot vectors do).
    """
    real = pd.concat([first, second])
    scale = real[NUMBERS].max() - real[NUMBERS].min()
    words = [name for name in NAMES if name not in NUMBERS]
    codes = {name: {value: i for i, value in enumerate(pd.concat([real, table])[name].unique())} for name in words}

    def arrays(rows: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        numbers = (rows[NUMBERS] / scale).to_numpy(np.float32)
        return numbers, np.stack([rows[name].map(codes[name]).to_numpy(np.int16) for name in words], 1)

    def nearest(rows: pd.DataFrame, others: pd.DataFrame) -> np.ndarray:
        (a, b), (c, d) = arrays(rows), arrays(others)
        least = []
        for start in range(0, len(rows), 64):
            part = slice(start, start + 64)
            gap = np.zeros((len(a[part]), len(c)), np.float32)
            for j in range(a.shape[1]):
                gap += np.abs(a[part, j, None] - c[None, :, j])
            for j in range(b.shape[1]):
                gap += 2 * (b[part, j, None] != d[None, :, j])
            least.append(gap.min(1))
        return np.concatenate(least)

    to_first, to_second = nearest(table, first), nearest(table, second)
    return float((to_first < to_second).mean()), float((to_first == to_second).mean())


def _summary(rows: list[dict[str, Any]]) -> None:
    """Mean and standard deviation over the seeds of each label."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["name"].rpartition("-")[0] or row["name"], []).append(row)
    for name, group in groups.items():
        keys = ("shape", "trend", "c2st", "auc", "dcr", "copies", "train_seconds")
        found = {key: [row[key] for row in group if key in row] for key in keys}
        cells = [f"{k} {np.mean(v):.4f} ± {np.std(v, ddof=1) if len(v) > 1 else 0:.4f}" for k, v in found.items() if v]
        print(f"{name} ({len(group)}): " + ", ".join(cells))


def main() -> None:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["draw", "copula", "ctgan", "score"])
    parser.add_argument("--data", required=True, help="the folder of adult.data and adult.test")
    parser.add_argument("--out", required=True, help="the folder of the rows and scores")
    parser.add_argument("--label", default="usd3", help="beginning of the names of the files of rows")
    parser.add_argument("--recipes", nargs="*", default=[], help="recipes after that of tables, as in `usd3 train`")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first_seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=None, help="most minutes of a training")
    parser.add_argument("--keep", action="store_true", help="also write each model into a folder beside its rows")
    parser.add_argument("--half", action="store_true", help="train on half of the rows, for DCR")
    parser.add_argument("--references", action="store_true", help="also score real rows and permuted columns")
    parser.add_argument("--progress", action="store_true")
    parser.add_argument("--epochs", type=int, default=300, help="of CTGAN")
    parser.add_argument("--cuda", action="store_true", help="CTGAN on a GPU")
    options = parser.parse_args()
    {"draw": draw, "copula": copula, "ctgan": ctgan, "score": score}[options.action](options)


if __name__ == "__main__":
    main()
