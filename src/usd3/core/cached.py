"""Numbers of a batch that need not be computed again in every call.

A batch has a few coefficients for each object. Their arithmetic is nothing, but each tiny operation costs the host as
much as a large one: on a GPU they, not the logits, decide how long a call takes.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from usd3._internal.graphs import GraphCache
from usd3.core.schedules import Schedule

__all__ = ["CachedNumbers"]

_MOST = 4096  # numbers that are kept: those of every step of a few fine grids


class CachedNumbers:
    """Formulas of a schedule whose values are looked up or replayed where that is possible.

    Args:
        schedule: the schedule; its parameters may be learnt, and then nothing is kept.
        num_steps: T for discrete time, None for continuous time.
    """

    def __init__(self, schedule: Schedule, num_steps: int | None):
        self.schedule, self.num_steps = schedule, num_steps
        self._replays, self._tables, self._learning = GraphCache(), dict[Any, Tensor](), dict[Schedule, bool]()

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_replays": GraphCache(), "_tables": {}, "_learning": {}}  # caches of this process alone

    def replayed(self, name: Any, formula: Callable[..., Tensor], *times: Tensor) -> Tensor:
        """formula(*times), as one CUDA graph on a GPU, where dozens of tiny launches cost more than their arithmetic.

        `name` distinguishes formulas: two with the same name must be equal for the same schedule.
        A schedule that learns is evaluated anew, with its gradient.
        """
        if torch.compiler.is_compiling() or self.schedule_learns(times[0].device):
            return formula(*times)
        return self._replays((name, self.schedule, self.num_steps), formula, *times)

    def tabulated(self, name: Any, formula: Callable[[Tensor], Tensor], time: Tensor) -> Tensor:
        """formula(time), (n, B). Discrete time evaluates it once for t = 1..T, and then looks it up."""
        T, device = self.num_steps, time.device
        if T is None or torch.compiler.is_compiling() or self.schedule_learns(device):
            return formula(time)
        table = self.computed_once(
            (name, T), device, lambda: formula(torch.arange(1, T + 1, dtype=torch.float64, device=device) / T)
        )
        return table[:, (time * T - 0.5).long().clamp(0, T - 1)]

    def computed_once(self, name: Any, device: torch.device, make: Callable[[], Tensor]) -> Tensor:
        """make(), a tensor on this device, which is computed once. `name` distinguishes tensors of this schedule."""
        if torch.compiler.is_compiling():  # a compiled function would depend on the table, and on all of `name`
            return make()
        key = (name, device, self.schedule)
        table = self._tables.get(key)
        if table is not None:
            return table
        capturing = device.type == "cuda" and torch.cuda.is_current_stream_capturing()  # its memory is the graph's
        if capturing or len(self._tables) >= _MOST or self.schedule_learns(device):
            return make()
        with torch.inference_mode(False), torch.no_grad():
            self._tables[key] = make()
        return self._tables[key]

    def schedule_learns(self, device: torch.device) -> bool:
        """Whether alpha_bar has a gradient with respect to parameters of the schedule."""
        if self.schedule not in self._learning:
            with torch.inference_mode(False), torch.enable_grad():
                probe = torch.full((1,), 0.5, dtype=torch.float64, device=device)
                self._learning[self.schedule] = self.schedule.kept(probe).requires_grad
        return self._learning[self.schedule]
