"""Time and peak memory of calls, measured side by side in one process."""

import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from usd3._internal.checks import as_count, as_number

__all__ = ["Budget", "Call", "Measured", "measure", "measure_all", "one_line"]

_BATCH_MS = {"cuda": 2.0, "cpu": 5.0}  # short calls are timed several at once, for about so long
_MOST_CALLS = 200
_LEAST_SAMPLES = 3


@dataclass(frozen=True)
class Call:
    """Something to time: the same work on one or more sets of inputs, taken in turn so that no cache keeps them.

    `reset` restores the inputs where a call destroys them; it is not timed. `capture`: whether to try a CUDA graph.
    """

    name: str
    sets: Sequence[Callable[[], Any]]
    reset: Callable[[], None] | None = None
    capture: bool = True


@dataclass(frozen=True)
class Measured:
    """Milliseconds of one call: median, 20 % and 80 % quantiles; and what it needs at its peak.

    `value` is the number the call returned, alone or first of several, if it returned one. `note` says why the call
    or its CUDA graph failed.
    """

    ms_median: float | None = None
    ms_low: float | None = None
    ms_high: float | None = None
    graph_ms: float | None = None
    peak_bytes_beyond_inputs: int | None = None
    value: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Budget:
    """How often to measure: `repeats` samples of each call, fewer where they take longer than `seconds`."""

    repeats: int = 30
    seconds: float = 2.0

    def __post_init__(self) -> None:
        as_count(self.repeats, "repeats", 1)
        as_number(self.seconds, "seconds", 0)


def measure(fn: Callable[[], Any], device: torch.device | str, budget: Budget | None = None) -> Measured:
    """Measure one call alone."""
    return measure_all([Call("", [fn])], device, budget)[0]


def measure_all(
    calls: Sequence[Call],
    device: torch.device | str,
    budget: Budget | None = None,
    tick: Callable[[str], None] = lambda name: None,
) -> list[Measured]:
    """Measure calls beside each other, so that noise hits all alike.

    After warm-up and memory a sample of each is taken, in random order, again and again. A call that fails, for want
    of memory or otherwise, gets a note and no numbers. `tick` is told the name of each call after its warm-up and
    when it is done.
    """
    device, budget = torch.device(device), budget or Budget()
    timers = []
    for call in calls:
        timers.append(_Timer(call, device, budget))
        tick(call.name)
    shuffle = random.Random(0).sample  # a call may be slow or fast because of the one before it
    for i in range(budget.repeats):
        for timer in shuffle(timers, len(timers)):
            timer.sample(needed=i < _LEAST_SAMPLES)
    found = []
    for timer in timers:
        found.append(timer.result())
        tick(timer.call.name)
    return found


class _Timer:
    """The samples of one call."""

    def __init__(self, call: Call, device: torch.device, budget: Budget):
        self.call, self.device, self.left = call, device, budget.seconds
        self.samples: list[float] = []
        self.note, self.batch, self.next = "", 1, 0
        self.peak: int | None = None
        self.value: float | None = None
        self._guarded(self._warm_up)

    def sample(self, needed: bool) -> None:
        """Take one more, if there is time."""
        if not self.note and (needed or self.left > 0):
            self._guarded(self._sample)

    def result(self) -> Measured:
        """Median and quantiles; the CUDA graph comes last, as one that fails may leave traces."""
        if self.note or not self.samples:
            return Measured(note=self.note)
        low, high = (_quantile(self.samples, part) for part in (0.2, 0.8))
        found = Measured(statistics.median(self.samples), low, high, None, self.peak, self.value)
        if self.device.type == "cuda" and self.call.capture:
            try:
                return replace(found, graph_ms=_graph_ms(self.call))
            except Exception as error:
                return replace(found, note=f"no graph: {one_line(error)}")
        return found

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self.note = one_line(error)
        if self.note and self.device.type == "cuda":
            gc.collect()
            torch.cuda.empty_cache()

    def _warm_up(self) -> None:
        self.value = _number(self.call.sets[0]())
        for _ in range(2 if self.device.type == "cuda" else 0):
            self.call.sets[0]()
        if self.device.type == "cuda":
            self.peak = _peak(self.call.sets[0])
        self._sample()
        self.batch = min(_MOST_CALLS, max(1, math.ceil(_BATCH_MS[self.device.type] / max(self.samples[0], 1e-3))))
        self.samples.clear()

    def _sample(self) -> None:
        began = time.perf_counter()
        if self.call.reset is not None:
            self.call.reset()
        sets, first = self.call.sets, self.next
        self.next = (first + self.batch) % len(sets)
        run = _cuda_ms if self.device.type == "cuda" else _cpu_ms
        self.samples.append(run([sets[(first + i) % len(sets)] for i in range(self.batch)]) / self.batch)
        self.left -= time.perf_counter() - began


def _cuda_ms(calls: Sequence[Callable[[], Any]]) -> float:
    """Time of the calls one after the other on an idle GPU, launches included."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for call in calls:
        call()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end))


def _cpu_ms(calls: Sequence[Callable[[], Any]]) -> float:
    began = time.perf_counter()
    for call in calls:
        call()
    return (time.perf_counter() - began) * 1e3


def _peak(call: Callable[[], Any]) -> int:
    """The most bytes allocated during a call beyond those before it."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    kept = call()
    torch.cuda.synchronize()
    del kept
    return int(torch.cuda.max_memory_allocated() - before)


def _graph_ms(call: Call) -> float:
    """GPU time of a call without launches: one call on every set captured in a CUDA graph, and replayed."""
    stream = torch.cuda.current_stream()
    try:
        if call.reset is not None:
            call.reset()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for run in call.sets:
                run()
        graph.replay()
        times = [_cuda_ms([graph.replay]) for _ in range(10)]
        del graph
        return statistics.median(times) / len(call.sets)
    finally:
        torch.cuda.set_stream(stream)  # a capture that fails leaves its own
        gc.collect()
        torch.cuda.empty_cache()


def _number(returned: Any) -> float | None:
    first = returned[0] if isinstance(returned, tuple) and returned else returned
    return float(first) if isinstance(first, Tensor) and first.numel() == 1 else None


def _quantile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[round(part * (len(ordered) - 1))]


def one_line(error: Exception) -> str:
    """Why something failed, for a table."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return "out of memory"
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
