"""The perceptual distance against a plain computation, and the files it comes from."""

import pytest
import torch
import torch.nn.functional as F

from usd3.kinds.image.classifier import Classifier
from usd3.kinds.image.folders import save_network
from usd3.kinds.image.perceptual import Perceptual, load_perceptual
from usd3.kinds.image.vqgan import VQGAN

CONVOLUTIONS = {1: (0, 2), 2: (5, 7), 3: (10, 12, 14), 4: (17, 19, 21), 5: (24, 26, 28)}


def vgg_weights() -> dict[str, torch.Tensor]:
    """Random weights with the names and the form of torchvision's, but few channels."""
    torch.manual_seed(0)
    weights, before = {"classifier.0.weight": torch.zeros(2, 2)}, 3
    for stage, numbers in CONVOLUTIONS.items():
        for number in numbers:
            weights[f"features.{number}.weight"] = torch.randn(stage + 1, before, 3, 3) / 3
            weights[f"features.{number}.bias"] = torch.randn(stage + 1) / 3
            before = stage + 1
    return weights


def lpips_weights() -> dict[str, torch.Tensor]:
    return {f"lin{i}.model.1.weight": torch.rand(1, i + 2, 1, 1) for i in range(5)}


def pair(side=16):
    generator = torch.Generator().manual_seed(2)
    return (torch.rand(2, 3, side, side, generator=generator) * 2 - 1 for _ in range(2))


def plain_maps(weights, x):
    """VGG16 as torchvision lays it out: layer by layer."""
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    x, found = ((x + 1) / 2 - mean.view(3, 1, 1)) / std.view(3, 1, 1), []
    for layer in range(30):
        if f"features.{layer}.weight" in weights:
            x = F.conv2d(x, weights[f"features.{layer}.weight"], weights[f"features.{layer}.bias"], padding=1)
        elif layer in (4, 9, 16, 23):
            x = F.max_pool2d(x, 2)
        else:
            x = F.relu(x)
        if layer in (3, 8, 15, 22, 29):
            found.append(x)
    return found


def plain_distance(maps_x, maps_y, weights=None):
    values = []
    for i, (a, b) in enumerate(zip(maps_x, maps_y)):
        a, b = (m / (m.square().sum(1, keepdim=True) + 1e-10).sqrt() for m in (a, b))
        gap = (a - b) ** 2 if weights is None else (a - b) ** 2 * weights[f"lin{i}.model.1.weight"]
        values.append(gap.sum(1).mean())
    return sum(values) / (len(values) if weights is None else 1)


def test_vgg_and_lpips_from_files(tmp_path):
    weights, linear = vgg_weights(), lpips_weights()
    torch.save(weights, tmp_path / "vgg.pth")
    torch.save(linear, tmp_path / "lpips.pth")
    torch.save(weights | linear, tmp_path / "both.pth")
    x, y = pair()
    maps = plain_maps(weights, x), plain_maps(weights, y)
    vgg = load_perceptual(tmp_path / "vgg.pth")
    assert vgg.name == "vgg"
    assert torch.allclose(vgg(x, y), plain_distance(*maps), rtol=1e-4)
    for files in ([tmp_path / "vgg.pth", tmp_path / "lpips.pth"], [tmp_path / "both.pth"]):
        lpips = load_perceptual(*files)
        assert lpips.name == "lpips"
        assert torch.allclose(lpips(x, y), plain_distance(*maps, linear), rtol=1e-4)
        assert lpips(x, x) == 0
    with pytest.raises(ValueError, match=r"height and width = \(8, 8\): expected at least 16"):
        vgg(*pair(8))


def test_a_classifier_measures_and_stays_as_it_is(tmp_path):
    torch.manual_seed(0)
    net = Classifier(3, width=4, blocks=1)
    save_network(tmp_path, net)
    distance = load_perceptual(tmp_path).train()
    assert distance.name == "classifier"
    x, y = pair(8)
    before = {name: value.clone() for name, value in distance.state_dict().items()}
    x.requires_grad_()
    found = distance(x, y)
    net.eval()
    assert torch.allclose(found, plain_distance(net.maps(x), net.maps(y)))
    assert distance(y, y) == 0
    found.backward()
    assert x.grad.abs().sum() > 0
    assert all(p.grad is None for p in distance.parameters())
    assert all(torch.equal(before[name], value) for name, value in distance.state_dict().items())
    assert load_perceptual(None) is None


def test_features_count_by_direction_alone():
    class Colours(torch.nn.Module):
        def maps(self, x):
            return [x]

    x, _ = pair(4)
    assert Perceptual(Colours(), "classifier")(x, 3 * x) < 1e-9
    assert Perceptual(Colours(), "classifier")(x, -x).item() == pytest.approx(4)


def test_wrong_files_are_refused(tmp_path):
    weights, linear = vgg_weights(), lpips_weights()

    def refused(message, content, lpips=None, error=ValueError):
        torch.save(content, tmp_path / "file.pth")
        if lpips is not None:
            torch.save(lpips, tmp_path / "lpips.pth")
        with pytest.raises(error, match=message):
            load_perceptual(tmp_path / "file.pth", None if lpips is None else tmp_path / "lpips.pth")

    refused(r"file.pth: features.28.bias = missing: expected \(6,\)", {k: weights[k] for k in list(weights)[:-1]})
    refused("features.0.weight = missing", linear)
    refused("a 3 x 3 convolution", weights | {"features.5.weight": torch.zeros(3, 2, 1, 1)})
    wrong = {"features.5.weight": torch.zeros(3, 4, 3, 3)}
    refused("each layer with the inputs of the one before", weights | wrong)
    refused(
        r"lin1.model.1.weight = missing: expected weights of shape \(1, 3, 1, 1\)",
        weights,
        {"lin0.model.1.weight": linear["lin0.model.1.weight"]},
    )
    refused("expected a state dict", [1, 2])
    refused("weights alone", {"a": object})
    (tmp_path / "file.txt").write_text("no weights")
    with pytest.raises(ValueError, match=r"expected a file that torch.save wrote"):
        load_perceptual(tmp_path / "file.txt")
    with pytest.raises(FileNotFoundError, match="nowhere: expected a folder that `usd3 classifier` made"):
        load_perceptual(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="lpips = x: expected null without"):
        load_perceptual(None, "x")
    with pytest.raises(ValueError, match="lpips = x: expected null, as"):
        load_perceptual(tmp_path, "x")
    save_network(tmp_path, VQGAN(4, 4, (4,), 1))
    with pytest.raises(ValueError, match="kind = vqgan: expected classifier"):
        load_perceptual(tmp_path)
