"""Which network suits a table of how many rows? The bound on rows that neither training nor early stopping saw.

    python benchmarks/table_sizes.py --data DIR --out runs/table_sizes.csv --jobs 12

DIR has adult.data of UCI. Each training gets N of its rows, drawn at random, holds a tenth of them out for early
stopping as `usd3 train` does, and is measured on the same 3,000 other rows, less those with a category that the N rows
do not have. A line of the CSV file is one training; what is in the file already is not trained again.
"""

import argparse
import csv
import itertools
import json
import platform
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

TEST = 3_000
KEY = ("rows", "dim", "depth", "heads", "dropout", "lr", "batch_size", "steps", "seed")


def tables(data: Path, rows: int, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """N rows to train on, and those of the other rows that have no category that is new."""
    table = pd.read_csv(data / "adult.data", header=None, skipinitialspace=True, na_values=["?"])
    table.columns = [f"column_{i + 1}" for i in table]
    order = np.random.default_rng(0).permutation(len(table))
    test, others = table.iloc[order[:TEST]], table.iloc[order[TEST:]]
    train = others.sample(min(rows, len(others)), random_state=seed)
    words = [name for name in table if not pd.api.types.is_numeric_dtype(table[name])]
    known = np.logical_and.reduce([test[name].isin(train[name]) | test[name].isna() for name in words])
    missing = [name for name in table if not train[name].isna().any()]  # columns without the category "missing"
    known &= test[missing].notna().all(axis=1)
    return train.reset_index(drop=True), test[known].reset_index(drop=True)


def one(options: dict[str, Any]) -> dict[str, Any]:
    """Train with these options, and measure."""
    import torch

    import usd3

    warnings.simplefilter("ignore")
    train, test = tables(Path(options["data"]), options["rows"], options["seed"])
    sizes = {name: options[name] for name in ("dim", "depth", "heads", "dropout")}
    training = {name: options[name] for name in ("lr", "batch_size", "steps")} | {"epochs": None, "least_batches": 0}
    began = time.monotonic()
    model = usd3.TableModel().fit(
        train, *options["recipes"], seed=options["seed"], progress=False, model=sizes, training=training
    )
    seconds = time.monotonic() - began
    nats = -model.log_prob(test, num_samples=64, repeats=2).log_prob
    config = model.pipeline.config
    return {key: options[key] for key in KEY} | {
        "nats": round(float(nats.mean()), 4),
        "error": round(float(nats.std() / np.sqrt(len(nats))), 4),
        "test_rows": len(test),
        "best_step": config.best_step,
        "steps_made": config.steps,
        "seconds": round(seconds, 1),
        "parameters": sum(weight.numel() for weight in model.pipeline.model.parameters()),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or "CPU",
        "torch": torch.__version__,
        "usd3": usd3.__version__,
    }


def main() -> None:
    """Train all combinations, several at once, each in a process of its own."""
    if sys.argv[1:2] == ["one"]:
        print(json.dumps(one(json.loads(sys.argv[2]))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="the folder of adult.data")
    parser.add_argument("--out", required=True, help="the CSV file")
    parser.add_argument("--rows", type=int, nargs="*", default=[500, 2_000, 8_000, 29_000])
    parser.add_argument("--nets", nargs="*", default=["32x2x2", "64x3x4", "128x3x4", "192x3x6", "256x4x8"])
    parser.add_argument("--dropout", type=float, nargs="*", default=[0.0, 0.1])
    parser.add_argument("--lr", type=float, nargs="*", default=[2e-3])
    parser.add_argument("--batch_size", type=int, nargs="*", default=[512])
    parser.add_argument("--steps", type=int, nargs="*", default=[4_000])
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    parser.add_argument("--recipes", nargs="*", default=[], help="recipes after that of tables, as in `usd3 train`")
    parser.add_argument("--jobs", type=int, default=1, help="trainings at once")
    options = parser.parse_args()
    out = Path(options.out)
    done = set()
    if out.is_file():
        with open(out, newline="") as file:
            done = {tuple(row[key] for key in KEY) for row in csv.DictReader(file)}
    grid = itertools.product(
        options.rows, options.nets, options.dropout, options.lr, options.batch_size, options.steps, options.seeds
    )
    jobs = []
    for rows, net, *others in grid:
        dim, depth, heads = map(int, net.split("x"))
        job = dict(zip(KEY, (rows, dim, depth, heads, *others)))
        if tuple(str(job[key]) for key in KEY) not in done:
            jobs.append(job | {"data": options.data, "recipes": options.recipes})

    def run(job: dict[str, Any]) -> None:
        result = subprocess.run([sys.executable, __file__, "one", json.dumps(job)], capture_output=True, text=True)
        if result.returncode:
            print(f"{job}: {result.stderr.strip().splitlines()[-1]}", flush=True)
            return
        row = json.loads(result.stdout.strip().splitlines()[-1])
        is_new = not out.is_file()
        with open(out, "a", newline="") as file:
            writer = csv.DictWriter(file, list(row))
            if is_new:
                writer.writeheader()
            writer.writerow(row)
        print({key: row[key] for key in (*KEY, "nats", "best_step", "seconds")}, flush=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(run, jobs))


if __name__ == "__main__":
    main()
