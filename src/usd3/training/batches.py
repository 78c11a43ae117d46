"""The batches of a run, taken on the device if the objects fit there, otherwise from memory or from their file.

The choice of the objects and their augmentation are drawn on the CPU, so that they are the same on every device.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from usd3._internal.checks import require
from usd3._internal.device import moved_to
from usd3._internal.permutation import Permutation
from usd3._internal.random import seed_of
from usd3.kinds.base import Augment
from usd3.kinds.dataset import Rows

__all__ = ["Batches", "storage_device"]

_MOST_IN_A_TABLE = 2**24  # objects; the order of more is computed, not stored


class Batches:
    """Endless batches of a run from its first step on: dicts with tokens, pad, label, given, step and part.

    Each pass over the objects takes them in a new random order.

    Args:
        rows: the objects.
        batch_size: objects of one step.
        seed: seed of the orders and of the augmentation.
        first_step: returns the step to begin with; called when an iteration begins.
        parts: into how many equal parts a batch is divided.
        rank: this process takes the parts rank, rank + world, ...
        world: number of processes.
        augment: changes the tokens of a batch at random.
        device: where the objects are kept and the batches come from.
    """

    def __init__(
        self,
        rows: Rows,
        batch_size: int,
        seed: int,
        first_step: Callable[[], int],
        parts: int,
        rank: int,
        world: int,
        augment: Augment | None = None,
        device: torch.device | str = "cpu",
    ):
        require(batch_size % parts == 0, "training.batch_size", batch_size, f"a multiple of {parts}, its parts")
        self.batch_size, self.seed, self.first_step = batch_size, seed, first_step
        self.parts, self.rank, self.world, self.augment = parts, rank, world, augment
        self.device = torch.device(device)
        self.rows = rows.to(self.device)
        self._orders: dict[int, Tensor | Permutation] = {}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        step = self.first_step()
        while True:
            for part in range(self.rank, self.parts, self.world):
                yield self.batch(step, part)
            step += 1

    def batch(self, step: int, part: int) -> dict[str, Any]:
        """One part of the batch of a step."""
        size = self.batch_size // self.parts
        first = step * self.batch_size + part * size
        chosen = self._rows(first, first + size)
        tokens, pad = self.rows.take(chosen)
        if self.augment is not None:
            tokens = self.augment(tokens, pad, torch.Generator().manual_seed(seed_of(self.seed, step, part, 1)))
        batch = {"tokens": tokens, "step": step, "part": part}
        if self.rows.labels is not None:
            batch["label"] = self.rows.labels[chosen].long()
        if self.rows.given is not None:
            batch["given"] = self.rows.given[chosen]
        return batch if pad is None else batch | {"pad": pad}

    def _rows(self, first: int, last: int) -> Tensor:
        """Rows first..last-1 of the endless sequence of passes, each pass in an order of its own."""
        size = len(self.rows)
        passes = range(first // size, (last - 1) // size + 1)
        self._orders = {n: self._orders[n] if n in self._orders else self._order(n) for n in passes}
        pieces = [self._part(self._orders[n], max(first - n * size, 0), min(last - n * size, size)) for n in passes]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def _order(self, number: int) -> Tensor | Permutation:
        """The order of a pass, as a tensor or, of very many objects, as a function of the place."""
        size, seed = len(self.rows), seed_of(self.seed, number)
        if size > _MOST_IN_A_TABLE:
            return Permutation(size, seed)
        return moved_to(torch.randperm(size, generator=torch.Generator().manual_seed(seed)), self.device)

    def _part(self, order: Tensor | Permutation, first: int, last: int) -> Tensor:
        """Places first..last-1 of an order."""
        if isinstance(order, Tensor):
            return order[first:last]
        return moved_to(order(torch.arange(first, last)), self.device)


def storage_device(rows: Rows, device: torch.device) -> torch.device:
    """Where to keep the objects: on a GPU if they take at most an eighth of its free memory, else on the CPU."""
    if device.type != "cuda":
        return torch.device("cpu")
    return device if rows.nbytes <= torch.cuda.mem_get_info(device)[0] // 8 else torch.device("cpu")
