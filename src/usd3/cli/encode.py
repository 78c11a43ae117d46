"""usd3 encode and usd3 decode: from images to tokens, and back."""

import json
import warnings
from dataclasses import dataclass
from os.path import abspath
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from usd3._internal.checks import as_count, require
from usd3._internal.files import is_free
from usd3._internal.progress import progress
from usd3.kinds.image.files import write_image
from usd3.kinds.image.folders import about, fingerprint, load_vqgan, warn_unfinished
from usd3.kinds.image.images import Images
from usd3.kinds.image.reports import usage
from usd3.kinds.image.sets import load_images
from usd3.kinds.image.source import ImageSource
from usd3.kinds.image.tokens import write_image_tokens
from usd3.kinds.image.vqgan import VQGAN
from usd3.kinds.numpy_files import read_arrays
from usd3.pictures import image_grid

__all__ = ["DecodeOptions", "EncodeOptions", "decode", "encode"]

_AT_ONCE = 2000
Stored = NDArray[Any] | dict[str, NDArray[Any]]
_MOST_IN_GRID = 100


@dataclass
class EncodeOptions:
    """Turn images into a file of tokens, to train a model on.

    Args:
        vqgan: folder of a trained VQGAN.
        images: CIFAR-10's python batches, a folder of images, a folder of sheets, or an .npz file.
        out: the .npz file to write, with the tokens of the training and of the held-out images.
        flips: also encode the mirrored training images: twice as many objects to learn from.
        size: crop the images to squares and scale them to this side; null: the size that the VQGAN was trained on.
        device: "cpu" or "cuda"; null: a GPU where there is one.
    """

    vqgan: str = ""
    images: str | None = None
    out: str | None = None
    flips: bool = False
    size: int | None = None
    device: str | None = None


def encode(options: EncodeOptions) -> None:
    """Encode the images of both splits and write their tokens."""
    require(options.images is not None, "images", None, "the path of the images")
    if options.out is None:
        raise ValueError("out is missing: expected an .npz file that does not exist")
    free = Path(options.out).suffix == ".npz" and not Path(options.out).exists()
    require(free, "out", options.out, "an .npz file that does not exist")
    vqgan = load_vqgan(options.vqgan, options.device)
    warn_unfinished(options.vqgan, "vqgan")
    places = abspath(options.vqgan), abspath(str(options.images))
    source = ImageSource(*places, options.flips, fingerprint(options.vqgan))
    images = _images(options)
    train = torch.cat([images.train, images.train.flip(3)]) if options.flips else images.train
    tokens = {}
    for name, split in (("train", train), ("test", images.test)):
        with progress(f"encoding {name}", len(split)) as advance:
            parts = []
            for i in range(0, len(split), _AT_ONCE):
                parts.append(vqgan.encode_images(split[i : i + _AT_ONCE]))
                advance(min(i + _AT_ONCE, len(split)))
        tokens[name] = torch.cat(parts)
    labels = _labels(images, options.flips)
    both = tokens["train"], tokens["test"]
    write_image_tokens(str(options.out), *both, vqgan.num_codes, source, labels, images.classes)
    for name, split in tokens.items():
        used, perplexity = usage(split, vqgan.num_codes)
        shape = " x ".join(map(str, split.shape[1:]))
        print(
            f"{name}: {len(split)} images as {shape} tokens; {used:.1%} of the codes used, perplexity {perplexity:.1f}"
        )
    print(f"written to {options.out}\n  usd3 train vqcifar10 --data.path {options.out}")
    if labels is not None:
        print("with their classes; a model that draws an image of a class:")
        print(f"  usd3 train vqcifar10 --data.labels true --data.path {options.out}")


def _labels(images: Images, flips: bool) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The classes of the encoded images of both splits; None unless both have some."""
    if images.train_labels is None or images.test_labels is None:
        return None
    train = torch.cat([images.train_labels, images.train_labels]) if flips else images.train_labels
    return train, images.test_labels


def _images(options: EncodeOptions) -> Images:
    """The images, in the size that the VQGAN was trained on unless the options say otherwise."""
    learned = about(options.vqgan, "vqgan").get("size")
    side = learned[0] if learned is not None and learned[0] == learned[1] else None
    images = load_images(str(options.images), side if options.size is None else options.size)
    if learned is not None and images.size != tuple(learned):
        seen, expected = (" x ".join(map(str, size)) for size in (images.size, learned))
        warnings.warn(f"images of {seen} pixels, but the VQGAN learned from {expected}", stacklevel=2)
    return images


@dataclass
class DecodeOptions:
    """Turn tokens back into images.

    Args:
        vqgan: folder of a trained VQGAN.
        tokens: an .npy or .npz file of tokens (N, h, w): array "tokens", as `usd3 sample` writes it, or `split`.
        split: the array of an .npz file to decode.
        num: decode only this many, the first ones; null: all.
        out: a new folder for one .png file an image, or one .png file, a grid of the first 100.
        device: "cpu" or "cuda"; null: a GPU where there is one.
    """

    vqgan: str = ""
    tokens: str | None = None
    split: str = "tokens"
    num: int | None = None
    out: str | None = None
    device: str | None = None


def decode(options: DecodeOptions) -> None:
    """Decode tokens and write the images."""
    require(options.tokens is not None, "tokens", None, "an .npy or .npz file of tokens")
    if options.out is None:
        raise ValueError("out is missing: expected a new folder, or a .png file that does not exist")
    out = Path(options.out)
    is_file = out.suffix == ".png"
    free = (is_file or not out.suffix) and is_free(out)
    require(free, "out", options.out, "a new folder, or a .png file that does not exist")
    stored = read_arrays(Path(str(options.tokens)))
    tokens = _tokens(stored, options)
    vqgan = load_vqgan(options.vqgan, options.device)
    _require_same_vqgan(stored, options)
    low, high, codes = int(tokens.min()), int(tokens.max()), vqgan.num_codes
    require(low >= 0 and high < codes, "tokens", f"{low}..{high}", f"categories 0..{codes - 1}")
    if is_file:
        tokens = tokens[:_MOST_IN_GRID]
        image_grid(vqgan.decode_images(tokens), out)
    else:
        _write_images(vqgan, tokens, out)
    print(f"{len(tokens)} images in {out}")


def _write_images(vqgan: VQGAN, tokens: torch.Tensor, out: Path) -> None:
    """Write a file for each image; decodes some images at a time."""
    width, done = len(str(len(tokens))), 0
    with progress("decoding", len(tokens)) as advance:
        for part in tokens.split(_AT_ONCE):
            for image in vqgan.decode_images(part):
                done += 1
                write_image(image, out / f"image-{done:0{width}d}.png")
                advance(done)


def _require_same_vqgan(stored: Stored, options: DecodeOptions) -> None:
    """Raise an error if the file of the tokens says that another VQGAN made them."""
    if not isinstance(stored, dict) or "about" not in stored:
        return
    try:
        source = json.loads(str(stored["about"]))
        original, place = source.get("fingerprint"), source.get("vqgan")
    except (ValueError, AttributeError):  # an array of the user's own
        return
    same = original is None or original == fingerprint(options.vqgan)
    expected = f"the VQGAN that made the tokens, that of {place} ({original}); this one has other weights"
    require(same, "vqgan", options.vqgan, expected)


def _tokens(stored: Stored, options: DecodeOptions) -> torch.Tensor:
    """The tokens to decode, (N, h, w)."""
    num = None if options.num is None else as_count(options.num, "num", 1)
    if isinstance(stored, dict):
        names = ", ".join(name for name in stored if name != "about")
        require(options.split in stored, "split", options.split, f"an array of {options.tokens}: {names}")
        stored = stored[options.split]
    fits = stored.dtype.kind in "iu" and stored.ndim >= 3 and stored.size > 0
    require(fits, "tokens", f"{stored.dtype} {stored.shape}", "integers (N, h, w)")
    tokens = torch.as_tensor(stored.astype("int64"))
    return tokens.flatten(0, -3)[:num]  # the samples of several runs, one after the other
