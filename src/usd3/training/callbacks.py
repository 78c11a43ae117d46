"""What accompanies a training: the end after its minutes or after a signal, and the progress bar."""

import signal
import sys
import threading
from typing import Any

import lightning.pytorch as pl

from usd3._internal.interrupts import raise_deferred_interrupt, stop_deferring_interrupts
from usd3._internal.progress import Advance, progress

__all__ = ["StopOnSignal", "StopOnTime", "TrainingProgress"]


class StopOnTime(pl.Callback):
    """Keeps the clock of a training, and ends the training after the first step at which its minutes are over.

    It stands before the checkpoints, so that the last checkpoint knows that the time is over.
    """

    def __init__(self) -> None:
        self._step = 0

    def on_train_start(self, trainer: pl.Trainer, module: Any) -> None:
        """Stop at once where a resumed run has no time left."""
        self._step = trainer.global_step
        trainer.should_stop = trainer.should_stop or module.clock.over

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Count the optimiser steps."""
        if trainer.global_step > self._step:
            self._step = trainer.global_step
            module.clock.tick()
            trainer.should_stop = trainer.should_stop or module.clock.over


class StopOnSignal(pl.Callback):
    """Ctrl-C and SIGTERM end a run of one process after the current step, so that its checkpoint is whole.

    A second signal does what it does without us. Several processes would not agree on the step, so there Lightning
    handles signals.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Handle the signals."""

        def stop(number: int, frame: Any) -> None:
            print("stopping after this step; a second time stops at once", file=sys.stderr, flush=True)
            trainer.should_stop = True
            trainer.limit_val_batches = 0  # Lightning would validate first, and the minutes of the run would go on
            self._restore()
            stop_deferring_interrupts()

        raise_deferred_interrupt()
        if trainer.world_size == 1 and threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}

    def on_train_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Restore the handlers of before."""
        self._restore()

    def on_exception(self, trainer: pl.Trainer, module: pl.LightningModule, exception: BaseException) -> None:
        """Restore the handlers of before."""
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}


class TrainingProgress(pl.Callback):
    """A progress bar: steps done, loss and other numbers, time left."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._advance: Advance | None = None

    def on_train_start(self, trainer: pl.Trainer, module: Any) -> None:
        """Open the bar at the step the run starts from."""
        if trainer.is_global_zero:
            title, total, start = "training", trainer.max_steps, trainer.global_step
            if module.config.minutes is not None:
                total, start = (round(60 * minutes) for minutes in (module.config.minutes, module.clock.minutes))
                title = "training (s)"
            self._bar = progress(title, total, start=start)
            self._advance = self._bar.__enter__()

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Move the bar."""
        if self._advance is not None:
            if trainer.global_step >= trainer.max_steps:
                module.log_recent()  # so that the last line shows the end
            notes = [f"{k} {v:.3f}" for k, v in _as_labels(module.latest).items()]
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
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
            self._bar = self._advance = None


def _as_labels(latest: dict[str, float]) -> dict[str, float]:
    names = {"loss": "loss", "bits_per_element": "bits/element", "val_bits_per_element": "held-out"}
    return {names.get(key, key): value for key, value in latest.items()}
