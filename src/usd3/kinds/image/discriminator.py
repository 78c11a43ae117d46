"""A network that tells real images from reconstructions, patch by patch."""

from torch import Tensor, nn

from usd3._internal.checks import as_count
from usd3.kinds.image.convolutions import group_norm

__all__ = ["Discriminator"]


class Discriminator(nn.Module):
    """A logit for each patch of about 18 pixels, high for real images.

    GroupNorm does not mix the images of a batch, so real images and reconstructions can be in one batch.

    Args:
        width: number of channels of the first layer.
    """

    def __init__(self, width: int = 64):
        super().__init__()
        width = as_count(width, "width", 1)
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 4, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 4, stride=2, padding=1),
            group_norm(2 * width),
            nn.LeakyReLU(0.2),
            nn.Conv2d(2 * width, 4 * width, 3, padding=1),
            group_norm(4 * width),
            nn.LeakyReLU(0.2),
            nn.Conv2d(4 * width, 1, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Logits (N, 1, h, w), float32, of images (N, 3, H, W) in -1..1."""
        logits: Tensor = self.layers(x)
        return logits.float()
