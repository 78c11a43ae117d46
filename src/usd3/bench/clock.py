"""Time and peak memory of the steps of a loop, on a device that runs behind its host."""

import time
from itertools import pairwise
from typing import Any

import lightning.pytorch as pl
import torch

__all__ = ["BlockClock", "LoopClock", "settled_now"]


def settled_now(device: torch.device | str) -> float:
    """The time in seconds, after the device has finished all its work."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


class BlockClock:
    """Measures blocks of steps after a warm-up.

    Call it after every step with the number of steps so far. It waits for the device only at the end of a block: within
    a block, host and device run as they do without a clock.

    Args:
        device: where the steps run.
        warm_up: steps before the first block.
        steps: steps of all blocks together.
        blocks: how many blocks; at most one for each step.
    """

    def __init__(self, device: torch.device | str, warm_up: int, steps: int, blocks: int = 1):
        self.device, blocks = torch.device(device), max(1, min(blocks, steps))
        self.ends = [warm_up + steps * i // blocks for i in range(blocks + 1)]
        self.times: list[float] = []
        self.peaks: list[float] = []  # peak MiB of the warm-up and of each block; nan without a GPU
        self._reset_peak()

    def __call__(self, done: int) -> None:
        """`done` steps are done; a repeated call with the same number counts once."""
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
        """Milliseconds per step of each block."""
        spans = zip(pairwise(self.times), pairwise(self.ends))
        return [(end - begin) * 1e3 / (last - first) for (begin, end), (first, last) in spans]

    def _reset_peak(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.init()  # the statistics do not exist before
            torch.cuda.reset_peak_memory_stats(self.device)


class LoopClock(pl.Callback):
    """Calls a clock in a run of Lightning."""

    def __init__(self, clock: BlockClock):
        self.clock = clock

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        """Call the clock with the number of optimiser steps so far."""
        self.clock(trainer.global_step)
