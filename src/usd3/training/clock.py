"""How long a run has trained."""

import time

from usd3._internal.graphs import SETTLED

__all__ = ["Clock"]


class Clock:
    """Counts the minutes of a run, over all its parts, and says when its budget of `limit` minutes is spent.

    A process starts to count at the end of its step number `SETTLED`: until then it compiles, chooses kernels and
    captures its CUDA graph. From then on everything counts, also validation and checkpoints, until the budget is spent.
    What comes after the last step does not count.
    """

    def __init__(self, limit: float | None = None):
        self.limit, self.over = limit, False
        self._before, self._began, self._steps = 0.0, float("nan"), 0
        self._ended: float | None = None

    @staticmethod
    def now() -> float:
        """Seconds since an arbitrary moment."""
        return time.monotonic()

    @property
    def minutes(self) -> float:
        """Minutes of training so far."""
        until = self.now() if self._ended is None else self._ended
        return self._before + ((until - self._began) / 60 if self._steps >= SETTLED else 0.0)

    @property
    def spent(self) -> float:
        """The part of the budget that is spent; 0 without a budget."""
        return 0.0 if self.limit is None else self.minutes / self.limit

    def start(self, minutes: float) -> None:
        """Begin a part of a run, after `minutes` in earlier parts."""
        self._before, self._steps, self._ended = minutes, 0, None
        self.over = self.spent >= 1

    def tick(self) -> None:
        """Count one step."""
        self._steps += 1
        if self._steps == SETTLED:
            self._began = self.now()
        self.over = self.spent >= 1
        if self.over and self._ended is None:
            self._ended = self.now()
