"""Training on Lightning: the module and its data.

Every draw of a step is seeded by (seed, step, part of the batch), and so is the choice of its objects. So a run that
was stopped goes on exactly as if it had not been, and two processes do what one does in two parts.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import lightning.pytorch as pl
import torch
import torch._inductor.config
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader

from usd3._checks import require
from usd3._random import seed_of
from usd3.conditioning import draw_given
from usd3.config import TrainingConfig
from usd3.data import Dataset, Sequences
from usd3.diffusion import Diffusion
from usd3.process import free_elements

__all__ = ["SequenceData", "Training", "compiled"]


class Batches:
    """The batches of a run from some step on, without end: dicts with tokens, pad, step and part.

    Objects are taken in a random order, a new one for each pass. A batch is divided into `parts`, and this process
    takes those with index rank, rank + world, ...
    """

    def __init__(
        self,
        rows: Sequences,
        batch_size: int,
        seed: int,
        first_step: Callable[[], int],
        parts: int,
        rank: int,
        world: int,
        transpose: Callable[[Tensor, Tensor | None, torch.Generator], Tensor] | None = None,
    ):
        require(batch_size % parts == 0, "training.batch_size", batch_size, f"a multiple of {parts}, its parts")
        self.rows, self.batch_size, self.seed, self.first_step = rows, batch_size, seed, first_step
        self.parts, self.rank, self.world, self.transpose = parts, rank, world, transpose
        self._orders: dict[int, Tensor] = {}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        step = self.first_step()
        while True:
            for part in range(self.rank, self.parts, self.world):
                yield self.batch(step, part)
            step += 1

    def batch(self, step: int, part: int) -> dict[str, Any]:
        """One part of the batch of a step."""
        size = self.batch_size // self.parts
        first = step * self.batch_size + part * size
        chosen = self._rows(first, first + size)
        tokens, pad = self.rows.tokens[chosen], None if self.rows.pad is None else self.rows.pad[chosen]
        if self.transpose is not None:
            tokens = self.transpose(tokens, pad, torch.Generator().manual_seed(seed_of(self.seed, step, part, 1)))
        batch = {"tokens": tokens, "step": step, "part": part}
        return batch if pad is None else batch | {"pad": pad}

    def _rows(self, first: int, last: int) -> Tensor:
        """Rows first..last-1 of the endless sequence of passes, each pass in an order of its own."""
        passes = range(first // len(self.rows), (last - 1) // len(self.rows) + 1)
        start = passes.start * len(self.rows)
        return torch.cat([self._order(number) for number in passes])[first - start : last - start]

    def _order(self, number: int) -> Tensor:
        if number not in self._orders:
            generator = torch.Generator().manual_seed(seed_of(self.seed, number))
            self._orders = {number: torch.randperm(len(self.rows), generator=generator)}
        return self._orders[number]


class SequenceData(pl.LightningDataModule):
    """The data of a run: endless training batches, and the first held-out objects for validation."""

    def __init__(self, dataset: Dataset, config: TrainingConfig, seed: int = 0, transpose: int = 0):
        super().__init__()
        self.dataset, self.config, self.seed, self.transpose = dataset, config, seed, transpose

    def train_dataloader(self) -> Batches:
        """Batches from the step the trainer has reached."""
        trainer = self.trainer
        assert trainer is not None
        return Batches(
            self.dataset.train,
            self.config.batch_size,
            self.seed,
            lambda: trainer.global_step,
            parts=self.config.accumulate * trainer.world_size,
            rank=trainer.global_rank,
            world=trainer.world_size,
            transpose=_transposer(self.dataset, self.transpose) if self.transpose else None,
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


def _transposer(dataset: Dataset, most: int) -> Callable[[Tensor, Tensor | None, torch.Generator], Tensor]:
    """Move each melody by -most..most semitones, as far as its pitches allow; rests stay."""

    def transpose(tokens: Tensor, pad: Tensor | None, generator: torch.Generator) -> Tensor:
        original = dataset.decoded(tokens.long())
        sounding = (original < 128) if pad is None else (original < 128) & ~pad
        low = torch.where(sounding, original, 127).amin(1)
        high = torch.where(sounding, original, 0).amax(1)
        shift = torch.randint(-most, most + 1, (len(tokens),), generator=generator)
        shift = torch.minimum(torch.maximum(shift, -low), 127 - high)
        return dataset.encoded(torch.where(sounding, original + shift[:, None], original))

    return transpose


class Training(pl.LightningModule):
    """One network, one diffusion, one objective."""

    def __init__(self, model: nn.Module, diffusion: Diffusion, config: TrainingConfig, seed: int = 0):
        super().__init__()
        self.model, self.diffusion, self.config, self.seed = model, diffusion, config, seed
        self._loss = compiled(self._eager_loss, config.compile_mode) if config.compile else self._eager_loss
        self._recent: list[Tensor] = []
        self.latest: dict[str, float] = {}

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """The loss of one part of a batch; its draws depend on (seed, step, part) alone."""
        torch.manual_seed(seed_of(self.seed, batch["step"], batch["part"]))
        x_0, pad = batch["tokens"].long(), batch.get("pad")
        loss, shown = self._loss(x_0, pad)
        self._recent.append(shown.clone())  # a CUDA graph writes the next step's to the same place
        return loss

    def _eager_loss(self, x_0: Tensor, pad: Tensor | None) -> tuple[Tensor, Tensor]:
        """The loss, and what the log shows of it: the loss per free element, and the bound in bits per element."""
        given = draw_given(self.config.given, x_0, self.config.prefix)
        out = self.diffusion.loss(
            self.model, x_0, self.config.objective, given=given, pad=pad, stratified=self.config.stratified
        )
        free = _count_free(x_0, given, pad).clamp(min=1) / len(x_0)
        return out.loss, torch.stack([out.loss.detach() / free, out.vlb / free / math.log(2)]).float()

    def on_train_start(self) -> None:
        """What the recipe says of the optimiser holds, also where a checkpoint brought older settings."""
        optimizer, scheduler = self.trainer.optimizers[0], self.trainer.lr_scheduler_configs[0].scheduler
        scheduler.base_lrs = [self.config.lr] * len(optimizer.param_groups)
        for group, wanted in zip(optimizer.param_groups, self._groups()):
            group["weight_decay"], group["betas"] = wanted["weight_decay"], self.config.betas
            group["initial_lr"] = self.config.lr
            group["lr"] = self.config.lr * self.config.learning_rate(self.global_step)

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
            raise ArithmeticError(
                f"the loss is {loss} at step {self.global_step}: try a smaller training.lr or more training.warmup"
            )
        self.latest = {"loss": loss, "bits_per_element": bits}
        rate = self.trainer.optimizers[0].param_groups[0]["lr"]
        rows = {"train/loss": loss, "train/bits_per_element": bits, "train/lr": rate}
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
        nats = self.diffusion.bound(self.model, x_0, num_samples=16, given=given, pad=pad, generator=generator)
        self._bound += torch.stack([nats.sum(), _count_free(x_0, given, pad).double()])

    def on_validation_end(self) -> None:
        """Write bits per element over all processes."""
        nats, elements = self.trainer.strategy.reduce(self._bound, reduce_op="sum").tolist()
        bits = nats / max(1.0, elements) / math.log(2)
        self.latest["val_bits_per_element"] = bits
        for logger in self.loggers:
            logger.log_metrics({"val/bits_per_element": bits}, self.global_step)

    def configure_model(self) -> None:
        """Under fsdp, shard each layer and then the rest over the processes."""
        mesh = self.device_mesh
        if mesh is not None and not isinstance(self.model, FSDPModule):
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
        optimizer = kind(self._groups(), lr=config.lr, betas=config.betas)
        scheduler = LambdaLR(optimizer, config.learning_rate)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def _groups(self) -> list[dict[str, Any]]:
        weights = [p for p in self.model.parameters() if p.requires_grad]
        groups = [
            {"params": [p for p in weights if p.dim() >= 2], "weight_decay": self.config.weight_decay},
            {"params": [p for p in weights if p.dim() < 2], "weight_decay": 0.0},
        ]
        return [group for group in groups if group["params"]]


def compiled(function: Callable[..., Any], mode: str = "default") -> Callable[..., Any]:
    """torch.compile, without one fusion on which torch 2.11 fails for some of our sizes."""
    if hasattr(torch._inductor.config.triton, "mix_order_reduction"):
        torch._inductor.config.triton.mix_order_reduction = False
    return torch.compile(function, mode=mode)


def _count_free(x_0: Tensor, given: Tensor | None, pad: Tensor | None) -> Tensor:
    """How many elements of the batch are neither given nor padding."""
    free = free_elements(given, pad)
    return torch.full((), x_0.numel(), device=x_0.device) if free is None else free.sum()
