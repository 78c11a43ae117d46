"""A VQGAN: it turns an image into a grid of tokens, and tokens into an image."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from usd3._internal.checks import Checks, as_categories, as_count, require
from usd3._internal.pixels import as_bytes, as_floats
from usd3.kinds.image.codebook import Codebook, CodebookUpdate
from usd3.kinds.image.convolutions import NormedConv, require_images

__all__ = ["VQGAN", "Reconstruction"]


class Reconstruction(NamedTuple):
    """Reconstructed images (N, 3, H, W), the loss of the codebook, and the perplexity of the tokens."""

    images: Tensor
    loss: Tensor
    perplexity: Tensor


class VQGAN(nn.Module):
    """Encoder, codebook and decoder. Each stage but the first halves the sides of the images.

    Args:
        num_codes: number of different tokens.
        code_dim: length of a code.
        filters: number of channels of each stage.
        blocks: residual blocks in a stage.
        codebook: "ema" or "gradient", how the codes are learned; see `Codebook`.
        commitment: weight of the loss that pulls the encoder's output towards the codes.
        restart_after: number of steps without use after which a code is replaced; None: never.
    """

    def __init__(
        self,
        num_codes: int = 512,
        code_dim: int = 256,
        filters: Sequence[int] = (64, 128, 256),
        blocks: int = 2,
        codebook: CodebookUpdate = "ema",
        commitment: float = 0.25,
        restart_after: int | None = 100,
    ):
        super().__init__()
        require(len(filters) >= 1, "filters", filters, "at least one stage")
        filters = [as_count(width, "filters", 1) for width in filters]
        blocks = as_count(blocks, "blocks", 1)
        self.config: dict[str, Any] = {
            "num_codes": num_codes,
            "code_dim": code_dim,
            "filters": filters,
            "blocks": blocks,
            "codebook": codebook,
            "commitment": commitment,
            "restart_after": restart_after,
        }
        self.num_codes, self.factor = num_codes, 2 ** (len(filters) - 1)
        self.codebook = Codebook(num_codes, code_dim, codebook, commitment, restart_after=restart_after)
        self.encoder = _encoder(filters, blocks, code_dim)
        self.decoder = _decoder(filters, blocks, code_dim)

    def forward(self, x: Tensor) -> Reconstruction:
        """Encode and decode images (N, 3, H, W) in -1..1. In training mode this also updates the codebook."""
        self.require_size(x)
        z = self.encoder(x)
        codes = self.codebook(z.movedim(1, -1).flatten(0, 2))
        vectors = codes.vectors.view(len(z), *z.shape[2:], -1).movedim(-1, 1)
        return Reconstruction(self.decoder(vectors).float(), codes.loss, codes.perplexity)

    def require_size(self, images: Tensor) -> None:
        """Raise an error unless the sides of the images can be halved in every stage but the first."""
        sides = tuple(images.shape[2:])
        fits = all(side >= self.factor and side % self.factor == 0 for side in sides)
        require(fits, "height and width", sides, f"multiples of {self.factor}")

    def encode_images(self, images: Tensor, batch_size: int = 256) -> Tensor:
        """Tokens (N, h, w) int64, on the CPU, of images (N, 3, H, W) uint8."""
        require_images(images)
        self.require_size(images)

        def tokens(part: Tensor) -> Tensor:
            z = self.encoder(as_floats(part))
            return self.codebook.nearest(z.movedim(1, -1).flatten(0, 2)).view(len(z), *z.shape[2:])

        return self._in_batches(tokens, images, batch_size)

    def decode_images(self, tokens: Tensor, batch_size: int = 256) -> Tensor:
        """Images (N, 3, H, W) uint8, on the CPU, of tokens (N, h, w)."""
        checks = Checks(True)
        tokens = as_categories(tokens, self.num_codes, "tokens", checks)
        checks.raise_first()
        require(tokens.dim() == 3, "tokens.shape", tuple(tokens.shape), "(N, h, w)")

        def pixels(part: Tensor) -> Tensor:
            return as_bytes(self.decoder(self.codebook.codes[part].movedim(-1, 1)))

        return self._in_batches(pixels, tokens, batch_size)

    @torch.inference_mode()
    def _in_batches(self, work: Callable[[Tensor], Tensor], rows: Tensor, batch_size: int) -> Tensor:
        require(len(rows) > 0, "N", 0, "at least one image")
        device, training = self.codebook.codes.device, self.training
        self.eval()
        try:
            parts = rows.split(as_count(batch_size, "batch_size", 1))
            return torch.cat([work(part.to(device)) for part in parts]).cpu().contiguous()
        finally:
            self.train(training)


class _Residual(nn.Module):
    """A residual block: two convolutions, added to the input."""

    def __init__(self, channels: int, out: int):
        super().__init__()
        self.first, self.second = NormedConv(channels, out), NormedConv(out, out)
        self.skip = nn.Identity() if channels == out else nn.Conv2d(channels, out, 1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.skip(x) + self.second(self.first(x))
        return out


def _stage(channels: int, out: int, blocks: int) -> list[nn.Module]:
    return [_Residual(channels if i == 0 else out, out) for i in range(blocks)]


def _encoder(filters: Sequence[int], blocks: int, code_dim: int) -> nn.Sequential:
    parts: list[nn.Module] = [nn.Conv2d(3, filters[0], 3, padding=1), *_stage(filters[0], filters[0], blocks)]
    for before, width in itertools.pairwise(filters):
        parts += [nn.AvgPool2d(2), *_stage(before, width, blocks)]
    return nn.Sequential(*parts, NormedConv(filters[-1], code_dim, kernel=1))


def _decoder(filters: Sequence[int], blocks: int, code_dim: int) -> nn.Sequential:
    widths = list(reversed(filters))
    parts: list[nn.Module] = [nn.Conv2d(code_dim, widths[0], 3, padding=1), *_stage(widths[0], widths[0], blocks)]
    for before, width in itertools.pairwise(widths):
        parts += [nn.Upsample(scale_factor=2), nn.Conv2d(before, width, 3, padding=1), *_stage(width, width, blocks)]
    return nn.Sequential(*parts, NormedConv(widths[-1], 3))
