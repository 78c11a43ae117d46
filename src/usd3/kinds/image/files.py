"""Reading and writing of single images, by Pillow."""

import os
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from usd3._internal.checks import as_count, require, require_type
from usd3._internal.files import written_whole

__all__ = ["SUFFIXES", "as_side", "read_image", "resized", "write_image"]

SUFFIXES = (".png", ".webp", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
_FORMATS = ("PNG", "WEBP", "JPEG", "BMP", "GIF", "TIFF", "PPM")  # other formats may start programs, as PostScript does
_LARGEST_SIDE = 8192


def as_side(size: int | None) -> int | None:
    """The checked side to scale images to, in pixels; None: images keep their size."""
    return None if size is None else as_count(size, "size", 1, _LARGEST_SIDE)


def read_image(path: str | os.PathLike[str], size: int | None = None) -> Tensor:
    """The image in a file, (3, H, W) uint8.

    Grey images become RGB, transparent pixels white, and photos are rotated as their EXIF data say. Pillow refuses
    images of more than 179 million pixels, which may come from a file of a few bytes.

    Args:
        path: the file.
        size: crop the middle square and scale it to (3, size, size); None: the image as it is.
    """
    path = Path(path)
    size = as_side(size)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; expected an image")
    try:
        with Image.open(path, formats=_FORMATS) as opened:
            picture = _as_rgb(ImageOps.exif_transpose(opened))
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        raise ValueError(f"{path}: not a readable image ({str(error) or type(error).__name__})") from None
    return _as_tensor(picture if size is None else _fitted(picture, size))


def write_image(image: Tensor, path: str | os.PathLike[str]) -> None:
    """Write an image (3, H, W) uint8. The ending of the path is the format; .png is lossless."""
    path = Path(path)
    require_type(isinstance(image, Tensor) and image.dtype == torch.uint8, "image", image, "a uint8 tensor")
    fits = image.dim() == 3 and image.shape[0] == 3 and image.numel() > 0
    require(fits, "image.shape", tuple(image.shape), "(3, H, W)")
    is_format = path.suffix.lower() in SUFFIXES
    require(is_format, "path", path, f"a name that ends in one of {', '.join(SUFFIXES)}")
    with written_whole(path) as temporary:
        _as_picture(image).save(temporary)


def resized(images: Tensor, size: int) -> Tensor:
    """The middle squares of images (N, 3, H, W), scaled to (N, 3, size, size), as in `read_image`."""
    if tuple(images.shape[2:]) == (size, size):
        return images
    return torch.stack([_as_tensor(_fitted(_as_picture(image), size)) for image in images])


def _as_rgb(picture: Image.Image) -> Image.Image:
    if picture.mode.startswith("I"):  # 16-bit grey: Pillow would clip it at 255
        picture = Image.fromarray((np.asarray(picture) // 256).clip(0, 255).astype(np.uint8))
    require(picture.mode != "F", "pixels", "floating-point numbers", "bytes")
    if picture.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in picture.info:
        layer = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer)
    return picture.convert("RGB")


def _fitted(picture: Image.Image, size: int) -> Image.Image:
    side = min(picture.size)
    left, top = ((length - side) // 2 for length in picture.size)
    square = picture.crop((left, top, left + side, top + side))
    return square if side == size else square.resize((size, size), Image.Resampling.LANCZOS)


def _as_tensor(picture: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1).contiguous()


def _as_picture(image: Tensor) -> Image.Image:
    return Image.fromarray(image.detach().cpu().permute(1, 2, 0).contiguous().numpy())
