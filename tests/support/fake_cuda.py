"""CUDA graphs on the CPU: enough of `torch.cuda` to test who captures, replays and recovers."""

import weakref
from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor

from usd3._internal import graphs

__all__ = ["FakeCuda"]


class Stream:
    cuda_stream = 7

    def __init__(self, device=None):
        self.waited_for = []

    def wait_stream(self, other):
        self.waited_for.append(other)


class Generator:
    """Torch's own of the CPU, with the two methods that only those of a GPU have."""

    def clone_state(self):
        return torch.get_rng_state()

    def graphsafe_set_state(self, state):
        torch.set_rng_state(state)


class FakeCuda:
    """While it is patched in, a capture is undone when it ends, and a replay runs the function again.

    `follow(function, tensors)` names the next function to be captured, and the tensors that it changes. With
    `breaks` a capture refuses to end, as one does in which something waited for the device.
    """

    def __init__(self, monkeypatch):
        self.captures, self.error_modes, self.sync_mode, self.breaks = 0, [], 0, False
        self.ended_pools = []
        self._function, self._tensors = None, list
        fake = self

        class Graph:
            def capture_begin(self, pool, capture_error_mode):
                self.function, self.tensors = weakref.proxy(fake._function), fake._tensors
                self.before, self.draws = [t.clone() for t in self.tensors()], torch.get_rng_state()
                fake.captures += 1
                fake.error_modes.append(capture_error_mode)

            def capture_end(self):
                for tensor, value in zip(self.tensors(), self.before):
                    tensor.copy_(value)
                if fake.breaks:
                    raise RuntimeError("the capture was invalidated")
                torch.set_rng_state(self.draws)

            def replay(self):
                kept, now = self.function._output, self.function.fn(*self.function._inputs)
                pairs = [(kept, now)] if isinstance(kept, Tensor) else zip(kept, now)
                for output, value in pairs:
                    output.copy_(value)

        def set_sync_debug_mode(mode):
            self.sync_mode = mode

        for name, value in {
            "CUDAGraph": Graph,
            "Stream": Stream,
            "current_stream": Stream,
            "stream": lambda stream: nullcontext(),
            "device": lambda device: nullcontext(),
            "graph_pool_handle": lambda: (0, 1),
            "default_generators": {None: Generator()},
            "synchronize": lambda device: None,
            "empty_cache": lambda: None,
            "is_current_stream_capturing": lambda: False,
            "get_sync_debug_mode": lambda: self.sync_mode,
            "set_sync_debug_mode": set_sync_debug_mode,
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)
        ended = lambda index, pool: self.ended_pools.append(pool)
        monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", ended, raising=False)
        monkeypatch.setattr(torch._C, "_cuda_releasePool", lambda index, pool: None, raising=False)
        monkeypatch.setattr(graphs, "_side_stream", Stream)
        monkeypatch.setattr(graphs, "_broken", [])

    def follow(self, function: graphs.GraphedFunction, tensors: Callable[[], list[Tensor]] = list) -> None:
        self._function, self._tensors = function, tensors

    def wait(self) -> None:
        """What a function does that asks for a value."""
        if self.sync_mode == 2:
            raise RuntimeError("called a synchronizing CUDA operation")
