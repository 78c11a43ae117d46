"""The training of networks for images: settings, steps, runs.

A step waits for nothing, so on a GPU it is one CUDA graph; the images are on the device as bytes. Every draw of a step
is seeded by (seed, step): a run that was stopped goes on as if it had not been, on a CPU exactly so; on a GPU the
gradients of convolutions differ in their last bits from run to run.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import lightning.pytorch as pl
import torch
from torch import Tensor, nn

from usd3._internal.checks import as_count, as_number, require
from usd3._internal.fields import require_fields
from usd3._internal.files import write_whole
from usd3._internal.pixels import as_floats
from usd3._internal.processes import rank_and_world
from usd3._internal.random import seed_of
from usd3.kinds.dataset import Sequences
from usd3.kinds.fingerprints import fingerprint
from usd3.kinds.image.augment import augmented
from usd3.kinds.image.classifier import Classifier
from usd3.kinds.image.folders import save_network
from usd3.kinds.image.images import Images
from usd3.kinds.image.sets import load_images
from usd3.kinds.image.vqgan import VQGAN
from usd3.training.batches import Batches, storage_device
from usd3.training.fitting import TrainingRun
from usd3.training.module import TrainingModule
from usd3.training.options import learning_rate

__all__ = ["FitConfig", "ImageRun", "ImageTraining", "channels_last", "fit_images", "write_results"]

Network = TypeVar("Network", bound=nn.Module)


def channels_last(network: Network) -> Network:
    """The network with the memory layout of weights in which convolutions on a GPU are fastest."""
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

    def learning_rate(self, step: int, spent: float = 0.0) -> float:
        """The learning rate at a step, as a part of its peak; `spent` is the part of `minutes` that is over."""
        return learning_rate(step, self.steps, self.warmup, "cosine", spent=spent)

    @property
    def fixed(self) -> tuple[str, ...]:
        """The settings that a resumed run cannot change."""
        return ("seed",)


class ImageTraining(TrainingModule):
    """The training of a network on images, which it moves and mirrors at random.

    `training_step` is always the whole optimiser step. A subclass says which `network` it trains and makes the step in
    `train_on_images`.
    """

    remedy = "try a smaller lr or more warmup"
    config: FitConfig

    def __init__(self, config: FitConfig, images: Images):
        inside = config.crop < min(images.size)
        require(inside, "crop", config.crop, f"less than the sides of the images, {images.size}")
        super().__init__(channels_last(self.network(config, images)), config, config.seed)
        self.pixels, self.labels = images.train, images.train_labels
        self._facts = self.facts(images)

    @staticmethod
    def network(config: Any, images: Images) -> VQGAN | Classifier:
        """The network of a configuration, untrained; images that it cannot take are refused."""
        raise NotImplementedError

    @staticmethod
    def facts(images: Images) -> dict[str, Any]:
        """What config.json says of the images, and by which a resumed run recognises them."""
        return {"size": list(images.size), "train_images": len(images.train), "test_images": len(images.test)}

    def description(self) -> dict[str, Any]:
        """What config.json says besides the sizes of the network."""
        spent = {"steps": self.global_step, "minutes": self.clock.minutes}
        return {"images": self.config.images, **self._facts, **spent}

    def train_on_images(self, images: Tensor, labels: Tensor | None, progress: float) -> Tensor:
        """One step on bytes (N, 3, H, W), when the part `progress` of the run is done; the numbers for the log."""
        raise NotImplementedError

    def train_on(self, batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """One step on the images of a batch; the loss is the first of its numbers."""
        step, rows = batch["step"], batch["tokens"][:, 0]
        for optimizer in self.optimisers():
            for group in optimizer.param_groups:
                group["lr"] = self.config.lr * self.learning_rate(step)
        images = self.pixels[rows].to(self.device, non_blocking=True)
        labels = None if self.labels is None else self.labels[rows].to(self.device, non_blocking=True)
        numbers = self.train_on_images(images, labels, max(step / self.config.steps, self.clock.spent))
        return numbers[0], numbers

    def augmented(self, images: Tensor) -> Tensor:
        """Bytes moved and mirrored as the configuration says, in -1..1; not compiled: torch 2.11 fails on it."""
        return as_floats(augmented(images, self.config.crop, self.config.flip))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The first optimiser."""
        return self.new_optimisers()[0]

    def train_dataloader(self) -> Batches:
        """Rows of the images, from the step that the trainer has reached."""
        trainer = self.trainer
        device = storage_device(Sequences(self.pixels), trainer.strategy.root_device)
        self.pixels = self.pixels.to(device)
        self.labels = None if self.labels is None else self.labels.to(device)
        rows = Sequences(torch.arange(len(self.pixels))[:, None])
        size, seed = self.config.batch_size, self.config.seed
        return Batches(rows, size, seed, lambda: trainer.global_step, parts=1, rank=0, world=1, device=device)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """No-op: the rows stay where the images are."""
        return batch


class ImageRun(TrainingRun):
    """The run of one kind of training, on the given images or on those that the configuration names."""

    data_name = "the images"
    config: FitConfig

    def __init__(self, config: FitConfig, training: type[ImageTraining], images: Images | None = None):
        super().__init__(config)
        self.training, self.given = training, images

    def recipe(self) -> dict[str, Any]:
        """All settings."""
        return asdict(self.config)

    def fixed_settings(self, recipe: dict[str, Any]) -> dict[str, Any]:
        """The sizes of the network and the seed."""
        return {name: recipe[name] for name in self.config.fixed if name in recipe}

    def load_data(self) -> dict[str, Any]:
        """Load the images where none are given."""
        if self.given is None:
            require(self.config.images is not None, "images", None, "a file or folder of images")
            self.given = load_images(str(self.config.images), self.config.size)
        self.images = self.given
        prints = {"fingerprint": fingerprint(self.images.train, self.images.train_labels)}
        return self.training.facts(self.images) | prints

    def build(self, resumed: Path | None) -> ImageTraining:
        """The network of the configuration."""
        torch.manual_seed(seed_of(self.config.seed))
        return self.training(self.config, self.images)

    def trainer_options(self) -> dict[str, Any]:
        """One process; a whole step sets its own precision, and all batches have one shape."""
        return {"precision": "32-true", "devices": 1, "benchmark": True}

    def export(self, folder: Path, trainer: pl.Trainer, module: Any) -> None:
        """Write the network."""
        save_network(folder, module.model, **module.description())


def fit_images(
    config: FitConfig,
    training: type[ImageTraining],
    folder: Path | str,
    images: Images | None = None,
    resume: bool = False,
    progress: bool = True,
) -> Images:
    """Train in a folder of its own, as `TrainingRun.fit` does. Returns the images."""
    world = rank_and_world()[1]
    require(world == 1, "processes", world, "one; networks for images are trained by one process")
    run = ImageRun(config, training, images)
    run.fit(Path(folder), resume, progress)
    return run.images


def write_results(folder: Path | str, results: dict[str, Any]) -> None:
    """Write results.json."""
    write_whole(Path(folder) / "results.json", json.dumps(results, indent=2) + "\n")
