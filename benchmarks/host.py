"""The host's share of a loss and of a sampling step: operators and CPU microseconds of a call.

    python benchmarks/host.py

A GPU computes a small batch faster than a host starts its kernels: then a call takes as long as the host's work. This
script measures that work without a GPU. The batch is tiny (2 objects of 8 elements, 16 categories), so that arithmetic
costs nothing. Calls take the way they take on a GPU, with `impl="triton"`, and the kernels of coefficients, losses and
draws do nothing but fill their results, as a launch would. With `--impl auto` calls take the way of this machine.

`operators` are the operators of torch that compute, copy or allocate in one call; on a GPU nearly each is a launch. A
kernel counts as one. Views and numbers that the host reads are not counted: they launch nothing.
`microseconds` is the CPU time of one call in one thread: the least of many. Loss and cross entropy include their
backward pass.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from shared import write_rows
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import usd3
from usd3.bench.machine import machine
from usd3.kernels import choice, chunked_draw, chunked_loss, cpp_loss, triton_coefficients, triton_draw, triton_loss

B, D, K, T, STEPS = 2, 8, 16, 1000, 20
NOISES = {"uniform": usd3.Uniform, "absorbing": usd3.Absorbing}
_NO_WORK = {torch.ops.aten._local_scalar_dense.default, torch.ops.aten.promote_types.default}


class Operators(TorchDispatchMode):
    """Counts the operators that compute or copy."""

    count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        aliases = [value.alias_info for value in function._schema.returns]
        self.count += function not in _NO_WORK and all(alias is None or alias.is_write for alias in aliases)
        return function(*args, **(kwargs or {}))


def calls(impl: str = "triton") -> Iterator[tuple[dict[str, str], Callable[[], Any]]]:
    """What is measured: its description, and the call."""
    logits, x = torch.randn(B, D, K, requires_grad=True), torch.randint(K - 1, (B, D))

    def cross_entropy() -> None:
        torch.nn.functional.cross_entropy(logits.reshape(-1, K), x.reshape(-1)).backward()
        logits.grad = None

    yield {"call": "cross entropy", "noise": "", "time": ""}, cross_entropy  # what the others are compared with
    for noise, make in NOISES.items():
        for kind, t, s in (("continuous", 0.5, 0.25), ("discrete", T // 2, T // 4)):
            d = usd3.Diffusion(make(K), usd3.Cosine(), None if kind == "continuous" else T, impl=impl)

            def loss(d: usd3.Diffusion = d) -> None:
                d.loss(lambda x_t, t: logits, x).loss.backward()
                logits.grad = None

            times = torch.tensor([t] * B)

            def loss_from_logits(d: usd3.Diffusion = d, t: Tensor = times) -> None:
                d.loss_from_logits(logits, x, x, t).loss.backward()
                logits.grad = None

            def draw(d: usd3.Diffusion = d, t: float = t, s: float = s) -> Tensor:
                return d.draw(logits.detach(), x, t, s)

            def draw_at_own_times(d: usd3.Diffusion = d, t: Tensor = times, s: float = s) -> Tensor:
                return d.draw(logits.detach(), x, t, s)

            def sample(d: usd3.Diffusion = d) -> Tensor:
                return d.sample(lambda x_t, t: logits.detach(), (B, D), STEPS)

            about = {"noise": noise, "time": kind}
            yield {"call": "loss"} | about, loss
            yield {"call": "loss_from_logits"} | about, loss_from_logits
            yield {"call": "draw"} | about, draw
            yield {"call": "draw at own times"} | about, draw_at_own_times
            yield {"call": f"sample {STEPS} steps"} | about, sample


@contextmanager
def idle_kernels() -> Iterator[None]:
    """Inside, the kernels fill their results and do nothing else, and those of Triton run here."""

    def loss_rows(logits: Tensor, *_: Any) -> Tensor:
        return torch.zeros(4, len(logits))

    def draw_rows(logits: Tensor, leap: Any, *_: Any) -> Tensor:
        return torch.zeros_like(leap.x)

    def coefficients(form: Any, numbers: Tensor, time: Tensor, *_: Any, drawn: bool) -> Tensor:
        return torch.full((6 if drawn else 5, len(time)), 0.5, dtype=torch.float64)

    with ExitStack() as idle:
        for module in (chunked_loss, cpp_loss, triton_loss):
            idle.enter_context(mock.patch.object(module, "loss_rows", loss_rows))
        for module in (chunked_draw, triton_draw):
            idle.enter_context(mock.patch.object(module, "draw_rows", draw_rows))
        idle.enter_context(mock.patch.object(triton_loss, "scale_", lambda gradient, factor: gradient))
        idle.enter_context(mock.patch.object(triton_coefficients, "launch", coefficients))
        idle.enter_context(mock.patch.dict(choice._RUNS_ON, {"cpu": True}))
        yield


def microseconds(call: Callable[[], Any], rounds: int) -> float:
    """CPU time of one call: the least of `rounds` means over ten calls."""
    least = float("inf")
    for _ in range(rounds):
        start = time.process_time_ns()
        for _ in range(10):
            call()
        least = min(least, (time.process_time_ns() - start) / 10)
    return least / 1e3


def measured(call: Callable[[], Any], rounds: int) -> dict[str, Any]:
    """The numbers of one call, after a few calls that fill caches."""
    for _ in range(5):
        call()
    with Operators() as operators:
        call()
    return {"operators": operators.count, "microseconds": round(microseconds(call, rounds), 1)}


def main() -> None:
    """Measure every call."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300, help="how often ten calls are timed")
    parser.add_argument("--csv", type=Path, default=Path(__file__).parent / "results" / "host.csv")
    parser.add_argument("--impl", choices=["auto", "triton"], default="triton", help="whose way the calls take")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    with idle_kernels():
        for about, call in calls(options.impl):
            rows.append(about | measured(call, options.rounds))
            print(*rows[-1].values(), flush=True)
    write_rows(options.csv, [row | machine() for row in rows])
    print(f"wrote {options.csv}")


if __name__ == "__main__":
    main()
