"""One run of a network for images: its settings, its steps, its folder.

A step is a function that waits for nothing, so on a GPU it is one CUDA graph; the images are on the device as bytes.
Every draw of a step is seeded by (seed, step): a run that was stopped goes on as if it had not been, on a CPU exactly
so; on a GPU the gradients of convolutions differ in their last bits from run to run.
"""

import json
import logging
import math
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from torch import Tensor, nn

from usd3._internal.checks import as_count, as_number, require
from usd3._internal.compile import compiled
from usd3._internal.fields import require_fields
from usd3._internal.files import write_whole
from usd3._internal.interrupts import defer_interrupts
from usd3._internal.pixels import as_floats
from usd3._internal.processes import rank_and_world
from usd3._internal.progress import say
from usd3._internal.random import seed_draws, seed_of
from usd3._internal.threads import waiting_asleep
from usd3.kinds.dataset import Sequences
from usd3.kinds.fingerprints import fingerprint
from usd3.kinds.image.augment import augmented
from usd3.kinds.image.classifier import Classifier
from usd3.kinds.image.folders import save_network
from usd3.kinds.image.images import Images
from usd3.kinds.image.sets import load_images
from usd3.kinds.image.vqgan import VQGAN
from usd3.training.batches import Batches, home_of
from usd3.training.callbacks import StopOnSignal, StopOnTime, TrainingProgress
from usd3.training.checkpoints import AtomicCheckpointIO, Checkpoints, newest_whole, require_fitting, step_of
from usd3.training.clock import Clock
from usd3.training.folder import begin, own_folder, read_recipe, require_same_data
from usd3.training.options import TrainingConfig
from usd3.training.step import Batch, WholeStep

__all__ = ["FitConfig", "ImageTraining", "channels_last", "fit", "write_results"]

Network = TypeVar("Network", bound=nn.Module)


def channels_last(network: Network) -> Network:
    """The network with the layout of weights that convolutions on a GPU like."""
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


@dataclass
class FitConfig:
    """How a network for images is trained.

    Args:
        images: CIFAR-10's python batches, a folder of images, a folder of sheets, or an .npz file.
        size: cut images to squares and scale them to this side; needed where their sizes differ.
        crop: move each image by up to so many pixels, at random.
        flip: mirror each image with probability 1/2.
        steps: length of the run.
        minutes: end the run after so many minutes; null: after `steps`, which is also the most. The learning rate
            falls with the minutes.
        batch_size: images of a step.
        lr: peak of the learning rate, which then falls to 0 along a cosine.
        warmup: steps until the learning rate is at its peak.
        precision: "fp32" or "bf16" (weights and codebook stay fp32).
        compile: torch.compile the step, which takes a while at the start.
        cuda_graph: run a step as one CUDA graph: "auto" where possible, "always" (or an error), "never".
        accelerator: "auto", "cpu" or "gpu".
        log_every: steps between rows of the log.
        checkpoint_every: steps between checkpoints.
        keep: how many checkpoints to keep.
        seed: seed of the weights and of every draw.
    """

    images: str | None = None
    size: int | None = None
    crop: int = 4
    flip: bool = True
    steps: int = 20_000
    minutes: float | None = None
    batch_size: int = 256
    lr: float = 1e-4
    warmup: int = 1000
    precision: Literal["fp32", "bf16"] = "fp32"
    compile: bool = False
    cuda_graph: Literal["auto", "always", "never"] = "auto"
    accelerator: Literal["auto", "cpu", "gpu"] = "auto"
    log_every: int = 50
    checkpoint_every: int = 1000
    keep: int = 2
    seed: int = 0

    def __post_init__(self) -> None:
        require_fields(self)
        for name in ("steps", "batch_size", "log_every", "checkpoint_every", "keep"):
            as_count(getattr(self, name), name, 1)
        for name in ("warmup", "crop"):
            as_count(getattr(self, name), name, 0)
        as_number(self.lr, "lr", 0)
        if self.minutes is not None:
            as_number(self.minutes, "minutes", 0)
        on_gpu = self.accelerator != "cpu" and torch.cuda.is_available()
        require(self.accelerator != "gpu" or on_gpu, "accelerator", "gpu", "cpu or auto, as torch sees no GPU")
        require(self.cuda_graph != "always" or on_gpu, "cuda_graph", "always", "auto or never without a GPU")

    @property
    def fixed(self) -> tuple[str, ...]:
        """What a run that is resumed cannot change."""
        return ("seed",)


class ImageTraining(pl.LightningModule):
    """What the training of every network for images does: batches, rates, logs, the clock.

    `training_step` is the whole optimiser step. A subclass says what one is in `train_on`.
    """

    names: ClassVar[tuple[str, ...]]  # what `train_on` shows for the log; the first is the loss
    on_screen: ClassVar[tuple[str, ...]]  # which of them the progress shows
    remedy = "try a smaller lr or more warmup"

    def __init__(self, model: VQGAN | Classifier, config: FitConfig, images: Images):
        super().__init__()
        inside = config.crop < min(images.size)
        require(inside, "crop", config.crop, f"less than the sides of the images, {images.size}")
        self.model, self.config = channels_last(model), config
        self.pixels, self.labels = images.train, images.train_labels
        counts = {"train_images": len(images.train), "test_images": len(images.test)}
        self.data: dict[str, Any] = {"size": list(images.size), **counts}
        self.clock = Clock(config.minutes)
        self.latest: dict[str, float] = {}
        self._recent: list[Tensor] = []
        self._rate = TrainingConfig(steps=config.steps, warmup=config.warmup, decay="cosine").learning_rate

    def train_on(self, images: Tensor, labels: Tensor | None, done: float) -> Tensor:
        """One step on bytes (N, 3, H, W), when `done` of the run is behind us; the numbers of the log."""
        raise NotImplementedError

    def told(self) -> dict[str, Any]:
        """What config.json says besides the sizes of the network."""
        spent = {"steps": self.global_step, "minutes": self.clock.minutes}
        return {"images": self.config.images, **self.data, **spent}

    def augmented(self, images: Tensor) -> Tensor:
        """Bytes moved and mirrored as the configuration says, in -1..1; not compiled: torch 2.11 fails on it."""
        return as_floats(augmented(images, self.config.crop, self.config.flip))

    def optimisers(self) -> list[torch.optim.Optimizer]:
        """All that are stepped; the first is Lightning's too."""
        return [self.trainer.optimizers[0]]

    def settings(self) -> dict[str, Any]:
        """Settings of the optimisers besides the learning rate."""
        return {}

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        """One optimiser step; its draws depend on (seed, step) alone."""
        step, rows = batch["step"], batch["tokens"][:, 0]
        seed_draws(seed_of(self.config.seed, step), self.device)
        for optimizer in self.optimisers():
            for group in optimizer.param_groups:
                group["lr"] = self.config.lr * self._rate(step, self.clock.spent)
        images = self.pixels[rows].to(self.device, non_blocking=True)
        labels = None if self.labels is None else self.labels[rows].to(self.device, non_blocking=True)
        shown = self.train_on(images, labels, max(step / self.config.steps, self.clock.spent))
        self._recent.append(shown.clone())  # a CUDA graph writes the next step's to the same place
        return self._recent[-1][0]

    def whole_step(
        self,
        loss: Callable[[Batch], tuple[Tensor, Tensor]],
        weights: list[nn.Parameter],
        optimizer: torch.optim.Optimizer,
    ) -> WholeStep:
        """A step of one optimiser; on a GPU a CUDA graph."""
        bf16 = self.config.precision == "bf16"
        return WholeStep(loss, weights, optimizer, bf16=bf16, graph=self.config.cuda_graph)

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, compiled where the configuration says so."""
        return compiled(function) if self.config.compile else function

    @property
    def fused(self) -> bool | None:
        """Whether optimisers are fused; elsewhere than on a GPU torch decides how they run."""
        return True if next(self.model.parameters()).device.type == "cuda" else None

    def train_dataloader(self) -> Batches:
        """Rows of the images, from the step that the trainer has reached."""
        trainer = self.trainer
        home = home_of(Sequences(self.pixels), trainer.strategy.root_device)
        self.pixels = self.pixels.to(home)
        self.labels = None if self.labels is None else self.labels.to(home)
        rows = Sequences(torch.arange(len(self.pixels))[:, None])
        size, seed = self.config.batch_size, self.config.seed
        return Batches(rows, size, seed, lambda: trainer.global_step, parts=1, rank=0, world=1, device=home)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Nothing: rows stay where the images are."""
        return batch

    def on_train_start(self) -> None:
        """Settings hold, also where a checkpoint brought older ones or comes from another device."""
        for optimizer in self.optimisers():
            for group in optimizer.param_groups:
                group |= {**self.settings(), "fused": self.fused, "foreach": None, "capturable": False}
            for weight, state in optimizer.state.items():  # a fused optimiser counts its steps on the device
                state["step"] = state["step"].to(weight.device if self.fused else "cpu")

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Nothing: the step is done."""

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: Any) -> None:
        """Nothing: the step is done."""

    def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any = None) -> None:
        """Call `training_step`, which is the whole step."""
        optimizer_closure()

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Write a row of the log now and then."""
        if self.global_step % self.config.log_every == 0:
            self.log_recent()

    def log_recent(self) -> None:
        """Write the means of what was not yet written; a loss that is no number ends the run."""
        if not self._recent:
            return
        values = dict(zip(self.names, torch.stack(self._recent).mean(0).tolist()))
        self._recent.clear()
        bad = next((name for name, value in values.items() if not math.isfinite(value)), None)
        if bad is not None:
            raise ArithmeticError(f"the {bad} is {values[bad]} at step {self.global_step}: {self.remedy}")
        self.latest = {name: values[name] for name in self.on_screen}
        rows = {f"train/{name}": value for name, value in values.items()}
        rows |= {"train/lr": self.trainer.optimizers[0].param_groups[0]["lr"], "minutes": self.clock.minutes}
        for logger in self.loggers:
            logger.log_metrics(rows, self.global_step)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add how long the run has trained."""
        checkpoint["minutes"] = self.clock.minutes

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """The run has the rest of its minutes."""
        self.clock.start(checkpoint["minutes"])


@waiting_asleep()
def fit(
    config: FitConfig,
    folder: Path | str,
    make: Callable[[Images], ImageTraining],
    images: Images | None = None,
    resume: bool = False,
    progress: bool = True,
) -> Images:
    """Train what `make` makes in a folder of its own; with `resume`, go on from its newest whole checkpoint.

    The images are loaded where none are given; they are returned. A run that is resumed has the images it had. A run
    ends after its `steps`, or its `minutes`. One process at a time has the folder.
    Ctrl-C and SIGTERM end it after the current step with a checkpoint, and then raise KeyboardInterrupt.
    """
    folder, world = Path(folder), rank_and_world()[1]
    require(world == 1, "processes", world, "one; networks for images are trained by one process")
    with own_folder(folder, resume):
        return _fit(config, folder, make, images, resume, progress)


def _fit(
    config: FitConfig,
    folder: Path,
    make: Callable[[Images], ImageTraining],
    images: Images | None,
    resume: bool,
    progress: bool,
) -> Images:
    """`fit` in a folder that is ours; what does not fit together is refused before anything is written."""
    if resume:
        _require_same(config, folder)
    images = _load(config) if images is None else images
    torch.manual_seed(seed_of(config.seed))
    module = make(images)
    told = module.data | {"fingerprint": fingerprint(images.train, images.train_labels)}
    if resume:
        require_same_data(told, folder, "the images")
    start = newest_whole(folder / "checkpoints") if resume else None
    done = 0 if start is None else step_of(start)
    require(config.steps >= done, "steps", config.steps, f"at least {done}, which the run has done")
    if start is not None:
        require_fitting(start, module)
    begin(folder, asdict(config), told)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="lightning.*")
        trainer = _trainer(config, folder, [TrainingProgress()] if progress else [])
        with defer_interrupts():
            trainer.fit(module, ckpt_path=start, weights_only=True)
    if trainer.global_step < config.steps and not module.clock.over:
        raise KeyboardInterrupt(f"stopped at step {trainer.global_step}")
    if start is not None and trainer.global_step == done:
        more = f"steps {2 * done}" if done >= config.steps else f"minutes {2 * (config.minutes or 1):g}"
        say(f"{folder} is finished, with {done} steps; for more: --resume {folder} --{more}")
    return images


def write_results(folder: Path | str, results: dict[str, Any]) -> None:
    """Write results.json."""
    write_whole(Path(folder) / "results.json", json.dumps(results, indent=2) + "\n")


def _load(config: FitConfig) -> Images:
    require(config.images is not None, "images", None, "a file or folder of images")
    return load_images(str(config.images), config.size)


def _require_same(config: FitConfig, folder: Path) -> None:
    """What a network is cannot change when its run is resumed; how it is trained can."""
    file, before = folder / "recipe.yaml", read_recipe(folder)
    for name in config.fixed:
        require(name in before, str(file), f"without {name}", f"the recipe of a {type(config).__name__}")
        now, kept = getattr(config, name), before[name]
        require(now == kept, name, now, f"{kept}, as in {file}; start a new run to change it")


def _trainer(config: FitConfig, folder: Path, further: list[pl.Callback]) -> pl.Trainer:
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)

    def export(trainer: pl.Trainer, module: Any) -> None:
        save_network(folder, module.model, **module.told())

    checkpoints = Checkpoints(folder, config.checkpoint_every, config.keep, export)
    table = CSVLogger(folder, name="logs", flush_logs_every_n_steps=1)
    return pl.Trainer(
        default_root_dir=folder,
        max_steps=config.steps,
        max_epochs=-1,
        precision="32-true",  # a whole step sets its own
        accelerator=config.accelerator,
        devices=1,
        benchmark=True,  # all batches have one shape
        logger=[table, TensorBoardLogger(folder, name="logs", version=table.version)],
        callbacks=[StopOnTime(), checkpoints, StopOnSignal(), *further],
        plugins=[AtomicCheckpointIO()],
        limit_val_batches=0,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
