"""One optimiser step as one function, which a GPU repeats as one CUDA graph.

What changes from step to step is written to the device before a replay: the batch, the learning rate, the rate of the
moving average. `usd3._internal.graphs` explains graphs and their random numbers.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from usd3._internal.checks import require
from usd3._internal.graphs import GraphedFunction, GraphMode

__all__ = ["Batch", "Loss", "WholeStep"]

Batch = dict[str, Tensor]
Loss = Callable[[Batch], tuple[Tensor, Tensor]]


class WholeStep:
    """Loss, gradient, clipping, optimiser and moving average of one batch.

    Args:
        loss: maps a batch, a dict of tensors, to the loss and to the numbers for the log.
        weights: the parameters whose gradient is clipped.
        optimizer: with float learning rates; on a GPU it must be fused. A scheduler may change them between steps.
        clip: largest norm of the gradient; None: no clipping.
        bf16: compute the loss under autocast.
        average: called as average(rate) after the optimiser, to move averages of the weights.
        graph: "never": always run the function itself. Otherwise, on a GPU, run it a few times and from then on
            replay its CUDA graph; all batches must have the same shapes. Where it cannot be captured, "auto" goes on
            without one and warns, "always" raises.
    """

    def __init__(
        self,
        loss: Loss,
        weights: Iterable[nn.Parameter],
        optimizer: torch.optim.Optimizer,
        clip: float | None = None,
        bf16: bool = False,
        average: Callable[[float | Tensor], None] | None = None,
        graph: GraphMode = "never",
    ):
        weights = list(weights)
        on_gpu = _is_gpu(weights[0].device)
        if on_gpu:
            fused = all(group["fused"] for group in optimizer.param_groups)
            require(fused, "optimizer", type(optimizer).__name__, "a fused one")
        self._plain = _PlainStep(loss, weights, optimizer, clip, bf16, average)
        self._step = GraphedFunction(self._plain, graph if on_gpu else "never", trained=weights)
        self._shapes: dict[str, torch.Size] = {}

    def __call__(self, batch: Batch, rate: float = 1.0) -> tuple[Tensor, Tensor]:
        """Train on one batch. Returns what `loss` returns, detached; the next replay overwrites it."""
        self._plain.set_rates(rate)
        if self._step.mode != "never":
            self._require_same_shapes(batch)
        self._plain.names = sorted(batch)
        return self._step(*(batch[name] for name in self._plain.names))

    @property
    def captured(self) -> bool:
        """Whether steps are replays of a graph by now."""
        return self._step.captured

    def _require_same_shapes(self, batch: Batch) -> None:
        shapes = {name: tensor.shape for name, tensor in batch.items()}
        self._shapes = self._shapes or shapes
        if shapes != self._shapes:
            require(False, "batch", shapes, f"the shapes of the first one, {self._shapes}")


class _PlainStep:
    """The step itself, a function of the tensors of a batch; `names` says which they are.

    It does not know its graph: a cycle of references would keep the memory of the graph after the training.
    """

    def __init__(
        self,
        loss: Loss,
        weights: list[nn.Parameter],
        optimizer: torch.optim.Optimizer,
        clip: float | None,
        bf16: bool,
        average: Callable[[float | Tensor], None] | None,
    ):
        self.loss, self.weights, self.optimizer, self.clip = loss, weights, optimizer, clip
        self.bf16, self.average, self.device = bf16, average, weights[0].device
        self.names: list[str] = []
        self._on_gpu = _is_gpu(self.device)
        self._lrs = [_Number(self.device) for _ in optimizer.param_groups]
        self._rate = _Number(self.device)

    def set_rates(self, rate: float) -> None:
        """Write the learning rates and the rate of the moving average to where the step reads them."""
        for number, group in zip(self._lrs, self.optimizer.param_groups):
            number.set(group["lr"])
        self._rate.set(rate)

    def __call__(self, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        """Nothing here waits for the device."""
        batch = dict(zip(self.names, tensors))
        for weight in self.weights:
            weight.grad = None
        kind = self.device.type
        with torch.enable_grad(), torch.autocast(kind, enabled=False):  # whatever surrounds the call
            # no cache: a replay would read the weights as they were cast at the capture
            with torch.autocast(kind, torch.bfloat16, enabled=self.bf16, cache_enabled=False):
                loss, numbers = self.loss(batch)
            loss.backward()
            if self.clip is not None:
                nn.utils.clip_grad_norm_(self.weights, self.clip)
            with self._rates_on_device():
                self.optimizer.step()
            if self.average is not None:
                self.average(self._rate.value)
        return loss.detach(), numbers.detach()

    @contextmanager
    def _rates_on_device(self) -> Iterator[None]:
        """On a GPU the optimiser reads its rates there. Outside they stay floats: a checkpoint knows of no graph."""
        groups = self.optimizer.param_groups
        before = [{name: group[name] for name in ("lr", "capturable")} for group in groups] if self._on_gpu else []
        for group, number in zip(groups, self._lrs if self._on_gpu else []):
            group["lr"], group["capturable"] = number.value, torch.cuda.is_current_stream_capturing()
        try:
            yield
        finally:
            for group, settings in zip(groups, before):
                group.update(settings)


def _is_gpu(device: torch.device) -> bool:
    return device.type == "cuda"


class _Number:
    """A number that a step reads: on a GPU one float32 in its memory, written only when it changes."""

    def __init__(self, device: torch.device):
        self.value: Any = torch.zeros((), device=device) if _is_gpu(device) else 0.0
        self._last = 0.0

    def set(self, value: float) -> None:
        if not isinstance(self.value, Tensor):
            self.value = value
        elif value != self._last:
            self.value.fill_(value)
            self._last = value
