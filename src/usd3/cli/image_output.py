"""What `usd3 sample` does for models of image tokens: a VQGAN makes images of them, which are drawn and compared."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from usd3._internal.checks import as_count, require
from usd3._internal.pixels import as_floats
from usd3._internal.progress import counted, progress
from usd3.cli.prompts import Prompt, PromptOptions, data_at, is_image, naming_data_path
from usd3.kinds.image.files import read_image, write_image
from usd3.kinds.image.images import Images
from usd3.kinds.image.opening import (
    are_tokens_of,
    image_size,
    open_classifier,
    open_images,
    open_vqgan,
    require_images_of,
    side_of,
)
from usd3.metrics.feature_sets import nearest
from usd3.pictures import animate_images, image_grid, inpainting_grid, neighbour_grid, with_hole
from usd3.pipeline.pipeline import Pipeline

__all__ = ["ImageOptions", "ImageOutput"]

_MOST_FILES, _MOST_SHOWN, _MOST_ROWS, _MOST_FILLS = 100, 100, 16, 8
_NEAR_SIZE = 16  # side of the images whose pixels are compared
_AT_ONCE = 500


@dataclass
class ImageOptions(PromptOptions):
    """How the samples of a model of images become images.

    Args:
        vqgan: folder of the VQGAN that makes images of the tokens; null: where it was when they were made.
        images_path: where the images of the data are; null: where they were when the tokens were made.
        neighbours: also draw neighbours.png, samples beside their so many nearest training images; 0: do not.
        classifier: folder of a classifier, by whose features images are near; null: by their pixels.
    """

    vqgan: str | None = None
    images_path: str | None = None
    neighbours: int = 0
    classifier: str | None = None

    def require_unused(self) -> None:
        """Refuse options that only models of images have."""
        for name in ("vqgan", "images_path", "classifier"):
            require(getattr(self, name) is None, name, getattr(self, name), "null, as the model is not about images")
        require(self.neighbours == 0, "neighbours", self.neighbours, "0, as the model is not about images")

    def needs_vqgan(self, suffix: str) -> bool:
        """Whether images are written, or read; `suffix` is that of the results. Refuses options that change nothing."""
        as_count(self.neighbours, "neighbours", 0)
        require(not (self.neighbours and suffix), "neighbours", self.neighbours, "0 where `out` is one file")
        needed = suffix != ".npz" or (self.prompt is not None and is_image(Path(self.prompt)))
        real = self.neighbours > 0 or (self.prompt == "test" and suffix in ("", ".png"))
        for name, used in (("vqgan", needed), ("images_path", real), ("classifier", self.neighbours > 0)):
            value = getattr(self, name)
            require(used or value is None, name, value, "null, as nothing that is asked for needs it")
        return needed


class ImageOutput:
    """The pictures of a model of images. What may be missing is looked for here, before anything is drawn."""

    def __init__(self, options: ImageOptions, pipeline: Pipeline):
        self.options, self.pipeline = options, pipeline
        assert pipeline.config.source is not None
        self.source = pipeline.config.source
        device = str(pipeline.device)
        try:
            self.vqgan = open_vqgan(self.source, pipeline.config.num_classes, options.vqgan, device=device)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{error}, or --out NAME.npz, which needs none") from None
        self.size = image_size(self.vqgan, pipeline.config.shape)
        self.images = self._open_images()
        folder = options.classifier
        self.classifier = None if folder is None else open_classifier(folder, self.size, device=device)

    def _open_images(self) -> Images | None:
        """The images of the data, where they are needed or are at hand."""
        options = self.options
        needed = options.neighbours or options.images_path
        if not needed and not (options.prompt == "test" and Path(self.source.images).exists()):
            return None
        found = open_images(self.source, self.size, options.images_path, "images_path")
        require(options.neighbours <= len(found.train), "neighbours", options.neighbours, f"at most {len(found.train)}")
        if needed:
            self._require_own(found)
        return found

    def _require_own(self, images: Images) -> None:
        """Refuse images that are not those of the tokens, as far as the file of the tokens is at hand."""
        data, path = self.pipeline.config.data, self.options.images_path or self.source.images
        try:
            with naming_data_path():
                dataset = data_at(data, self.options.data_path).load()
            self.source.require_same_vqgan(dataset.source, "data_path")
        except (OSError, ValueError) as error:
            if self.options.data_path is not None:
                raise
            unknown = "whether the model learned from these images could not be checked"
            warnings.warn(f"images_path = {path}: {unknown}: {error}", stacklevel=2)
            return
        require_images_of(dataset, images, self.vqgan, "images_path", path)

    # ---- prompts ------------------------------------------------------------------------------------------------

    def tokens_of(self, path: Path) -> Tensor:
        """The tokens of an image file, (1, h, w)."""
        return self.vqgan.encode_images(self._read(path)[None])

    def _read(self, path: Path) -> Tensor:
        image = read_image(path, size=side_of(self.size))
        require(
            tuple(image.shape[1:]) == self.size, "prompt", f"{path} of size {tuple(image.shape[1:])}", f"{self.size}"
        )
        return image

    def _originals(self, tokens: Tensor) -> tuple[Tensor, str]:
        """The images of a prompt and what to call them; made of its tokens where they are not at hand."""
        prompt, first = Path(str(self.options.prompt)), self.options.first
        if is_image(prompt):
            return self._read(prompt).expand(len(tokens), -1, -1, -1), "image"
        if self.images is not None and self.options.prompt == "test":
            real = self.images.test[first : first + len(tokens)]
            if len(real) == len(tokens) and are_tokens_of(self.vqgan, tokens, real):
                return real, "image"
        return self.vqgan.decode_images(tokens), "decoded image"

    # ---- files --------------------------------------------------------------------------------------------------

    def write(self, out: Path, x: Tensor, prompt: Prompt, frames: Sequence[Tensor]) -> None:
        """Draw the samples x (N, h, w), and the way to them; tokens above those of the data are not known yet."""
        one_file = bool(out.suffix)
        if out.suffix in ("", ".png"):
            images = self.vqgan.decode_images(x[:_MOST_FILES])
            if not one_file and len(x) <= _MOST_FILES:
                for i, image in enumerate(images, start=1):
                    write_image(image, out / "images" / f"sample-{i:04d}.png")
            if prompt.tokens is not None:
                self._draw_fills(images, prompt, out if one_file else out / "inpainting.png")
            if prompt.tokens is None or not one_file:
                image_grid(images[:_MOST_SHOWN], out if one_file else out / "samples.png")
            if self.options.neighbours:
                self._draw_neighbours(images[:_MOST_ROWS], out / "neighbours.png")
        if frames and out.suffix in ("", ".gif"):
            animate_images(self._decoded(frames), out if one_file else out / "denoising.gif")

    def _draw_fills(self, images: Tensor, prompt: Prompt, path: Path) -> None:
        assert prompt.tokens is not None
        assert prompt.given is not None
        several = bool((prompt.tokens == prompt.tokens[:1]).all())  # fills of one image
        rows = 1 if several else _MOST_ROWS
        originals, name = self._originals(prompt.tokens[:rows])
        # decoded, as the fills are: what differs from them is what was drawn
        given = with_hole(self.vqgan.decode_images(prompt.tokens[:rows]), prompt.given)
        fills = images[None, :_MOST_FILLS] if several else images[:rows, None]
        inpainting_grid(originals, given, fills, path, names=(name, "given", "filled"))

    def _draw_neighbours(self, samples: Tensor, path: Path) -> None:
        assert self.images is not None
        train, count = self.images.train, len(samples)
        features = self._features(torch.cat([samples, train]))
        found = nearest(features[:count], features[count:], self.options.neighbours)
        neighbour_grid(samples, train[found], path)

    @torch.inference_mode()
    def _features(self, images: Tensor) -> Tensor:
        """What makes images near: pixels of small versions of them, or features of the classifier."""
        found = []
        with progress("looking at images", len(images)) as advance:
            for start in range(0, len(images), _AT_ONCE):
                part = as_floats(images[start : start + _AT_ONCE].to(self.pipeline.device))
                if self.classifier is not None:
                    part = self.classifier.features(part)
                elif max(part.shape[2:]) > _NEAR_SIZE:
                    part = torch.nn.functional.interpolate(part, size=(_NEAR_SIZE, _NEAR_SIZE), mode="area")
                found.append(part.flatten(1).float().cpu())
                advance(min(start + _AT_ONCE, len(images)))
        return torch.cat(found)

    def _decoded(self, frames: Sequence[Tensor]) -> list[Tensor]:
        """The frames as images, grey where a token is not known yet."""
        top, decoded = self.pipeline.config.num_classes, []
        with counted("decoding", len(frames)) as count:
            for frame in frames:
                known = frame < top
                # what a token looks like depends on those around it, so the unknown ones are taken from the samples
                tokens = torch.where(known, frame, frames[-1]).clamp(max=top - 1)
                decoded.append(with_hole(self.vqgan.decode_images(tokens), known))
                count(None)
        return decoded
