"""Time and memory of one whole training step: draws, network, loss, gradient, clipping, AdamW, moving average.

    python benchmarks/train_step.py --csv benchmarks/results/train_step.csv

Batch 64 x 256, 129 categories, the paper's small and large networks and ours of the same sizes. The clock runs over
`--steps` steps after a warm-up, in one process. Rows of one run compare, rows of different machines do not.
"""

import argparse
import csv
import itertools
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

import usd3
from usd3.nets import FilmTransformer, Hollow, Transformer
from usd3.train import compiled as compile_loss

NETS = {
    "film small": lambda: FilmTransformer(129),
    "film large": lambda: FilmTransformer(129, dim=1024, depth=6, heads=16, mlp=4096),
    "transformer small": lambda: Transformer(129),
    "transformer large": lambda: Transformer(129, dim=1024, depth=7, heads=16, mlp=4096),
}
TIMES = {"continuous": None, "discrete": 1000}
MODES = {"fp32": (False, False), "bf16": (True, False), "bf16 compiled": (True, True)}


def measure(
    net: nn.Module, num_steps: int | None, bf16: bool, compiled: bool, steps: int, device: str
) -> dict[str, Any]:
    """Milliseconds and peak memory of a step."""
    diffusion = usd3.Diffusion(usd3.Uniform(129), usd3.Cosine(), num_steps=num_steps, validate=False)
    model = Hollow(net, diffusion).to(device)
    weights = list(model.parameters())
    averages = [p.detach().clone() for p in weights]
    optimizer = torch.optim.AdamW(weights, lr=1e-4, fused=device == "cuda")
    x_0 = torch.randint(129, (64, 256), device=device)
    given = (torch.arange(256, device=device) < 32).expand(64, -1)

    def loss() -> torch.Tensor:
        return diffusion.loss(model, x_0, "usd3", given=given, stratified=True).loss

    run = compile_loss(loss) if compiled else loss

    def step() -> None:
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
            value = run()
        value.backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        torch._foreach_lerp_(averages, [p.detach() for p in weights], 1e-3)

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    for _ in range(max(3, steps // 5)):
        step()
    wait()
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    for _ in range(steps):
        step()
    wait()
    peak = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else float("nan")
    return {"ms": round((time.perf_counter() - began) / steps * 1e3, 2), "peak_gib": round(peak, 2)}


def main() -> None:
    """Measure every network in every mode."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100, help="steps to time")
    parser.add_argument("--nets", nargs="*", default=list(NETS), choices=list(NETS), help="which networks")
    parser.add_argument("--times", nargs="*", default=list(TIMES), choices=list(TIMES), help="which kinds of time")
    parser.add_argument("--modes", nargs="*", default=list(MODES), choices=list(MODES), help="which precisions")
    parser.add_argument("--csv", type=Path, help="write the rows here too")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    machine = torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()} CPU"
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    shared = {"machine": machine, "torch": torch.__version__, "usd3": usd3.__version__, "commit": commit}
    rows: list[dict[str, Any]] = []
    for name, kind, mode in itertools.product(options.nets, options.times, options.modes):
        torch.manual_seed(0)
        torch._dynamo.reset()
        net = NETS[name]()
        size = sum(p.numel() for p in net.parameters())
        found = measure(net, TIMES[kind], *MODES[mode], options.steps, device)
        rows.append({"net": name, "parameters": size, "time": kind, "mode": mode} | found | shared)
        print("  ".join(f"{key} {value}" for key, value in rows[-1].items() if key not in shared), flush=True)
        if options.csv:
            options.csv.parent.mkdir(parents=True, exist_ok=True)
            with open(options.csv, "w", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)


if __name__ == "__main__":
    main()
