"""The host's share of a loss and of a sampling step: operators and CPU microseconds of a call.

    python benchmarks/host.py

A GPU computes a small batch faster than a host starts its kernels: then a call takes as long as the host's work. This
script measures that work without a GPU. The batch is tiny (2 objects of 8 elements, 16 categories), so that arithmetic
costs nothing, and the kernel of the loss or of the draw does nothing but fill its result, as a launch would.

`operators` are the operators of torch that compute or copy in one call; on a GPU each is a launch, but for those that a
CUDA graph replays there (the coefficients in continuous time). Views and numbers that the host reads are not counted:
they launch nothing.
`microseconds` is the CPU time of one call in one thread: the least of many. Loss and cross entropy include their
backward pass.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from shared import write_rows
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import usd3
from usd3.bench.machine import machine
from usd3.kernels import chunked_draw, chunked_loss

B, D, K, T, STEPS = 2, 8, 16, 1000, 20
NOISES = {"uniform": usd3.Uniform, "absorbing": usd3.Absorbing}


class Operators(TorchDispatchMode):
    """Counts the operators that compute or copy."""

    count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        aliases = [value.alias_info for value in function._schema.returns]
        is_read = function is torch.ops.aten._local_scalar_dense.default
        self.count += not is_read and all(alias is None or alias.is_write for alias in aliases)
        return function(*args, **(kwargs or {}))


def calls() -> Iterator[tuple[dict[str, str], Callable[[], Any]]]:
    """What is measured: its description, and the call."""
    logits, x = torch.randn(B, D, K, requires_grad=True), torch.randint(K - 1, (B, D))

    def cross_entropy() -> None:
        torch.nn.functional.cross_entropy(logits.reshape(-1, K), x.reshape(-1)).backward()
        logits.grad = None

    yield {"call": "cross entropy", "noise": "", "time": ""}, cross_entropy  # what the others are compared with
    for noise, make in NOISES.items():
        for kind, t, s in (("continuous", 0.5, 0.25), ("discrete", T // 2, T // 4)):
            d = usd3.Diffusion(make(K), usd3.Cosine(), None if kind == "continuous" else T)

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
    """Inside, the kernels of losses and draws fill their results and do nothing else."""

    def loss_rows(logits: Tensor, p: Any, weights: Tensor, with_l2: bool, gradient: Tensor | None) -> Tensor:
        return torch.zeros(4, len(logits))

    def draw_rows(logits: Tensor, leap: Any, u: Tensor | None) -> Tensor:
        return torch.zeros_like(leap.x)

    with (
        mock.patch.object(chunked_loss, "loss_rows", loss_rows),
        mock.patch.object(chunked_draw, "draw_rows", draw_rows),
    ):
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
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    with idle_kernels():
        for about, call in calls():
            rows.append(about | measured(call, options.rounds))
            print(*rows[-1].values(), flush=True)
    write_rows(options.csv, [row | machine() for row in rows])
    print(f"wrote {options.csv}")


if __name__ == "__main__":
    main()
