"""Keep the model with the best bound on held-out objects, and end a run that no longer improves it."""

import math
from collections.abc import Callable
from typing import Any

import lightning.pytorch as pl
import torch

from usd3.training.ema import Ema

__all__ = ["KeepBest"]


class KeepBest(pl.Callback):
    """Exports the model whenever its bound on held-out objects is the best so far, and stops after `patience` others.

    The bound uses the same draws every time, so two estimates differ by their weights alone. A run that ends, for
    whatever reason but an interruption, is judged once more at its last step.

    Args:
        patience: number of estimates in a row that are no better than the best, after which the run ends.
        export: writes the model.
        judged: called after each estimate.
    """

    def __init__(
        self,
        patience: int,
        export: Callable[[pl.Trainer, Any], None],
        judged: Callable[[pl.Trainer, Any], None],
    ):
        self.patience, self.export, self.judged = patience, export, judged
        self.best, self.waited = math.inf, 0
        self.step: int | None = None
        self.is_new, self.is_over = False, False
        self._judged: int | None = None

    def judge(self, trainer: pl.Trainer, module: Any, bits: float) -> None:
        """Take note of an estimate of the bound; all processes know the same."""
        self._judged = trainer.global_step
        if bits < self.best:
            self.best, self.step, self.waited, self.is_new = bits, trainer.global_step, 0, True
            self.export(trainer, module)
            self.is_new = False
        else:
            self.waited += 1
        self._stop_if_over(trainer)
        self.judged(trainer, module)

    def _stop_if_over(self, trainer: pl.Trainer) -> None:
        if self.waited >= self.patience:
            self.is_over = trainer.should_stop = True

    def on_train_start(self, trainer: pl.Trainer, module: Any) -> None:
        """A resumed run that was over stays so, unless it has more patience now."""
        self._stop_if_over(trainer)

    def on_train_end(self, trainer: pl.Trainer, module: Any) -> None:
        """Judge the last step, unless the run was interrupted."""
        if self._judged == trainer.global_step or trainer.limit_val_batches == 0 or trainer.interrupted:
            return
        average = next(callback for callback in trainer.callbacks if isinstance(callback, Ema))  # type: ignore[attr-defined]
        with average.averaged(module), torch.no_grad(), trainer.precision_plugin.val_step_context():
            module.eval()
            module.on_validation_start()
            for i, batch in enumerate(trainer.datamodule.val_dataloader()):  # type: ignore[attr-defined]
                module.validation_step(trainer.strategy.batch_to_device(batch), i)
            module.train()
        module.on_validation_end()

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run must know."""
        return {"best": self.best, "step": self.step, "waited": self.waited, "judged": self._judged}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.best, self.step, self.waited = state["best"], state["step"], state["waited"]
        self._judged = state["judged"]
