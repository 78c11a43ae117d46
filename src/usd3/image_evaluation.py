"""How good are images drawn from nothing, beside real images and beside what the VQGAN makes of real images?

All are compared with the training images, as in the paper. The decoded tokens of training images are the limit of any
model of the tokens, an optimistic one: those images are among the ones they are compared with.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from usd3._checks import require
from usd3._random import seed_of
from usd3.comparison import IMAGE_METRICS, describe_images
from usd3.data import Dataset, ImageSource
from usd3.evaluation import Evaluation, EvaluationSettings
from usd3.metrics.summary import Summary, format_table, summarise
from usd3.pipeline import Pipeline
from usd3.progress import progress
from usd3.samplers import Corrector, Step

__all__ = ["FreeImages", "ImageEvaluation", "RealImages", "require_image_settings"]


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
            lines += ["", f"bits per element of the tokens of held-out images (nats in brackets), {name}:"]
            lines += [f"  {bits:.3f} ({bits * math.log(2):.3f})"]
        return "\n".join(lines)


def require_image_settings(settings: EvaluationSettings) -> None:
    """Refuse settings that say nothing about images drawn from nothing, and want of a network to compare them with."""
    require(settings.prefix in (None, 0), "prefix", settings.prefix, "null or 0: images are drawn from nothing")
    whole = settings.include_prefix
    require(whole, "include_prefix", whole, "true: images are drawn from nothing")
    chosen = settings.images.classifier is not None or settings.images.inception is not None
    trains = (
        "the folder of a classifier, which `usd3 classifier --images IMAGES --run FOLDER` trains, or images.inception"
    )
    require(chosen, "images.classifier", None, trains)


class RealImages:
    """The VQGAN, the real images, and the metrics against those of training."""

    def __init__(self, dataset: Dataset, settings: EvaluationSettings, device: str | None = None):
        from usd3.data import load_images
        from usd3.images import load_classifier, load_vqgan

        require_image_settings(settings)
        chosen, source = settings.images, _source(dataset, settings)
        self.vqgan = load_vqgan(source.vqgan, device)
        codes = int(self.vqgan.num_codes)
        require(codes == dataset.num_classes, "images.vqgan", f"{codes} codes", f"{dataset.num_classes}, as the tokens")
        self.tokens, self.num = dataset.decoded(dataset.train.tokens.long()), chosen.num
        height, width = self.vqgan.decode_images(self.tokens[:1]).shape[-2:]
        images = load_images(source.images, size=height if height == width else None)
        counts, expected = (len(images.train), len(images.test)), (len(dataset.train), len(dataset.test))
        same = counts == expected and images.size == (height, width)
        wanted = f"{expected[0]} training and {expected[1]} test images of {height} x {width}, as the tokens"
        seen = f"{source.images} with {counts[0]} and {counts[1]} of {images.size[0]} x {images.size[1]}"
        require(same, "images.path", seen, wanted)
        self.train, self.test = spread(images.train, chosen.reference), images.test
        self.classifier = None if chosen.classifier is None else load_classifier(chosen.classifier, device)
        self.inception = chosen.inception
        self._metrics: Any = None
        self.about = {
            "images": source.images,
            "training_images": len(self.train),
            "vqgan": source.vqgan,
            "classifier": chosen.classifier,
            "classifier_accuracy": None if chosen.classifier is None else _accuracy(Path(chosen.classifier)),
            "inception": chosen.inception,
        }

    def scores(self, images: Tensor) -> dict[str, float]:
        """The metrics of images (N, 3, H, W); what they need of the training images is computed once."""
        if self._metrics is None:
            from usd3.metrics.images import ImageMetrics

            self._metrics = ImageMetrics(self.train, self.classifier, inception=self.inception)
        return dict(self._metrics(images))

    def scores_of(self, tokens: Tensor) -> dict[str, float]:
        """The metrics of what the VQGAN makes of tokens (N, h, w)."""
        return self.scores(self.vqgan.decode_images(tokens))

    def scale(self, advance: Callable[[str], None] = lambda _: None) -> dict[str, dict[str, Summary]]:
        """Rows that show the scale: as many training images through the VQGAN, and as many held-out ones if there are.

        A smaller set of held-out images would not be comparable: every Fréchet distance is larger on fewer images.
        """
        rows = {"VQGAN reconstruction": summaries([self.scores_of(spread(self.tokens, self.num))])}
        advance("VQGAN reconstruction")
        if len(self.test) >= self.num:
            rows["held-out images"] = summaries([self.scores(spread(self.test, self.num))])
            advance("held-out images")
        return rows

    def evaluation(self, settings: EvaluationSettings) -> ImageEvaluation:
        """The scale alone, without a model."""
        with progress("measuring real images", 1 + (len(self.test) >= self.num)) as advance:
            rows = self.scale(_counting(advance))
        return ImageEvaluation(asdict(settings), self.num, 0, rows, compared_with=self.about)


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
        shape = tuple(dataset.shape)
        require(shape == tuple(pipeline.config.shape), "shape of the data", shape, f"{tuple(pipeline.config.shape)}")
        return cls(pipeline, dataset, RealImages(dataset, settings, str(pipeline.device)), settings)

    @property
    def num(self) -> int:
        """Images of a run."""
        return self.settings.images.num

    def draw(self, corrector: Corrector | None = None, callback: Callable[[Step], None] | None = None) -> Tensor:
        """Draw `runs` sets of tokens."""
        settings = self.settings
        draws = [
            self.pipeline.sample(
                self.num,
                settings.steps,
                corrector=corrector,
                sampler=settings.sampler,
                temperature=settings.temperature,
                seed=seed_of(settings.seed, run),
                batch_size=settings.batch_size,
                callback=callback,
            )
            for run in range(settings.runs)
        ]
        return torch.stack(draws)

    def measure(self, generated: Tensor, settings: EvaluationSettings) -> ImageEvaluation:
        """Compare sets of images (R, N, h, w) with the training images."""
        shape, few = tuple(self.pipeline.config.shape), generated.shape[1] < 2
        fits = generated.dim() == 4 and tuple(generated.shape[2:]) == shape and not few
        require(fits, "shape of the samples", tuple(generated.shape), f"(runs, images, {', '.join(map(str, shape))})")
        runs, num = generated.shape[:2]
        used = asdict(settings) | {"prefix": 0, "runs": runs, "images": asdict(settings.images) | {"num": num}}
        found = ImageEvaluation(used, num, 0, {}, compared_with=self.real.about)
        rows = settings.baselines * (1 + (len(self.real.test) >= self.real.num))
        with progress("measuring", runs + rows + bool(settings.bound_samples)) as show:
            advance = _counting(show)
            scores = []
            for run, tokens in enumerate(generated):
                scores.append(self.real.scores_of(tokens))
                advance(f"set {run + 1} of {runs}")
            found.rows["model"] = summaries(scores)
            if settings.baselines:
                found.rows |= self.real.scale(advance)
            if settings.bound_samples:
                found.bits_per_element["model (upper bound)"] = self._bits(settings)
                advance("bits per element")
        return found

    def _bits(self, settings: EvaluationSettings) -> float:
        tokens = self.dataset.decoded(self.dataset.test.tokens[: settings.limit].long())
        nats = self.pipeline.bound(
            tokens, num_samples=settings.bound_samples, seed=settings.seed, batch_size=settings.batch_size
        )
        return float(nats.sum() / tokens.numel() / math.log(2))


def spread(rows: Tensor, most: int | None) -> Tensor:
    """At most so many rows, evenly spread over all, which may be sorted by class."""
    if most is None or most >= len(rows):
        return rows
    return rows[torch.arange(most) * len(rows) // most]


def summaries(scores: Sequence[dict[str, float]]) -> dict[str, Summary]:
    """Mean and standard deviation of each metric over the sets."""
    return {key: summarise(np.array([score[key] for score in scores])) for key in scores[0]}


def _counting(advance: Callable[[int, str], None]) -> Callable[[str], None]:
    """Tell that one more part of the work is done."""
    done = 0

    def next_part(name: str) -> None:
        nonlocal done
        done += 1
        advance(done, name)

    return next_part


def _source(dataset: Dataset, settings: EvaluationSettings) -> ImageSource:
    """Where VQGAN and images are: where the options say, or where they were when the tokens were made."""
    known, chosen = dataset.source, settings.images
    if known is None:
        raise ValueError(f"data = {dataset.name}: expected image tokens, as `usd3 encode` writes them")
    return ImageSource(chosen.vqgan or known.vqgan, chosen.path or known.images)


def _accuracy(folder: Path) -> float | None:
    """What the classifier's results.json says about its accuracy, if anything."""
    file = folder / "results.json"
    if not file.is_file():
        return None
    value = json.loads(file.read_text()).get("accuracy")
    return None if value is None else float(value)
