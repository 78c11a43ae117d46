"""Progress of long work on stderr: a bar on a terminal, elsewhere a line every ten seconds."""

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
_WIDE = 100  # columns; a narrower terminal has no room for the bar


class Advance(Protocol):
    """A function that reports how much of the work is done, with a note to show beside it."""

    def __call__(self, done: int, note: str = "") -> None:
        """Report that `done` of the total are done."""


@contextmanager
def progress(title: str, total: int, start: int = 0) -> Iterator[Advance]:
    """Show `title`, how much of `total` is done, and the time left.

    Args:
        title: What is being done.
        total: The amount of work.
        start: How much of it was done before.

    Yields:
        A function that the caller calls with the amount done so far.
    """
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
    """Progress as plain lines: the first step, the last, and at most one every ten seconds between."""

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
        left = max(0.0, now / (done - self.start) * (self.total - done))  # `done` can exceed the total
        clock = f"{int(now) // 60}:{int(now) % 60:02d} elapsed, {int(left) // 60}:{int(left) % 60:02d} left"
        line = "  ".join(filter(None, [f"{self.title} {done}/{self.total}", note, clock]))
        Console(stderr=True).print(line, highlight=False, soft_wrap=True)


@contextmanager
def counted(title: str, total: int) -> Iterator[Callable[[Any], None]]:
    """A callback that shows how many of `total` times it was called. It ignores its argument."""
    with progress(title, total) as advance:
        calls = itertools.count(1)
        yield lambda _: advance(next(calls))


def say(line: str) -> None:
    """Print a line on stderr, in the first process only: which part of a long job begins."""
    if is_main():
        print(line, file=sys.stderr, flush=True)
