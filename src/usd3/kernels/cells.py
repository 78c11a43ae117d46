"""What the chunked losses and draws share: chunks, buffers, and the softmax in them."""

import threading

import torch
from torch import Tensor

__all__ = ["CELLS", "SCRATCH", "column", "fill_softmax", "rows_at_once", "spread", "sum_log"]

CELLS = 1 << 20
"""Logits that are worked on at once. More are faster, as each operation on the numbers of rows has its own cost."""

_LOG2_E = 1.4426950408889634
_KEPT = (1 << 18, 16 * CELLS)  # bytes: less is cheap to allocate, more is not kept


def rows_at_once(K: int) -> int:
    """Rows of a chunk."""
    return max(1, CELLS // K)


class _Scratch(threading.local):
    """Buffers of the CPU that stay: fresh pages cost more than the arithmetic on them. Each thread has its own."""

    kept: Tensor | None = None

    def empty(self, count: int, rows: int, K: int, logits: Tensor) -> Tensor:
        """(count, rows, K) for the cells of these logits, in float32 or better."""
        dtype = torch.promote_types(logits.dtype, torch.float32)
        size = count * rows * K * dtype.itemsize
        if not self.keeps(size, logits):
            return torch.empty(count, rows, K, dtype=dtype, device=logits.device)
        if self.kept is None or self.kept.numel() < size:
            with torch.inference_mode(False):
                self.kept = torch.empty(size, dtype=torch.uint8, device="cpu")
        return self.kept[:size].view(dtype).view(count, rows, K)

    def buffers(self, count: int, rows: int, K: int, logits: Tensor) -> list[Tensor]:
        """`count` buffers (rows, K), each with memory of its own where they are not kept."""
        dtype = torch.promote_types(logits.dtype, torch.float32)
        if self.keeps(count * rows * K * dtype.itemsize, logits):
            return list(self.empty(count, rows, K, logits).unbind())
        return [torch.empty(rows, K, dtype=dtype, device=logits.device) for _ in range(count)]

    @staticmethod
    def keeps(size: int, logits: Tensor) -> bool:
        """Whether so many bytes are kept."""
        return logits.device.type == "cpu" and _KEPT[0] <= size <= _KEPT[1]


SCRATCH = _Scratch()


def spread(numbers: Tensor, elements: int, own: slice | Tensor, first: int = 0) -> Tensor:
    """Numbers of objects (m, B), with `elements` rows each, as numbers of these rows (m, n)."""
    if not isinstance(own, slice):
        return numbers.index_select(1, (own + first) // elements)
    start, stop = own.start + first, own.stop + first
    skipped = start // elements
    found = numbers[:, skipped : (stop - 1) // elements + 1].repeat_interleave(elements, 1)
    return found[:, start - skipped * elements : stop - skipped * elements]


def fill_softmax(logits: Tensor, e: Tensor, at: Tensor, mask: int) -> tuple[Tensor, Tensor]:
    """exp(logits - their maximum) into e, 0 for the mask and at these categories (n, j); its sum, and logits - maximum
    at these categories, both float64.
    """
    if mask >= 0:
        logits = e.copy_(logits)
        logits[:, mask] = -torch.inf
    top = logits.amax(1, keepdim=True).to(e.dtype)
    below = logits.gather(1, at).double().sub_(top)
    torch.sub(logits, top, out=e).mul_(_LOG2_E).exp2_()
    return e.scatter_(1, at, torch.zeros_like(at, dtype=e.dtype)).sum(1).double(), below


def sum_log(v: Tensor, largest: float) -> Tensor:
    """Sum over the categories of log v, 1 <= v <= largest: products first, as logs are dear. Overwrites v."""
    width = v.shape[1]
    while width > 4 and largest * largest < 1e37:
        half = width // 2
        v[:, :half].mul_(v[:, width - half : width])
        width, largest = width - half, largest * largest
    return v[:, :width].contiguous().log_().sum(1)  # log is slow on memory with gaps


def column(value: Tensor, like: Tensor) -> Tensor:
    """(n,) as (n, 1), in the precision of the cells."""
    return value.to(like.dtype).unsqueeze(1)
