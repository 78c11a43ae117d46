"""What the training of every network has in common, as a Lightning module.

Every draw of a step is seeded by the number of the step, and so is the choice of its objects. So a run that was
stopped goes on exactly as if it had not been.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import lightning.pytorch as pl
import torch
from torch import Tensor, nn

from usd3._internal.compile import compiled
from usd3._internal.graphs import GraphMode
from usd3._internal.random import seed_draws, seed_of
from usd3.training.clock import Clock
from usd3.training.options import LoopConfig
from usd3.training.step import Loss, WholeStep

__all__ = ["TrainingModule", "weight_groups"]


class TrainingModule(pl.LightningModule):
    """A network in training: seeded steps, optimisers, log, clock.

    A subclass implements `train_on` and `new_optimisers`. In `on_train_start` it may make a `WholeStep`, which
    `train_on` calls. Then `training_step` is the whole optimiser step, so that a GPU can run it as one CUDA graph, and
    what Lightning does with the loss afterwards is a no-op. Without one, Lightning makes the step.
    """

    names: ClassVar[tuple[str, ...]]  # of the numbers that `train_on` returns for the log
    on_screen: ClassVar[tuple[str, ...]]  # those that the progress bar shows
    must_be_finite: ClassVar[tuple[str, ...]]  # those that end the run where they are not finite
    remedy: ClassVar[str]  # advice for a run that diverged
    config: Any

    def __init__(self, model: nn.Module, config: LoopConfig, seed: int):
        super().__init__()
        self.model, self.config, self.seed = model, config, seed
        self.clock = Clock(config.minutes)
        self.latest: dict[str, float] = {}  # the numbers on the screen
        self._recent: list[Tensor] = []  # the numbers of the steps since the last row of the log
        self._step: WholeStep | None = None

    # ---- what a subclass says ----------------------------------------------------------------------------------------

    def train_on(self, batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """The loss of a batch, after a step where there is a `WholeStep`; the numbers for the log, as in `names`."""
        raise NotImplementedError

    def new_optimisers(self) -> list[torch.optim.Optimizer]:
        """New optimisers with the settings of the configuration; Lightning steps and saves the first."""
        raise NotImplementedError

    def optimisers(self) -> list[torch.optim.Optimizer]:
        """The optimisers in use, in the order of `new_optimisers`."""
        return self.trainer.optimizers

    def seed_numbers(self, batch: dict[str, Any]) -> tuple[int, ...]:
        """The numbers that seed the draws of a batch, besides the seed of the run."""
        return (batch["step"],)

    def graph_mode(self) -> GraphMode:
        """Whether a step becomes a CUDA graph."""
        mode: GraphMode = self.config.cuda_graph
        return mode

    # ---- one step ----------------------------------------------------------------------------------------------------

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """The loss of one batch; its draws depend on the seed and the number of the step alone."""
        seed_draws(seed_of(self.seed, *self.seed_numbers(batch)), self.device)
        loss, numbers = self.train_on(batch)
        self._recent.append(numbers.clone())  # the next replay of a CUDA graph overwrites them
        return loss

    def whole_step(
        self,
        loss: Loss,
        weights: Iterable[nn.Parameter],
        optimizer: torch.optim.Optimizer,
        clip: float | None = None,
        average: Callable[[float | Tensor], None] | None = None,
    ) -> WholeStep:
        """A step of one optimiser; on a GPU a CUDA graph."""
        bf16 = self.config.precision == "bf16"
        return WholeStep(loss, weights, optimizer, clip, bf16, average, self.graph_mode())

    def compiled(self, function: Callable[..., Any], mode: str = "default") -> Callable[..., Any]:
        """The function, compiled where the configuration says so."""
        return compiled(function, mode) if self.config.compile else function

    @property
    def fused(self) -> bool | None:
        """Whether optimisers are fused: on a GPU yes, elsewhere torch decides how they run."""
        return True if next(self.model.parameters()).device.type == "cuda" else None

    def learning_rate(self, step: int) -> float:
        """The learning rate of a step, as a part of its peak."""
        rate: float = self.config.learning_rate(step, self.clock.spent)
        return rate

    # ---- Lightning's hooks -------------------------------------------------------------------------------------------

    def on_train_start(self) -> None:
        """Apply the settings of the configuration; a checkpoint may have brought others, or those of another device."""
        for optimizer, new in zip(self.optimisers(), self.new_optimisers()):
            for group, settings in zip(optimizer.param_groups, new.param_groups):
                group |= {name: value for name, value in settings.items() if name != "params"}
            for weight, state in optimizer.state.items():
                if "step" in state:  # a fused optimiser counts its steps on the device
                    state["step"] = state["step"].to(weight.device if self.fused else "cpu")

    def on_train_end(self) -> None:
        """Free the memory of the CUDA graphs."""
        self._step = None
        self.zero_grad(set_to_none=True)

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """No-op where the whole step ran the backward pass."""
        if self._step is None:
            super().backward(loss, *args, **kwargs)

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: Any) -> None:
        """No-op where the whole step dropped the gradient."""
        if self._step is None:
            super().optimizer_zero_grad(epoch, batch_idx, optimizer)

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None) -> None:
        """Call `training_step` alone where that is the whole step."""
        if self._step is None:
            super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
        else:
            optimizer_closure()

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Write a row of the log every `log_every` steps."""
        if self.global_step % self.config.log_every == 0:
            self.log_recent()

    def log_recent(self) -> None:
        """Write the means of the numbers since the last row; a loss that is not finite ends the run."""
        if not self._recent:
            return
        values = dict(zip(self.names, torch.stack(self._recent).mean(0).tolist()))
        self._recent.clear()
        bad = next((name for name in self.must_be_finite if not math.isfinite(values[name])), None)
        if bad is not None:
            raise ArithmeticError(f"the {bad} is {values[bad]} at step {self.global_step}: {self.remedy}")
        self.latest = {name: values[name] for name in self.on_screen}
        row = {f"train/{name}": value for name, value in values.items()}
        self.log_row(row | {"train/lr": self.trainer.optimizers[0].param_groups[0]["lr"]})

    def log_row(self, row: dict[str, float]) -> None:
        """Write numbers and the minutes of the run to the logs."""
        for logger in self.loggers:
            logger.log_metrics(row | {"minutes": self.clock.minutes}, self.global_step)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add how long the run has trained."""
        checkpoint["minutes"] = self.clock.minutes

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Start the clock at the minutes of the checkpoint."""
        self.clock.start(checkpoint.get("minutes", 0.0))


def weight_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Parameter groups for an optimiser: matrices, which decay, and vectors and biases, which do not."""
    weights = {name: p for name, p in model.named_parameters() if p.requires_grad}
    decays = {name: p.dim() >= 2 and not name.endswith("bias") for name, p in weights.items()}
    groups = [
        {"params": [p for name, p in weights.items() if decays[name]], "weight_decay": weight_decay},
        {"params": [p for name, p in weights.items() if not decays[name]], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]
