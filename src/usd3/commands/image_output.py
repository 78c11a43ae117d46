"""What `usd3 sample` does for models of image tokens: a VQGAN makes images of them, which are drawn and compared."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from usd3._checks import as_count, require
from usd3.commands.prompts import Prompt, PromptOptions, is_image
from usd3.data import Images, as_floats
from usd3.pictures import animate_images, image_grid, inpainting_grid, neighbour_grid, with_hole
from usd3.pipeline import Pipeline
from usd3.progress import counted, progress

if TYPE_CHECKING:
    from usd3.nets import VQGAN, Classifier

__all__ = ["ImageOptions", "ImageOutput"]

_MOST_FILES, _MOST_SHOWN, _MOST_ROWS, _MOST_FILLS = 100, 64, 16, 8
_NEAR_SIZE = 16  # side of the images whose pixels are compared
_AT_ONCE = 500
_ALIKE = 0.9  # part of the tokens by which an image is known again; rounding on another device changes a few


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


class ImageOutput:
    """The pictures of a model of images. What may be missing is looked for here, before anything is drawn."""

    def __init__(self, options: ImageOptions, pipeline: Pipeline):
        self.options, self.pipeline = options, pipeline
        as_count(options.neighbours, "neighbours", 0)
        used = options.neighbours > 0 or options.classifier is None
        require(used, "neighbours", 0, "at least 1, as `classifier` is set")
        self.vqgan = self._load_vqgan()
        blank = torch.zeros(1, *pipeline.config.shape, dtype=torch.long)
        height, width = self.vqgan.decode_images(blank).shape[2:]
        self.size = height, width
        self.images = self._load_images()
        self.classifier = None if options.classifier is None else self._load_classifier(options.classifier)

    def _load_classifier(self, folder: str) -> "Classifier":
        from usd3.images import load_classifier

        if not Path(folder).is_dir():
            raise FileNotFoundError(f"classifier = {folder}: expected the folder of a classifier")
        return load_classifier(folder, str(self.pipeline.device))

    def _load_vqgan(self) -> "VQGAN":
        from usd3.images import load_vqgan

        config = self.pipeline.config
        folder = self.options.vqgan or (config.source.vqgan if config.source else "")
        if not Path(folder).is_dir():
            raise FileNotFoundError(
                f"vqgan = {folder}: no such folder; expected that of the VQGAN of the model's tokens (--vqgan FOLDER), "
                "or --out NAME.npz, which needs none"
            )
        vqgan = load_vqgan(folder, str(self.pipeline.device))
        codes = vqgan.num_codes
        require(codes == config.num_classes, "vqgan", f"{folder} of {codes} codes", f"one of {config.num_classes}")
        return vqgan

    def _load_images(self) -> Images | None:
        """The images of the data, where they are needed or are at hand."""
        from usd3.data import load_images

        options, source = self.options, self.pipeline.config.source
        path = options.images_path or (source.images if source else "")
        if not (options.neighbours or options.images_path or options.prompt == "test"):
            return None
        if not path or not Path(path).exists():
            if options.neighbours or options.images_path:
                raise FileNotFoundError(f"images_path = {path}: expected the images that the tokens were made of")
            return None
        found = load_images(path, size=self._side)
        fits = found.size == self.size
        require(fits, "images_path", f"{path} of size {found.size}", f"images of the VQGAN's size, {self.size}")
        require(options.neighbours <= len(found.train), "neighbours", options.neighbours, f"at most {len(found.train)}")
        return found

    @property
    def _side(self) -> int | None:
        """The side of square images, to which others are scaled."""
        return self.size[0] if self.size[0] == self.size[1] else None

    # ---- prompts ------------------------------------------------------------------------------------------------

    def tokens_of(self, path: Path) -> Tensor:
        """The tokens of an image file, (1, h, w)."""
        return self.vqgan.encode_images(self._read(path)[None])

    def _read(self, path: Path) -> Tensor:
        from usd3.data import read_image

        image = read_image(path, size=self._side)
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
            if len(real) == len(tokens) and float((self.vqgan.encode_images(real) == tokens).float().mean()) >= _ALIKE:
                return real, "image"
        return self.vqgan.decode_images(tokens), "decoded image"

    # ---- files --------------------------------------------------------------------------------------------------

    def write(self, out: Path, x: Tensor, prompt: Prompt, frames: Sequence[Tensor]) -> None:
        """Draw the samples x (N, h, w), and the way to them; tokens above those of the data are not known yet."""
        from usd3.data import write_image

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
        fills = images[None, :_MOST_FILLS] if several else images[:rows, None]
        inpainting_grid(originals, with_hole(originals, prompt.given), fills, path, names=(name, "given", "filled"))

    def _draw_neighbours(self, samples: Tensor, path: Path) -> None:
        from usd3.metrics.images import nearest

        assert self.images is not None
        train, count = self.images.train, len(samples)
        features = self._features(torch.cat([samples, train]))
        found = nearest(features[:count], features[count:], self.options.neighbours)
        neighbour_grid(samples, train[found], path)

    @torch.inference_mode()
    def _features(self, images: Tensor) -> Tensor:
        """What makes images near: pixels of small versions of them, or features of the classifier."""
        found = []
        with progress("looking for neighbours", len(images)) as advance:
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
