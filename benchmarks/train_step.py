"""Time and memory of one whole training step: draws, network, loss, gradient, clipping, AdamW, moving average.

    python benchmarks/train_step.py --csv benchmarks/results/train_step.csv

Batch 64 x 256, 129 categories, the paper's small and large networks and ours of the same sizes. The clock runs over
`--steps` steps after a warm-up, in one process. Modes that end in "loop" are a real run, `usd3.training.run.fit`, so
that they show what its loop costs; the others repeat the same step by themselves. "torch's dropout" leaves out our
kernel for dropout after a ReLU, which networks with dropout take on a GPU. `floor_ms` is the time of the matrix
products and the attention of a step, forward and backward, at the rate of a large bf16 product on the same
device. `--profile FILE` writes which kernels a GPU spends the time of a step on. Rows of one run compare, rows of
different machines do not.
"""

import argparse
import itertools
import platform
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from shared import kernel_times, write_profile, write_rows
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import usd3
from usd3._internal.compile import compiled
from usd3._internal.random import seed_draws
from usd3.bench.clock import BlockClock, LoopClock, settled_now
from usd3.core.options import DiffusionConfig
from usd3.kinds.options import DataConfig
from usd3.nets import _dropout
from usd3.nets.options import ModelConfig
from usd3.training.ema import Ema
from usd3.training.options import Recipe, TrainingConfig
from usd3.training.run import fit
from usd3.training.step import WholeStep

NETS = {
    "film small": ModelConfig("film", dim=128, depth=6, heads=8, mlp=1024, dropout=0.1),
    "film large": ModelConfig("film", dim=1024, depth=6, heads=16, mlp=4096, dropout=0.1),
    "transformer small": ModelConfig(),
    "transformer large": ModelConfig(dim=1024, depth=7, heads=16, mlp=4096),
}
TIMES = {"continuous": None, "discrete": 1000}
CLASSES, BATCH, LENGTH, PREFIX = 129, 64, 256, 32


class Mode(NamedTuple):
    """How a step is run."""

    bf16: bool = True
    compile: bool = False
    graph: bool = False
    loop: bool = False
    dropout_kernel: bool = True


MODES = {
    "fp32": Mode(bf16=False),
    "bf16": Mode(),
    "bf16 compiled": Mode(compile=True),
    "bf16 graph": Mode(graph=True),
    "bf16 compiled graph": Mode(compile=True, graph=True),
    "bf16 compiled graph, torch's dropout": Mode(compile=True, graph=True, dropout_kernel=False),
    "bf16 loop": Mode(loop=True),
    "bf16 compiled loop": Mode(compile=True, loop=True),
    "bf16 graph loop": Mode(graph=True, loop=True),
    "bf16 compiled graph loop": Mode(compile=True, graph=True, loop=True),
}


def found_by(clock: BlockClock) -> dict[str, Any]:
    """Milliseconds of a step and peak memory after the warm-up."""
    return {"ms": round(clock.ms[0], 3), "peak_gib": round(clock.peaks[1] / 1024, 2)}


def parts(config: ModelConfig, num_steps: int | None, device: str) -> tuple[nn.Module, Callable[..., Any]]:
    """The network, and its loss of a batch as `WholeStep` takes it."""
    diffusion = DiffusionConfig(num_steps=num_steps).build(CLASSES)
    diffusion.validate = False
    model = config.build(diffusion).to(device)
    given = (torch.arange(LENGTH, device=device) < PREFIX).expand(BATCH, -1)

    def loss(batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        out = diffusion.loss(model, batch["tokens"].long(), given=given, stratified=True)
        return out.loss, out.vlb

    return model, loss


@contextmanager
def dropout_of(mode: Mode) -> Iterator[None]:
    """Inside, networks take our kernel for dropout where they can, or never."""
    usual = _dropout._HAS_TRITON
    _dropout._HAS_TRITON = usual and mode.dropout_kernel
    try:
        yield
    finally:
        _dropout._HAS_TRITON = usual


def time_alone(
    config: ModelConfig, num_steps: int | None, mode: Mode, steps: int, device: str, kernels: list[str] | None = None
) -> dict[str, Any]:
    """The step by itself, on one batch; `kernels` gets what a GPU spends its time on."""
    model, loss = parts(config, num_steps, device)
    ema, warm_up = Ema(0.999), max(5, steps // 5)
    ema.on_fit_start(None, model)  # type: ignore[arg-type]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")
    step = WholeStep(
        compiled(loss) if mode.compile else loss,
        model.parameters(),
        optimizer,
        clip=1.0,
        bf16=mode.bf16,
        average=ema.hand_over(model),
        graph="always" if mode.graph else "never",
    )
    batch = {"tokens": torch.randint(CLASSES, (BATCH, LENGTH), dtype=torch.uint8, device=device)}
    clock = BlockClock(device, warm_up, steps)
    for number in range(warm_up + steps):
        seed_draws(number, torch.device(device))
        step(batch, ema.rate(number))
        clock(number + 1)
    if kernels is not None and device == "cuda":
        kernels += kernel_times(lambda: step(batch, 1.0))
    return found_by(clock)


def time_loop(config: ModelConfig, num_steps: int | None, mode: Mode, steps: int, device: str) -> dict[str, Any]:
    """The step in a real run, on random objects."""
    warm_up = max(20, steps // 5)
    clock = BlockClock(device, warm_up, steps)
    training = TrainingConfig(
        steps=warm_up + steps + 1,  # the last one writes the checkpoint, after the clock has stopped
        batch_size=BATCH,
        given="prefix",
        prefix=PREFIX,
        precision="bf16" if mode.bf16 else "fp32",
        compile=mode.compile,
        cuda_graph="always" if mode.graph else "never",
        devices=1,
        validate_every=0,
        checkpoint_every=warm_up + steps + 1,
    )
    with tempfile.TemporaryDirectory() as folder:
        rows = np.random.default_rng(0).integers(CLASSES, size=(4096, LENGTH), dtype=np.uint8)
        np.savez(Path(folder) / "data.npz", train=rows, test=rows[:64])
        data = DataConfig("array", str(Path(folder) / "data.npz"), num_classes=CLASSES)
        recipe = Recipe(data, DiffusionConfig(num_steps=num_steps), model=config, training=training)
        fit(recipe, Path(folder) / "run", progress=False, callbacks=[LoopClock(clock)])
    return found_by(clock)


def floor(config: ModelConfig, num_steps: int | None, rate: float, device: str) -> float:
    """Milliseconds of the arithmetic of a step at so many floating-point operations a second."""
    model, loss = parts(config, num_steps, device)
    tokens = torch.zeros(BATCH, LENGTH, dtype=torch.uint8, device=device)
    with FlopCounterMode(display=False) as counter:
        with torch.autocast(device, torch.bfloat16):
            value, _ = loss({"tokens": tokens})
        value.backward()
    del model
    return float(counter.get_total_flops() / rate * 1e3)


def matmul_rate(device: str) -> float:
    """Floating-point operations a second of a large bf16 product."""
    size, repeats = (8192, 20) if device == "cuda" else (1024, 3)
    a = torch.randn(size, size, device=device, dtype=torch.bfloat16)
    for _ in range(3):
        a @ a
    began = settled_now(device)
    for _ in range(repeats):
        a @ a
    return 2 * size**3 * repeats / (settled_now(device) - began)


def main() -> None:
    """Measure every network in every mode."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100, help="steps to time")
    parser.add_argument("--nets", nargs="*", default=list(NETS), choices=list(NETS), help="which networks")
    parser.add_argument("--times", nargs="*", default=list(TIMES), choices=list(TIMES), help="which kinds of time")
    parser.add_argument("--modes", nargs="*", default=list(MODES), choices=list(MODES), help="which ways to run it")
    parser.add_argument("--csv", type=Path, help="write the rows here too")
    parser.add_argument("--profile", type=Path, help="write the time of each kernel here (GPU; modes without a loop)")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    machine = torch.cuda.get_device_name() if device == "cuda" else f"{platform.machine()} CPU"
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    shared = {"machine": machine, "torch": torch.__version__, "usd3": usd3.__version__, "commit": commit}
    rate = matmul_rate(device)
    print(f"bf16 matrix products: {rate / 1e12:.3g} TFLOP/s", flush=True)
    rows: list[dict[str, Any]] = []
    profiles: list[str] = []
    for name, kind in itertools.product(options.nets, options.times):
        config, num_steps = NETS[name], TIMES[kind]
        size = sum(p.numel() for p in parts(config, num_steps, "cpu")[0].parameters())
        least = {"floor_ms": round(floor(config, num_steps, rate, device), 3)}
        for mode in options.modes:
            if MODES[mode].graph and device == "cpu":
                continue
            torch.manual_seed(0)
            torch._dynamo.reset()
            kernels: list[str] | None = None if options.profile is None else []
            with dropout_of(MODES[mode]):
                if MODES[mode].loop:
                    found = time_loop(config, num_steps, MODES[mode], options.steps, device)
                else:
                    found = time_alone(config, num_steps, MODES[mode], options.steps, device, kernels)
            rows.append({"net": name, "parameters": size, "time": kind, "mode": mode} | found | least | shared)
            print("  ".join(f"{key} {value}" for key, value in rows[-1].items() if key not in shared), flush=True)
            if options.csv:
                write_rows(options.csv, rows)
            if kernels:
                write_profile(options.profile, profiles, f"{name}, {kind} time, {mode}", kernels)


if __name__ == "__main__":
    main()
