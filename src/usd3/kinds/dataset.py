"""Data: objects in a training and a test split, and their kind."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from usd3._internal.checks import Checks, as_categories, as_count, require, require_type
from usd3.kinds.base import Kind
from usd3.kinds.rows import INTEGERS, Rows, Sequences, Windows, compact

__all__ = ["Dataset", "Rows", "Sequences", "Windows", "compact"]


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
        labels: the labels of an object by name, each with the names of its classes, as in {"label": ("cat", "dog")};
            both splits have a column for each label. {}: objects have no labels.
    """

    name: str
    num_classes: int
    train: Rows
    test: Rows
    decode: Tensor | None = None
    kind: Kind = None  # type: ignore[assignment]  # never None after __post_init__
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict, kw_only=True)

    def __post_init__(self) -> None:
        num_classes = as_count(self.num_classes, "num_classes", 2)
        _check_split(self.train, "train", num_classes)
        _check_split(self.test, "test", num_classes)
        require(
            self.test.shape == self.shape, "shape of an object of test", self.test.shape, f"that of train, {self.shape}"
        )
        if self.decode is not None:
            _check_permutation(self.decode, num_classes)
        if self.kind is None:
            from usd3.kinds.array import Array  # it imports this module

            object.__setattr__(self, "kind", Array(num_classes, self.shape))
        fits = (self.kind.num_classes, self.kind.shape) == (num_classes, self.shape)
        require(fits, "kind", self.kind, f"one of objects {self.shape} of {num_classes} categories")
        _check_labels(self.labels, self.train.labels, "train")
        _check_labels(self.labels, self.test.labels, "test")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one object."""
        return self.train.shape

    def without_labels(self) -> "Dataset":
        """The same objects without their labels."""
        if not self.labels:
            return self
        train, test = (replace(part, labels=None) for part in (self.train, self.test))  # type: ignore[type-var]
        return replace(self, train=train, test=test, labels={})

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


def _check_split(split: Rows, name: str, num_classes: int) -> None:
    require_type(isinstance(split, Rows), name, split, "a Sequences")
    require(len(split) > 0, f"len({name})", len(split), f"at least one object: the {name} split is empty")
    for value in split.limits():
        require(0 <= value < num_classes, f"token of {name}", value, f"categories 0..{num_classes - 1}")


def _check_labels(labels: Mapping[str, tuple[str, ...]], values: Tensor | None, split: str) -> None:
    """Raise an error unless a split has a column for each label, with -1 or the number of a class in each row."""
    count = 0 if values is None else values.shape[1]
    require(count == len(labels), f"labels of {split}", count, f"{len(labels)}, one for each of {', '.join(labels)}")
    for column, (name, classes) in enumerate(labels.items()):
        assert values is not None
        distinct = len(set(classes)) == len(classes) > 0
        require(distinct, f"classes of {name}", ", ".join(classes), "different names, at least one")
        least, most = int(values[:, column].min()), int(values[:, column].max())
        expected = f"0..{len(classes) - 1}, or -1 where the class is unknown"
        require(least >= -1 and most < len(classes), f"{name} of {split}", f"{least}..{most}", expected)


def _check_permutation(decode: Tensor, num_classes: int) -> None:
    require_type(isinstance(decode, Tensor) and decode.dtype in INTEGERS, "decode", decode, "an integer tensor")
    require(tuple(decode.shape) == (num_classes,), "decode.shape", tuple(decode.shape), f"({num_classes},)")
    ordered = torch.equal(decode.long().sort().values.cpu(), torch.arange(num_classes))
    require(ordered, "decode", decode.tolist(), f"a permutation of 0..{num_classes - 1}")
