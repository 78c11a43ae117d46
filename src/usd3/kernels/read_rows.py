"""Which rows of a problem have a loss, and how many of them there are.

An element that is not free has no loss, and with absorbing noise neither has one that is not masked: on average half of
them all. A `Projection` forms no logits of such rows. For that the host has to know how many rows there are, which the
device draws. To ask the device for the number when it is needed would mean to wait for the whole network. So
`RowsRead` asks before the network is called, and reads the answer afterwards: the device has long gone past it.
"""

import torch
from torch import Tensor

from usd3.kernels.loss import NoiseTables, flattened

__all__ = ["RowsRead", "rows_read"]


class RowsRead:
    """The rows that have a loss, counted since this object was made.

    Args:
        is_read: which rows have a loss, (R,) bool.
    """

    def __init__(self, is_read: Tensor):
        self._is_read = is_read
        if is_read.device.type == "cuda":
            self._count = torch.empty((), dtype=torch.int64, device="cpu", pin_memory=True)
            self._count.copy_(is_read.sum(), non_blocking=True)
            self._arrived = torch.cuda.Event()
            self._arrived.record(torch.cuda.current_stream(is_read.device))

    def index(self) -> Tensor:
        """Numbers of these rows, (n,) int64, in order. Waits for what the device had to do when they were counted."""
        if self._is_read.device.type != "cuda":
            return self._is_read.nonzero().squeeze(1)
        self._arrived.synchronize()
        return torch.nonzero_static(self._is_read, size=int(self._count)).squeeze(1)


@torch.compiler.disable  # type: ignore[untyped-decorator]  # it waits for an event, and its size is drawn
def rows_read(x: Tensor, noise: NoiseTables, free: Tensor | None) -> RowsRead | None:
    """The rows of elements x that have a loss, as far as x and the mask `free` say; None: all, or not to be known.

    A CUDA graph has the same rows in every replay, so while one is captured all rows count. So they do where every
    element has noise of its own, as each row would bring a copy of its m.
    """
    if x.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        return None
    if noise.m is not None and len(noise.m) > 1:
        return None
    if noise.absorbing:
        is_read = x == noise.mask
        return RowsRead(flattened(is_read if free is None else is_read & free))
    return None if free is None else RowsRead(flattened(free))
