"""Measures losses and sampling steps: one row for each contestant."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from usd3.bench.floor import copy_bandwidth, floor_ms
from usd3.bench.losses import CROSS_ENTROPY, loss_calls, projection_calls
from usd3.bench.machine import machine
from usd3.bench.other import Other
from usd3.bench.problem import Problem
from usd3.bench.steps import step_calls
from usd3.bench.timing import Budget, Call, Measured, measure_all

__all__ = ["Bench", "Row"]

Tick = Callable[[str], None]


@dataclass(frozen=True)
class Row:
    """What was measured of one contestant: a line of a CSV file.

    Times are in milliseconds. `peak_bytes` and `peak_logits` are the peak memory beyond the inputs, in bytes and in
    multiples of the logits. None: not measured.
    """

    kind: str
    noise: str
    time: str
    objective: str
    dtype: str
    B: int
    D: int
    K: int
    H: int | None
    contestant: str
    ms: float | None
    ms_low: float | None
    ms_high: float | None
    graph_ms: float | None
    floor_ms: float | None
    times_floor: float | None
    times_cross_entropy: float | None
    peak_bytes: int | None
    peak_logits: float | None
    value: float | None
    note: str

    @property
    def diffusion(self) -> str:
        """Noise, time, objective and precision, in words."""
        objective = "" if self.kind == "step" else f" {self.objective}"
        hidden = "" if self.H is None else f", from {self.H} hidden"
        return f"{self.noise} {self.time}{objective} {self.dtype}{hidden}"

    @property
    def problem(self) -> tuple[str, str, int, int, int]:
        """What the rows of all contestants share."""
        return self.kind, self.diffusion, self.B, self.D, self.K


class Bench:
    """Measures problems on one device, whose bandwidth is measured first.

    Args:
        device: where everything runs.
        budget: how often each call is measured.
        compile_eager: also measure the eager code under `torch.compile`.
        other: another implementation to measure beside ours.
        hidden: the width of the hidden states of a "projection".
    """

    def __init__(
        self,
        device: torch.device | str,
        budget: Budget | None = None,
        compile_eager: bool = False,
        other: Other | None = None,
        hidden: int = 768,
    ):
        self.device, self.budget, self.hidden = torch.device(device), budget or Budget(), hidden
        self.compile_eager, self.other = compile_eager, other
        self.bandwidth = copy_bandwidth(self.device, self.budget)
        self.about = {**machine(self.device), "bandwidth_gb_s": f"{self.bandwidth / 1e9:.1f}"}

    def rows(self, kind: str, problem: Problem, brief: bool = False, tick: Tick = lambda name: None) -> list[Row]:
        """One row for each contestant.

        Args:
            kind: "loss" is the loss from logits and "projection" the loss from hidden states and the output
                projection, both with the gradient; "step" is one sampling step from logits.
            problem: the size and the diffusion.
            brief: measure the main contestants alone.
            tick: is called with the name of a contestant, twice for each.
        """
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        if kind == "projection":
            calls = projection_calls(problem, self.hidden)
        else:
            make = loss_calls if kind == "loss" else step_calls
            calls = make(problem, problem.sets(), self.compile_eager, self.other, brief)
        return self._rows(kind, problem, calls, tick)

    def count(self, kind: str, brief: bool = False) -> int:
        """How often `rows` calls `tick` for one problem: twice for each contestant."""
        if kind == "projection":
            return 8
        fixed = {"loss": (5, 3), "step": (3, 2)}[kind][brief]
        return 2 * (fixed + self.compile_eager + (getattr(self.other, kind, None) is not None))

    def _rows(self, kind: str, problem: Problem, calls: Sequence[Call], tick: Tick) -> list[Row]:
        results = measure_all(calls, self.device, self.budget, tick)
        unit = next((r.ms_median for call, r in zip(calls, results) if call.name.endswith(CROSS_ENTROPY)), None)
        return [self._row(kind, problem, call.name, result, unit) for call, result in zip(calls, results)]

    def _row(self, kind: str, problem: Problem, name: str, result: Measured, cross_entropy_ms: float | None) -> Row:
        has_floor = kind == "loss" or (kind == "step" and name != CROSS_ENTROPY)
        least = floor_ms(problem, kind, self.bandwidth) if has_floor else None
        ms, peak = result.ms_median, result.peak_bytes_beyond_inputs
        hidden = self.hidden if kind == "projection" else None
        shared = (kind, problem.noise, problem.time, problem.objective, problem.dtype, *problem.size, hidden)
        return Row(
            *shared,
            contestant=name,
            ms=_rounded(ms),
            ms_low=_rounded(result.ms_low),
            ms_high=_rounded(result.ms_high),
            graph_ms=_rounded(result.graph_ms),
            floor_ms=_rounded(least),
            times_floor=_rounded(_ratio(ms, least)),
            times_cross_entropy=_rounded(_ratio(ms, cross_entropy_ms)),
            peak_bytes=peak,
            peak_logits=_rounded(_ratio(peak, problem.logits_bytes)),
            value=result.value if kind != "step" else None,
            note=result.note,
        )


def _ratio(value: float | None, unit: float | None) -> float | None:
    return None if value is None or not unit else value / unit


def _rounded(value: float | None) -> float | None:
    """With five digits: a clock is not more precise."""
    return None if value is None else float(f"{value:.5g}")
