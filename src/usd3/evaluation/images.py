"""How good are images drawn from nothing, beside real images and beside what the VQGAN makes of real images?

All are compared with the training images, as in the paper. The decoded tokens of training images are the limit of any
model of the tokens, an optimistic one: those images are among the ones they are compared with.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from usd3._internal.checks import require
from usd3._internal.progress import say
from usd3._internal.threads import waiting_asleep
from usd3.core.samplers import Corrector, Step
from usd3.evaluation.comparison import IMAGE_METRICS, describe_images
from usd3.evaluation.evaluate import Draws, Evaluation, EvaluationSettings, draw_runs, require_same_shape
from usd3.kinds.dataset import Dataset
from usd3.kinds.image.folders import about, fingerprint, results, warn_unfinished
from usd3.kinds.image.images import spread
from usd3.kinds.image.opening import (
    image_size,
    open_classifier,
    open_images,
    open_vqgan,
    require_images_of,
    training_tokens,
)
from usd3.metrics.images import ImageMetrics
from usd3.metrics.summary import Summary, format_table, summarise
from usd3.pipeline.pipeline import Pipeline

__all__ = ["FreeImages", "ImageEvaluation", "RealImages", "require_image_settings"]

_GUESSED = 0.75  # of two classes, an accuracy near chance; of more, twice that of guessing


@dataclass
class ImageEvaluation(Evaluation):
    """The rows of the table, the likelihood of held-out tokens, and what the images were compared with."""

    compared_with: dict[str, Any] = field(default_factory=dict)

    def heading(self) -> str:
        """What was measured, in one line."""
        return describe_images(self.settings, self.compared_with)

    def as_text(self) -> str:
        """Tables to read."""
        known = {key for row in self.rows.values() for key in row}
        lines = [format_table(self.rows, {key: metric.titled for key, metric in IMAGE_METRICS.items() if key in known})]
        for name, bits in self.bits_per_element.items():
            lines += ["", f"bits per element of the tokens of held-out images, {name}: "]
            lines[-1] += f"{bits:.3f} ({bits * math.log(2):.3f} nats)"
        return "\n".join(lines)


def require_image_settings(settings: EvaluationSettings, options: str = "images") -> None:
    """Refuse settings that say nothing about images drawn from nothing, and want of a network to compare them with."""
    require(settings.prefix in (None, 0), "prefix", settings.prefix, "null or 0: images are drawn from nothing")
    whole = settings.include_prefix
    require(whole, "include_prefix", whole, "true: images are drawn from nothing")
    require(settings.ratios is None, "ratios", settings.ratios, "null: images are drawn from nothing")
    chosen = settings.images.classifier
    trains = "the folder of a classifier, as `usd3 classifier --images IMAGES --run FOLDER` trains one"
    require(chosen is not None, f"{options}.classifier", chosen, trains)


class RealImages:
    """The VQGAN, the real images, and the metrics against those of training.

    All is opened and compared here, before anything is drawn; `options` is how errors call the settings of images.
    """

    def __init__(
        self, dataset: Dataset, settings: EvaluationSettings, device: str | None = None, options: str = "images"
    ):
        require_image_settings(settings, options)
        chosen, source = settings.images, dataset.source
        if source is None:
            raise ValueError(f"data = {dataset.name}: expected image tokens, as `usd3 encode` writes them")
        self.vqgan = open_vqgan(source, dataset.num_classes, chosen.vqgan, f"{options}.vqgan", device)
        self.tokens = training_tokens(dataset)
        size, path = image_size(self.vqgan, dataset.shape), chosen.path or source.images
        images = open_images(source, size, chosen.path, f"{options}.path")
        require_images_of(dataset, images, self.vqgan, f"{options}.path", path)
        self.train, self.test = spread(images.train, chosen.reference), images.test
        folder = str(chosen.classifier)
        classifier = open_classifier(folder, size, f"{options}.classifier", device)
        _warn_about_judge(folder, chosen.vqgan or source.vqgan, f"{options}.classifier")
        say("measuring training images")
        self._metrics = ImageMetrics(self.train, classifier, inception=chosen.inception)
        self.about = {
            "images": path,
            "training_images": len(self.train),
            "vqgan": chosen.vqgan or source.vqgan,
            "classifier": chosen.classifier,
            "classifier_accuracy": (results(folder) or {}).get("test_accuracy"),
            "inception": chosen.inception,
        }

    def scores(self, images: Tensor) -> dict[str, float]:
        """The metrics of images (N, 3, H, W)."""
        return dict(self._metrics(images))

    def scores_of(self, tokens: Tensor) -> dict[str, float]:
        """The metrics of what the VQGAN makes of tokens (N, h, w)."""
        return self.scores(self.vqgan.decode_images(tokens))

    def scale(self, num: int) -> dict[str, dict[str, Summary]]:
        """Rows that show the scale: `num` training images through the VQGAN, and held-out ones, if there are as many.

        A smaller set would not be comparable: every Fréchet distance is larger on fewer images.
        """
        kinds = {"VQGAN reconstruction": (self.tokens, self.scores_of), "held-out images": (self.test, self.scores)}
        rows = {}
        for name, (known, scores) in kinds.items():
            if len(known) >= num:
                say(f"measuring {name}")
                rows[name] = summaries([scores(spread(known, num))])
            else:
                say(f"no row of {name}: there are {len(known)} of them, and {num} images of a run")
        return rows

    def evaluation(self, settings: EvaluationSettings) -> ImageEvaluation:
        """The scale alone, without a model."""
        num = settings.images.num
        return ImageEvaluation(asdict(settings), num, 0, self.scale(num), compared_with=self.about)


@dataclass(frozen=True)
class FreeImages:
    """The task on images: draw them from nothing."""

    pipeline: Pipeline
    dataset: Dataset
    real: RealImages
    settings: EvaluationSettings

    @classmethod
    def of(cls, pipeline: Pipeline, dataset: Dataset, settings: EvaluationSettings) -> "FreeImages":
        """Beside the images of the data."""
        require_same_shape(pipeline, dataset)
        if pipeline.config.source is not None:
            pipeline.config.source.require_same_vqgan(dataset.source, "data")
        return cls(pipeline, dataset, RealImages(dataset, settings, str(pipeline.device)), settings)

    @property
    def sizes(self) -> dict[str, int]:
        """Images of a run."""
        return {"tokens": self.settings.images.num}

    def draw(self, corrector: Corrector | None = None, callback: Callable[[Step], None] | None = None) -> Draws:
        """Draw `runs` sets of tokens."""
        return {"tokens": draw_runs(self.pipeline, self.settings, corrector, callback, num=self.settings.images.num)}

    @waiting_asleep()
    def measure(self, generated: Draws, settings: EvaluationSettings) -> ImageEvaluation:
        """Compare sets of images, tokens (R, N, h, w), with the training images."""
        return self._measured(generated["tokens"], settings)

    def _measured(self, generated: Tensor, settings: EvaluationSettings) -> ImageEvaluation:
        shape, few = tuple(self.pipeline.config.shape), generated.shape[1] < 2
        fits = generated.dim() == 4 and tuple(generated.shape[2:]) == shape and not few
        require(fits, "shape of the samples", tuple(generated.shape), f"(runs, images, {', '.join(map(str, shape))})")
        runs, num = generated.shape[:2]
        used = asdict(settings) | {"prefix": 0, "runs": runs, "images": asdict(settings.images) | {"num": num}}
        found = ImageEvaluation(used, num, 0, {}, compared_with=self.real.about)
        scores = []
        for run, tokens in enumerate(generated, start=1):
            say(f"measuring set {run} of {runs}")
            scores.append(self.real.scores_of(tokens))
        found.rows["model"] = summaries(scores)
        if settings.baselines:
            found.rows |= self.real.scale(num)
        if settings.bound_samples:
            say("measuring bits per element of held-out images")
            found.bits_per_element["model (upper bound)"] = self._bits(settings)
        return found

    def _bits(self, settings: EvaluationSettings) -> float:
        tokens = self.dataset.decoded(self.dataset.test.tokens[: settings.limit].long())
        nats = self.pipeline.bound(
            tokens, num_samples=settings.bound_samples, seed=settings.seed, batch_size=settings.batch_size
        )
        return float(nats.sum() / tokens.numel() / math.log(2))


def summaries(scores: Sequence[dict[str, float]]) -> dict[str, Summary]:
    """Mean and standard deviation of each metric over the sets."""
    return {key: summarise(np.array([score[key] for score in scores])) for key in scores[0]}


def _warn_about_judge(folder: str, vqgan: str, option: str) -> None:
    """Warn of a classifier, the value of an option, whose scores mean little."""
    warn_unfinished(folder, option)
    found = results(folder) or {}
    accuracy, classes = found.get("test_accuracy"), found.get("classes")
    if accuracy is not None and classes is not None and accuracy < min(2 / classes, _GUESSED):
        warnings.warn(f"{option} = {folder} is right on {accuracy:.1%} of held-out images, near chance", stacklevel=3)
    trained_by = about(vqgan, "vqgan").get("perceptual_fingerprint")
    if trained_by is not None and trained_by == fingerprint(folder):
        favoured = "which favours its images: train another one with `usd3 classifier --seed 1`"
        warnings.warn(f"{option} = {folder} is the classifier that trained the VQGAN, {favoured}", stacklevel=3)
