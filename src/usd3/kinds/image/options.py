"""The options of image tokens: how samples become images, and how images are measured."""

from dataclasses import dataclass

from usd3._internal.checks import as_count
from usd3._internal.fields import require_fields

__all__ = ["ImageOptions", "ImageSettings"]


@dataclass
class ImageOptions:
    """How the samples of a model of images become images.

    Args:
        vqgan: folder of the VQGAN that turns tokens into images; null: where it was when it made the tokens.
        images_path: where the images of the data are; null: where they were when the tokens were made.
        neighbours: also draw neighbours.png, samples beside this many nearest training images; 0: do not.
        classifier: folder of a classifier, whose features decide which images are near; null: their pixels decide.
    """

    vqgan: str | None = None
    images_path: str | None = None
    neighbours: int = 0
    classifier: str | None = None


@dataclass
class ImageSettings:
    """How images are measured; only for a model of image tokens.

    Args:
        num: number of images in a run, drawn from nothing.
        classifier: folder that `usd3 classifier` wrote; the metrics use its features. It must be given.
        inception: file with the weights of the Inception network, for IS and FID; null: without IS and FID.
        reference: compare with at most this many training images; null: with all.
        path: where the images are; null: where they were when they were encoded.
        vqgan: folder of the VQGAN; null: where it was when it encoded the images.
    """

    num: int = 5000
    classifier: str | None = None
    inception: str | None = None
    reference: int | None = None
    path: str | None = None
    vqgan: str | None = None

    def __post_init__(self) -> None:
        require_fields(self, "images")
        as_count(self.num, "images.num", 4)
        as_count(4 if self.reference is None else self.reference, "images.reference", 4)
