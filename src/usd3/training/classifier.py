"""Training of a classifier."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from usd3._internal.checks import as_number, require
from usd3.kinds.image.augment import turned
from usd3.kinds.image.classifier import Classifier
from usd3.kinds.image.folders import load_classifier
from usd3.kinds.image.images import Images
from usd3.kinds.image.reports import accuracy
from usd3.training.images import FitConfig, ImageTraining, fit_images, write_results
from usd3.training.module import weight_groups
from usd3.training.step import Batch

__all__ = ["ClassifierConfig", "ClassifierTraining", "train_classifier"]


@dataclass
class ClassifierConfig(FitConfig):
    """A classifier and how it is trained. Without labels it learns which of four rotations an image has.

    Args:
        width: channels of the first of three stages; the others have 2 and 4 times as many.
        blocks: residual blocks of a stage.
        smoothing: label smoothing.
        weight_decay: of AdamW.
    """

    steps: int = 10_000
    lr: float = 2e-3
    width: int = 64
    blocks: int = 2
    smoothing: float = 0.0
    weight_decay: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        as_number(self.smoothing, "smoothing", 0, 1, closed=True)
        as_number(self.weight_decay, "weight_decay", 0, closed=True)

    @property
    def fixed(self) -> tuple[str, ...]:
        """The sizes of the network."""
        return "width", "blocks", "seed"


class ClassifierTraining(ImageTraining):
    """Cross entropy of labels, or of rotations, on images moved and mirrored at random."""

    names = ("loss", "accuracy")
    on_screen = names
    must_be_finite = names
    config: ClassifierConfig

    def __init__(self, config: ClassifierConfig, images: Images):
        super().__init__(config, images)
        self._loss = self.compiled(self._eager_loss)

    @staticmethod
    def network(config: ClassifierConfig, images: Images) -> Classifier:
        """The classifier; it refuses images that it cannot rotate where there are no labels."""
        height, width = images.size
        labelled = images.train_labels is not None
        require(labelled or height == width, "images", f"{height} x {width}", "square ones where there are no labels")
        return Classifier(len(images.classes) if labelled else 4, config.width, config.blocks, labelled)

    @staticmethod
    def facts(images: Images) -> dict[str, Any]:
        """Also the names of the classes."""
        return ImageTraining.facts(images) | {"classes": list(images.classes)}

    def new_optimisers(self) -> list[torch.optim.Optimizer]:
        """AdamW; vectors do not decay."""
        groups = weight_groups(self.model, self.config.weight_decay)
        return [torch.optim.AdamW(groups, lr=self.config.lr, fused=self.fused)]

    def on_train_start(self) -> None:
        """Make the step."""
        super().on_train_start()
        self._step = self.whole_step(self._batch_loss, self.model.parameters(), self.optimisers()[0])

    def train_on_images(self, images: Tensor, labels: Tensor | None, progress: float) -> Tensor:
        """One step."""
        assert self._step is not None
        return self._step({"images": images} if labels is None else {"images": images, "labels": labels})[1]

    def _batch_loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        return self._loss(self.augmented(batch["images"]), batch.get("labels"))  # type: ignore[no-any-return]

    def _eager_loss(self, x: Tensor, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        if labels is None:
            labels = torch.randint(4, (len(x),), device=x.device)
            x = turned(x, labels)
        logits = self.model(x).float()
        loss = F.cross_entropy(logits, labels, label_smoothing=self.config.smoothing)
        right = (logits.detach().argmax(1) == labels).float().mean()
        return loss, torch.stack([loss.detach(), right])


def train_classifier(
    config: ClassifierConfig,
    folder: Path | str,
    images: Images | None = None,
    resume: bool = False,
    progress: bool = True,
) -> Classifier:
    """Train a classifier in a folder; afterwards write its accuracy on the held-out images to results.json."""
    images = fit_images(config, ClassifierTraining, folder, images, resume, progress)
    classifier = load_classifier(folder, "cpu" if config.accelerator == "cpu" else None)
    results: dict[str, Any] = {
        "learned": "labels" if classifier.labelled else "rotations",
        "classes": classifier.num_classes,
    }
    if images.test_labels is not None or not classifier.labelled:
        labels = images.test_labels if classifier.labelled else None
        results |= {"test_images": len(images.test), "test_accuracy": accuracy(classifier, images.test, labels)}
    write_results(folder, results)
    return classifier
