"""Many objects in batches: objects per second, and what share of the time is the network's.

    python benchmarks/sampling.py

Image tokens, 8 x 8 of 512 codes, drawn from nothing by `Pipeline.sample` with networks of random weights: how long a
draw takes does not depend on the weights. On a GPU in bfloat16 and compiled. The rows of one run compare.

- `objects_per_second` is of a whole call: the start, all steps, and the copy of the tokens to the host. `hours` are
  those of 50,000 objects.
- `network_share` is the time of the same number of network calls, one after the other with nothing between them,
  over the time of the whole call.
- `arithmetic_share` is the time of the network's matrix products and attention alone, at the rate of a large product of
  the same precision on the same device, over the time of the whole call.

`--profile FILE` writes which kernels a GPU spends the time of a network call on.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from shared import kernel_times, write_profile, write_rows
from torch.utils.flop_counter import FlopCounterMode

from usd3.bench.clock import settled_now
from usd3.bench.cost import random_tokens
from usd3.bench.machine import machine
from usd3.core.options import DiffusionConfig
from usd3.nets.options import ModelConfig
from usd3.pipeline.pipeline import Pipeline
from usd3.training.options import Recipe, TrainingConfig
from usd3.training.run import pipeline_for

NETS = {  # those of the recipes image-small and vqcifar10
    "small": ModelConfig(dim=256, depth=6, heads=8),
    "large": ModelConfig(dim=512, depth=12, heads=8),
}
DIFFUSIONS = {
    "absorbing": DiffusionConfig("absorbing", "linear"),
    "uniform": DiffusionConfig("uniform", "cosine"),
    "uniform, discrete": DiffusionConfig("uniform", "cosine", num_steps=1000),
}
SHAPE, CODES, MANY = (8, 8), 512, 50_000


def pipeline_of(net: ModelConfig, diffusion: DiffusionConfig, device: torch.device, compiled: bool) -> Pipeline:
    """A model as `usd3 train` would make it, with random weights."""
    on_gpu = device.type == "cuda"
    with tempfile.TemporaryDirectory() as folder:
        data = random_tokens(Path(folder), SHAPE, CODES)
        training = TrainingConfig(given="none", precision="bf16" if on_gpu else "fp32")
        pipeline = pipeline_for(Recipe(data, diffusion, model=net, training=training), data.load())
    pipeline.compile = compiled
    return pipeline.to(device)


def seconds_of(call: Callable[[], Any], repeats: int, device: torch.device) -> float:
    """The median of so many calls, after one that compiles and captures."""
    call()
    times = []
    for _ in range(repeats):
        began = settled_now(device)
        call()
        times.append(settled_now(device) - began)
    return statistics.median(times)


def products_rate(device: torch.device) -> float:
    """Floating-point operations a second of a large product, bf16 on a GPU and fp32 on a CPU."""
    size, repeats = (8192, 20) if device.type == "cuda" else (1024, 5)
    a = torch.randn(size, size, device=device, dtype=torch.bfloat16 if device.type == "cuda" else torch.float32)

    def products() -> None:
        for _ in range(repeats):
            a @ a

    return 2 * size**3 * repeats / seconds_of(products, 3, device)


def measure(
    pipeline: Pipeline, batch: int, steps: int, repeats: int, rate: float, kernels: list[str] | None = None
) -> dict[str, Any]:
    """The numbers of a row: a whole call, the network alone, and its arithmetic.

    `kernels` gets what a GPU spends the time of a network call on.
    """
    device = pipeline.device
    x = torch.randint(CODES, (batch, *SHAPE), device=device)
    t = torch.full((batch,), 0.5, device=device)  # a network sees times in [0, 1] in discrete time, too
    network = pipeline.denoiser(batch)

    def calls() -> None:
        with torch.no_grad():
            for _ in range(steps):
                network(x, t)

    whole = seconds_of(lambda: pipeline.sample(batch, steps, batch_size=batch), repeats, device)
    alone = seconds_of(calls, repeats, device)
    with FlopCounterMode(display=False) as counter, torch.enable_grad():  # oneDNN's products would not count
        pipeline.model(x[:1], t[:1])  # what all would keep for a backward pass may not fit into memory
    arithmetic = counter.get_total_flops() * batch / rate * steps
    if kernels is not None:
        with torch.no_grad():
            kernels += kernel_times(lambda: network(x, t))
    return {
        "parameters": sum(p.numel() for p in pipeline.model.parameters()),
        "batch": batch,
        "steps": steps,
        "seconds": round(whole, 3),
        "objects_per_second": round(batch / whole, 1),
        "hours": round(MANY / batch * whole / 3600, 4),
        "network_share": round(alone / whole, 3),
        "arithmetic_share": round(arithmetic / whole, 3),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every network with every diffusion and batch, print and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--nets", nargs="+", choices=NETS, default=list(NETS))
    parser.add_argument("--diffusions", nargs="+", choices=DIFFUSIONS, default=list(DIFFUSIONS))
    parser.add_argument("--batches", nargs="+", type=int, default=[250, 1000, 4000], help="objects at once")
    parser.add_argument("--steps", type=int, default=100, help="sampling steps")
    parser.add_argument("--repeats", type=int, default=3, help="how often to measure each")
    parser.add_argument("--csv", type=Path, default=Path(__file__).parent / "results" / "sampling.csv")
    parser.add_argument("--profile", type=Path, help="write the time of each kernel here (GPU)")
    given = parser.parse_args(arguments)
    if given.profile is not None and given.device != "cuda":
        parser.error("--profile: expected a GPU")
    device, rows, profiles = torch.device(given.device), list[dict[str, Any]](), list[str]()
    about, rate = machine(device), products_rate(device)
    print(f"a large product: {rate / 1e12:.3g} TFLOP/s", flush=True)
    for net in given.nets:
        for name in given.diffusions:
            for batch in given.batches:
                torch.compiler.reset()
                pipeline = pipeline_of(NETS[net], DIFFUSIONS[name], device, compiled=device.type == "cuda")
                kernels: list[str] | None = None if given.profile is None else []
                found = measure(pipeline, batch, given.steps, given.repeats, rate, kernels)
                rows.append({"net": net, "diffusion": name, **found, **about})
                print("  ".join(f"{key} {value}" for key, value in rows[-1].items() if key not in about), flush=True)
                write_rows(given.csv, rows)
                if kernels:
                    write_profile(given.profile, profiles, f"{net}, {name}, {batch} objects", kernels)


if __name__ == "__main__":
    main()
