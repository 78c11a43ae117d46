"""The training of a diffusion model.

Every draw of a step is seeded by (seed, step, part of the batch), so two processes do what one does in two parts.
"""

import math
from typing import Any

import torch
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.optim.lr_scheduler import LambdaLR

from usd3._internal.checks import require
from usd3._internal.graphs import GraphMode
from usd3._internal.random import seed_of
from usd3.core.coefficients import free_elements
from usd3.core.given import draw_given
from usd3.core.model import BoundKeywords
from usd3.methods.base import Method
from usd3.nets import Hollow
from usd3.nets.options import is_packaged
from usd3.training.early_stop import KeepBest
from usd3.training.ema import Ema
from usd3.training.labels import LabelTraining, with_absences
from usd3.training.module import TrainingModule, weight_groups
from usd3.training.options import TrainingConfig
from usd3.training.step import Batch

__all__ = ["DiffusionTraining"]


class DiffusionTraining(TrainingModule):
    """One network and the method that trains it.

    Where one process trains without accumulation, `training_step` is the whole optimiser step. Otherwise Lightning
    makes the step.
    """

    names = ("loss", "bits_per_element", "label_nats")  # the last for data with labels
    on_screen = ("loss", "bits_per_element")
    must_be_finite = ("loss",)
    remedy = "try a smaller training.lr, more training.warmup, or training.clip 1"
    config: TrainingConfig

    def __init__(self, model: nn.Module, method: Method, config: TrainingConfig, seed: int = 0):
        super().__init__(model, config, seed)
        self.method = method
        self._loss = self.compiled(self._eager_loss, config.compile_mode)
        self._ema: Ema | None = None

    def seed_numbers(self, batch: dict[str, Any]) -> tuple[int, ...]:
        """Step and part."""
        return batch["step"], batch["part"]

    def train_on(self, batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """The loss of one part of a batch, and the numbers for the log."""
        names = ("tokens", "pad", "label", *(["given"] if self.config.given == "data" else []))
        tensors: Batch = {name: batch[name] for name in names if name in batch}
        if self._step is None:
            return self._batch_loss(tensors)
        return self._step(tensors, 1.0 if self._ema is None else self._ema.rate(self.global_step + 1))

    def _batch_loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        x_0, *masks = batch["tokens"].long(), *(batch.get(name) for name in ("pad", "label", "given"))
        return self._loss(x_0, *masks)  # type: ignore[no-any-return]

    def _eager_loss(
        self, x_0: Tensor, pad: Tensor | None, label: Tensor | None = None, given: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The loss; for the log, the loss per free element and the bound in bits per element.

        With labels, the loss has the cross entropy of the absent ones too, which is then the third number for the log.
        """
        config = self.config
        drawn = draw_given(config.given, x_0, config.prefix, given, config.given_share)
        given = self.method.given_in_training(drawn)
        model = with_absences(self.model, given, label, self.config)
        out = self.method.loss(model, x_0, given=given, pad=pad, stratified=self.config.stratified)
        free = _count_free(x_0, given, pad).clamp(min=1) / len(x_0)
        numbers = [out.loss.detach() / free, out.vlb / free / math.log(2)]
        if not isinstance(model, LabelTraining):
            return out.loss, torch.stack(numbers).float()
        nats = model.label_nats()
        loss = out.loss + self.config.label_weight * self.method.nat_weight * x_0[0].numel() * nats
        return loss, torch.stack([*numbers, nats.detach()]).float()

    # ---- optimiser ---------------------------------------------------------------------------------------------------

    def new_optimisers(self) -> list[torch.optim.Optimizer]:
        """Adam or AdamW; matrices decay, vectors do not."""
        config, kinds = self.config, {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
        groups = weight_groups(self.model, config.weight_decay)
        return [kinds[config.optimizer](groups, lr=config.lr, betas=config.betas, fused=self.fused)]

    def configure_optimizers(self) -> Any:
        """The optimiser, with the learning rate of each step."""
        (optimizer,) = self.new_optimisers()
        scheduler = LambdaLR(optimizer, self.learning_rate)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_train_start(self) -> None:
        """Apply the settings of the recipe, and take the step over from Lightning where that is possible."""
        super().on_train_start()
        optimizer, scheduler = self.trainer.optimizers[0], self.trainer.lr_scheduler_configs[0].scheduler
        scheduler.base_lrs = [self.config.lr] * len(optimizer.param_groups)
        for group in optimizer.param_groups:
            group["initial_lr"] = self.config.lr
            group["lr"] = self.config.lr * self.learning_rate(self.global_step)
        self._take_over_step(optimizer)

    def _take_over_step(self, optimizer: torch.optim.Optimizer) -> None:
        self.graph_mode()  # refuses "always" where this trainer allows no graph
        if self.config.accumulate == 1 and isinstance(self.trainer.strategy, SingleDeviceStrategy):
            callbacks: list[Any] = self.trainer.callbacks  # type: ignore[attr-defined]
            self._ema = next((callback for callback in callbacks if isinstance(callback, Ema)), None)
            average = None if self._ema is None else self._ema.hand_over(self)
            weights = self.model.parameters()
            self._step = self.whole_step(self._batch_loss, weights, optimizer, self.config.clip, average)

    def graph_mode(self) -> GraphMode:
        """What the configuration says, as far as this trainer allows it."""
        single = isinstance(self.trainer.strategy, SingleDeviceStrategy) and self.device.type == "cuda"
        if self.config.cuda_graph == "always":
            seen = f"{self.trainer.world_size} on {self.device.type}"
            require(single, "training.cuda_graph", "always", f"one process on a GPU, found {seen}; auto decides itself")
            return "always"
        net = self.model.module if isinstance(self.model, Hollow) else self.model
        # the rows without a loss, which a projection leaves out, are others in each step: a graph would form them all
        leaves_out = getattr(net, "projection", False) and self.method.diffusion.noise.is_absorbing
        possible = single and is_packaged(net) and not leaves_out and not self.config.graph_hindrances
        return "auto" if possible and self.config.cuda_graph == "auto" else "never"

    def configure_gradient_clipping(self, optimizer: Any, *_: Any, **__: Any) -> None:
        """Clip the norm of the whole gradient, over all shards where there are any."""
        if self.config.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)

    def configure_model(self) -> None:
        """Under fsdp, shard each layer and then the rest over the processes."""
        mesh = self.device_mesh
        if mesh is not None and not isinstance(self.model, FSDPModule):
            late = any(getattr(module, "projection", False) for module in self.model.modules())
            require(not late, "model.projection", True, "false with fsdp, which shards the output layer")
            lists = [m for m in self.model.modules() if isinstance(m, nn.ModuleList)]
            for part in [*(part for parts in lists for part in parts), self.model]:
                fully_shard(part, mesh=mesh["data_parallel"], reshard_after_forward=True)

    # ---- log and validation ------------------------------------------------------------------------------------------

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Write a row of the log every `log_every` steps, after the last part of a batch."""
        if (batch_idx + 1) % self.config.accumulate == 0:
            super().on_train_batch_end(outputs, batch, batch_idx)

    def on_validation_start(self) -> None:
        """Start the sums of the bound and of the elements."""
        self._bound = torch.zeros(2, dtype=torch.float64, device=self.device)

    def validation_step(self, batch: dict[str, Any], batch_idx: int) -> None:
        """Add the bound on -log p(free | given, label) of held-out objects, at 16 times each."""
        generator = torch.Generator(self.device).manual_seed(seed_of(self.seed, -1, batch_idx, self.global_rank))
        x_0, pad = batch["tokens"].long(), batch.get("pad")
        given = None
        if self.config.given == "prefix":
            given = draw_given("prefix", x_0, self.config.prefix)
        model = BoundKeywords(self.model, batch["label"]) if "label" in batch else self.model
        nats = self.method.bound(model, x_0, num_samples=16, given=given, pad=pad, generator=generator)
        self._bound += torch.stack([nats.sum(), _count_free(x_0, given, pad).double()])

    def on_validation_end(self) -> None:
        """Write bits per element over all processes."""
        nats, elements = self.trainer.strategy.reduce(self._bound, reduce_op="sum").tolist()
        bits = nats / max(1.0, elements) / math.log(2)
        self.latest["val_bits_per_element"] = bits
        self.log_row({"val/bits_per_element": bits})
        for callback in self.trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, KeepBest):
                callback.judge(self.trainer, self, bits)


def _count_free(x_0: Tensor, given: Tensor | None, pad: Tensor | None) -> Tensor:
    """How many elements of the batch are neither given nor padding."""
    free = free_elements(given, pad)
    return torch.full((), x_0.numel(), device=x_0.device) if free is None else free.sum()
