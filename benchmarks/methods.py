"""What each method costs beside its network: its loss with the gradient, and a step of its sampler.

    python benchmarks/methods.py

The network returns fixed fp32 logits, so that draws, loss and gradient with respect to the logits are what is timed. A
sampling step is the mean of `--steps` steps of the method's own sampler. `times_cross_entropy` compares with torch's
cross entropy, forward and backward, in the same process.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import yaml  # type: ignore[import-untyped]
from shared import write_rows
from torch import Tensor
from torch.nn import functional as F

from usd3.bench import Size
from usd3.bench.machine import machine
from usd3.bench.timing import Budget, Call, Measured, measure_all
from usd3.core.options import DiffusionConfig
from usd3.methods import METHODS, Method
from usd3.methods.options import MethodConfig
from usd3.recipes import find_recipe

VARIANTS = {"tauldr, two passes": ("tauldr", {"passes": "two_pass"}), "d3pm, joint": ("d3pm", {"posterior": "joint"})}


def method_of(name: str, classes: int, **options: Any) -> Method:
    """A method as its recipe has it, without checks of values."""
    recipe = yaml.safe_load(find_recipe(name).read_text())
    diffusion = DiffusionConfig(**recipe.get("diffusion", {})).build(classes)
    diffusion.validate = False
    found = recipe.get("method", {"name": name})
    return MethodConfig(found["name"], {**found.get("options", {}), **options}).build(diffusion)


def loss_of(method: Method, x_0: Tensor) -> Callable[[], Tensor]:
    """Loss and gradient with respect to the logits."""
    shape = (*x_0.shape, method.diffusion.noise.num_classes)
    logits = torch.randn(shape, device=x_0.device, requires_grad=True)

    def call() -> Tensor:
        logits.grad = None
        loss = method.loss(lambda x, t: logits, x_0).loss
        loss.backward()
        return loss.detach()

    return call


def steps_of(method: Method, x_0: Tensor, steps: int) -> Callable[[], Tensor]:
    """So many steps of its sampler."""
    logits = torch.randn((*x_0.shape, method.diffusion.noise.num_classes), device=x_0.device)
    return lambda: method.sample(lambda x, t: logits, tuple(x_0.shape), steps, device=x_0.device)


def cross_entropy(x_0: Tensor, classes: int) -> Callable[[], Tensor]:
    """torch's own, forward and backward."""
    logits = torch.randn((*x_0.shape, classes), device=x_0.device, requires_grad=True)

    def call() -> Tensor:
        logits.grad = None
        loss = F.cross_entropy(logits.flatten(0, -2), x_0.flatten(), reduction="sum")
        loss.backward()
        return loss.detach()

    return call


def main() -> None:
    """Measure all methods beside each other, print and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", default="16,256,129", metavar="B,D,K")
    parser.add_argument("--steps", type=int, default=20, help="sampling steps to take the mean of")
    parser.add_argument("--repeats", type=int, default=15, help="how often to measure each")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long to measure each at most")
    parser.add_argument("--csv", type=Path, default=Path(__file__).parent / "results" / "methods.csv")
    given = parser.parse_args()
    size = Size.parse(given.size)
    x_0 = torch.randint(size.K, (size.B, size.D), device=given.device)
    named = {name: (name, dict[str, Any]()) for name in METHODS} | VARIANTS
    methods = {label: method_of(name, size.K, **options) for label, (name, options) in named.items()}
    budget, plain = Budget(given.repeats, given.seconds), Call("cross entropy", [cross_entropy(x_0, size.K)])
    losses = [Call(label, [loss_of(method, x_0)], capture=False) for label, method in methods.items()]
    steps = [Call(label, [steps_of(method, x_0, given.steps)], capture=False) for label, method in methods.items()]
    found = measure_all([plain, *losses, *steps], given.device, budget)
    unit, about = found[0].ms_median, machine(given.device)
    rows = []
    for kind, calls, results, share in (
        ("loss", losses, found[1 : 1 + len(losses)], 1),
        ("step", steps, found[1 + len(losses) :], given.steps),
    ):
        for call, result in zip(calls, results):
            rows.append(row_of(kind, call.name, size, result, share, unit) | about)
            print(
                "  ".join(f"{key} {rows[-1][key]}" for key in ("kind", "method", "ms", "times_cross_entropy", "note"))
            )
    write_rows(given.csv, rows)
    print(f"wrote {given.csv}")


def row_of(kind: str, method: str, size: Size, found: Measured, share: int, unit: float | None) -> dict[str, Any]:
    """One line of the file."""
    ms = None if found.ms_median is None else found.ms_median / share
    ratio = None if ms is None or unit is None else round(ms / unit, 2)
    peak, logits = found.peak_bytes_beyond_inputs, 4 * size.B * size.D * size.K
    return {
        "kind": kind,
        "method": method,
        **size._asdict(),
        "ms": None if ms is None else round(ms, 3),
        "times_cross_entropy": ratio,
        "peak_logits": None if peak is None else round(peak / logits, 2),
        "note": found.note,
    }


if __name__ == "__main__":
    main()
