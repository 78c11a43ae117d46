"""How different two images look: the distance between the features that a network finds in them."""

import itertools
import pickle
from pathlib import Path
from typing import Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from usd3._internal.checks import require
from usd3.kinds.image.folders import load_classifier

__all__ = ["VGG16", "Perceptual", "PerceptualKind", "load_perceptual"]

PerceptualKind = Literal["vgg", "lpips", "classifier", "none"]

# torchvision's vgg16.features: the convolutions of each stage, with a maximum over 2 x 2 between the stages
_STAGES = ((0, 2), (5, 7), (10, 12, 14), (17, 19, 21), (24, 26, 28))
_MEAN, _SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)  # of ImageNet's colours, for images in -1..1


class _FindsMaps(Protocol):
    def maps(self, x: Tensor) -> list[Tensor]: ...


class Perceptual(nn.Module):
    """The mean over the maps of a network of squared differences between features of length 1.

    At each position of a map the feature is divided by its length, squared differences are summed over the channels,
    and the positions are averaged. With LPIPS weights each channel counts as much as they say, and the maps are added.

    Args:
        network: has `maps(x)`; it is not trained.
        kind: which one that is.
        weights: LPIPS' weights of the channels of each map, (channels,) each; None: all are 1.
    """

    def __init__(self, network: _FindsMaps, kind: PerceptualKind, weights: list[Tensor] | None = None):
        super().__init__()
        self.network, self.kind = network, kind
        self.count = 0 if weights is None else len(weights)
        for i, weight in enumerate(weights or ()):
            self.register_buffer(f"weight{i}", weight)
        self.eval().requires_grad_(False)

    def train(self, mode: bool = True) -> "Perceptual":
        """The network stays as it is: its averages do not move."""
        return super().train(False)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The distance between images (N, 3, H, W) in -1..1, averaged over the batch."""
        with torch.no_grad():  # y is what x should be
            wanted = [_of_length_one(found) for found in self.network.maps(y)]
        found = [_of_length_one(part) for part in self.network.maps(x)]
        gaps = [(a - b).square() for a, b in zip(found, wanted)]
        if self.count:
            gaps = [gap * self.get_buffer(f"weight{i}")[:, None, None] for i, gap in enumerate(gaps)]
        total = torch.stack([gap.sum(1).mean() for gap in gaps]).sum()
        return total if self.count else total / len(gaps)


def _of_length_one(found: Tensor) -> Tensor:
    found = found.float()
    return found / (found.square().sum(1, keepdim=True) + 1e-10).sqrt()


class VGG16(nn.Module):
    """The convolutions of a VGG16, as wide as the weights say; `weights` has torchvision's names."""

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
        """What each stage finds in images in -1..1 of at least 16 x 16."""
        require(min(x.shape[2:]) >= 16, "height and width", tuple(x.shape[2:]), "at least 16 for a VGG16")
        x, found = (x - self.mean) / self.scale, list[Tensor]()
        for stage in self.stages:
            x = F.max_pool2d(x, 2) if found else x
            for layer in stage:  # type: ignore[attr-defined]
                x = F.relu(layer(x))
            found.append(x)
        return found


def load_perceptual(path: Path | str | None, lpips: Path | str | None = None) -> Perceptual | None:
    """The distance of a folder that `usd3 classifier` made, or of a file with the weights of a VGG16; None for None.

    The file is a state dict with torchvision's names, features.0.weight and so on. If it, or the file `lpips`, also
    has lin0.model.1.weight and so on, the distance is LPIPS.
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
    more, named = (weights, path) if lpips is None else (_read(Path(lpips)), Path(lpips))
    names = [f"lin{i}.model.1.weight" for i in range(len(_STAGES))]
    if lpips is None and not any(name in more for name in names):
        return Perceptual(network, "vgg")
    wide = [stage[-1].out_channels for stage in network.stages]  # type: ignore[index]
    for name, channels in zip(names, wide):
        seen = tuple(more[name].shape) if name in more else "missing"
        require(seen == (1, channels, 1, 1), f"{named}: {name}", seen, f"weights of shape {(1, channels, 1, 1)}")
    return Perceptual(network, "lpips", [more[name].flatten().float() for name in names])


def _read(path: Path) -> dict[str, Tensor]:
    """The tensors of a state dict; nothing in the file is run."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: expected a folder that `usd3 classifier` made, or a file of weights")
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, ValueError, EOFError, OSError) as error:
        reason = " ".join(str(error).split())[:120]
        raise ValueError(f"{path}: expected a file that torch.save wrote, with weights alone ({reason})") from None
    is_dict = isinstance(found, dict) and all(isinstance(value, Tensor) for value in found.values())
    require(is_dict, str(path), type(found).__name__, "a state dict, a dict of tensors")
    return dict(found)


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
