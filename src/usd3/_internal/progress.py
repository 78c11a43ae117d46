"""Progress for long work: a bar on a terminal, a line now and then elsewhere."""

import itertools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from usd3._internal.processes import is_main

__all__ = ["Advance", "counted", "progress", "say"]

_SECONDS_BETWEEN_LINES = 10.0
_WIDE = 100  # columns of a terminal; in one with fewer there is no room for the bar


class Advance(Protocol):
    """Tell how far the work is, and what to show beside it."""

    def __call__(self, done: int, note: str = "") -> None:
        """`done` of the total are done."""


@contextmanager
def progress(title: str, total: int, start: int = 0) -> Iterator[Advance]:
    """Show `title` and how much of `total` is done, with the time left. On stderr."""
    console = Console(stderr=True)
    if console.is_terminal:
        done: list[ProgressColumn] = [MofNCompleteColumn(), TextColumn("{task.fields[note]}")]
        left: list[ProgressColumn] = [TimeRemainingColumn(), TextColumn("left")]
        if console.width >= _WIDE:
            done, left = [BarColumn(), *done], [TimeElapsedColumn(), TextColumn("elapsed,"), *left]
        with Progress(TextColumn("{task.description}"), *done, *left, console=console) as bar:
            task = bar.add_task(title, total=total, completed=start, note="")
            yield lambda done, note="": bar.update(task, completed=done, note=note)
    else:
        yield _Lines(title, total, start)


class _Lines:
    """Progress as plain lines, the first and the last step included."""

    def __init__(self, title: str, total: int, start: int):
        self.title, self.total, self.start = title, total, start
        self.began = time.monotonic()
        self.last = -_SECONDS_BETWEEN_LINES
        self.done = start

    def __call__(self, done: int, note: str = "") -> None:
        if done <= self.done:
            return
        self.done, now = done, time.monotonic() - self.began
        if now - self.last < _SECONDS_BETWEEN_LINES and done < self.total:
            return
        self.last = now
        left = max(0.0, now / (done - self.start) * (self.total - done))  # the last step may end after its minutes
        clock = f"{int(now) // 60}:{int(now) % 60:02d} elapsed, {int(left) // 60}:{int(left) % 60:02d} left"
        line = "  ".join(filter(None, [f"{self.title} {done}/{self.total}", note, clock]))
        Console(stderr=True).print(line, highlight=False, soft_wrap=True)


@contextmanager
def counted(title: str, total: int) -> Iterator[Callable[[Any], None]]:
    """A callback that shows how often it was called, of `total` times."""
    with progress(title, total) as advance:
        calls = itertools.count(1)
        yield lambda _: advance(next(calls))


def say(line: str) -> None:
    """Tell, on stderr and in the first process alone, which part of the work begins, where it may take minutes."""
    if is_main():
        print(line, file=sys.stderr, flush=True)
