"""What the chunked losses and draws share: the size of a chunk, its buffers, and the softmax in them.

A cell is one number per row and category.
"""

import threading

import torch
from torch import Tensor

from usd3.kernels.loss import NoiseTables

__all__ = ["CELLS", "SCRATCH", "data_logits", "fill_softmax", "numbers_of_rows", "places", "rows_at_once"]

CELLS = 1 << 20
"""Logits in a chunk. Larger chunks are faster, as each operation on vectors (n,) has a fixed cost."""

_LOG2_E = 1.4426950408889634
_KEPT = (1 << 18, 16 * CELLS)  # bytes: smaller buffers are cheap to allocate, larger ones are not kept


def rows_at_once(K: int) -> int:
    """Number of rows in a chunk."""
    return max(1, CELLS // K)


class _Scratch(threading.local):
    """CPU memory that is reused: fresh pages cost more than the arithmetic on them. Each thread has its own."""

    kept: Tensor | None = None

    def empty(self, count: int, rows: int, K: int, logits: Tensor) -> Tensor:
        """Uninitialised (count, rows, K) on the device of the logits, in float32 or better."""
        dtype = torch.promote_types(logits.dtype, torch.float32)
        size = count * rows * K * dtype.itemsize
        if not self.keeps(size, logits):
            return torch.empty(count, rows, K, dtype=dtype, device=logits.device)
        if self.kept is None or self.kept.numel() < size:
            with torch.inference_mode(False):
                self.kept = torch.empty(size, dtype=torch.uint8, device="cpu")
        return self.kept[:size].view(dtype).view(count, rows, K)

    def buffers(self, count: int, rows: int, K: int, logits: Tensor) -> list[Tensor]:
        """`count` buffers (rows, K); each is an allocation of its own where memory is not reused."""
        dtype = torch.promote_types(logits.dtype, torch.float32)
        if self.keeps(count * rows * K * dtype.itemsize, logits):
            return list(self.empty(count, rows, K, logits).unbind())
        return [torch.empty(rows, K, dtype=dtype, device=logits.device) for _ in range(count)]

    @staticmethod
    def keeps(size: int, logits: Tensor) -> bool:
        """Whether a buffer of `size` bytes for these logits is reused."""
        return logits.device.type == "cpu" and _KEPT[0] <= size <= _KEPT[1]


SCRATCH = _Scratch()


def numbers_of_rows(numbers: Tensor, elements: int, rows: slice | Tensor, first: int = 0) -> Tensor:
    """Numbers of objects (j, B), with `elements` rows each, as numbers of these rows (j, n).

    `rows` is a slice or an index (n,); `first` is added to it.
    """
    if not isinstance(rows, slice):
        return numbers.index_select(1, (rows + first) // elements)
    start, stop = rows.start + first, rows.stop + first
    skipped = start // elements
    repeated = numbers[:, skipped : (stop - 1) // elements + 1].repeat_interleave(elements, 1)
    return repeated[:, start - skipped * elements : stop - skipped * elements]


def places(rows: slice | Tensor, count: int, device: torch.device, first: int = 0) -> Tensor:
    """The rows of a table of `count` rows that belong to these rows of a problem, (n,): (rows + first) % count."""
    index = torch.arange(rows.start, rows.stop, device=device) if isinstance(rows, slice) else rows
    return (index + first) % count


def data_logits(logits: Tensor, e: Tensor, noise: NoiseTables, rows: slice | Tensor, first: int = 0) -> Tensor:
    """The logits (n, K) of these rows, -inf at categories that data cannot have; copied into e where there are such."""
    if noise.support is None and noise.mask < 0:
        return logits
    logits = e.copy_(logits)
    if noise.support is None:
        logits[:, noise.mask] = -torch.inf
        return logits
    support = noise.support
    if len(support) > 1:
        support = support[places(rows, len(support), support.device, first)]
    return logits.masked_fill_(~support, -torch.inf)


def fill_softmax(logits: Tensor, e: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """Write exp(logits - top) into e (n, K), 0 at the categories `at` (n, j); top is a row's maximum.

    Returns:
        The sum of e, (n,), and logits - top at the categories `at`, (n, j); both float64.
    """
    top = logits.amax(1, keepdim=True).to(e.dtype)
    below_top = logits.gather(1, at).double().sub_(top)
    torch.sub(logits, top, out=e).mul_(_LOG2_E).exp2_()
    return e.scatter_(1, at, torch.zeros_like(at, dtype=e.dtype)).sum(1).double(), below_top
