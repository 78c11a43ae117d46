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

_BATCH_MS = {"cuda": 2.0, "cpu": 5.0}  # a sample of a short call is several calls, of about this time together
_MOST_CALLS = 200
_LEAST_SAMPLES = 3


@dataclass(frozen=True)
class Call:
    """Something to time.

    Args:
        name: what the tables call it.
        sets: the same work on one or more sets of inputs. They are taken in turn, so that no cache keeps them.
        reset: restores inputs that a call destroys; it is not timed.
        capture: also time it as a CUDA graph.
    """

    name: str
    sets: Sequence[Callable[[], Any]]
    reset: Callable[[], None] | None = None
    capture: bool = True


@dataclass(frozen=True)
class Measured:
    """Time and memory of one call.

    Args:
        ms_median: milliseconds, the median of all samples.
        ms_low: their 20 % quantile.
        ms_high: their 80 % quantile.
        graph_ms: milliseconds as a CUDA graph.
        peak_bytes_beyond_inputs: peak memory.
        value: the number that the call returned, alone or as the first of several.
        note: why the call or its CUDA graph failed.
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
    """How often to measure: `repeats` samples of each call, fewer if they take longer than `seconds`."""

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
    """Measure calls side by side, so that noise affects all alike.

    After the warm-up, samples of all calls are taken in random order. A call that fails, for example because memory is
    short, gets a note and no numbers. `tick` is called with the name of each call, after its warm-up and at its end.
    """
    device, budget = torch.device(device), budget or Budget()
    timers = []
    for call in calls:
        timers.append(_Timer(call, device, budget))
        tick(call.name)
    shuffle = random.Random(0).sample  # the call before it can make a call faster or slower
    for i in range(budget.repeats):
        for timer in shuffle(timers, len(timers)):
            timer.sample(needed=i < _LEAST_SAMPLES)
    results = []
    for timer in timers:
        results.append(timer.result())
        tick(timer.call.name)
    return results


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
        """Take one more sample if it is needed or if there is time."""
        if not self.note and (needed or self.left > 0):
            self._guarded(self._sample)

    def result(self) -> Measured:
        """Median and quantiles. The CUDA graph is timed last: a capture that fails can affect later calls."""
        if self.note or not self.samples:
            return Measured(note=self.note)
        low, high = (_quantile(self.samples, part) for part in (0.2, 0.8))
        measured = Measured(statistics.median(self.samples), low, high, None, self.peak, self.value)
        if self.device.type == "cuda" and self.call.capture:
            try:
                return replace(measured, graph_ms=_graph_ms(self.call))
            except Exception as error:
                return replace(measured, note=f"no graph: {one_line(error)}")
        return measured

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
    """Milliseconds of the calls one after the other on an idle GPU, launches included."""
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
    """The most bytes allocated during a call beyond those allocated before it."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    kept = call()
    torch.cuda.synchronize()
    del kept
    return int(torch.cuda.max_memory_allocated() - before)


def _graph_ms(call: Call) -> float:
    """Milliseconds of a call on the GPU without launches: one CUDA graph replays a call on every set.

    It captures by hand what `usd3._internal.graphs.GraphedFunction` would copy and clone: here nothing but the call
    itself may be timed, and torch's own functions are timed in the same way.
    """
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
        torch.cuda.set_stream(stream)  # a capture that fails leaves its own stream
        gc.collect()
        torch.cuda.empty_cache()


def _number(returned: Any) -> float | None:
    first = returned[0] if isinstance(returned, tuple) and returned else returned
    return float(first) if isinstance(first, Tensor) and first.numel() == 1 else None


def _quantile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[round(part * (len(ordered) - 1))]


def one_line(error: Exception) -> str:
    """An error in one line, for a table."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return "out of memory"
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
