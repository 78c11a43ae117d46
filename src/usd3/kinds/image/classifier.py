"""A small residual network that classifies images. Its features are used to compare images."""

from typing import Any

from torch import Tensor, nn

from usd3._internal.checks import as_count

__all__ = ["Classifier"]


class Classifier(nn.Module):
    """A ResNet of three stages with w, 2w and 4w channels; each stage but the first halves the sides.

    Args:
        num_classes: number of classes, C.
        width: number of channels of the first stage, w.
        blocks: residual blocks in a stage.
        labelled: whether the classes are labels of the images; False: they are the four rotations of an image.
    """

    def __init__(self, num_classes: int = 10, width: int = 64, blocks: int = 2, labelled: bool = True):
        super().__init__()
        num_classes, width = as_count(num_classes, "num_classes", 2), as_count(width, "width", 1)
        blocks = as_count(blocks, "blocks", 1)
        self.config: dict[str, Any] = {
            "num_classes": num_classes,
            "width": width,
            "blocks": blocks,
            "labelled": labelled,
        }
        self.num_classes, self.labelled = num_classes, labelled
        self.stem = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.stages = nn.ModuleList()
        channels = width
        for stage in range(3):
            parts = [_Block(channels, width << stage, stride=2 if stage else 1)]
            parts += [_Block(width << stage, width << stage) for _ in range(blocks - 1)]
            self.stages.append(nn.Sequential(*parts))
            channels = width << stage
        self.last = nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU())
        self.head = nn.Linear(channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (N, C) of images (N, 3, H, W) in -1..1."""
        logits: Tensor = self.head(self.features(x))
        return logits

    def features(self, x: Tensor) -> Tensor:
        """The output of the last stage, averaged over positions: (N, 4w)."""
        return self.maps(x)[-1].mean((2, 3))

    def maps(self, x: Tensor) -> list[Tensor]:
        """The feature maps (N, channels, h, w) of each stage."""
        x, maps = self.stem(x), []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        return [*maps[:-1], self.last(x)]


class _Block(nn.Module):
    """A residual block: BatchNorm, ReLU and a convolution, twice, added to the input."""

    def __init__(self, channels: int, out: int, stride: int = 1):
        super().__init__()
        self.before = nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU())
        self.branch = nn.Sequential(
            nn.Conv2d(channels, out, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(),
            nn.Conv2d(out, out, 3, padding=1, bias=False),
        )
        same = channels == out and stride == 1
        self.skip = None if same else nn.Conv2d(channels, out, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.before(x)
        out: Tensor = (x if self.skip is None else self.skip(normed)) + self.branch(normed)
        return out
