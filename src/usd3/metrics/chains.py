"""Markov chains of any order for sequences of few categories: simple models to compare with."""

import numpy as np

from usd3._internal.checks import as_count, require
from usd3.metrics._arrays import Bools, Floats, Ints, as_pad, as_sequences, require_categories

__all__ = ["MOST_CELLS", "BackoffChain"]

MOST_CELLS = 2**22
"""A chain needs a table of K^(order + 1) probabilities; it may not have more."""


class BackoffChain:
    """A chain in which each category depends on the `order` ones before it, fewer at the beginning and after a gap.

    p_m(x | c_1 .. c_m) = (n(c_1 .. c_m, x) + K p_(m-1)(x | c_2 .. c_m)) / (n(c_1 .. c_m) + K), with the counts n of the
    training sequences and p_(-1) = 1 / K: a context that was rarely seen leaves the word to the next shorter one.

    Args:
        num_classes: number of categories, K.
        order: number of categories that one depends on.
        end: the category after which a sequence has ended: nothing but itself follows it. None: there is none.
    """

    def __init__(self, num_classes: int, order: int, end: int | None = None):
        self.num_classes, self.order = as_count(num_classes, "num_classes", 2), as_count(order, "order", 0)
        cells = self.num_classes ** (self.order + 1)
        require(cells <= MOST_CELLS, "order", order, f"a smaller one for {num_classes} categories")
        self.end = None if end is None else as_count(end, "end", 0, self.num_classes - 1)
        self.tables: list[Floats] = []  # of order 0, 1, ..., (K^order, K) each

    def fit(self, tokens: object, pad: object = None) -> "BackoffChain":
        """Estimate the chain from sequences (N, L); returns the chain.

        Args:
            tokens: the sequences.
            pad: (N, L) True where an element is padding or unknown: it does not count, and is no context either.
        """
        x, used = self._checked(tokens, pad)
        K, self.tables = self.num_classes, []
        shorter = np.full((1, K), 1 / K)
        for order in range(self.order + 1):
            codes, whole = self._contexts(x, used, order)
            cells = codes[whole] * K + x[:, order:][whole]
            counts = np.bincount(cells, minlength=K ** (order + 1)).reshape(-1, K).astype(np.float64)
            prior = np.tile(shorter, (len(counts) // len(shorter), 1))  # the row of c_2 .. c_m is that of c_1 .. c_m
            shorter = (counts + K * prior) / (counts.sum(1, keepdims=True) + K)
            self.tables.append(shorter)
        return self

    def sample(self, num: int, length: int, seed: int = 0) -> Ints:
        """(num, length) sequences drawn from the chain; after the end there are only ends."""
        require(len(self.tables) > 0, "tables", "none", "a chain that was fitted")
        cumulative = [table.cumsum(1) / table.sum(1, keepdims=True) for table in self.tables]
        u = np.random.default_rng(seed).random((length, num))
        x, code = np.zeros((num, length), np.int64), np.zeros(num, np.int64)
        ended = np.zeros(num, bool)
        for place in range(length):
            rows = cumulative[min(place, self.order)][code]
            drawn = np.minimum((rows <= u[place, :, None]).sum(1), self.num_classes - 1)
            if self.end is not None:
                drawn = np.where(ended, self.end, drawn)
                ended = drawn == self.end
            x[:, place] = drawn
            code = (code * self.num_classes + drawn) % self.num_classes ** min(place + 1, self.order)
        return x

    def bits(self, tokens: object, pad: object = None) -> float:
        """Mean of -log2 p over the elements of sequences (N, L): letters that are known, and the first end of each."""
        x, used = self._checked(tokens, pad)
        p = np.full(x.shape, 1 / self.num_classes)
        for order, table in enumerate(self.tables):
            codes, whole = self._contexts(x, used, order)
            p[:, order:][whole] = table[codes[whole], x[:, order:][whole]]
        return float(-np.log2(p[used]).mean())

    def _contexts(self, x: Ints, used: Bools, order: int) -> tuple[Ints, Bools]:
        """(N, L - order) the context of each element from `order` on, as a number; and whether all of it counts."""
        last = max(0, x.shape[1] - order)
        codes, whole = np.zeros((len(x), last), np.int64), used[:, order:].copy()
        for i in range(order if last else 0):
            codes = codes * self.num_classes + x[:, i : i + last]
            whole &= used[:, i : i + last]
        return codes, whole

    def _checked(self, tokens: object, pad: object) -> tuple[Ints, Bools]:
        """The sequences, and which elements count: no padding, and nothing after the first end."""
        x = as_sequences(tokens, "tokens", "(N, L)")
        padding = as_pad(pad, x.shape)
        require_categories(x, padding, "tokens")
        used = np.ones(x.shape, bool) if padding is None else ~padding
        if self.end is not None:
            is_end = (x == self.end) & used
            used &= is_end.cumsum(1) - is_end == 0
        x = np.where(used, x, 0)
        require(int(x.max()) < self.num_classes, "tokens", int(x.max()), f"categories 0..{self.num_classes - 1}")
        return x, used
