"""The moving average of the weights."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.tensor import DTensor

__all__ = ["Ema", "local", "shards"]


class Ema(pl.Callback):
    """A moving average of the weights, with decay min(ema, (1 + n) / (10 + n)) after n steps.

    Validation and export use it instead of the weights. Lightning's own averaging copies the whole
    module and does not know sharded models; this one keeps one tensor for each local shard.
    """

    def __init__(self, decay: float):
        self.decay, self.averages = decay, list[Tensor]()
        self._step = 0
        self._handed_over = False

    def rate(self, step: int) -> float:
        """How far the averages move towards the weights in a step; the first step has number 1."""
        return 1 - min(self.decay, (1 + step) / (10 + step))

    def hand_over(self, module: nn.Module) -> Callable[[float | Tensor], None]:
        """A function that moves the averages at a given rate. From now on the caller calls it after each step.

        A rate that is a tensor is read on its device, so that a CUDA graph can contain the function.
        """
        weights, self._handed_over = shards(module), True

        def move(rate: float | Tensor) -> None:
            if not isinstance(rate, Tensor):
                torch._foreach_lerp_(self.averages, weights, rate)
            elif self.decay == 0:
                torch._foreach_copy_(self.averages, weights)
            else:
                gaps = torch._foreach_sub(weights, self.averages)
                torch._foreach_mul_(gaps, rate)
                torch._foreach_add_(self.averages, gaps)

        return move

    def on_fit_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Start from the weights as they are, unless a checkpoint has brought the averages."""
        weights = shards(module)
        self.averages = [a.to(w.device) for a, w in zip(self.averages, weights)] or _copies(weights)

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Do not count the steps of before: they moved the averages already."""
        self._step, self._handed_over = trainer.global_step, False

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Move the averages, once for each optimiser step."""
        if trainer.global_step > self._step:
            self._step = trainer.global_step
            if not self._handed_over:
                torch._foreach_lerp_(self.averages, shards(module), self.rate(self._step))

    @contextmanager
    def averaged(self, module: pl.LightningModule) -> Iterator[None]:
        """Inside, the weights of the module are the averages."""
        self._swap(module)
        try:
            yield
        finally:
            self._swap(module)

    def _swap(self, module: pl.LightningModule) -> None:
        weights = shards(module)
        kept = _copies(weights)
        torch._foreach_copy_(weights, self.averages)
        torch._foreach_copy_(self.averages, kept)

    def on_validation_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Validate the averages."""
        self._swap(module)

    def on_validation_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Put the weights back."""
        self._swap(module)

    def on_save_checkpoint(self, trainer: pl.Trainer, module: pl.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Add the averages as a state dict of their own, gathered from all shards."""
        checkpoint["ema"] = self.state(trainer, module)

    def on_load_checkpoint(self, trainer: pl.Trainer, module: pl.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Load the averages of a checkpoint; the weights are loaded already, and stay."""
        weights = shards(module)
        kept = _copies(weights)
        set_model_state_dict(module, checkpoint["ema"], options=StateDictOptions(full_state_dict=True))
        self.averages = _copies(weights)
        torch._foreach_copy_(weights, kept)

    def state(self, trainer: pl.Trainer, module: pl.LightningModule) -> dict[str, Tensor]:
        """The averages as a state dict on the CPU; where they are sharded, only the first process has them."""
        with self.averaged(module):
            state = trainer.strategy.lightning_module_state_dict()
            return {name: value.detach().cpu().clone() for name, value in state.items()}


def shards(module: nn.Module) -> list[Tensor]:
    """The weights, or the part of each that this process holds; writing to them changes the module."""
    return local(module.parameters())


def local(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Tensors, or the part of each that this process holds."""
    return [(t.to_local() if isinstance(t, DTensor) else t).detach() for t in tensors]


def _copies(tensors: Iterable[Tensor]) -> list[Tensor]:
    return [t.clone() for t in tensors]
