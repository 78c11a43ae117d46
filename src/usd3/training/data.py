"""The sequences of a run, for Lightning."""

from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from usd3.kinds.dataset import Dataset, Rows
from usd3.kinds.options import DataConfig
from usd3.training.batches import Batches, storage_device
from usd3.training.options import TrainingConfig

__all__ = ["SequenceData"]


class SequenceData(pl.LightningDataModule):
    """The data of a run: endless training batches, and the first held-out objects for validation."""

    def __init__(self, dataset: Dataset, config: TrainingConfig, seed: int = 0, data: DataConfig | None = None):
        super().__init__()
        self.dataset, self.config, self.seed, self.data = dataset, config, seed, data

    def train_dataloader(self) -> Batches:
        """Batches from the step that the trainer has reached."""
        trainer, dataset = self.trainer, self.dataset
        assert trainer is not None
        device = storage_device(dataset.train, trainer.strategy.root_device)
        return Batches(
            dataset.train,
            self.config.batch_size,
            self.seed,
            lambda: trainer.global_step,
            parts=self.config.accumulate * trainer.world_size,
            rank=trainer.global_rank,
            world=trainer.world_size,
            augment=None if self.data is None else dataset.kind.augment(self.data, dataset.decode, device),
            device=device,
        )

    def val_dataloader(self) -> DataLoader[dict[str, Any]]:
        """The share of this process, in batches as large as those of training."""
        trainer, test = self.trainer, self.dataset.test
        assert trainer is not None
        mine = torch.arange(trainer.global_rank, min(self.config.validate_objects, len(test)), trainer.world_size)
        size = max(1, self.config.batch_size // (self.config.accumulate * trainer.world_size))
        batches: Any = [_batch(test, rows) for rows in mine.split(size)]
        return DataLoader(batches, batch_size=None)


def _batch(split: Rows, rows: Tensor) -> dict[str, Tensor]:
    """The objects with these numbers, with padding and labels where there are some."""
    tokens, pad = split.take(rows)
    label = None if split.labels is None else split.labels[rows].long()
    parts = {"tokens": tokens, "pad": pad, "label": label}
    return {name: part for name, part in parts.items() if part is not None}
