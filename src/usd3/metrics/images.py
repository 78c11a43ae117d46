"""Quality and variety of generated images, measured on the features of a classifier.

`classifier_score` and `classifier_frechet` use the formulas of Inception score and FID with a small classifier in place
of the Inception network. They compare models that are measured with the same classifier; they are not comparable with
published IS and FID. Those, `inception_score` and `fid`, need the file of Inception's weights.
"""

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from usd3._internal.checks import as_count, require, require_type
from usd3._internal.pixels import as_floats
from usd3._internal.progress import progress
from usd3.metrics.feature_sets import Gaussian, Manifold, as_rows, label_score
from usd3.metrics.inception import load_inception

__all__ = ["ImageMetrics", "classifier_features", "image_metrics"]

_NEIGHBOURS = 3  # k of precision and recall
_SPLITS = 10  # parts of the images for the Inception score


def image_metrics(
    generated: Tensor,
    real: Tensor,
    classifier: Any,
    inception: str | os.PathLike[str] | None = None,
    batch_size: int = 500,
) -> dict[str, float]:
    """Scores by name of generated images against real ones, both (N, 3, H, W) uint8.

    - `classifier_score`: `label_score` of the classifier's probabilities, higher is better; not on the scale of IS.
      Missing if the classifier was trained without labels.
    - `classifier_frechet`: `frechet_distance` of its features, lower is better; not on the scale of FID.
    - `precision`, `recall`: `precision_recall` of its features, in 0..1, higher is better.
    - `inception_score`, `fid`: the published ones, only where `inception` names the file of Inception's weights.

    All scores depend on the number of images: compare only scores of equally many.

    Args:
        generated: The generated images.
        real: The real images.
        classifier: A network with `features(images)` and `labelled`, such as `usd3.kinds.image.classifier.Classifier`.
        inception: The file of Inception's weights.
        batch_size: Images that a network sees at once.
    """
    return ImageMetrics(real, classifier, inception, batch_size)(generated)


class ImageMetrics:
    """`image_metrics` for several sets of generated images; the real images are measured once."""

    def __init__(
        self,
        real: Tensor,
        classifier: Any,
        inception: str | os.PathLike[str] | None = None,
        batch_size: int = 500,
    ):
        self.image_shape = tuple(_checked(real, "real").shape[1:])
        self.classifier = classifier
        self.batch_size = as_count(batch_size, "batch_size", 1)
        self.inception = None if inception is None else load_inception(inception, _device_and_dtype(classifier)[0])
        self._features = as_rows(classifier_features(real, classifier, batch_size), "features")
        self._gaussian = Gaussian.fitted(self._features, "features")
        self._manifolds: dict[int, Manifold] = {}
        if self.inception is not None:
            self._inception_gaussian = Gaussian.fitted(self._by_inception(real, "real images")[0], "features")

    def __call__(self, generated: Tensor) -> dict[str, float]:
        """The scores by name."""
        fits = tuple(_checked(generated, "generated").shape[1:]) == self.image_shape
        require(fits, "generated.shape", tuple(generated.shape), f"images as the real ones, {self.image_shape}")
        scores = {}
        if self.classifier.labelled:
            logits = _outputs(self.classifier, self.classifier, generated, self.batch_size)
            scores["classifier_score"] = label_score(logits.double().softmax(1))
        features = as_rows(classifier_features(generated, self.classifier, self.batch_size), "features")
        scores["classifier_frechet"] = self._gaussian.distance(Gaussian.fitted(features, "features"))
        scores["precision"], scores["recall"] = self._precision_recall(features)
        if self.inception is not None:
            pooled, logits = self._by_inception(generated, "generated images")
            scores["inception_score"] = _mean_label_score(logits.double().softmax(1))
            scores["fid"] = self._inception_gaussian.distance(Gaussian.fitted(pooled, "features"))
        return scores

    def _precision_recall(self, features: Tensor) -> tuple[float, float]:
        count = min(len(features), len(self._features))
        if count not in self._manifolds:
            self._manifolds[count] = Manifold(self._features, _NEIGHBOURS, count)
        return self._manifolds[count].precision_recall(Manifold(features, _NEIGHBOURS, count))

    def _by_inception(self, images: Tensor, title: str) -> tuple[Tensor, Tensor]:
        """Inception's features (N, 2048) and logits (N, 1008) of images; the progress is shown as `title`."""
        assert self.inception is not None
        device, parts = _device_and_dtype(self.classifier)[0], []
        with torch.inference_mode(), progress(f"Inception, {title}", len(images)) as advance:
            for batch in images.split(self.batch_size):
                parts.append(self.inception(batch.to(device)).cpu())
                advance(sum(map(len, parts)))
        rows = torch.cat(parts)
        return rows[:, : self.inception.num_features], rows[:, self.inception.num_features :]


def classifier_features(images: Tensor, classifier: Any, batch_size: int = 500) -> Tensor:
    """The classifier's features (N, F) of images (N, 3, H, W) uint8, on the classifier's device."""
    return _outputs(classifier, classifier.features, _checked(images, "images", least=1), batch_size)


def _outputs(classifier: nn.Module, function: Callable[[Tensor], Tensor], images: Tensor, batch_size: int) -> Tensor:
    """`function`, the classifier or its features, of all images in batches, in evaluation mode."""
    device, dtype = _device_and_dtype(classifier)
    was_training = classifier.training
    classifier.eval()
    try:
        with torch.inference_mode():
            batches = images.split(as_count(batch_size, "batch_size", 1))
            return torch.cat([function(as_floats(batch.to(device)).to(dtype)) for batch in batches])
    finally:
        classifier.train(was_training)


def _device_and_dtype(classifier: nn.Module) -> tuple[torch.device, torch.dtype]:
    weights = next(classifier.parameters())
    return weights.device, weights.dtype


def _mean_label_score(probabilities: Tensor) -> float:
    """The Inception score as published: the mean of the scores of ten parts of the images."""
    parts = probabilities.tensor_split(min(_SPLITS, len(probabilities)))
    return sum(label_score(part) for part in parts) / len(parts)


def _checked(images: Tensor, name: str, least: int = _NEIGHBOURS + 1) -> Tensor:
    """The images, which must be bytes (N, 3, H, W) with N >= `least`."""
    is_bytes = isinstance(images, Tensor) and images.dtype == torch.uint8
    require_type(is_bytes, name, images, "a uint8 tensor of images")
    fits = images.dim() == 4 and images.shape[1] == 3 and len(images) >= least and images.numel() > 0
    require(fits, f"{name}.shape", tuple(images.shape), f"(N, 3, H, W), at least {least} images")
    return images
