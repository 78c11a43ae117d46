"""The training of networks for images on a GPU: graphs do what plain steps do. Skipped where there is no GPU."""

import csv

import pytest
import torch

from usd3.kinds.image.classifier import Classifier
from usd3.kinds.image.folders import load_classifier, load_vqgan, save_network
from usd3.kinds.image.images import Images
from usd3.training.classifier import ClassifierConfig, train_classifier
from usd3.training.vqgan import VQGANConfig, train_vqgan

pytestmark = pytest.mark.gpu


@pytest.fixture
def images():
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (80, 3, 4, 4), generator=generator).to(torch.uint8)
    pixels = pixels.repeat_interleave(4, 2).repeat_interleave(4, 3)
    labels = (pixels[:, 0, 0, 0] > 127).long()
    return Images("patches", pixels[:64], pixels[64:], labels[:64], labels[64:], ("dark", "light"))


def losses(folder, name):
    with open(folder / "logs" / "version_0" / "metrics.csv") as file:
        return [float(row[name]) for row in csv.DictReader(file)]


@pytest.mark.filterwarnings("ignore")  # of torch.compile's own
@pytest.mark.parametrize(
    ("codebook", "precision", "compile"),
    [("ema", "fp32", False), ("gradient", "fp32", False), ("ema", "bf16", False), ("ema", "bf16", True)],
)
def test_a_vqgan_trains_in_graphs_as_without(codebook, precision, compile, images, tmp_path):
    save_network(tmp_path / "classifier", Classifier(2, 8, 1))
    for graph in ("always", "never"):
        config = VQGANConfig(
            steps=24,
            batch_size=32,
            lr=1e-3,
            warmup=2,
            precision=precision,
            compile=compile,
            cuda_graph=graph,
            log_every=1,
            num_codes=16,
            code_dim=8,
            filters=[16, 16],
            blocks=1,
            codebook=codebook,
            perceptual=str(tmp_path / "classifier"),
            gan_start=0.4,
            discriminator_width=8,
        )
        train_vqgan(config, tmp_path / graph, images, progress=False)
    for name in ("train/l1", "train/discriminator"):
        first, second = (losses(tmp_path / graph, name) for graph in ("always", "never"))
        assert first == pytest.approx(second, rel=0.05, abs=0.02)
    first, second = (load_vqgan(tmp_path / "always", device) for device in ("cuda", "cpu"))
    same = first.encode_images(images.test) == second.encode_images(images.test)
    assert same.double().mean() > 0.98


def test_a_classifier_trains_in_a_graph_as_without(images, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    for graph in ("always", "never"):
        config = ClassifierConfig(steps=24, batch_size=32, cuda_graph=graph, log_every=1, width=8, warmup=2)
        train_classifier(config, tmp_path / graph, images, progress=False)
    first, second = (losses(tmp_path / graph, "train/loss") for graph in ("always", "never"))
    assert first == pytest.approx(second, rel=0.05, abs=0.02)
    first, second = (load_classifier(tmp_path / graph, "cpu").state_dict() for graph in ("always", "never"))
    averages = [name for name in first if "running_" in name or "num_batches" in name]
    assert averages
    for name in averages:  # a step more or less would show
        if "num_batches" in name:
            assert first[name] == second[name] == 24
        else:  # kernels may still be chosen anew
            assert (first[name] - second[name]).norm() < 0.1 * second[name].norm().clamp(min=0.3)
