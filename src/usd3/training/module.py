"""Training on Lightning: the module and its data.

Every draw of a step is seeded by (seed, step, part of the batch), and so is the choice of its objects. So a run that
was stopped goes on exactly as if it had not been, and two processes do what one does in two parts.
"""

import math
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader

from usd3._internal.checks import require
from usd3._internal.compile import compiled
from usd3._internal.random import seed_draws, seed_of
from usd3.core.coefficients import free_elements
from usd3.core.given import draw_given
from usd3.kinds.dataset import Dataset
from usd3.methods.base import Method
from usd3.nets import Hollow
from usd3.nets.options import NETS
from usd3.training.batches import Batches, home_of, transposer
from usd3.training.callbacks import Ema
from usd3.training.clock import Clock
from usd3.training.options import TrainingConfig
from usd3.training.step import Batch, GraphMode, WholeStep

__all__ = ["SequenceData", "Training", "weight_groups"]


class SequenceData(pl.LightningDataModule):
    """The data of a run: endless training batches, and the first held-out objects for validation."""

    def __init__(self, dataset: Dataset, config: TrainingConfig, seed: int = 0, transpose: int = 0):
        super().__init__()
        self.dataset, self.config, self.seed, self.transpose = dataset, config, seed, transpose

    def train_dataloader(self) -> Batches:
        """Batches from the step the trainer has reached."""
        trainer = self.trainer
        assert trainer is not None
        home = home_of(self.dataset.train, trainer.strategy.root_device)
        return Batches(
            self.dataset.train,
            self.config.batch_size,
            self.seed,
            lambda: trainer.global_step,
            parts=self.config.accumulate * trainer.world_size,
            rank=trainer.global_rank,
            world=trainer.world_size,
            transpose=transposer(self.dataset, self.transpose, home) if self.transpose else None,
            device=home,
        )

    def val_dataloader(self) -> DataLoader[dict[str, Any]]:
        """The share of this process, in batches as large as those of training."""
        trainer, test = self.trainer, self.dataset.test
        assert trainer is not None
        mine = torch.arange(trainer.global_rank, min(self.config.validate_objects, len(test)), trainer.world_size)
        size = max(1, self.config.batch_size // (self.config.accumulate * trainer.world_size))
        pads = {} if test.pad is None else {"pad": test.pad}
        batches: Any = [{"tokens": test.tokens[i]} | {k: v[i] for k, v in pads.items()} for i in mine.split(size)]
        return DataLoader(batches, batch_size=None)


class Training(pl.LightningModule):
    """One network and the method that trains it.

    Where one process trains without accumulation, `training_step` is the whole optimiser step, so that a GPU can run
    it as one CUDA graph; what Lightning would do with the loss is then done. Otherwise Lightning does it.
    """

    remedy = "try a smaller training.lr, more training.warmup, or training.clip 1"

    def __init__(self, model: nn.Module, method: Method, config: TrainingConfig, seed: int = 0):
        super().__init__()
        self.model, self.method, self.config, self.seed = model, method, config, seed
        self._loss = compiled(self._eager_loss, config.compile_mode) if config.compile else self._eager_loss
        self.clock = Clock(config.minutes)
        self._whole: WholeStep | None = None
        self._ema: Ema | None = None
        self._recent: list[Tensor] = []
        self.latest: dict[str, float] = {}

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """The loss of one part of a batch; its draws depend on (seed, step, part) alone."""
        seed_draws(seed_of(self.seed, batch["step"], batch["part"]), self.device)
        tensors: Batch = {name: batch[name] for name in ("tokens", "pad") if name in batch}
        if self._whole is None:
            loss, shown = self._batch_loss(tensors)
        else:
            loss, shown = self._whole(tensors, 1.0 if self._ema is None else self._ema.rate(self.global_step + 1))
        self._recent.append(shown.clone())  # a CUDA graph writes the next step's to the same place
        return loss

    def _batch_loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        return self._loss(batch["tokens"].long(), batch.get("pad"))

    def _eager_loss(self, x_0: Tensor, pad: Tensor | None) -> tuple[Tensor, Tensor]:
        """The loss, and what the log shows of it: the loss per free element, and the bound in bits per element."""
        given = self.method.given_in_training(draw_given(self.config.given, x_0, self.config.prefix))
        out = self.method.loss(self.model, x_0, given=given, pad=pad, stratified=self.config.stratified)
        free = _count_free(x_0, given, pad).clamp(min=1) / len(x_0)
        return out.loss, torch.stack([out.loss.detach() / free, out.vlb / free / math.log(2)]).float()

    def on_train_start(self) -> None:
        """What the recipe says of the optimiser holds, also where a checkpoint brought older settings."""
        optimizer, scheduler = self.trainer.optimizers[0], self.trainer.lr_scheduler_configs[0].scheduler
        scheduler.base_lrs = [self.config.lr] * len(optimizer.param_groups)
        for group, wanted in zip(optimizer.param_groups, self._groups()):
            group["weight_decay"], group["betas"] = wanted["weight_decay"], self.config.betas
            group["initial_lr"] = self.config.lr
            group["lr"] = self.config.lr * self._learning_rate(self.global_step)
            group |= {"fused": self._fused, "foreach": None, "capturable": False}
        for weight, state in optimizer.state.items():  # a fused optimiser counts its steps on the device
            state["step"] = state["step"].to(weight.device if self._fused else "cpu")
        self._begin(optimizer)

    @property
    def _fused(self) -> bool | None:
        """Whether the optimiser is fused; elsewhere than on a GPU torch decides how it runs."""
        return True if next(self.model.parameters()).device.type == "cuda" else None

    def _begin(self, optimizer: Any) -> None:
        """Take the whole step over from Lightning where that is possible."""
        mode = self._graph_mode()
        if self.config.accumulate == 1 and isinstance(self.trainer.strategy, SingleDeviceStrategy):
            callbacks: list[Any] = self.trainer.callbacks  # type: ignore[attr-defined]
            self._ema = next((callback for callback in callbacks if isinstance(callback, Ema)), None)
            self._whole = WholeStep(
                self._batch_loss,
                self.model.parameters(),
                optimizer,
                clip=self.config.clip,
                bf16=self.config.precision == "bf16",
                average=None if self._ema is None else self._ema.hand_over(self),
                graph=mode,
            )

    def _graph_mode(self) -> GraphMode:
        """Whether a step becomes a CUDA graph: what the configuration says, as far as this trainer allows it."""
        single = isinstance(self.trainer.strategy, SingleDeviceStrategy) and self.device.type == "cuda"
        if self.config.cuda_graph == "always":
            seen = f"{self.trainer.world_size} on {self.device.type}"
            require(single, "training.cuda_graph", "always", f"one process on a GPU, found {seen}; auto decides itself")
            return "always"
        net = self.model.module if isinstance(self.model, Hollow) else self.model
        possible = single and type(net) in NETS.values() and not self.config.graph_hindrances
        return "auto" if possible and self.config.cuda_graph == "auto" else "never"

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Nothing where the step is done."""
        if self._whole is None:
            super().backward(loss, *args, **kwargs)

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: Any) -> None:
        """Nothing where the step is done."""
        if self._whole is None:
            super().optimizer_zero_grad(epoch, batch_idx, optimizer)

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None) -> None:
        """Call `training_step` alone where that is the whole step."""
        if self._whole is None:
            super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
        else:
            optimizer_closure()

    def optimisers(self) -> list[torch.optim.Optimizer]:
        """All that are stepped."""
        return self.trainer.optimizers

    def on_train_end(self) -> None:
        """Give back the memory of the graph."""
        self._whole = None
        self.zero_grad(set_to_none=True)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Every `log_every` steps, write the mean since the last row; a loss that is no number ends the run."""
        last_part = batch_idx % self.config.accumulate == self.config.accumulate - 1
        if last_part and self.global_step % self.config.log_every == 0:
            self.log_recent()

    def log_recent(self) -> None:
        """Write the means of what was not yet written."""
        if not self._recent:
            return
        loss, bits = torch.stack(self._recent).mean(0).tolist()
        self._recent.clear()
        if not math.isfinite(loss):
            raise ArithmeticError(f"the loss is {loss} at step {self.global_step}: {self.remedy}")
        self.latest = {"loss": loss, "bits_per_element": bits}
        rate = self.trainer.optimizers[0].param_groups[0]["lr"]
        rows = {"train/loss": loss, "train/bits_per_element": bits, "train/lr": rate, "minutes": self.clock.minutes}
        for logger in self.loggers:
            logger.log_metrics(rows, self.global_step)

    def on_validation_start(self) -> None:
        """Start the sums of the bound."""
        self._bound = torch.zeros(2, dtype=torch.float64, device=self.device)

    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """The bound on -log p(free | given) of held-out objects, at 16 times each."""
        generator = torch.Generator(self.device).manual_seed(seed_of(self.seed, -1, batch_idx, self.global_rank))
        x_0, pad = batch["tokens"].long(), batch.get("pad")
        given = None
        if self.config.given == "prefix":
            given = draw_given("prefix", x_0, self.config.prefix)
        nats = self.method.bound(self.model, x_0, num_samples=16, given=given, pad=pad, generator=generator)
        self._bound += torch.stack([nats.sum(), _count_free(x_0, given, pad).double()])

    def on_validation_end(self) -> None:
        """Write bits per element over all processes."""
        nats, elements = self.trainer.strategy.reduce(self._bound, reduce_op="sum").tolist()
        bits = nats / max(1.0, elements) / math.log(2)
        self.latest["val_bits_per_element"] = bits
        rows = {"val/bits_per_element": bits, "minutes": self.clock.minutes}
        for logger in self.loggers:
            logger.log_metrics(rows, self.global_step)

    def configure_model(self) -> None:
        """Under fsdp, shard each layer and then the rest over the processes."""
        mesh = self.device_mesh
        if mesh is not None and not isinstance(self.model, FSDPModule):
            late = any(getattr(module, "projection", False) for module in self.model.modules())
            require(not late, "model.projection", True, "false with fsdp, which shards the output layer")
            lists = [m for m in self.model.modules() if isinstance(m, nn.ModuleList)]
            for part in [*(part for parts in lists for part in parts), self.model]:
                fully_shard(part, mesh=mesh["data_parallel"], reshard_after_forward=True)

    def configure_gradient_clipping(self, optimizer: Any, *_: Any, **__: Any) -> None:
        """Clip the norm of the whole gradient, over all shards where there are any."""
        if self.config.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)

    def configure_optimizers(self) -> Any:
        """Adam or AdamW; matrices decay, vectors do not."""
        config = self.config
        kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[config.optimizer]
        optimizer = kind(self._groups(), lr=config.lr, betas=config.betas, fused=self._fused)
        scheduler = LambdaLR(optimizer, self._learning_rate)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def _learning_rate(self, step: int) -> float:
        return self.config.learning_rate(step, self.clock.spent)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add how long the run has trained."""
        checkpoint["minutes"] = self.clock.minutes

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """The run has the rest of its minutes."""
        self.clock.start(checkpoint.get("minutes", 0.0))

    def _groups(self) -> list[dict[str, Any]]:
        return weight_groups(self.model, self.config.weight_decay)


def weight_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """What an optimiser is given: matrices, which decay, and vectors, which do not."""
    weights = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in weights if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in weights if p.dim() < 2], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def _count_free(x_0: Tensor, given: Tensor | None, pad: Tensor | None) -> Tensor:
    """How many elements of the batch are neither given nor padding."""
    free = free_elements(given, pad)
    return torch.full((), x_0.numel(), device=x_0.device) if free is None else free.sum()
