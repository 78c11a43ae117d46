"""CUDA graphs: a function of tensors that is called often becomes one launch."""

import functools
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

__all__ = ["SETTLED", "Replayed", "Replays", "as_captured"]

_MOST = 16  # graphs that one object keeps
_WARM = 3  # calls before the capture: libraries set themselves up, kernels are compiled
SETTLED = _WARM + 1  # calls after which every call is a replay


@contextmanager
def as_captured() -> Iterator[None]:
    """The mode in which a graph is captured: no gradients, and tensors that may be used outside of inference mode.

    Something compiled is compiled again in another mode. What is called in this one before the capture is not, so
    the capture finds it ready.
    """
    with torch.inference_mode(False), torch.no_grad():
        yield


class Replayed:
    """`fn(*tensors) -> tensor` on a GPU, captured after three plain calls and replayed from then on.

    The arguments keep their shapes and dtypes from call to call; what `fn` reads besides them keeps its place in
    memory. A function that waits for the device cannot be captured: then, and where the capture fails, `fn` is called
    as it is for good. The graph and its memory go with this object.
    """

    def __init__(self, fn: Callable[..., Tensor]):
        self.fn, self.possible = fn, True
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None

    @property
    def captured(self) -> bool:
        """Whether calls are replays by now."""
        return self._graph is not None

    def __call__(self, *inputs: Tensor) -> Tensor:
        """fn(*inputs)."""
        if not self.possible:
            return self.fn(*inputs)
        self._calls += 1
        if self._calls == 1:  # may wait for the device: tables are copied to it, kernels are chosen
            return self._aside(inputs, nullcontext())
        try:
            if self._calls <= _WARM:
                return self._aside(inputs, _waiting_is_an_error())
            if self._graph is None:
                self._capture(inputs)
        except RuntimeError:  # it waits for the device, or there is no memory for a graph
            self.possible, self._graph = False, None
            return self.fn(*inputs)
        assert self._graph is not None
        for own, given in zip(self._inputs, inputs):
            own.copy_(given)
        self._graph.replay()
        return self._output.clone()

    def _aside(self, inputs: tuple[Tensor, ...], rule: AbstractContextManager[None]) -> Tensor:
        """fn(*inputs) on the stream of the capture, so that what libraries keep for it is no part of the graph."""
        device = inputs[0].device
        side, current = _stream(device), torch.cuda.current_stream(device)
        side.wait_stream(current)
        with torch.cuda.stream(side), rule:
            output = self.fn(*inputs)
        current.wait_stream(side)
        output.record_stream(current)
        return output

    def _capture(self, inputs: tuple[Tensor, ...]) -> None:
        device, graph = inputs[0].device, torch.cuda.CUDAGraph()
        with as_captured():
            self._inputs = [value.clone() for value in inputs]
        with (
            as_captured(),
            torch.cuda.device(device),
            torch.cuda.graph(graph, stream=_stream(device), capture_error_mode="thread_local"),
            _waiting_is_an_error(),
        ):
            self._output = self.fn(*self._inputs)
        self._graph = graph


class Replays:
    """Small functions of tensors by name, each called as its CUDA graph where that is possible, and as it is elsewhere.

    For numbers of a batch that take dozens of tiny kernels: what their launches cost is more than the work.
    """

    def __init__(self) -> None:
        self._known: dict[Any, Replayed] = {}

    def __call__(self, name: Any, fn: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        """fn(*inputs). Whatever else `fn` depends on must be told by its name."""
        first = inputs[0]
        plain = first.device.type != "cuda" or torch.compiler.is_compiling()
        if plain or torch.cuda.is_current_stream_capturing() or (torch.is_grad_enabled() and first.requires_grad):
            return fn(*inputs)
        stream = torch.cuda.current_stream(first.device).cuda_stream  # two streams must not share a graph's memory
        key = (name, first.device, stream, threading.get_ident(), *(value.shape for value in inputs))
        if key not in self._known:
            if len(self._known) >= _MOST:
                return fn(*inputs)
            self._known[key] = Replayed(fn)
        return self._known[key](*inputs)

    def __getstate__(self) -> dict[str, Any]:
        return {"_known": {}}  # graphs belong to a process


@functools.cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


@contextmanager
def _waiting_is_an_error() -> Iterator[None]:
    """A RuntimeError where something waits for the device: cleaner than a capture that breaks."""
    before = torch.cuda.get_sync_debug_mode()
    _on_waiting(2)
    try:
        yield
    finally:
        _on_waiting(before)


def _on_waiting(mode: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that the mode is a prototype
        torch.cuda.set_sync_debug_mode(mode)
