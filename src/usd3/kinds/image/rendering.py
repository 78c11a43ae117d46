"""The renderer of image tokens: a VQGAN turns them into images, which are drawn beside real images."""

import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from usd3._internal.checks import as_count, require
from usd3._internal.device import device_named
from usd3._internal.pixels import as_floats
from usd3._internal.progress import counted, progress
from usd3.kinds.dataset import Sequences
from usd3.kinds.image.files import read_image, write_image
from usd3.kinds.image.images import Images
from usd3.kinds.image.kind import ImageTokens
from usd3.kinds.image.opening import (
    are_tokens_of,
    image_size,
    open_classifier,
    open_images,
    open_vqgan,
    require_images_of,
    side_of,
)
from usd3.kinds.image.options import ImageOptions
from usd3.kinds.options import naming_data_path
from usd3.kinds.rendering import Drawn, Renderer, Request
from usd3.metrics.feature_sets import nearest
from usd3.pictures import animate_images, image_grid, inpainting_grid, neighbour_grid, with_hole

__all__ = ["ImageRenderer", "needs_vqgan"]

_IMAGES = (".png", ".jpg", ".jpeg", ".webp")
_MOST_FILES, _MOST_SHOWN, _MOST_ROWS, _MOST_FILLS = 100, 100, 16, 8
_NEAR_SIZE = 16  # side to which images are scaled before their pixels are compared
_AT_ONCE = 500


def is_image(path: Path) -> bool:
    """Whether a file is an image, by its ending."""
    return path.suffix.lower() in _IMAGES


def needs_vqgan(request: Request) -> bool:
    """Whether a request writes images or reads one as a prompt. Raises an error for options that have no effect."""
    options: ImageOptions = ImageOptions() if request.options is None else request.options
    as_count(options.neighbours, "neighbours", 0)
    one_file = bool(request.suffix)
    require(not (options.neighbours and one_file), "neighbours", options.neighbours, "0 where `out` is one file")
    needed = request.suffix != ".npz" or (request.prompt is not None and is_image(Path(request.prompt)))
    real = options.neighbours > 0 or (request.prompt == "test" and request.suffix in ("", ".png"))
    for name, used in (("vqgan", needed), ("images_path", real), ("classifier", options.neighbours > 0)):
        value = getattr(options, name)
        require(used or value is None, name, value, "null, as nothing that is asked for needs it")
    return needed


class ImageRenderer(Renderer):
    """Draws the images of tokens. The constructor opens everything it needs, before anything is drawn.

    Args:
        kind: the kind of the model.
        request: what to write, and from which prompt.
    """

    prompts = _IMAGES
    num_animated = 16

    def __init__(self, kind: ImageTokens, request: Request):
        super().__init__(kind)
        self.source, self.request, self.device = kind.source, request, request.device
        self.options: ImageOptions = ImageOptions() if request.options is None else request.options
        try:
            self.vqgan = open_vqgan(self.source, kind.num_classes, self.options.vqgan, device=self.device)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error}, or --out NAME.npz, which needs none") from None
        self.size = image_size(self.vqgan, kind.shape)
        self.images = self._open_images()
        folder = self.options.classifier
        self.classifier = None if folder is None else open_classifier(folder, self.size, device=self.device)

    def _open_images(self) -> Images | None:
        """The images of the data, if they are needed, or if they exist and a prompt shows them; else None."""
        options = self.options
        needed = options.neighbours or options.images_path
        if not needed and not (self.request.prompt == "test" and Path(self.source.images).exists()):
            return None
        images = open_images(self.source, self.size, options.images_path, "images_path")
        most = len(images.train)
        require(options.neighbours <= most, "neighbours", options.neighbours, f"at most {most}")
        if needed:
            self._require_images_of_data(images)
        return images

    def _require_images_of_data(self, images: Images) -> None:
        """Raise an error if the model was not trained on tokens of these images; warn if that cannot be checked."""
        path, data_path = self.options.images_path or self.source.images, self.request.data_path
        try:
            with naming_data_path():
                if self.request.data is None:
                    raise FileNotFoundError("the data are not known")
                dataset = self.request.data.at(data_path).load()
            self.kind.require_same(dataset.kind.as_dict(), "data_path")
        except (OSError, ValueError) as error:
            if data_path is not None:
                raise
            unknown = "whether the model learned from these images could not be checked"
            warnings.warn(f"images_path = {path}: {unknown}: {error}", stacklevel=2)
            return
        require_images_of(dataset, images, self.vqgan, "images_path", path)

    # ---- prompts ------------------------------------------------------------------------------------------------

    def prompt(self, path: Path) -> tuple[Sequences, None]:
        """The tokens of an image, (1, h, w)."""
        return Sequences(self.vqgan.encode_images(self._read(path)[None])), None

    def _read(self, path: Path) -> Tensor:
        image = read_image(path, size=side_of(self.size))
        require(
            tuple(image.shape[1:]) == self.size, "prompt", f"{path} of size {tuple(image.shape[1:])}", f"{self.size}"
        )
        return image

    def _originals(self, tokens: Tensor) -> tuple[Tensor, str]:
        """The images of a prompt, and their title in the picture. If there are none, its tokens are decoded."""
        prompt, first = Path(str(self.request.prompt)), self.request.first
        if is_image(prompt):
            return self._read(prompt).expand(len(tokens), -1, -1, -1), "image"
        if self.images is not None and self.request.prompt == "test":
            real = self.images.test[first : first + len(tokens)]
            if len(real) == len(tokens) and are_tokens_of(self.vqgan, tokens, real):
                return real, "image"
        return self.vqgan.decode_images(tokens), "decoded image"

    # ---- files --------------------------------------------------------------------------------------------------

    def write(self, drawn: Drawn, out: Path) -> None:
        """Write the images, the filled prompts, the neighbours and the animation."""
        one_file, x = bool(out.suffix), drawn.tokens
        if out.suffix in ("", ".png"):
            images = self.vqgan.decode_images(x[:_MOST_FILES])
            if not one_file and len(x) <= _MOST_FILES:
                for i, image in enumerate(images, start=1):
                    write_image(image, out / "images" / f"sample-{i:04d}.png")
            if drawn.prompt is not None:
                self._draw_fills(images, drawn, out if one_file else out / "inpainting.png")
            if drawn.prompt is None or not one_file:
                image_grid(images[:_MOST_SHOWN], out if one_file else out / "samples.png")
            if self.options.neighbours:
                self._draw_neighbours(images[:_MOST_ROWS], out / "neighbours.png")
        if drawn.frames and out.suffix in ("", ".gif"):
            animate_images(self._decoded(drawn.frames), out if one_file else out / "denoising.gif")

    def _draw_fills(self, images: Tensor, drawn: Drawn, path: Path) -> None:
        assert drawn.prompt is not None
        assert drawn.given is not None
        one_prompt = bool((drawn.prompt == drawn.prompt[:1]).all())  # filled in several ways
        rows = 1 if one_prompt else _MOST_ROWS
        originals, name = self._originals(drawn.prompt[:rows])
        # decoded like the fills, so that they differ only in what was drawn
        given = with_hole(self.vqgan.decode_images(drawn.prompt[:rows]), drawn.given)
        fills = images[None, :_MOST_FILLS] if one_prompt else images[:rows, None]
        inpainting_grid(originals, given, fills, path, names=(name, "given", "filled"))

    def _draw_neighbours(self, samples: Tensor, path: Path) -> None:
        assert self.images is not None
        train, count = self.images.train, len(samples)
        features = self._features(torch.cat([samples, train]))
        neighbours = nearest(features[:count], features[count:], self.options.neighbours)
        neighbour_grid(samples, train[neighbours], path)

    @torch.inference_mode()
    def _features(self, images: Tensor) -> Tensor:
        """Features (N, F) for the distance between images: those of the classifier, or the pixels of small images."""
        features = []
        with progress("looking at images", len(images)) as advance:
            for start in range(0, len(images), _AT_ONCE):
                part = as_floats(images[start : start + _AT_ONCE].to(device_named(self.device)))
                if self.classifier is not None:
                    part = self.classifier.features(part)
                elif max(part.shape[2:]) > _NEAR_SIZE:
                    part = torch.nn.functional.interpolate(part, size=(_NEAR_SIZE, _NEAR_SIZE), mode="area")
                features.append(part.flatten(1).float().cpu())
                advance(min(start + _AT_ONCE, len(images)))
        return torch.cat(features)

    def _decoded(self, frames: Sequence[Tensor]) -> list[Tensor]:
        """The frames as images, grey where a token is still masked."""
        top, decoded = self.kind.num_classes, []
        with counted("decoding", len(frames)) as count:
            for frame in frames:
                is_drawn = frame < top
                # a token's look depends on its neighbours, so masked tokens are replaced by those of the last frame
                tokens = torch.where(is_drawn, frame, frames[-1]).clamp(max=top - 1)
                decoded.append(with_hole(self.vqgan.decode_images(tokens), is_drawn))
                count(None)
        return decoded
