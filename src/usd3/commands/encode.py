"""usd3 encode and usd3 decode: images into tokens, and back."""

from dataclasses import dataclass
from os.path import abspath
from pathlib import Path

import torch

from usd3._checks import require
from usd3.data import ImageSource, load_images, write_image, write_image_tokens
from usd3.data.arrays import read_arrays
from usd3.images import load_vqgan, usage
from usd3.pictures import image_grid
from usd3.progress import progress

__all__ = ["DecodeOptions", "EncodeOptions", "decode", "encode"]

_AT_ONCE = 2000
_MOST_IN_GRID = 100


@dataclass
class EncodeOptions:
    """Turn images into a file of tokens, to train a model on.

    Args:
        vqgan: folder of a trained VQGAN.
        images: CIFAR-10's python batches, a folder of images, a folder of sheets, or an .npz file.
        out: the .npz file to write, with the tokens of the training and of the held-out images.
        flips: encode the training images mirrored, too: twice as many objects to learn from.
        size: cut images of a folder to squares and scale them to this side; needed where their sizes differ.
        device: "cpu" or "cuda"; null: a GPU where there is one.
    """

    vqgan: str = ""
    images: str | None = None
    out: str | None = None
    flips: bool = False
    size: int | None = None
    device: str | None = None


def encode(options: EncodeOptions) -> None:
    """Encode both splits and write the file."""
    require(options.images is not None, "images", None, "the path of the images")
    free = options.out is not None and Path(options.out).suffix == ".npz" and not Path(options.out).exists()
    require(free, "out", options.out, "an .npz file that does not exist")
    vqgan = load_vqgan(options.vqgan, options.device)
    images = load_images(str(options.images), options.size)
    train = torch.cat([images.train, images.train.flip(3)]) if options.flips else images.train
    tokens = {}
    for name, split in (("train", train), ("test", images.test)):
        with progress(f"encoding {name}", len(split)) as advance:
            parts = []
            for i in range(0, len(split), _AT_ONCE):
                parts.append(vqgan.encode_images(split[i : i + _AT_ONCE]))
                advance(min(i + _AT_ONCE, len(split)))
        tokens[name] = torch.cat(parts)
    source = ImageSource(abspath(options.vqgan), abspath(str(options.images)), options.flips)
    write_image_tokens(str(options.out), tokens["train"], tokens["test"], vqgan.num_codes, source)
    for name, split in tokens.items():
        used, perplexity = usage(split, vqgan.num_codes)
        shape = " x ".join(map(str, split.shape[1:]))
        print(
            f"{name}: {len(split)} images as {shape} tokens; {used:.1%} of the codes used, perplexity {perplexity:.1f}"
        )
    print(f"written to {options.out}\n  usd3 train vqcifar10 --data.path {options.out}")


@dataclass
class DecodeOptions:
    """Turn tokens back into images.

    Args:
        vqgan: folder of a trained VQGAN.
        tokens: an .npy or .npz file of tokens (N, h, w): array "tokens", as `usd3 sample` writes it, or `split`.
        split: the array of an .npz file to decode.
        num: decode only the first so many; null: all.
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
    """Decode and write the images."""
    require(options.tokens is not None, "tokens", None, "an .npy or .npz file of tokens")
    out = Path(options.out or "")
    is_file = out.suffix == ".png"
    free = options.out is not None and (is_file or not out.suffix)
    free = free and (not out.exists() or (out.is_dir() and not any(out.iterdir())))
    require(free, "out", options.out, "a new folder, or a .png file that does not exist")
    tokens = _tokens(options)[: options.num]
    vqgan = load_vqgan(options.vqgan, options.device)
    if is_file:
        tokens = tokens[:_MOST_IN_GRID]
    images = vqgan.decode_images(tokens)
    if is_file:
        image_grid(images, out)
    else:
        width = len(str(len(images)))
        for i, image in enumerate(images, start=1):
            write_image(image, out / f"image-{i:0{width}d}.png")
    print(f"{len(images)} images in {out}")


def _tokens(options: DecodeOptions) -> torch.Tensor:
    """The tokens to decode, (N, h, w)."""
    stored = read_arrays(Path(str(options.tokens)))
    if isinstance(stored, dict):
        names = ", ".join(name for name in stored if name != "about")
        require(options.split in stored, "split", options.split, f"an array of {options.tokens}: {names}")
        stored = stored[options.split]
    fits = stored.dtype.kind in "iu" and stored.ndim >= 3 and stored.size > 0
    require(fits, "tokens", f"{stored.dtype} {stored.shape}", "integers (N, h, w)")
    found = torch.as_tensor(stored.astype("int64"))
    return found.flatten(0, -3)  # several runs of samples, one after the other
