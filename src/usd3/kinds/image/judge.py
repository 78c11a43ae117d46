"""How good are sets of images, compared with real images and with reconstructions of real images by the VQGAN?

All sets are compared with the training images, as in the paper. Reconstructions of training images show what the best
model of the tokens could reach. This limit is optimistic: the images are among those that they are compared with.
"""

import warnings
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from torch import Tensor

from usd3._internal.progress import say
from usd3.kinds.base import Judge
from usd3.kinds.dataset import Dataset
from usd3.kinds.image.folders import about, fingerprint, results, warn_unfinished
from usd3.kinds.image.images import spread
from usd3.kinds.image.kind import ImageTokens
from usd3.kinds.image.opening import (
    image_size,
    open_classifier,
    open_images,
    open_vqgan,
    require_images_of,
    training_tokens,
)
from usd3.kinds.image.options import ImageSettings
from usd3.metrics.images import ImageMetrics
from usd3.metrics.summary import Summary

__all__ = ["ImageJudge"]

_NEAR_CHANCE = 0.75  # a classifier of two classes is near chance below this; of C classes, below 2 / C


class ImageJudge(Judge):
    """Compares sets of images with the training images, by the features of a classifier.

    The constructor opens and checks everything, before anything is drawn.

    Args:
        dataset: the tokens of the real images.
        settings: the classifier, the VQGAN and the images.
        device: where the networks run.
        option: the name of the settings in error messages.
    """

    def __init__(self, dataset: Dataset, settings: ImageSettings, device: str | None = None, option: str = "images"):
        kind = dataset.kind
        if not isinstance(kind, ImageTokens):
            raise ValueError(f"data = {dataset.name}: expected image tokens, as `usd3 encode` writes them")
        source, self.settings, self.num = kind.source, settings, settings.num
        self.vqgan = open_vqgan(source, dataset.num_classes, settings.vqgan, f"{option}.vqgan", device)
        self.tokens = training_tokens(dataset)
        size, path = image_size(self.vqgan, dataset.shape), settings.path or source.images
        images = open_images(source, size, settings.path, f"{option}.path")
        require_images_of(dataset, images, self.vqgan, f"{option}.path", path)
        self.train, self.test = spread(images.train, settings.reference), images.test
        folder = str(settings.classifier)
        classifier = open_classifier(folder, size, f"{option}.classifier", device)
        _warn_about_classifier(folder, settings.vqgan or source.vqgan, f"{option}.classifier")
        say("measuring training images")
        self._metrics = ImageMetrics(self.train, classifier, inception=settings.inception)
        self.about: dict[str, Any] = {
            "images": path,
            "training_images": len(self.train),
            "vqgan": settings.vqgan or source.vqgan,
            "classifier": settings.classifier,
            "classifier_accuracy": (results(folder) or {}).get("test_accuracy"),
            "inception": settings.inception,
        }

    def settings_with(self, num: int) -> dict[str, Any]:
        """The settings of images for the results; `num` images were drawn."""
        return {"images": asdict(self.settings) | {"num": num}}

    def scores(self, tokens: Tensor) -> dict[str, float]:
        """The metrics of the images of tokens (N, h, w), by key."""
        return self.scores_of_images(self.vqgan.decode_images(tokens))

    def scores_of_images(self, images: Tensor) -> dict[str, float]:
        """The metrics of images (N, 3, H, W), by key."""
        return dict(self._metrics(images))

    def references(self, num: int) -> dict[str, dict[str, Summary]]:
        """Reference rows: reconstructions of `num` training images, and `num` held-out images.

        A row needs that many images: with fewer, every Fréchet distance is larger.
        """
        sets: dict[str, tuple[Tensor, Callable[[Tensor], dict[str, float]]]] = {
            "VQGAN reconstruction": (self.tokens, self.scores),
            "held-out images": (self.test, self.scores_of_images),
        }
        rows = {}
        for name, (objects, scores) in sets.items():
            if len(objects) >= num:
                say(f"measuring {name}")
                rows[name] = {key: Summary(value, 0.0) for key, value in scores(spread(objects, num)).items()}
            else:
                say(f"no row of {name}: there are {len(objects)} of them, and {num} images of a run")
        return rows


def _warn_about_classifier(folder: str, vqgan: str, option: str) -> None:
    """Warn if the scores of a classifier mean little. `option` is the option that names its folder."""
    warn_unfinished(folder, option)
    report = results(folder) or {}
    accuracy, classes = report.get("test_accuracy"), report.get("classes")
    if accuracy is not None and classes is not None and accuracy < min(2 / classes, _NEAR_CHANCE):
        warnings.warn(f"{option} = {folder} is right on {accuracy:.1%} of held-out images, near chance", stacklevel=3)
    trained_by = about(vqgan, "vqgan").get("perceptual_fingerprint")
    if trained_by is not None and trained_by == fingerprint(folder):
        favoured = "which favours its images: train another one with `usd3 classifier --seed 1`"
        warnings.warn(f"{option} = {folder} is the classifier that trained the VQGAN, {favoured}", stacklevel=3)
