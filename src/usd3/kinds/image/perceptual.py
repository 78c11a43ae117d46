"""How different two images look: the distance between their features in a network."""

import itertools
import pickle
from pathlib import Path
from typing import Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from usd3._internal.checks import require
from usd3.kinds.image.folders import load_classifier

__all__ = ["VGG16", "Perceptual", "PerceptualName", "load_perceptual"]

PerceptualName = Literal["vgg", "lpips", "classifier", "none"]

# torchvision's vgg16.features: the convolutions of each stage, with a maximum over 2 x 2 between the stages
_STAGES = ((0, 2), (5, 7), (10, 12, 14), (17, 19, 21), (24, 26, 28))
_MEAN, _SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)  # of ImageNet's colours, for images in -1..1


class _HasMaps(Protocol):
    def maps(self, x: Tensor) -> list[Tensor]: ...


class Perceptual(nn.Module):
    """Squared distance between the normalised features of two images, averaged over the feature maps of a network.

    At each position of a map, the features are divided by their L2 norm, and squared differences are summed over the
    channels; then positions are averaged. LPIPS weights the channels, and sums over the maps instead of averaging.

    Args:
        network: returns feature maps from `maps(x)`; it is not trained.
        name: name of the distance.
        weights: (channels,) for each map, the weights of LPIPS; None: all are 1.
    """

    def __init__(self, network: _HasMaps, name: PerceptualName, weights: list[Tensor] | None = None):
        super().__init__()
        self.network, self.name = network, name
        self.count = 0 if weights is None else len(weights)
        for i, weight in enumerate(weights or ()):
            self.register_buffer(f"weight{i}", weight)
        self.eval().requires_grad_(False)

    def train(self, mode: bool = True) -> "Perceptual":
        """No-op: the network stays in evaluation mode, so that its averages do not change."""
        return super().train(False)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Mean distance between images x and y, both (N, 3, H, W) in -1..1; y, the target, has no gradient."""
        with torch.no_grad():
            target = [_normalised(part) for part in self.network.maps(y)]
        features = [_normalised(part) for part in self.network.maps(x)]
        gaps = [(a - b).square() for a, b in zip(features, target)]
        if self.count:
            gaps = [gap * self.get_buffer(f"weight{i}")[:, None, None] for i, gap in enumerate(gaps)]
        total = torch.stack([gap.sum(1).mean() for gap in gaps]).sum()
        return total if self.count else total / len(gaps)


def _normalised(features: Tensor) -> Tensor:
    features = features.float()
    return features / (features.square().sum(1, keepdim=True) + 1e-10).sqrt()


class VGG16(nn.Module):
    """The convolutions of a VGG16.

    Args:
        weights: a state dict with torchvision's names. It also determines the number of channels.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, weights: dict[str, Tensor]):
        super().__init__()
        self.stages = nn.ModuleList()
        for stage in _STAGES:
            self.stages.append(nn.ModuleList(_convolution(weights, f"features.{number}") for number in stage))
        layers = [layer for stage in self.stages for layer in stage]  # type: ignore[attr-defined]
        fits = layers[0].in_channels == 3 and all(
            a.out_channels == b.in_channels for a, b in itertools.pairwise(layers)
        )
        shapes = [tuple(layer.weight.shape[:2]) for layer in layers]
        require(fits, "channels", shapes, "those of a VGG16, each layer with the inputs of the one before, first 3")
        self.register_buffer("mean", torch.tensor(_MEAN).view(3, 1, 1))
        self.register_buffer("scale", torch.tensor(_SCALE).view(3, 1, 1))

    def maps(self, x: Tensor) -> list[Tensor]:
        """The feature maps (N, channels, h, w) of each stage, of images in -1..1 of at least 16 x 16 pixels."""
        require(min(x.shape[2:]) >= 16, "height and width", tuple(x.shape[2:]), "at least 16 for a VGG16")
        x, maps = (x - self.mean) / self.scale, list[Tensor]()
        for stage in self.stages:
            x = F.max_pool2d(x, 2) if maps else x
            for layer in stage:  # type: ignore[attr-defined]
                x = F.relu(layer(x))
            maps.append(x)
        return maps


def load_perceptual(path: Path | str | None, lpips: Path | str | None = None) -> Perceptual | None:
    """The distance by the features of a classifier or of a VGG16; None if `path` is None.

    Args:
        path: a folder that `usd3 classifier` wrote, or a file with the weights of a VGG16: a state dict with
            torchvision's names, features.0.weight and so on.
        lpips: a file with the weights of LPIPS, lin0.model.1.weight and so on; None: they are taken from the file
            `path`, if it has them.
    """
    require(path is not None or lpips is None, "lpips", lpips, "null without the weights of a VGG16 as perceptual")
    if path is None:
        return None
    path = Path(path)
    if path.is_dir():
        require(lpips is None, "lpips", lpips, f"null, as {path} is a folder and no file with the weights of a VGG16")
        return Perceptual(load_classifier(path, "cpu"), "classifier")
    weights = _read(path)
    network = _checked(path, weights)
    channel_weights, file = (weights, path) if lpips is None else (_read(Path(lpips)), Path(lpips))
    names = [f"lin{i}.model.1.weight" for i in range(len(_STAGES))]
    if lpips is None and not any(name in channel_weights for name in names):
        return Perceptual(network, "vgg")
    widths = [stage[-1].out_channels for stage in network.stages]  # type: ignore[index]
    for name, channels in zip(names, widths):
        seen = tuple(channel_weights[name].shape) if name in channel_weights else "missing"
        require(seen == (1, channels, 1, 1), f"{file}: {name}", seen, f"weights of shape {(1, channels, 1, 1)}")
    return Perceptual(network, "lpips", [channel_weights[name].flatten().float() for name in names])


def _read(path: Path) -> dict[str, Tensor]:
    """The tensors of a state dict in a file; no code in the file runs."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: expected a folder that `usd3 classifier` made, or a file of weights")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, ValueError, EOFError, OSError) as error:
        reason = " ".join(str(error).split())[:120]
        raise ValueError(f"{path}: expected a file that torch.save wrote, with weights alone ({reason})") from None
    is_dict = isinstance(content, dict) and all(isinstance(value, Tensor) for value in content.values())
    require(is_dict, str(path), type(content).__name__, "a state dict, a dict of tensors")
    return dict(content)


def _checked(path: Path, weights: dict[str, Tensor]) -> VGG16:
    try:
        return VGG16(weights)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _convolution(weights: dict[str, Tensor], name: str) -> nn.Conv2d:
    weight, bias = weights.get(f"{name}.weight"), weights.get(f"{name}.bias")
    fits = weight is not None and weight.dim() == 4 and weight.shape[2:] == (3, 3)
    require(fits, f"{name}.weight", "missing" if weight is None else tuple(weight.shape), "a 3 x 3 convolution")
    assert weight is not None
    seen = "missing" if bias is None else tuple(bias.shape)
    require(seen == (len(weight),), f"{name}.bias", seen, f"({len(weight)},)")
    assert bias is not None
    layer = nn.Conv2d(weight.shape[1], len(weight), 3, padding=1)
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)  # type: ignore[union-attr]
    return layer
