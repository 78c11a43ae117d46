"""How long the steps of a loop take, on a device that is behind its host, and the memory they need."""

import time
from itertools import pairwise
from typing import Any

import lightning.pytorch as pl
import torch

__all__ = ["BlockClock", "LoopClock", "settled_now"]


def settled_now(device: torch.device | str) -> float:
    """The time in seconds, once the device has nothing left to do."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


class BlockClock:
    """Milliseconds of a step in each of some blocks of steps, after a warm-up.

    It is called after every step with their number so far. It waits for the device at the ends of the blocks alone:
    within one, host and device run as they always do.
    """

    def __init__(self, device: torch.device | str, warm_up: int, steps: int, blocks: int = 1):
        self.device, blocks = torch.device(device), max(1, min(blocks, steps))
        self.ends = [warm_up + steps * i // blocks for i in range(blocks + 1)]
        self.times: list[float] = []
        self.peaks: list[float] = []  # MiB of the warm-up and of each block; nan where there is no GPU
        self._reset_peak()

    def __call__(self, done: int) -> None:
        """After so many steps; more than one call with the same number counts once."""
        if not self.over and done == self.ends[len(self.times)]:
            self.times.append(settled_now(self.device))
            on_gpu = self.device.type == "cuda"
            self.peaks.append(torch.cuda.max_memory_allocated(self.device) / 2**20 if on_gpu else float("nan"))
            self._reset_peak()

    @property
    def over(self) -> bool:
        """Whether all blocks are done."""
        return len(self.times) == len(self.ends)

    @property
    def ms(self) -> list[float]:
        """Milliseconds of a step, for each block."""
        spans = zip(pairwise(self.times), pairwise(self.ends))
        return [(end - begin) * 1e3 / (last - first) for (begin, end), (first, last) in spans]

    def _reset_peak(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.init()  # without which there is nothing to reset
            torch.cuda.reset_peak_memory_stats(self.device)


class LoopClock(pl.Callback):
    """The clock in a run of Lightning."""

    def __init__(self, clock: BlockClock):
        self.clock = clock

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        """Tell the clock how many optimiser steps are done."""
        self.clock(trainer.global_step)
