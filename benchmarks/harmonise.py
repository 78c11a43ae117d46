"""Which sampler harmonises best, and in how many steps: the sopranos of a model's held-out chorales, harmonised.

    python benchmarks/harmonise.py chorale --out benchmarks/results/chorales/samplers.csv

For each sampler and number of steps, on the held-out windows: the share of the drawn notes that are Bach's, the
measures of voice leading, what the model itself thinks of the harmonisation, in bits for each drawn note (the any-order
bound, given the soprano), and the seconds that eight bars take. The first row is Bach. A number is the mean of --runs
seeds, after ± their standard deviation.
"""

import argparse
import csv
import math
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from usd3._internal.files import written_whole
from usd3._internal.tables import aligned
from usd3.bench.machine import machine
from usd3.kinds.dataset import Sequences
from usd3.metrics.chorales import CHORALE_COLUMNS
from usd3.pipeline.pipeline import Pipeline

TIMED = 8  # bars of the harmonisation that is timed
Row = dict[str, Any]


def main() -> None:
    """Harmonise with every sampler, print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a packaged model, or the folder of one")
    parser.add_argument("--samplers", nargs="+", default=["exact", "entropy", "confidence"])
    parser.add_argument("--steps", nargs="+", type=int, default=[8, 16, 32])
    parser.add_argument("--runs", type=int, default=2, help="how often to draw")
    parser.add_argument("--limit", type=int, default=None, help="the first so many windows")
    parser.add_argument("--device", default=None)
    parser.add_argument("--out", type=Path, default=None, help="a .csv file for the results")
    options = parser.parse_args()
    pipeline = Pipeline.from_pretrained(options.model, device=options.device)
    test = pipeline.kind.read_again(pipeline.config.data).test
    part = slice(options.limit)
    test = Sequences(test.tokens[part].long(), None if test.pad is None else test.pad[part])
    rows = [measured(pipeline, test, "Bach", None, 1)]
    for sampler in options.samplers:
        for steps in options.steps:
            rows.append(measured(pipeline, test, sampler, steps, options.runs))
            print(f"{sampler}, {steps} steps: {rows[-1]}", flush=True)
    head = list(rows[-1])
    print("\n".join(aligned([head, *([str(row.get(name, "")) for name in head] for row in rows)])))
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        about = {"windows": len(test.tokens), "runs": options.runs} | machine(pipeline.device)
        with written_whole(options.out) as draft, draft.open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, [*head, *about])
            table.writeheader()
            table.writerows(row | about for row in rows)


def measured(pipeline: Pipeline, test: Sequences, sampler: str, steps: int | None, runs: int) -> Row:
    """A row of the table; with `steps` None that of Bach's own voices."""
    truth = test.tokens
    pad = torch.zeros_like(truth, dtype=torch.bool) if test.pad is None else test.pad
    given = torch.zeros_like(pad)
    given[..., 0] = True
    drawn, seconds = ~given & ~pad, []
    sets = [truth]
    if steps is not None:
        how: dict[str, Any] = {"num_steps": steps, "sampler": sampler}
        sets = [pipeline.sample(tokens=truth, given=given, pad=pad, seed=r, **how) for r in range(runs)]
        short = torch.zeros_like(pad[:1])
        short[:, 16 * TIMED :] = True
        for r in range(3):
            began = time.perf_counter()
            pipeline.sample(tokens=truth[:1], given=given[:1], pad=short, seed=r, **how)
            seconds.append(time.perf_counter() - began)
    row: Row = {"sampler": sampler, "steps": "" if steps is None else steps}
    row["as_bach"] = shown([float((x == truth)[drawn].float().mean()) for x in sets])
    row["bits"] = shown([bits(pipeline, x, given, pad) for x in sets])
    found = pipeline.kind.structure(torch.stack(sets), pad)
    row |= {name: shown([found[name].mean], found[name].std) for name in CHORALE_COLUMNS}
    return row | {"seconds": f"{min(seconds):.3f}" if seconds else ""}


def bits(pipeline: Pipeline, x: Tensor, given: Tensor, pad: Tensor) -> float:
    """Bits for each drawn note, given the soprano."""
    nats = pipeline.bound(x, given, pad, num_samples=8)
    return float(nats.sum() / (~given & ~pad).sum() / math.log(2))


def shown(values: list[float], spread: float | None = None) -> str:
    """A mean and the standard deviation, where there is one."""
    spread = statistics.stdev(values) if spread is None and len(values) > 1 else spread
    return f"{statistics.fmean(values):.3f}" + (f" ± {spread:.3f}" if spread else "")


if __name__ == "__main__":
    main()
