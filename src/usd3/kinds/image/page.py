"""Images on the studio's page: a grid of tokens, and the pictures that a VQGAN makes of them."""

import io
from functools import cached_property
from pathlib import Path
from typing import Any

from PIL import Image

from usd3._internal.checks import require
from usd3.kinds.image.kind import ImageTokens
from usd3.kinds.image.opening import image_size
from usd3.kinds.image.rendering import ImageRenderer
from usd3.kinds.page import FromPage, Page

__all__ = ["ImagePage"]

_MOST_PIXELS = 2**25  # of an image that is read: a small file may claim any number


class ImagePage(Page):
    """Tokens of an image, which the page shows as pictures."""

    reads = (".png", ".jpg", ".jpeg", ".webp")
    most_num = 16
    kind: ImageTokens

    @cached_property
    def renderer(self) -> ImageRenderer:
        """The renderer with its VQGAN, opened on first use."""
        return ImageRenderer(self.kind, self.request_for(Path("picture.png"), None))

    def editor(self) -> dict[str, Any]:
        """The sides of a picture in pixels and in tokens; where the VQGAN is missing, the line that says so."""
        grid = list(self.kind.shape)
        try:
            return {"name": "image", "size": list(image_size(self.renderer.vqgan, grid)), "grid": grid, "missing": None}
        except (OSError, ValueError) as error:
            return {"name": "image", "size": grid, "grid": grid, "missing": " ".join(str(error).split())}

    def read(self, path: Path) -> tuple[Any, list[str]]:
        """The tokens of the middle square of an image."""
        try:
            with Image.open(path) as opened:
                width, height = opened.size
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
            raise ValueError(f"{path.name}: not a readable image") from None
        require(
            width * height <= _MOST_PIXELS, path.name, f"{width:,} x {height:,} pixels", f"at most {_MOST_PIXELS:,}"
        )
        rows, _ = self.renderer.prompt(path)
        notes = [] if width == height else ["the middle square of the image"]
        return rows.tokens[0].tolist(), notes

    def pictures(self, objects: FromPage) -> list[bytes]:
        """A PNG of each image; an open token is drawn as any other."""
        return [_as_png(image) for image in self.renderer.vqgan.decode_images(objects.tokens)]


def _as_png(image: Any) -> bytes:
    """An image (3, H, W) uint8 as the bytes of a PNG file."""
    stream = io.BytesIO()
    Image.fromarray(image.permute(1, 2, 0).contiguous().numpy()).save(stream, "PNG")
    return stream.getvalue()
