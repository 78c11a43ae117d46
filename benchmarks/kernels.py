"""The Triton kernels alone, coefficients and uniforms ready, on a GPU: the ways to cut a row, and which is fastest.

    python benchmarks/kernels.py --csv benchmarks/results/kernels.csv

Continuous time; the loss with its gradient, and a draw. By default uniform noise and fp32 logits; `--noises` has
others: `absorbing`; `marginal`, one table of frequencies; `elements`, a table for each element; `support`, uniform
noise where each element can have half of the categories. Times are medians of `triton.testing.do_bench`, which empties
the cache between runs. `floor_ms` is the time to read the logits once and, for the loss, to write their gradient once,
at the bandwidth of a large copy measured in the same process.
"""

import argparse
import csv
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import triton

import usd3
from usd3._internal.checks import Checks
from usd3.bench.floor import copy_bandwidth
from usd3.bench.machine import machine
from usd3.core.fused import leap_of
from usd3.core.mixture import Jumps
from usd3.kernels import triton_draw, triton_loss

SIZES = ((64, 256, 129), (256, 64, 512), (32, 256, 8192), (8, 512, 50257))
NOISES = ("uniform", "absorbing", "marginal", "elements", "support")
OF_TABLES = NOISES[2:]
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def loss_cuts(K: int) -> Iterator[dict[str, Any]]:
    """Ways to cut a row for the loss."""
    block = triton.next_power_of_2(K)
    if block <= 8192:
        yield from (
            {"BLOCK": block, "LOOP": False, "num_warps": warps} for warps in (1, 2, 4, 8) if warps <= block / 64
        )
    for part, warps in ((1024, 4), (2048, 4), (2048, 8), (4096, 8), (4096, 16), (8192, 16), (8192, 32)):
        if part < K:
            yield {"BLOCK": part, "LOOP": True, "num_warps": warps}
    for part, warps in ((1024, 4), (2048, 8), (4096, 16)):  # 64 registers: twice as many warps at a time
        if part < K:
            yield {"BLOCK": part, "LOOP": True, "num_warps": warps, "maxnreg": 64}
    for part, warps in ((1024, 4), (2048, 4), (2048, 8)):
        if part < K:
            yield {"BLOCK": part, "LOOP": True, "num_warps": warps, "maxnreg": 128}


def draw_cuts(K: int) -> Iterator[dict[str, Any]]:
    """Ways to cut a row for a draw."""
    for block, warps in (
        (256, 1),
        (256, 2),
        (1024, 2),
        (1024, 4),
        (2048, 2),
        (2048, 4),
        (2048, 8),
        (4096, 4),
        (4096, 8),
    ):
        blocks = triton.next_power_of_2(triton.cdiv(K, block))
        if blocks <= 64 and (blocks > 1 or block < 2 * K):
            yield {"BLOCK": block, "BLOCKS": blocks, "PART": 16 if block == 256 else 64, "num_warps": warps}


def diffusion(kind: str, D: int, K: int) -> usd3.Diffusion:
    """Continuous time with the cosine schedule and that kind of noise."""
    frequencies = torch.rand(D, K, dtype=torch.float64, device="cuda") + 0.1
    frequencies /= frequencies.sum(-1, keepdim=True)
    noises = {
        "absorbing": lambda: usd3.Absorbing(K),
        "marginal": lambda: usd3.Marginal(frequencies[0]),
        "elements": lambda: usd3.Marginal(frequencies),
    }
    support = torch.arange(K) % 2 == torch.arange(D)[:, None] % 2 if kind == "support" else None
    noise = noises.get(kind, lambda: usd3.Uniform(K))()
    return usd3.Diffusion(noise, usd3.Cosine(), support=support, validate=False)


def calls(kind: str, dtype: torch.dtype, B: int, D: int, K: int) -> dict[str, Callable[[], Any]]:
    """The two kernels on one problem."""
    d = diffusion(kind, D, K)
    x_0 = torch.randint(K // 2 - 1, (B, D), device="cuda") * 2  # never the last category, which may be the mask
    x_0 += torch.arange(D, device="cuda") % 2  # within the support
    t = d.draw_times(B, stratified=True, device="cuda")
    x_t, time = d.q_sample(x_0, t), d.time(t, x_0, "t", Checks(False))
    logits = torch.randn(B * D, K, device="cuda").to(dtype)
    gradient, weights = torch.empty_like(logits), torch.full((3, B), 1 / B, dtype=torch.float64, device="cuda")
    problem = d.problem(x_t, x_0, d.coefficients(time), is_step=False)
    step, u = d.step(time, 0.9 * time, x_t), torch.rand(2, B * D, dtype=torch.float64, device="cuda")
    v = u[1].reshape(B, D)
    leap = leap_of(d.noise, d.level(time, x_t), Jumps(step.to_data, step.to_noise), x_t, v)
    return {
        "loss": lambda: triton_loss.loss_rows(logits, problem, weights, False, gradient),
        "draw": lambda: triton_draw.draw_rows(logits, leap, u),
    }


def main() -> None:
    """Try every cut at every size; the one in use is marked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="every way to cut a row, not only the one in use")
    parser.add_argument("--noises", nargs="+", choices=NOISES, default=["uniform"])
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=["fp32"])
    parser.add_argument("--kernels", nargs="+", choices=("loss", "draw"), default=["loss", "draw"])
    parser.add_argument("--classes", nargs="+", type=int, choices=[K for _, _, K in SIZES], help="which K; all")
    parser.add_argument("--csv", type=Path, help="write the rows here too")
    options = parser.parse_args()
    speed = copy_bandwidth("cuda") / 1e3  # bytes a millisecond
    modules = {"loss": (triton_loss, loss_cuts, 2), "draw": (triton_draw, draw_cuts, 1)}
    about = machine(torch.device("cuda"))
    rows: list[dict[str, Any]] = []
    for (B, D, K), noise, dtype in itertools.product(SIZES, options.noises, options.dtypes):
        if options.classes and K not in options.classes:
            continue
        kernels = calls(noise, DTYPES[dtype], B, D, K)
        for name in options.kernels:
            module, cuts, passes = modules[name]
            tile = module.tile
            used = tile(K, of_table=noise in OF_TABLES) if name == "loss" else tile(K)
            floor = passes * DTYPES[dtype].itemsize * B * D * K / speed
            others = [cut for cut in cuts(K) if cut != used] if options.all else []
            for cut in [*others, used]:
                setattr(module, "tile", lambda *_, cut=cut, **__: dict(cut))  # noqa: B010
                ms = triton.testing.do_bench(kernels[name], return_mode="median")
                what = {"kernel": name, "noise": noise, "dtype": dtype, "B": B, "D": D, "K": K, "cut": cut}
                found = {"used": cut == used, "ms": round(ms, 5), "floor_ms": round(floor, 5)}
                rows.append(what | found | about)
                print(name, noise, dtype, (B, D, K), f"{ms:.4f} ms, floor {floor:.4f}", cut, flush=True)
            setattr(module, "tile", tile)  # noqa: B010
    if options.csv:
        with open(options.csv, "w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
