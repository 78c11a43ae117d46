"""Fingerprints: short texts that tell whether data are the same."""

import hashlib
import math

import torch
from torch import Tensor

from usd3.kinds.image.images import spread
from usd3.kinds.rows import PIECE, Rows, in_chunks

__all__ = ["fingerprint", "fingerprint_of_rows"]

_MOST_BYTES = 2**26  # that are read of a tensor, in less than a second


def fingerprint(*tensors: Tensor | None) -> str:
    """A hash of the shapes and contents of tensors; 16 hexadecimal digits. Of a large tensor, some rows are read."""
    digest = hashlib.sha256()
    for tensor in tensors:
        if tensor is None:
            digest.update(b"none")
            continue
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        rows = spread(tensor, max(1, _MOST_BYTES * len(tensor) // max(1, tensor.nbytes)))
        digest.update(rows.cpu().contiguous().numpy().data)
    return digest.hexdigest()[:16]


def fingerprint_of_rows(rows: Rows) -> str:
    """`fingerprint(rows.tokens, rows.pad)`, wherever the rows are, and those of labels and given elements, if any.

    Only the rows that are read come into memory.
    """
    digest = hashlib.sha256()
    size, elements = len(rows), math.prod(rows.shape)
    for which in (0, 1):
        first = rows.take(torch.tensor([0]))[which]
        if first is None:
            digest.update(b"none")
            continue
        digest.update(f"{first.dtype} {(size, *rows.shape)}".encode())
        count = min(size, max(1, _MOST_BYTES // (elements * first.itemsize)))
        for places in in_chunks(count, max(1, PIECE // elements)):
            read = rows.take(places * size // count)[which]
            digest.update(read.cpu().contiguous().numpy().data)  # type: ignore[union-attr]
    for more in (rows.labels, rows.given):
        if more is not None:
            digest.update(fingerprint(more).encode())
    return digest.hexdigest()[:16]
