"""Data in memory: objects in a training and a test split, and their kind."""

from dataclasses import dataclass

import torch
from torch import Tensor

from usd3._internal.checks import Checks, as_categories, as_count, require, require_type
from usd3.kinds.base import Kind

__all__ = ["Dataset", "Sequences", "compact"]

_DTYPES = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def compact(tokens: Tensor, num_classes: int) -> Tensor:
    """`tokens` as uint8 if there are at most 256 categories, otherwise as int32."""
    return tokens.to(torch.uint8 if num_classes <= 256 else torch.int32)


@dataclass(frozen=True, eq=False)
class Sequences:
    """The objects of one split.

    Args:
        tokens: (N, ...) integer categories.
        pad: (N, ...) True where an element is padding; None: there is no padding.
        names: where each row comes from; may be empty.
    """

    tokens: Tensor
    pad: Tensor | None = None
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        tokens, pad = self.tokens, self.pad
        require_type(isinstance(tokens, Tensor) and tokens.dtype in _DTYPES, "tokens", tokens, "an integer tensor")
        shape = tuple(tokens.shape)
        require(tokens.dim() >= 2, "tokens.shape", shape, "(N, ...), objects of at least one dimension")
        require(0 not in shape[1:], "tokens.shape", shape, "objects of at least one element")
        require(len(self.names) in (0, len(tokens)), "len(names)", len(self.names), f"0 or {len(tokens)}, one a row")
        if pad is not None:
            require_type(isinstance(pad, Tensor) and pad.dtype == torch.bool, "pad", pad, "a boolean tensor")
            require(tuple(pad.shape) == shape, "pad.shape", tuple(pad.shape), f"the shape of tokens, {shape}")
            rows = pad.flatten(1).all(1).nonzero().flatten().tolist()
            require(
                not rows, "pad", f"True everywhere in row {rows[0] if rows else ''}", "no object that is all padding"
            )

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Objects of K categories in two splits.

    Args:
        name: name of the data, for tables.
        num_classes: number of categories, K.
        train: the training objects.
        test: the held-out objects.
        decode: (K,) the original category of each token, a permutation; None: tokens are original categories.
        kind: what the original categories mean; None: plain integers.
    """

    name: str
    num_classes: int
    train: Sequences
    test: Sequences
    decode: Tensor | None = None
    kind: Kind = None  # type: ignore[assignment]  # never None after __post_init__

    def __post_init__(self) -> None:
        num_classes = as_count(self.num_classes, "num_classes", 2)
        _check_split(self.train, "train", num_classes)
        _check_split(self.test, "test", num_classes)
        shape = tuple(self.test.tokens.shape[1:])
        require(shape == self.shape, "shape of an object of test", shape, f"that of train, {self.shape}")
        if self.decode is not None:
            _check_permutation(self.decode, num_classes)
        if self.kind is None:
            from usd3.kinds.array import Array  # it imports this module

            object.__setattr__(self, "kind", Array(num_classes, self.shape))
        fits = (self.kind.num_classes, self.kind.shape) == (num_classes, self.shape)
        require(fits, "kind", self.kind, f"one of objects {self.shape} of {num_classes} categories")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one object."""
        return tuple(self.train.tokens.shape[1:])

    def decoded(self, tokens: Tensor) -> Tensor:
        """The original categories of `tokens`, int64 of the same shape."""
        tokens = self._categories(tokens)
        return tokens if self.decode is None else self.decode.to(tokens.device).long()[tokens]

    def encoded(self, original: Tensor) -> Tensor:
        """The tokens of original categories, int64 of the same shape: the inverse of `decoded`."""
        original = self._categories(original)
        return original if self.decode is None else self.decode.to(original.device).long().argsort()[original]

    def _categories(self, tokens: Tensor) -> Tensor:
        checks = Checks(enabled=True)
        tokens = as_categories(tokens, self.num_classes, "tokens", checks)
        checks.raise_first()
        return tokens


def _check_split(split: Sequences, name: str, num_classes: int) -> None:
    require_type(isinstance(split, Sequences), name, split, "a Sequences")
    require(len(split) > 0, f"len({name})", len(split), f"at least one object: the {name} split is empty")
    for value in (int(split.tokens.min()), int(split.tokens.max())):
        require(0 <= value < num_classes, f"token of {name}", value, f"categories 0..{num_classes - 1}")


def _check_permutation(decode: Tensor, num_classes: int) -> None:
    require_type(isinstance(decode, Tensor) and decode.dtype in _DTYPES, "decode", decode, "an integer tensor")
    require(tuple(decode.shape) == (num_classes,), "decode.shape", tuple(decode.shape), f"({num_classes},)")
    ordered = torch.equal(decode.long().sort().values.cpu(), torch.arange(num_classes))
    require(ordered, "decode", decode.tolist(), f"a permutation of 0..{num_classes - 1}")
