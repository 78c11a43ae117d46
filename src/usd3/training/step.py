"""One optimiser step as one function, which a GPU repeats as one CUDA graph.

A step of a small network has many short kernels, and a host that starts them one by one is slower than the GPU. A
graph starts them all at once. What changes from step to step is written to the device before a replay: the
batch, the learning rate, the rate of the moving average. Random numbers need no care: a replay begins by writing the
seed and the offset of torch's CUDA generator to the device, so it draws what plain kernels would draw after the same
`manual_seed` (torch's CUDAGraph::replay and CUDAGeneratorState::replay_prologue).
"""

import gc
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal

import torch
from torch import Tensor, nn

from usd3._internal.checks import require

__all__ = ["SETTLED", "Batch", "GraphMode", "WholeStep"]

Batch = dict[str, Tensor]
GraphMode = Literal["auto", "always", "never"]

_WARM_UP = 3  # plain steps before the capture: they compile, choose kernels, and make the optimiser's state
SETTLED = _WARM_UP + 1  # steps after which nothing is compiled or captured any more
_failed: list[Any] = []  # torch's allocators may still ask a graph whose capture failed


class WholeStep:
    """Loss, gradient, clipping, optimiser and moving average of one batch.

    Args:
        loss: maps a batch, a dict of tensors, to the loss and to what a log shows of it.
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
        loss: Callable[[Batch], tuple[Tensor, Tensor]],
        weights: Iterable[nn.Parameter],
        optimizer: torch.optim.Optimizer,
        clip: float | None = None,
        bf16: bool = False,
        average: Callable[[float | Tensor], None] | None = None,
        graph: GraphMode = "never",
    ):
        self.loss, self.weights, self.optimizer, self.clip = loss, list(weights), optimizer, clip
        self.bf16, self.average, self.device = bf16, average, self.weights[0].device
        groups = optimizer.param_groups
        self._on_gpu = _is_gpu(self.device)
        if self._on_gpu:
            require(all(group["fused"] for group in groups), "optimizer", type(optimizer).__name__, "a fused one")
            self._side = torch.cuda.Stream(self.device)
        self.graph = graph if self._on_gpu else "never"
        self._lrs = [_Number(self.device) for _ in groups]
        self._rate = _Number(self.device)
        self._inputs: Batch = {}
        self._outputs: tuple[Tensor, Tensor] | None = None
        self._replay: torch.cuda.CUDAGraph | None = None
        self._done = 0

    def __call__(self, batch: Batch, rate: float = 1.0) -> tuple[Tensor, Tensor]:
        """Train on one batch. The answers of `loss`, detached; the next replay overwrites them."""
        for number, group in zip(self._lrs, self.optimizer.param_groups):
            number.set(group["lr"])
        self._rate.set(rate)
        if self.graph == "never":
            return self._run(batch)
        self._read(batch)
        if self._done < _WARM_UP:
            self._done += 1
            return self._run_aside()
        if self._replay is None and not self._capture():
            return self._run(batch)
        assert self._replay is not None
        assert self._outputs is not None
        self._replay.replay()
        return self._outputs

    @property
    def captured(self) -> bool:
        """Whether steps are replays of a graph by now."""
        return self._replay is not None

    def _run(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The step itself. Nothing here waits for the device."""
        self._drop_gradient()
        kind = self.device.type
        with torch.autocast(kind, enabled=False):  # whatever surrounds the call; a gradient needs none
            # no cache: a replay would read the weights as they were cast at the capture
            with torch.autocast(kind, torch.bfloat16, enabled=self.bf16, cache_enabled=False):
                loss, shown = self.loss(batch)
            loss.backward()
            if self.clip is not None:
                nn.utils.clip_grad_norm_(self.weights, self.clip)
            with self._rates_on_device():
                self.optimizer.step()
            if self.average is not None:
                self.average(self._rate.value)
        return loss.detach(), shown.detach()

    def _drop_gradient(self) -> None:
        for weight in self.weights:
            weight.grad = None

    @contextmanager
    def _rates_on_device(self) -> Iterator[None]:
        """On a GPU the optimiser reads its rates there. Outside they stay floats: a checkpoint knows of no graph."""
        groups = self.optimizer.param_groups
        kept = [{name: group[name] for name in ("lr", "capturable")} for group in groups] if self._on_gpu else []
        for group, number in zip(groups, self._lrs if self._on_gpu else []):
            group["lr"], group["capturable"] = number.value, torch.cuda.is_current_stream_capturing()
        try:
            yield
        finally:
            for group, before in zip(groups, kept):
                group.update(before)

    def _read(self, batch: Batch) -> None:
        """Copy a batch to where the graph reads it."""
        if not self._inputs:
            self._inputs = {name: tensor.to(self.device, copy=True) for name, tensor in batch.items()}
            return
        seen, kept = ({name: tensor.shape for name, tensor in tensors.items()} for tensors in (batch, self._inputs))
        if seen != kept:
            require(False, "batch", seen, f"the shapes of the first one, {kept}")
        for name, tensor in self._inputs.items():
            tensor.copy_(batch[name], non_blocking=True)

    def _run_aside(self) -> tuple[Tensor, Tensor]:
        """A plain step on the stream of the capture, as torch asks for before one."""
        current = torch.cuda.current_stream(self.device)
        self._side.wait_stream(current)
        with torch.cuda.stream(self._side):
            outputs = self._run(self._inputs)
        current.wait_stream(self._side)
        return outputs

    def _capture(self) -> bool:
        """Record the step, computing nothing. Whether it worked; if not, all is as before and it is not tried again."""
        graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
        generator = torch.cuda.default_generators[self.device.index]
        draws = generator.clone_state()
        self._drop_gradient()  # the graph's own gradient lives in its own memory
        torch.cuda.synchronize(self.device)
        gc.collect()
        torch.cuda.empty_cache()
        try:
            with torch.cuda.stream(self._side):
                graph.capture_begin(pool=pool)
                try:
                    self._outputs = self._run(self._inputs)
                except BaseException:
                    with suppress(RuntimeError):  # a capture that was broken off refuses to end
                        graph.capture_end()
                    raise
                graph.capture_end()
            self._replay = graph
        except Exception as error:
            reason = str(error).strip().partition("\n")[0]
            self._recover(graph, pool, generator, draws)
            if self.graph == "always":
                raise RuntimeError(
                    f"cuda_graph = always: expected a step that can be captured as a CUDA graph ({reason})"
                ) from error
            warnings.warn(f"training goes on without a CUDA graph, as the capture failed: {reason}", stacklevel=3)
            self.graph, self._inputs = "never", {}
        return self._replay is not None

    def _recover(self, graph: Any, pool: Any, generator: torch.Generator, draws: torch.Generator) -> None:
        """After a failed capture the generator and the allocator still wait for its end, and would refuse work."""
        _failed.append(graph)
        self._outputs = None
        generator.graphsafe_set_state(draws)
        with suppress(RuntimeError):  # where the capture ended in order, the allocator knows
            torch._C._cuda_endAllocateToPool(self.device.index, pool)
            torch._C._cuda_releasePool(self.device.index, pool)
        self._drop_gradient()


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
