"""Work on many objects in batches, divided among the processes of a launcher."""

from collections.abc import Callable

import torch
from torch import Tensor

from usd3._internal.checks import as_count
from usd3._internal.processes import gathered, rank_and_world

__all__ = ["in_batches"]


def in_batches(work: Callable[[slice], Tensor], num: int, batch_size: int) -> Tensor:
    """Results of `work` for the rows 0..num-1, concatenated: (num, ...), the same in every process.

    If a process runs out of memory, all of them start again with batches of half the size.

    Args:
        work: `work(rows)` returns the results for a slice of the rows.
        num: number of rows.
        batch_size: number of rows in a batch.
    """
    batch_size = as_count(batch_size, "batch_size", 1)
    while True:
        batches = [slice(i, min(i + batch_size, num)) for i in range(0, num, batch_size)]
        rank, world = rank_and_world()
        try:
            results = [work(rows) for rows in batches[rank::world]]
            had_memory = True
        except torch.OutOfMemoryError:
            results, had_memory = [], False
        processes = gathered((had_memory, results))
        if all(had_memory for had_memory, _ in processes):
            break
        if batch_size == 1:
            raise MemoryError("one object alone does not fit into the memory of the device")
        torch.cuda.empty_cache()
        batch_size //= 2
    return torch.cat([processes[i % world][1][i // world] for i in range(len(batches))])
