"""The queue of draws: one thread draws, the others wait in the order in which they came.

A draw ends early where its page is closed, where the same page asks for another one, and where it takes too long: it
asks `Job.check` at each step.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from usd3.studio.guard import Refused

__all__ = ["Cancelled", "Event", "Job", "Line"]

MOST_WAITING = 32
_MOST_EVENTS = 400  # that a slow reader has not taken; more frames and progress of its draw are left out


class Cancelled(Exception):
    """The draw is not wanted any more."""


class Event(NamedTuple):
    """Something that a page is told about its draw: the name of the event, and plain JSON."""

    name: str
    data: dict[str, Any]


class Job:
    """A draw, and the events that its page has not read yet. It is made in the event loop.

    Args:
        work: does the draw, in the thread that draws; it returns the data of the event `done`.
        explain: the one line about an error in `work`.
        page: the page that asked; None: unknown.
        seconds: how long it may take.
    """

    def __init__(
        self,
        work: Callable[["Job"], dict[str, Any]],
        explain: Callable[[Exception], str],
        page: str | None,
        seconds: float,
    ):
        self.page, self.events = page, asyncio.Queue[Event]()
        self._work, self._explain, self._seconds = work, explain, seconds
        self._loop, self._cancelled, self._deadline = asyncio.get_running_loop(), threading.Event(), 0.0

    def cancel(self) -> None:
        """Have it end at its next step."""
        self._cancelled.set()

    def check(self) -> None:
        """Raise an error where the draw should end."""
        if self._cancelled.is_set():
            raise Cancelled
        if time.monotonic() > self._deadline:
            minutes = self._seconds / 60
            raise TimeoutError(f"this took more than {minutes:g} minutes: take fewer steps, or usd3 studio --minutes N")

    def tell(self, name: str, data: dict[str, Any]) -> None:
        """Tell the page; from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._put, Event(name, data))
        except RuntimeError:  # the loop has ended, and with it the page
            self.cancel()

    def _put(self, event: Event) -> None:
        if event.name in ("done", "error", "queued") or self.events.qsize() < _MOST_EVENTS:
            self.events.put_nowait(event)

    def run(self) -> None:
        """Draw, and tell the page how it ended."""
        self._deadline = time.monotonic() + self._seconds
        try:
            self.check()
            self.tell("done", self._work(self))
        except Cancelled:
            self.tell("error", {"error": "stopped"})
        except Exception as error:
            self.tell("error", {"error": self._explain(error)})


class Line:
    """The draws that wait, and the one that is being done.

    Args:
        most: how many may wait.
    """

    def __init__(self, most: int = MOST_WAITING):
        self.most = most
        self._waiting: deque[Job] = deque()
        self._now: Job | None = None
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def __len__(self) -> int:
        """Draws that wait or are being done."""
        with self._changed:
            return len(self._waiting) + (self._now is not None)

    def require_room(self, page: str | None) -> None:
        """Refuse a draw for which there is no place; one that replaces another of its page has its place."""
        with self._changed:
            others = sum(job.page != page or page is None for job in self._waiting)
        if others >= self.most:
            raise Refused(503, f"{self.most} draws are waiting already: try again in a moment", retry_after=5)

    def add(self, job: Job) -> int:
        """Put a draw at the end, and end all others of its page; returns how many come before it."""
        self.require_room(job.page)
        with self._changed:
            for other in [*self._waiting, self._now]:
                if other is not None and job.page is not None and other.page == job.page:
                    self._end(other)
            self._waiting.append(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._draw, name="usd3 studio draws", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            return self._place(job)

    def place(self, job: Job) -> int | None:
        """How many draws come before this one; None: it is not waiting any more."""
        with self._changed:
            return self._place(job) if job in self._waiting else None

    def end(self, job: Job) -> None:
        """End a draw, whether it waits or is being done."""
        with self._changed:
            self._end(job)

    def stop(self) -> None:
        """End all draws, and the thread."""
        with self._changed:
            self._stopped = True
            for job in [*self._waiting, *filter(None, [self._now])]:
                self._end(job)
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(timeout=5.0)

    def _place(self, job: Job) -> int:
        return self._waiting.index(job) + (self._now is not None)

    def _end(self, job: Job) -> None:
        job.cancel()
        if job in self._waiting:
            self._waiting.remove(job)
            job.tell("error", {"error": "stopped"})

    def _draw(self) -> None:
        while True:
            with self._changed:
                self._now = None
                while not self._waiting and not self._stopped:
                    self._changed.wait()
                if self._stopped:
                    return
                self._now = self._waiting.popleft()
                job = self._now
            job.run()
            del job  # with what it drew
