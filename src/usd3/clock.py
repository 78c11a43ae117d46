"""How long a run has trained."""

import time

from usd3.step import SETTLED

__all__ = ["Clock"]


class Clock:
    """The minutes of a run, over all its parts, and whether its budget of `limit` minutes is spent.

    A process starts to count at the end of its step number `SETTLED`: until then it compiles, chooses kernels and
    captures its CUDA graph. From then on everything counts, validation and checkpoints too.
    """

    def __init__(self, limit: float | None = None):
        self.limit, self.over = limit, False
        self._before, self._began, self._steps = 0.0, float("nan"), 0

    @staticmethod
    def now() -> float:
        """Seconds since some moment."""
        return time.monotonic()

    @property
    def minutes(self) -> float:
        """Minutes of training so far."""
        return self._before + ((self.now() - self._began) / 60 if self._steps >= SETTLED else 0.0)

    @property
    def spent(self) -> float:
        """The part of the budget that is spent; 0 without a budget."""
        return 0.0 if self.limit is None else self.minutes / self.limit

    def start(self, minutes: float) -> None:
        """Begin a part of a run after so many minutes in earlier parts."""
        self._before, self._steps = minutes, 0
        self.over = self.spent >= 1

    def tick(self) -> None:
        """A step is done."""
        self._steps += 1
        if self._steps == SETTLED:
            self._began = self.now()
        self.over = self.spent >= 1
