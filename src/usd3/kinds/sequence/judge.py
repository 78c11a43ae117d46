"""How good are sets of sequences, compared with held-out ones? By k-mers, composition, lengths and a classifier.

Reference rows show the scale: real sequences, Markov chains and sequences whose letters were shuffled.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from usd3._internal.checks import require
from usd3._internal.progress import say
from usd3._internal.random import seed_of
from usd3.kinds.base import Judge
from usd3.kinds.dataset import Dataset, Rows
from usd3.kinds.sequence.kind import LetterSequence
from usd3.kinds.sequence.options import SequenceSettings
from usd3.metrics.chains import MOST_CELLS, BackoffChain
from usd3.metrics.kmers import (
    composition_distance,
    kmer_counts,
    kmer_spectrum,
    letter_share,
    position_composition,
    wasserstein,
)
from usd3.metrics.novelty import copied_share, nearest_edits
from usd3.metrics.summary import Summary
from usd3.metrics.two_sample import told_apart

__all__ = ["SequenceJudge"]

_FEWEST = 4  # held-out sequences
_KS = (3, 4, 5, 6)
_ORDERS = (5, 3, 1)  # of Markov chains
_MOST_LETTERS = 2**26  # of a split that the metrics read
_LARGEST_K = 4  # of the k-mers that the classifier counts
_MOST_FEATURES, _MOST_CODES = 1024, 2**62
_MOST_WORK = 3 * 10**9  # about ten seconds for the nearest training sequences of a set


class SequenceJudge(Judge):
    """Compares sets of sequences with the held-out ones, and looks for copies of training sequences.

    Args:
        dataset: the real sequences.
        settings: how many are drawn.
        seed: seed of the folds of the classifier and of the reference rows.
    """

    def __init__(self, dataset: Dataset, settings: SequenceSettings, seed: int = 0):
        kind = dataset.kind
        if not isinstance(kind, LetterSequence):
            raise ValueError(f"data = {dataset.name}: expected sequences of letters")
        cure = f"at least {_FEWEST}, to compare with: train with a larger --data.test_fraction, or on more sequences"
        require(len(dataset.test) >= _FEWEST, f"held-out sequences of {dataset.name}", len(dataset.test), cure)
        self.kind, self.settings, self.seed = kind, settings, seed
        self.num = len(dataset.test) if settings.num is None else settings.num
        self.train, self.test = _real(dataset, dataset.train, kind.end), _real(dataset, dataset.test, kind.end)
        self.train_strings = self._strings(self.train)
        letters = len(kind.letters)
        self.ks = tuple(k for k in _KS if letters**k <= _MOST_CODES)
        self.counted_k = max((k for k in range(1, _LARGEST_K + 1) if letters**k <= _MOST_FEATURES), default=0)
        self.about: dict[str, Any] = {
            "data": dataset.name,
            "held_out": len(dataset.test),
            "training": len(dataset.train),
            "classifier": f"counts of {self.counted_k}-mers" if self.counted_k else None,
        }

    def settings_with(self, num: int) -> dict[str, Any]:
        """The settings of sequences for the results; `num` sequences were drawn."""
        return {"sequences": asdict(self.settings) | ({} if num == self.num else {"num": num})}

    def scores(self, tokens: Tensor) -> dict[str, float]:
        """The metrics of sequences (N, L), by key."""
        generated = _Set.of(tokens.numpy(), None, self.kind.end)
        return self._distances(generated) | self._novelty(generated)

    def references(self, num: int) -> dict[str, dict[str, Summary]]:
        """Reference rows, each of `num` sequences.

        "real sequences" are training ones, where there are enough: against the held-out ones that is the best to hope
        for. Their copies and nearest distances are those of the held-out sequences.
        """
        rows: dict[str, dict[str, float]] = {}
        chosen = np.random.default_rng(seed_of(self.seed, 0)).permutation(len(self.train.tokens))
        if len(chosen) >= num:
            say("measuring real sequences")
            rows["real sequences"] = self._distances(self.train[chosen[:num]]) | self._novelty(self.test)
        else:
            say(f"no row of real sequences: there are {len(chosen)} to train on, and {num} in a set")
        for order in _ORDERS:
            if self.kind.num_classes ** (order + 1) <= MOST_CELLS:
                say(f"measuring a Markov chain of order {order}")
                rows[f"Markov chain, order {order}"] = self._chain(order, num)
        say("measuring sequences with shuffled letters")
        rows["letters shuffled"] = self._distances(self.train[np.resize(chosen, num)].shuffled(seed_of(self.seed, 1)))
        return {name: {key: Summary(value, 0.0) for key, value in row.items()} for name, row in rows.items()}

    def _chain(self, order: int, num: int) -> dict[str, float]:
        """The metrics of a Markov chain of the training sequences, and its bits for a letter of the held-out ones."""
        chain = BackoffChain(self.kind.num_classes, order, self.kind.end).fit(self.train.tokens, self.train.unknown)
        drawn = chain.sample(num, self.kind.shape[0], seed_of(self.seed, 2, order))
        bits = {"bits_per_element": chain.bits(self.test.tokens, self.test.unknown)}
        return self.scores(torch.from_numpy(drawn)) | bits

    def _distances(self, generated: "_Set") -> dict[str, float]:
        """How far a set is from the held-out sequences."""
        kind, letters, test = self.kind, len(self.kind.letters), self.test
        scores = {}
        for k in self.ks:
            drawn, real = (kmer_spectrum(part.tokens, k, letters, part.pad) for part in (generated, test))
            scores[f"kmer_{k}"] = drawn.distance(real)
            if k == _KS[-1]:
                scores["kmer_correlation"] = drawn.correlation(real)
        compositions = (position_composition(part.tokens, kind.num_classes, part.unknown) for part in (generated, test))
        scores["composition"] = composition_distance(*compositions)
        strong = [kind.letters.index(letter) for letter in "GC" if letter in kind.letters]
        if kind.form in ("dna", "rna") and strong:
            a, b = (letter_share(part.tokens, strong, letters, part.pad) for part in (generated, test))
            scores |= {"gc": _mean(a), "gc_distance": wasserstein(a, b)}
        if kind.has_ends:
            lengths = generated.lengths
            scores |= {"length": float(lengths.mean()), "length_distance": wasserstein(lengths, test.lengths)}
        if self.counted_k:
            a, b = (kmer_counts(part.tokens, self.counted_k, letters, part.pad) for part in (test, generated))
            scores["told_apart"] = told_apart(torch.from_numpy(a), torch.from_numpy(b), seed=self.seed)
        return scores

    def _novelty(self, sequences: "_Set") -> dict[str, float]:
        """How many sequences are copies of training sequences, and how far they are from the nearest."""
        strings = self._strings(sequences)
        distances = nearest_edits(strings, self.train_strings, _MOST_WORK)
        return {"copies": copied_share(strings, self.train_strings), "nearest": float(distances.mean())}

    def _strings(self, sequences: "_Set") -> list[str]:
        unknown = torch.from_numpy(sequences.unknown) if sequences.unknown.any() else None
        return self.kind.strings(torch.from_numpy(sequences.tokens), unknown)


@dataclass(frozen=True)
class _Set:
    """Sequences as arrays.

    Args:
        tokens: (N, L) categories; after an end there are only ends.
        unknown: (N, L) True where a letter is not known.
        end: the category that says that a sequence has ended.
    """

    tokens: NDArray[np.int64]
    unknown: NDArray[np.bool_]
    end: int | None

    @classmethod
    def of(cls, tokens: NDArray[np.int64], unknown: NDArray[np.bool_] | None, end: int | None) -> "_Set":
        """The set of tokens (N, L); what follows an end becomes an end."""
        unknown = np.zeros(tokens.shape, bool) if unknown is None else unknown
        if end is None:
            return cls(tokens, unknown, None)
        ended = np.logical_or.accumulate((tokens == end) & ~unknown, 1)
        return cls(np.where(ended, end, tokens), unknown & ~ended, end)

    @property
    def pad(self) -> NDArray[np.bool_]:
        """(N, L) True where there is no letter that is known."""
        return self.unknown if self.end is None else self.unknown | (self.tokens == self.end)

    @property
    def lengths(self) -> NDArray[np.float64]:
        """(N,) the number of letters of each sequence."""
        ended = np.zeros(self.tokens.shape, bool) if self.end is None else (self.tokens == self.end) & ~self.unknown
        return np.asarray((~ended).sum(1), np.float64)

    def __getitem__(self, rows: NDArray[np.int64]) -> "_Set":
        return _Set(self.tokens[rows], self.unknown[rows], self.end)

    def shuffled(self, seed: int) -> "_Set":
        """The set with the letters of each sequence in a random order."""
        keys = np.random.default_rng(seed).random(self.tokens.shape)
        if self.end is not None:
            keys[(self.tokens == self.end) & ~self.unknown] = 2  # they stay behind the letters
        order = keys.argsort(1)
        tokens, unknown = np.take_along_axis(self.tokens, order, 1), np.take_along_axis(self.unknown, order, 1)
        return _Set(tokens, unknown, self.end)


def _real(dataset: Dataset, split: Rows, end: int | None) -> _Set:
    sequences = split.spread(_MOST_LETTERS)
    unknown = None if sequences.pad is None else sequences.pad.numpy()
    return _Set.of(dataset.decoded(sequences.tokens.long()).numpy(), unknown, end)


def _mean(values: NDArray[np.float64]) -> float:
    """The mean of the values that are known; nan if none is."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else math.nan
