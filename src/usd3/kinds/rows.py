"""The objects of a split, taken by their numbers: rows in memory, or windows of one long stream.

A split may be larger than memory. `take`, `spread` and `pieces` never hold more of it than they return. Rows of a
memory-mapped array are in `usd3.kinds.mapped`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from usd3._internal.checks import as_count, require, require_type
from usd3._internal.permutation import Permutation

__all__ = ["INTEGERS", "PIECE", "Rows", "Sequences", "Taken", "Windows", "compact", "in_chunks"]

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
"""The types that tokens can have."""
PIECE = 2**22
"""Most elements that `Rows.pieces` has in memory at once."""


def compact(tokens: Tensor, num_classes: int) -> Tensor:
    """`tokens` as uint8 if there are at most 256 categories, otherwise as int32."""
    return tokens.to(torch.uint8 if num_classes <= 256 else torch.int32)


def in_chunks(count: int, size: int) -> Iterator[Tensor]:
    """0..count-1 in tensors of at most `size` numbers."""
    return (torch.arange(first, min(first + size, count)) for first in range(0, count, size))


class Rows(ABC):
    """The objects of one split, numbered from 0."""

    names: tuple[str, ...] = ()
    """Where each object comes from; may be empty."""
    tokens: Tensor
    """All objects (N, ...), in memory. Where they may be very many, use `take`, `spread` or `pieces`."""
    pad: Tensor | None
    """(N, ...) True where an element is padding; None: there is no padding. In memory, as `tokens`."""
    labels: Tensor | None = None
    """(N, J) the class of each of J labels of each object, -1: unknown; None: objects have no labels."""
    given: Tensor | None = None
    """(N, ...) True where an element is given, such as the cells of a puzzle; None: the data do not say it."""
    groups: Tensor | None = None
    """(N,) equal numbers for objects that belong together, such as the melodies of a song; None: none are known to."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The shape of one object."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def take(self, index: Tensor) -> tuple[Tensor, Tensor | None]:
        """The tokens (n, ...) of the objects with these numbers (n,), and their padding, or None without padding."""

    @abstractmethod
    def pieces(self) -> Iterator[tuple[Tensor, Tensor | None]]:
        """All elements of the split in pieces, tokens and padding; each element once. A piece need not be objects."""

    @abstractmethod
    def limits(self) -> tuple[int, int]:
        """The smallest token and the largest one that can occur."""

    @abstractmethod
    def renamed(self, names: Tensor) -> "Rows":
        """The same objects with token k replaced by names[k]; `names` is (K,)."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """How many bytes `to` needs on a device."""

    @abstractmethod
    def to(self, device: torch.device) -> "Rows":
        """The same objects, stored on a device. On the CPU they stay where they are, also in a file."""

    def spread(self, elements: int) -> "Sequences":
        """Objects evenly spread over the split, with at most so many elements in all; all objects if they are few."""
        most = max(1, elements // math.prod(self.shape))
        return self._evenly(min(most, len(self)))

    def _evenly(self, count: int) -> "Sequences":
        rows = torch.arange(count) * len(self) // count
        labels, given = (None if part is None else part[rows] for part in (self.labels, self.given))
        return Sequences(*self.take(rows), labels=labels, given=given)


@dataclass(frozen=True, eq=False)
class Sequences(Rows):
    """Objects in memory.

    Args:
        tokens: (N, ...) integer categories.
        pad: (N, ...) True where an element is padding; None: there is no padding.
        names: where each row comes from; may be empty.
        labels: (N, J) the class of each label of each row, -1: unknown; None: there are no labels.
        given: (N, ...) True where an element is given; None: the data do not say it.
        groups: (N,) integers, equal for objects that belong together; None: none are known to.
    """

    tokens: Tensor
    pad: Tensor | None = None
    names: tuple[str, ...] = ()
    labels: Tensor | None = None
    given: Tensor | None = None
    groups: Tensor | None = None

    def __post_init__(self) -> None:
        tokens, pad = self.tokens, self.pad
        require_type(isinstance(tokens, Tensor) and tokens.dtype in INTEGERS, "tokens", tokens, "an integer tensor")
        shape = tuple(tokens.shape)
        require(tokens.dim() >= 2, "tokens.shape", shape, "(N, ...), objects of at least one dimension")
        require(0 not in shape[1:], "tokens.shape", shape, "objects of at least one element")
        require(len(self.names) in (0, len(tokens)), "len(names)", len(self.names), f"0 or {len(tokens)}, one a row")
        if self.labels is not None:
            is_integer = isinstance(self.labels, Tensor) and self.labels.dtype in INTEGERS
            require_type(is_integer, "labels", self.labels, "an integer tensor")
            fits = self.labels.dim() == 2 and len(self.labels) == len(tokens)
            require(fits, "labels.shape", tuple(self.labels.shape), f"({len(tokens)}, J), a row for each object")
        if self.groups is not None:
            is_integer = isinstance(self.groups, Tensor) and self.groups.dtype in INTEGERS
            require_type(is_integer, "groups", self.groups, "an integer tensor")
            fits = tuple(self.groups.shape) == shape[:1]
            require(fits, "groups.shape", tuple(self.groups.shape), f"({len(tokens)},), a number for each object")
        for mask, name in ((pad, "pad"), (self.given, "given")):
            if mask is not None:
                require_type(isinstance(mask, Tensor) and mask.dtype == torch.bool, name, mask, "a boolean tensor")
                fits = tuple(mask.shape) == shape
                require(fits, f"{name}.shape", tuple(mask.shape), f"the shape of tokens, {shape}")
        if pad is not None:
            rows = pad.flatten(1).all(1).nonzero().flatten().tolist()
            require(
                not rows, "pad", f"True everywhere in row {rows[0] if rows else ''}", "no object that is all padding"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one object."""
        return tuple(self.tokens.shape[1:])

    def __len__(self) -> int:
        return len(self.tokens)

    def take(self, index: Tensor) -> tuple[Tensor, Tensor | None]:
        """The rows with these numbers."""
        return self.tokens[index], None if self.pad is None else self.pad[index]

    def pieces(self) -> Iterator[tuple[Tensor, Tensor | None]]:
        """Some rows after the other."""
        rows = max(1, PIECE // math.prod(self.shape))
        for first in range(0, len(self), rows):
            part = slice(first, first + rows)
            yield self.tokens[part], None if self.pad is None else self.pad[part]

    def limits(self) -> tuple[int, int]:
        """The smallest token and the largest one."""
        return int(self.tokens.min()), int(self.tokens.max())

    def renamed(self, names: Tensor) -> Self:
        """The same rows with other tokens."""
        return replace(self, tokens=names.to(self.tokens.device)[self.tokens.long()])

    @property
    def nbytes(self) -> int:
        """Size of tokens, masks and labels."""
        parts = (self.tokens, self.pad, self.labels, self.given)
        return sum(part.nbytes for part in parts if part is not None)

    def to(self, device: torch.device) -> "Sequences":
        """The rows on a device."""
        parts = (None if part is None else part.to(device) for part in (self.pad, self.labels, self.given))
        pad, labels, given = parts
        return Sequences(self.tokens.to(device), pad, self.names, labels, given, self.groups)

    def spread(self, elements: int) -> "Sequences":
        """Rows evenly spread over the split."""
        return self if self.tokens.numel() <= elements else super().spread(elements)


class Taken(Rows):
    """Objects that come into memory when they are taken."""

    @property
    def tokens(self) -> Tensor:  # type: ignore[override]
        """All objects (N, ...), in memory."""
        return self.take(torch.arange(len(self)))[0]

    @property
    def pad(self) -> Tensor | None:  # type: ignore[override]
        """The padding of all objects, in memory."""
        return self.take(torch.arange(len(self)))[1]


@dataclass(frozen=True, eq=False)
class Windows(Taken):
    """Windows of one long stream: window i is stream[i * stride : i * stride + length].

    Args:
        stream: (T,) integers, in memory or in a memory-mapped file.
        length: elements of a window.
        stride: elements between the beginnings of two windows. 1: a window begins at every place.
        table: (V,) the token of each integer of the stream, as uint8 or int32; None: the integers are the tokens.
        seed: of a random order of the windows, so that the first ones stand for all; None: the order of the stream.
    """

    stream: Tensor
    length: int
    stride: int = 1
    table: Tensor | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        stream = self.stream
        require_type(isinstance(stream, Tensor) and stream.dtype in INTEGERS, "stream", stream, "an integer tensor")
        require(stream.dim() == 1, "stream.shape", tuple(stream.shape), "(T,)")
        as_count(self.length, "length", 1)
        as_count(self.stride, "stride", 1)

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of a window."""
        return (self.length,)

    def __len__(self) -> int:
        return max(0, (len(self.stream) - self.length) // self.stride + 1)

    def take(self, index: Tensor) -> tuple[Tensor, None]:
        """The windows with these numbers."""
        numbers = index if self.seed is None else Permutation(len(self), self.seed)(index.cpu())
        first = numbers.to(self.stream.device)[:, None] * self.stride
        return self._named(self.stream[first + torch.arange(self.length, device=first.device)]), None

    def pieces(self) -> Iterator[tuple[Tensor, None]]:
        """The stream, some of it after the other, each piece of shape (1, n)."""
        for part in self.stream.split(PIECE):
            yield self._named(part)[None], None

    def limits(self) -> tuple[int, int]:
        """The smallest token and the largest one, of the table where there is one."""
        if self.table is not None:
            return int(self.table.min()), int(self.table.max())
        parts = [(int(part.min()), int(part.max())) for part in self.stream.split(PIECE)]
        return min(least for least, _ in parts), max(most for _, most in parts)

    def renamed(self, names: Tensor) -> "Windows":
        """The same windows with other tokens; the stream stays as it is."""
        return replace(self, table=names if self.table is None else names[self.table.long()])

    @property
    def nbytes(self) -> int:
        """Size of the stream: windows overlap, and are stored once."""
        return self.stream.nbytes

    def to(self, device: torch.device) -> "Windows":
        """The stream on a device."""
        table = None if self.table is None else self.table.to(device)
        return replace(self, stream=self.stream.to(device), table=table)

    def spread(self, elements: int) -> Sequences:
        """Windows evenly spread over the stream, no more than fit beside each other."""
        return self._evenly(max(1, min(elements // self.length, len(self.stream) // self.length, len(self))))

    def _named(self, values: Tensor) -> Tensor:
        return values if self.table is None else self.table[values.int()]
