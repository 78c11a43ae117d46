"""usd3 bench: time and memory of the loss and of a sampling step on this machine."""

import itertools
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from usd3._internal.checks import as_count, require
from usd3._internal.fields import require_fields
from usd3._internal.files import is_free
from usd3.bench.machine import device_to_measure
from usd3.bench.other import load_other
from usd3.bench.plots import memory_plot, time_plot
from usd3.bench.problem import DTYPES, NOISES, TIMES, Problem, Size
from usd3.bench.rows import Bench
from usd3.bench.runs import Job, run, run_scaling, show, show_machine
from usd3.bench.scaling import growing
from usd3.bench.timing import Budget
from usd3.core.objectives import NAMED

__all__ = ["BenchOptions", "bench"]

SIZES = {
    "loss": {
        "cuda": "64,256,129 256,64,512 32,256,8192 8,512,50257",
        "cpu": "16,256,129 4,256,512 1,256,4096",
    },
    "sampling": {"cuda": "64,256,129 32,256,8192 8,512,50257", "cpu": "16,256,129 4,256,512 1,256,4096"},
    "scaling": {"cuda": "16,256,512", "cpu": "4,64,128"},
}
MOST = {"cuda": 1 << 30, "cpu": 1 << 22}  # number of logits, B D K
LARGE = 8192  # with this many categories or more, the loss is also measured from hidden states


@dataclass
class BenchOptions:
    """Measure time and memory of the loss and of a sampling step on this machine.

    Our code, the same in plain PyTorch ("eager"), that compiled, plain cross entropy and the bandwidth floor, in one
    process. `noise`, `time`, `objective` and `dtype` may be several, as in "fp32,bf16": all combinations are measured.

    Args:
        table: "loss" (with its gradient), "sampling" (one step), "scaling" (both against K, B and D) or "all".
        device: "cpu" or "cuda"; null: a GPU if there is one.
        sizes: batch, elements, categories, as in "64,256,129 32,256,8192"; null: sizes for the device. "scaling"
            varies one of the three of the first size at a time.
        noise: "uniform", "absorbing" (the mask is one of the categories) or "marginal"; or several, with commas.
        time: "continuous" or "discrete" (1000 steps), or both, with a comma.
        objective: "usd3", "usd3*", "vlb" or "ce"; or several, with commas.
        dtype: "fp32" or "bf16", that of the logits, or both, with a comma.
        compiled: also torch.compile the eager code, which takes long; null: on a GPU, but not for "scaling".
        hidden: where K is 8192 or more, also the loss from hidden states of this width; 0: not.
        other: a Python file with an implementation of yours to time beside ours, see docs/benchmarks.md. It is run.
        repeats: how often to measure each.
        seconds: how long to measure each at most, though three times at least.
        most: "scaling": the most elements B D K of the logits; null: 2^30 on a GPU, 2^22 on a CPU.
        factor: "scaling": how far apart the values are.
        out: a new or empty folder for the tables (.csv) and plots (.png); null: print only.
    """

    table: Literal["loss", "sampling", "scaling", "all"] = "all"
    device: str | None = None
    sizes: str | None = None
    noise: str = "uniform"
    time: str = "continuous"
    objective: str = "usd3"
    dtype: str = "fp32"
    compiled: bool | None = None
    hidden: int = 768
    other: str | None = None
    repeats: int = 30
    seconds: float = 2.0
    most: int | None = None
    factor: int = 4
    out: str | None = None

    def __post_init__(self) -> None:
        require_fields(self)


def bench(options: BenchOptions) -> None:
    """Measure, print the tables and write them."""
    device = device_to_measure(options.device)
    chosen = ("loss", "sampling", "scaling") if options.table == "all" else (options.table,)
    problems = {name: _problems(options, name, device) for name in chosen}
    most = MOST[device.type] if options.most is None else as_count(options.most, "most", 2)
    factor, hidden = as_count(options.factor, "factor", 2), as_count(options.hidden, "hidden", 0)
    grown = growing(problems["scaling"][0], most, factor) if "scaling" in chosen else {}
    budget = Budget(options.repeats, options.seconds)
    out = None if options.out is None else _free(Path(options.out))
    other = None if options.other is None else load_other(options.other)
    compiled = device.type == "cuda" if options.compiled is None else options.compiled
    measuring = Bench(device, budget, compiled, other, hidden)
    show_machine(measuring)
    for name in chosen:
        csv = None if out is None else out / f"{name}.csv"
        if name == "scaling":
            measuring.compile_eager = options.compiled is True
            rows = run_scaling(measuring, grown, csv)
            if out is not None:
                time_plot(rows["K"], out / "time_against_k.png")
                memory_plot(rows["K"], out / "memory_against_k.png")
        else:
            operation = "step" if name == "sampling" else "loss"
            jobs = [Job(operation, problem) for problem in problems[name]]
            if operation == "loss" and hidden:
                jobs += [Job("projection", problem) for problem in problems[name] if problem.num_classes >= LARGE]
            show(run(measuring, name, jobs, csv))
    if out is not None:
        print(f"tables in {out}")


def _problems(options: BenchOptions, table: str, device: torch.device) -> list[Problem]:
    """Every size with every combination of noise, time, objective and precision."""
    text = SIZES[table][device.type] if options.sizes is None else options.sizes
    sizes = [Size.parse(part) for part in text.split()]
    require(bool(sizes), "sizes", text, 'one or more "B,D,K"')
    names = {"noise": NOISES, "time": TIMES, "objective": NAMED, "dtype": DTYPES}
    chosen = [_several(getattr(options, name), name, allowed) for name, allowed in names.items()]
    combined = [dict(zip(names, choice)) for choice in itertools.product(*chosen)]
    return [Problem(size, device=device, **choice) for choice in combined for size in sizes]


def _several(text: str, name: str, allowed: Collection[str]) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        require(part in allowed, name, part, f"one or more of {', '.join(allowed)}")
    return parts


def _free(out: Path) -> Path:
    require(is_free(out), "out", out, "a new or an empty folder")
    return out
