"""n-gram models with smoothing: simple references for texts and other sequences."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from usd3._internal.checks import as_count, require

__all__ = ["NgramModel"]

_MOST_BITS = 62  # an n-gram is one int64


class _Table:
    """How often each token w follows each context h of m tokens; h and w together are the number h K + w."""

    def __init__(self, grams: NDArray[np.int64], num_classes: int):
        self.num_classes = num_classes
        self.grams, counts = np.unique(grams, return_counts=True)
        self.until = np.concatenate([[0], np.cumsum(counts)])  # counts of the grams before each
        self.contexts, self.first = np.unique(self.grams // num_classes, return_index=True)
        self.last = np.append(self.first[1:], len(self.grams))

    def found(self, contexts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The place of each context in the table, and whether it is there."""
        place = np.minimum(np.searchsorted(self.contexts, contexts), len(self.contexts) - 1)
        return place, self.contexts[place] == contexts

    def totals(self, place: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """How often each context occurs, c(h), and how many different tokens follow it, T(h)."""
        first, last = self.first[place], self.last[place]
        return self.until[last] - self.until[first], last - first

    def counts(self, contexts: NDArray[np.int64], tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """c(h w)."""
        grams = contexts * self.num_classes + tokens
        place = np.minimum(np.searchsorted(self.grams, grams), len(self.grams) - 1)
        return np.where(self.grams[place] == grams, self.until[place + 1] - self.until[place], 0)

    def drawn(self, place: NDArray[np.int64], u: NDArray[np.float64]) -> NDArray[np.int64]:
        """A token that follows each context, as often as it does in the data; u are uniforms."""
        first, last = self.until[self.first[place]], self.until[self.last[place]]
        chosen = first + np.minimum((u * (last - first)).astype(np.int64), last - first - 1)
        return np.asarray(self.grams[np.searchsorted(self.until, chosen, side="right") - 1] % self.num_classes)


class NgramModel:
    """Each token depends on the `order` tokens before it, with Witten-Bell smoothing.

    p_m(w | h) = (c(h w) + T(h) p_{m-1}(w | h')) / (c(h) + T(h)), where c counts in the data, T(h) is the number of
    different tokens after h, h' is h without its first token, and p_{-1} = 1 / K. A context that never occurs leaves
    p_{m-1}.

    Args:
        order: number of tokens in a context.
        num_classes: number of categories, K.
    """

    def __init__(self, order: int, num_classes: int):
        self.order, self.num_classes = as_count(order, "order", 0), as_count(num_classes, "num_classes", 2)
        require(self.is_possible(order, num_classes), "order", order, f"less for {num_classes} categories")
        self._tables: list[_Table] = []

    @staticmethod
    def is_possible(order: int, num_classes: int) -> bool:
        """Whether a context and a token are one 64-bit number."""
        return (order + 1) * math.log2(num_classes) <= _MOST_BITS

    def fit(self, tokens: Tensor) -> "NgramModel":
        """Count in sequences (N, L); returns the model."""
        x = _as_numbers(tokens)
        orders = range(min(self.order, x.shape[1] - 1) + 1)
        self._tables = [_Table(self._grams(x, m + 1)[:, m:].ravel(), self.num_classes) for m in orders]
        return self

    def log_prob(self, tokens: Tensor) -> Tensor:
        """log p of each token given the ones before it in the sequence, (N, L) float64."""
        x = _as_numbers(tokens)
        p = np.full(x.shape, 1 / self.num_classes)
        for m, table in enumerate(self._tables):
            contexts = self._grams(x, m + 1)[:, m:] // self.num_classes
            (place, known), w = table.found(contexts), x[:, m:]
            c, kinds = table.totals(place)
            smoothed = (table.counts(contexts, w) + kinds * p[:, m:]) / (c + kinds)
            p[:, m:] = np.where(known, smoothed, p[:, m:])
        return torch.from_numpy(np.log(p))

    def extend(self, prefix: Tensor, length: int, generator: torch.Generator | None = None) -> Tensor:
        """(N, length) int64: the prefix (N, P), then tokens drawn one after the other."""
        given = prefix.shape[1]
        x = np.concatenate([_as_numbers(prefix), np.zeros((len(prefix), length - given), dtype=np.int64)], axis=1)
        for position in range(given, length):
            u = torch.rand((len(self._tables) + 1, 2, len(x)), generator=generator, dtype=torch.float64).numpy()
            x[:, position] = self._next(x[:, :position], u)
        return torch.from_numpy(x)

    def _next(self, x: NDArray[np.int64], u: NDArray[np.float64]) -> NDArray[np.int64]:
        """The next token of each row (N, P). With probability T / (c + T) a context hands over to a shorter one."""
        drawn = (u[-1, 0] * self.num_classes).astype(np.int64)
        rest = np.ones(len(x), dtype=bool)  # rows without a token
        for m, table in reversed(list(enumerate(self._tables[: x.shape[1] + 1]))):
            contexts = self._grams(x[:, x.shape[1] - m :], m)[:, -1] if m else np.zeros(len(x), dtype=np.int64)
            place, known = table.found(contexts)
            c, kinds = table.totals(place)
            takes = rest & known & (u[m, 0] < c / (c + kinds))
            drawn[takes] = table.drawn(place, u[m, 1])[takes]
            rest &= ~takes
        return np.asarray(drawn)

    def _grams(self, x: NDArray[np.int64], n: int) -> NDArray[np.int64]:
        """The number of the n tokens that end at each place, (N, L); at the first n - 1 places of fewer tokens."""
        grams = np.zeros_like(x)
        for m in range(min(n, x.shape[1])):
            grams[:, m:] += x[:, : x.shape[1] - m] * self.num_classes**m
        return grams


def _as_numbers(tokens: Tensor) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = tokens.long().cpu().numpy()
    return numbers
