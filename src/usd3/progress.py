"""Progress for long work: a bar on a terminal, a line now and then elsewhere."""

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import lightning.pytorch as pl
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

__all__ = ["Advance", "TrainingProgress", "counted", "progress"]

_SECONDS_BETWEEN_LINES = 10.0


class Advance(Protocol):
    """Tell how far the work is, and what to show beside it."""

    def __call__(self, done: int, note: str = "") -> None:
        """`done` of the total are done."""


@contextmanager
def progress(title: str, total: int, start: int = 0) -> Iterator[Advance]:
    """Show `title` and how much of `total` is done, with the time left. On stderr."""
    console = Console(stderr=True)
    if console.is_terminal:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
        )
        times = (TimeElapsedColumn(), TextColumn("elapsed,"), TimeRemainingColumn(), TextColumn("left"))
        with Progress(*columns, *times, console=console) as bar:
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
        left = now / (done - self.start) * (self.total - done)
        clock = f"{int(now) // 60}:{int(now) % 60:02d} elapsed, {int(left) // 60}:{int(left) % 60:02d} left"
        line = "  ".join(filter(None, [f"{self.title} {done}/{self.total}", note, clock]))
        Console(stderr=True).print(line, highlight=False, soft_wrap=True)


@contextmanager
def counted(title: str, total: int) -> Iterator[Callable[[Any], None]]:
    """A callback that shows how often it was called, of `total` times."""
    with progress(title, total) as advance:
        calls = itertools.count(1)
        yield lambda _: advance(next(calls))


class TrainingProgress(pl.Callback):
    """Steps done, loss and bits per element, time left."""

    def __init__(self) -> None:
        self._shown: Any = None
        self._advance: Advance | None = None

    def on_train_start(self, trainer: pl.Trainer, module: Any) -> None:
        """Open the bar at the step the run starts from."""
        if trainer.is_global_zero:
            title, total, start = "training", trainer.max_steps, trainer.global_step
            if module.config.minutes is not None:
                total, start = (round(60 * minutes) for minutes in (module.config.minutes, module.clock.minutes))
                title = "training, seconds"
            self._shown = progress(title, total, start=start)
            self._advance = self._shown.__enter__()

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Move the bar."""
        if self._advance is not None:
            if trainer.global_step >= trainer.max_steps:
                module.log_recent()  # the last line shows the end
            notes = [f"{k} {v:.3f}" for k, v in _shown(module.latest).items()]
            if module.config.minutes is None:
                self._advance(trainer.global_step, "  ".join(notes))
            else:
                self._advance(round(60 * module.clock.minutes), "  ".join([f"step {trainer.global_step}", *notes]))

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Close the bar."""
        self._close()

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        """Close the bar."""
        self._close()

    def _close(self) -> None:
        if self._shown is not None:
            self._shown.__exit__(None, None, None)
            self._shown = self._advance = None


def _shown(latest: dict[str, float]) -> dict[str, float]:
    names = {"loss": "loss", "bits_per_element": "bits/element", "val_bits_per_element": "held-out"}
    return {names.get(key, key): value for key, value in latest.items()}
