"""Open the VQGAN, the images and the classifier that belong to tokens; raise an error if they do not."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor

from usd3._internal.checks import require
from usd3.kinds.dataset import Dataset
from usd3.kinds.image.classifier import Classifier
from usd3.kinds.image.folders import about, fingerprint, load_classifier, load_vqgan
from usd3.kinds.image.images import Images, spread
from usd3.kinds.image.kind import ImageTokens
from usd3.kinds.image.sets import load_images
from usd3.kinds.image.source import ImageSource
from usd3.kinds.image.vqgan import VQGAN

__all__ = [
    "are_tokens_of",
    "image_size",
    "open_classifier",
    "open_images",
    "open_vqgan",
    "require_images_of",
    "side_of",
    "training_tokens",
]

_ALIKE = 0.9  # fraction of equal tokens that identifies images; rounding on another device changes a few tokens
_PROBED = 64  # number of images that are compared with their tokens


def open_vqgan(
    source: ImageSource, num_classes: int, folder: str | None = None, option: str = "vqgan", device: str | None = None
) -> VQGAN:
    """The VQGAN that made the tokens.

    Args:
        source: where the tokens come from.
        num_classes: number of categories of the tokens.
        folder: where the VQGAN is; None: where it was when it made the tokens.
        option: the option that names the folder, for error messages.
        device: where the VQGAN runs.
    """
    place = folder or source.vqgan
    if not Path(place).is_dir():
        expected = f"that of the VQGAN that made the tokens (--{option} FOLDER)"
        raise FileNotFoundError(f"{option} = {place}: no such folder; expected {expected}")
    with _named(option, place):
        vqgan = load_vqgan(place, device)
    codes = vqgan.num_codes
    require(codes == num_classes, option, f"{place} of {codes} codes", f"one of {num_classes}, as the tokens")
    same = source.fingerprint is None or source.fingerprint == fingerprint(place)
    require(same, option, place, "the VQGAN that made the tokens; this one has other weights")
    return vqgan


def image_size(vqgan: VQGAN, shape: Sequence[int]) -> tuple[int, int]:
    """Height and width of the images of tokens (h, w)."""
    height, width = (vqgan.factor * side for side in shape)
    return height, width


def open_images(source: ImageSource, size: tuple[int, int], path: str | None = None, option: str = "images") -> Images:
    """The images that the tokens were made of.

    Args:
        source: where the tokens come from.
        size: height and width of the images that the VQGAN saw.
        path: where the images are; None: where they were when the tokens were made.
        option: the option that names the path, for error messages.
    """
    place = path or source.images
    if not Path(place).exists():
        expected = f"the images that the tokens were made of (--{option} PATH)"
        raise FileNotFoundError(f"{option} = {place}: no such file or folder; expected {expected}")
    with _named(option, place):
        images = load_images(place, size=side_of(size))
    seen, expected = (f"{height} x {width}" for height, width in (images.size, size))
    require(images.size == size, option, f"{place} of {seen}", f"images of {expected}, as the tokens")
    return images


def side_of(size: tuple[int, int]) -> int | None:
    """The side of square images, to which images are cropped and scaled; None: they are not square."""
    return size[0] if size[0] == size[1] else None


def are_tokens_of(vqgan: VQGAN, tokens: Tensor, images: Tensor) -> bool:
    """Whether the tokens (N, h, w) are those of the images (N, 3, H, W)."""
    return float((vqgan.encode_images(images) == tokens).float().mean()) >= _ALIKE


def training_tokens(dataset: Dataset) -> Tensor:
    """The tokens (N, h, w) of the training images, without those of mirrored ones."""
    flips = isinstance(dataset.kind, ImageTokens) and dataset.kind.source.flips
    return dataset.decoded(dataset.train.tokens[: len(dataset.train) // (2 if flips else 1)].long())


def require_images_of(dataset: Dataset, images: Images, vqgan: VQGAN, option: str, path: str) -> None:
    """Raise an error unless the data are the tokens of these images.

    Args:
        dataset: the tokens.
        images: the images.
        vqgan: the VQGAN that made the tokens.
        option: the option that names the images, for error messages.
        path: the value of this option.
    """
    tokens = training_tokens(dataset)
    counts, expected = (len(images.train), len(images.test)), (len(tokens), len(dataset.test))
    numbers = f"{expected[0]} training and {expected[1]} test images, as there are tokens"
    require(counts == expected, option, f"{path} with {counts[0]} and {counts[1]}", numbers)
    same = are_tokens_of(vqgan, spread(tokens, _PROBED), spread(images.train, _PROBED))
    require(same, option, path, "the images of the tokens; the VQGAN makes other tokens of these")


def open_classifier(
    folder: str, size: tuple[int, int], option: str = "classifier", device: str | None = None
) -> Classifier:
    """The classifier in a folder.

    Args:
        folder: the folder.
        size: height and width of the images; the classifier must have been trained on images of this size.
        option: the option that names the folder, for error messages.
        device: where the classifier runs.
    """
    with _named(option, folder):
        learned = tuple(about(folder, "classifier").get("size", size))
        seen, expected = (" x ".join(map(str, sides)) for sides in (learned, size))
        require(learned == size, "size", seen, f"{expected}, as the images: what it sees depends on it")
        return load_classifier(folder, device)


@contextmanager
def _named(option: str, value: str) -> Iterator[None]:
    """Inside, the message of an error begins with the option and its value."""
    try:
        yield
    except (FileNotFoundError, ValueError) as error:
        error_class = FileNotFoundError if isinstance(error, FileNotFoundError) else ValueError
        raise error_class(f"{option} = {value}: {error}") from None
