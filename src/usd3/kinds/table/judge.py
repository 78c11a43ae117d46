"""How good are generated rows? Compared with held-out rows, and with how near they are to training rows.

Reference rows show the scale: training rows are the best that one can hope for, permuted columns have nothing but the
distribution of each column, and a Gaussian copula is a simple model.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from usd3._internal.checks import require
from usd3._internal.progress import say
from usd3.kinds.base import Judge
from usd3.kinds.dataset import Dataset
from usd3.kinds.table.copula import GaussianCopula
from usd3.kinds.table.kind import Table
from usd3.kinds.table.measuring import Features, Measured
from usd3.kinds.table.options import TableSettings
from usd3.kinds.table.reading import TableDataset
from usd3.metrics.closest import equal_rows, share_nearer
from usd3.metrics.summary import Summary
from usd3.metrics.tables import pair_trends, shapes
from usd3.metrics.two_sample import told_apart

__all__ = ["TableJudge"]

_MOST_HELD_OUT = 100_000  # rows
_MOST_TOLD_APART = 10_000
_MOST_NEAREST = 20_000


class TableJudge(Judge):
    """Compares sets of rows with held-out rows.

    Args:
        dataset: the real rows.
        settings: how many rows are drawn and compared.
        limit: use only this many held-out rows, chosen at random; None: all.
        seed: seed of all choices.
    """

    def __init__(self, dataset: Dataset, settings: TableSettings, limit: int | None, seed: int):
        table = dataset.kind
        if not isinstance(table, Table):
            raise ValueError(f"data = {dataset.name}: expected a table")
        self.table, self.dataset, self.settings, self.seed = table, dataset, settings, seed
        held_out = min(len(dataset.test), limit or _MOST_HELD_OUT)
        cure = "train with a larger --data.test_fraction, or with --data.table.test_path"
        cure = cure if len(dataset.test) < 4 else "a larger --limit"
        require(held_out >= 4, "held-out rows", held_out, f"at least 4: {cure}")
        self.num = settings.num or held_out
        rng = np.random.default_rng(seed)  # both in a random order, as the metrics take the first rows of them
        self.train = self._real(test=False, chosen=rng.permutation(len(dataset.train))[: settings.train])
        self.held_out = self._real(test=True, chosen=rng.permutation(len(dataset.test))[:held_out])
        self.features = Features(self.held_out)
        self.about: dict[str, Any] = {
            "held_out_rows": held_out,
            "training_rows": len(dataset.train),
            "training_rows_compared": len(self.train),
        }

    def _real(self, test: bool, chosen: Any) -> Measured:
        """Rows of the data, by their numbers in the split."""
        split = self.dataset.test if test else self.dataset.train
        tokens = self.dataset.decoded(split.take(torch.from_numpy(chosen))[0].long())
        if not isinstance(self.dataset, TableDataset):
            return Measured.drawn(self.table, tokens, self.seed)
        return Measured.of(self.table, self.dataset.rows(test, chosen), tokens)

    def settings_with(self, num: int) -> dict[str, Any]:
        """The settings of tables for the results; `num` rows were drawn, which is noted if it is not the default."""
        return {"tables": asdict(self.settings) | ({} if num == self.num else {"num": num})}

    def scores(self, tokens: Tensor) -> dict[str, float]:
        """The metrics of rows (N, D), by key."""
        rows = Measured.drawn(self.table, tokens, self.seed)
        return self._likeness(rows) | self._nearness(rows)

    def _likeness(self, rows: Measured) -> dict[str, float]:
        """How alike the rows and the held-out rows are."""
        real = self.held_out
        few, some = real.rows(slice(_MOST_TOLD_APART)), rows.rows(slice(_MOST_TOLD_APART))
        auc = told_apart(self.features.for_classifier(few), self.features.for_classifier(some), self.seed)
        return {
            "shape": _mean(shapes(real.frame, rows.frame, real.numbers)),
            "trend": _mean(pair_trends(real.frame, rows.frame, real.numbers)),
            "told_apart": auc,
        }

    def _nearness(self, rows: Measured) -> dict[str, float]:
        """How many rows are nearer to training rows than to as many held-out rows, and how many are copies."""
        size = min(len(self.held_out), len(self.train), _MOST_NEAREST)
        parts = (rows.rows(slice(_MOST_NEAREST)), self.train.rows(slice(size)), self.held_out.rows(slice(size)))
        generated, train, held_out = (self.features.for_distances(part) for part in parts)
        return {"nearer_to_training": share_nearer(generated, train, held_out), "copies": self._copies(rows)}

    def _copies(self, rows: Measured) -> float:
        """The share of rows that have the categories and bins of a training row in all columns."""
        found = np.zeros(len(rows), dtype=bool)
        for tokens, _ in self.dataset.train.pieces():
            found |= equal_rows(rows.tokens.numpy(), self.dataset.decoded(tokens.long()).numpy())
        return float(found.mean())

    def references(self, num: int) -> dict[str, dict[str, Summary]]:
        """Reference rows: training rows, held-out rows, permuted columns and a Gaussian copula."""
        train = self.train.rows(slice(num))
        say("measuring training rows, permuted columns and a Gaussian copula")
        permuted = train.permuted(self.seed)
        fitted = self.dataset.decoded(self.dataset.train.spread(2**25).tokens.long())
        drawn = GaussianCopula.fitted(fitted, self.table.num_classes).draw(num, self.seed)
        copula = Measured.drawn(self.table, drawn, self.seed)
        rows = {
            "training rows": self._likeness(train),
            "held-out rows": {"copies": self._copies(self.held_out)},
            "columns permuted": self._likeness(permuted) | self._nearness(permuted) | self._bits_of_columns(fitted),
            "Gaussian copula": self._likeness(copula) | self._nearness(copula),
        }
        return {name: {key: Summary(value, 0.0) for key, value in row.items()} for name, row in rows.items()}

    def _bits_of_columns(self, train: Tensor) -> dict[str, float]:
        """Bits per cell of the held-out rows if the columns were independent, with their frequencies in training.

        These are the first held-out rows, as in the bound for the model.
        """
        support = self.table.support
        rows = self.dataset.decoded(self.dataset.test.take(torch.arange(len(self.held_out)))[0].long())
        counts = torch.stack([torch.bincount(column, minlength=self.table.num_classes) for column in train.T]).double()
        probs = (counts + 0.5) * support / ((counts + 0.5) * support).sum(1, keepdim=True)
        cells = probs[torch.arange(len(probs)), rows]
        return {"bits_per_element": float(-cells.log2().mean())}

    def report(self, tokens: Tensor, folder: Path) -> list[str]:
        """Write pictures and tables of rows (N, D) beside held-out rows into a folder; returns the names of files."""
        from usd3.kinds.table.report import write_report

        return write_report(self.table, self.held_out, Measured.drawn(self.table, tokens, self.seed), folder)


def _mean(scores: dict[Any, float]) -> float:
    """The mean of the scores that are not nan; nan if there is none."""
    known = [score for score in scores.values() if not np.isnan(score)]
    return float(np.mean(known)) if known else float("nan")
