"""CUDA graphs: a function that a GPU runs often becomes a single launch.

A small network has many short kernels, and a host that launches them one by one is slower than the GPU. A CUDA graph
is a recording of all these launches. The host makes it once, the *capture*, and then repeats it with one call, the
*replay*. A recording repeats the same kernels on the same addresses, which gives four rules:

1. Warm up first. The first calls compile kernels, choose algorithms and copy tables to the device. They run on the
   stream of the capture, because libraries keep a workspace for each stream.
2. Addresses are fixed. A graph reads its inputs from tensors of its own, so each call copies its inputs there, and it
   writes its output to the same place at each replay. Its memory comes from a pool that nothing else uses.
3. Never wait for the device. `tensor.item()`, for example, asks for a value that does not exist during a capture.
4. Random numbers follow the generator. A replay starts with writing the seed and the offset of torch's CUDA generator
   to the device, so it draws what plain kernels draw after the same `manual_seed` (torch's CUDAGraph::replay and
   CUDAGeneratorState::replay_prologue).

A function that breaks the third rule cannot be captured. `GraphedFunction` then calls it as it is.
"""

import functools
import gc
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, Generic, Literal, TypeVar

import torch
from torch import Tensor, nn

__all__ = ["SETTLED", "GraphCache", "GraphMode", "GraphedFunction", "as_captured", "waiting_is_an_error"]

GraphMode = Literal["auto", "always", "never"]
Output = TypeVar("Output", bound=Tensor | tuple[Tensor, ...])

_WARM_UP = 3  # plain calls before the capture
SETTLED = _WARM_UP + 1  # calls after which every call is a replay
_MAX_GRAPHS = 16  # in one cache
_broken: list[torch.cuda.CUDAGraph] = []  # torch's allocator may still ask a graph whose capture broke off


class GraphedFunction(Generic[Output]):
    """`fn(*tensors)` on a GPU: three plain calls, one capture, then replays of its CUDA graph.

    The arguments keep their shapes and dtypes from call to call. Whatever else `fn` reads keeps its address. The graph
    and its memory live as long as this object.

    Args:
        fn: returns a tensor or a tuple of tensors. The capture runs it without gradients; a training step enables them.
        mode: "auto": call `fn` as it is, for good, where it cannot be captured; "always": raise a RuntimeError there;
            "never": no graph.
        trained: the weights that `fn` trains; none for a pure function, such as one move of a sampler. A training step
            differs in four ways. It changes the weights, so half a step cannot be repeated: its warm-up may wait for
            the device, and only the capture, which computes nothing, can fail. Its backward pass runs in threads of
            autograd, so the capture watches all threads, not this one alone. Its gradients of the warm-up are dropped
            before the capture, as the graph has gradients of its own. Its output stays in the memory of the graph,
            and the next replay overwrites it; the output of a pure function is a copy that the caller owns.
    """

    def __init__(self, fn: Callable[..., Output], mode: GraphMode = "auto", trained: Iterable[nn.Parameter] = ()):
        self.fn, self.mode, self.trained = fn, mode, list(trained)
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: list[Tensor] = []
        self._output: Output | None = None

    @property
    def captured(self) -> bool:
        """Whether calls are replays by now."""
        return self._graph is not None

    def __call__(self, *inputs: Tensor) -> Output:
        """fn(*inputs)."""
        if self.mode == "never":
            return self.fn(*inputs)
        if self._graph is None:
            self._calls += 1
            if self._calls <= _WARM_UP:
                return self._warm_up(inputs)
            if not self._capture(inputs):
                return self.fn(*inputs)
        return self._replay(inputs)

    def _warm_up(self, inputs: tuple[Tensor, ...]) -> Output:
        """A plain call on the stream of the capture."""
        if self.trained or self._calls == 1:  # the first call of any function may wait: it copies tables to the device
            return self._run_aside(inputs, nullcontext())
        try:
            return self._run_aside(inputs, waiting_is_an_error())
        except RuntimeError as error:
            self._give_up(error)
            return self.fn(*inputs)

    def _run_aside(self, inputs: tuple[Tensor, ...], rule: AbstractContextManager[None]) -> Output:
        device = inputs[0].device
        side, current = _side_stream(device), torch.cuda.current_stream(device)
        side.wait_stream(current)
        with torch.cuda.stream(side), rule:
            output = self.fn(*inputs)
        current.wait_stream(side)
        for tensor in _tensors(output):  # made on one stream and read on another: its memory is not reused too early
            if tensor.is_cuda:
                tensor.record_stream(current)
        return output

    def _capture(self, inputs: tuple[Tensor, ...]) -> bool:
        """Record `fn`, computing nothing. Returns whether that worked; if not, all is as before."""
        device, graph = inputs[0].device, torch.cuda.CUDAGraph()
        self._drop_gradients()
        try:
            with as_captured():
                self._inputs = [value.clone() for value in inputs]
            torch.cuda.synchronize(device)
            if self.trained:  # frees dead cycles with GPU memory; too slow for every call of a sampler
                gc.collect()
            torch.cuda.empty_cache()
            rule = nullcontext() if self.trained else waiting_is_an_error()
            with _no_collection(), _capturing(graph, device, "global" if self.trained else "thread_local"), rule:
                self._output = self.fn(*self._inputs)
        except Exception as error:
            self._inputs, self._output = [], None
            self._drop_gradients()
            self._give_up(error)
            return False
        self._graph = graph
        return True

    def _replay(self, inputs: tuple[Tensor, ...]) -> Output:
        assert self._graph is not None
        assert self._output is not None
        for static, value in zip(self._inputs, inputs):
            static.copy_(value, non_blocking=True)
        self._graph.replay()
        return self._output if self.trained else _cloned(self._output)

    def _give_up(self, error: Exception) -> None:
        """No graph, for good: raise where one is required. A training lasts long, so its user is warned."""
        reason = str(error).strip().partition("\n")[0]
        if self.mode == "always":
            raise RuntimeError(
                f"cuda_graph = always: expected a step that can be captured as a CUDA graph ({reason})"
            ) from error
        self.mode = "never"
        if self.trained:
            warnings.warn(f"training goes on without a CUDA graph, as the capture failed: {reason}", stacklevel=5)

    def _drop_gradients(self) -> None:
        for weight in self.trained:
            weight.grad = None


class GraphCache:
    """Small pure functions of tensors, each called as its CUDA graph where that is possible.

    For coefficients of a batch that take dozens of tiny kernels: their launches cost more than their work.
    """

    def __init__(self) -> None:
        self._functions: dict[Any, GraphedFunction[Tensor]] = {}

    def __call__(self, name: Any, fn: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        """fn(*inputs). `name` must change with whatever else `fn` depends on."""
        first = inputs[0]
        plain = first.device.type != "cuda" or torch.compiler.is_compiling()
        if plain or torch.cuda.is_current_stream_capturing() or (torch.is_grad_enabled() and first.requires_grad):
            return fn(*inputs)
        stream = torch.cuda.current_stream(first.device).cuda_stream  # two streams must not share a graph's memory
        key = (name, first.device, stream, threading.get_ident(), *(value.shape for value in inputs))
        if key not in self._functions:
            if len(self._functions) >= _MAX_GRAPHS:
                return fn(*inputs)
            self._functions[key] = GraphedFunction(fn)
        return self._functions[key](*inputs)

    def __getstate__(self) -> dict[str, Any]:
        return {"_functions": {}}  # graphs belong to a process


@contextmanager
def as_captured() -> Iterator[None]:
    """The mode in which a graph is captured: no gradients, and tensors that may be used outside of inference mode.

    A compiled function is compiled again in another mode. If it is called in this mode before the capture, the capture
    finds it ready.
    """
    with torch.inference_mode(False), torch.no_grad():
        yield


@contextmanager
def waiting_is_an_error() -> Iterator[None]:
    """Inside, an operation that waits for the device raises a RuntimeError, which is cleaner than a broken capture."""
    before = torch.cuda.get_sync_debug_mode()
    _set_sync_debug_mode(2)
    try:
        yield
    finally:
        _set_sync_debug_mode(before)


def _set_sync_debug_mode(mode: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that the mode is a prototype
        torch.cuda.set_sync_debug_mode(mode)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Inside, dead cycles are not freed: with an earlier graph among them, freeing would break the capture of this."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def _capturing(graph: torch.cuda.CUDAGraph, device: torch.device, error_mode: str) -> Iterator[None]:
    """Inside, kernels are recorded into `graph` and not run.

    `torch.cuda.graph` does the same, but where the capture breaks off it hides the reason and stays on its stream.
    """
    pool = torch.cuda.graph_pool_handle()
    generator = torch.cuda.default_generators[device.index]
    draws, ended = generator.clone_state(), False
    try:
        with as_captured(), torch.cuda.device(device), torch.cuda.stream(_side_stream(device)):
            graph.capture_begin(pool=pool, capture_error_mode=error_mode)
            try:
                yield
            except BaseException:
                with suppress(RuntimeError):  # a broken capture refuses to end
                    graph.capture_end()
                    ended = True
                raise
            graph.capture_end()
            ended = True
    finally:
        if not ended:
            _recover(graph, pool, device, generator, draws)


def _recover(graph: Any, pool: Any, device: torch.device, generator: torch.Generator, draws: torch.Generator) -> None:
    """After a broken capture the generator and the allocator still wait for its end, and would refuse work."""
    _broken.append(graph)
    generator.graphsafe_set_state(draws)
    with suppress(RuntimeError):  # the allocator may already know
        torch._C._cuda_endAllocateToPool(device.index, pool)
        torch._C._cuda_releasePool(device.index, pool)


@functools.cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """One for all functions of a device: libraries keep a workspace for each stream."""
    return torch.cuda.Stream(device)


def _tensors(output: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (output,) if isinstance(output, Tensor) else output


def _cloned(output: Output) -> Output:
    copies = tuple(tensor.clone() for tensor in _tensors(output))
    return copies[0] if isinstance(output, Tensor) else copies  # type: ignore[return-value]
