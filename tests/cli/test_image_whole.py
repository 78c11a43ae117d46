"""Images, tokens, a scrambled model, its scores and its pictures: nothing is replaced, everything is tiny."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from usd3.cli.main import main
from usd3.core.options import DiffusionConfig
from usd3.kinds.image.classifier import Classifier
from usd3.kinds.image.folders import load_classifier, load_vqgan, save_network
from usd3.kinds.image.sets import load_images
from usd3.kinds.image.tokens import load_image_tokens
from usd3.kinds.image.vqgan import VQGAN
from usd3.kinds.options import DataConfig
from usd3.metrics import image_metrics
from usd3.nets.options import ModelConfig
from usd3.pipeline.pipeline import Pipeline
from usd3.training.images import write_results
from usd3.training.options import Recipe
from usd3.training.run import pipeline_for

NUM = 8
SCORED = ["--images.classifier", "classifier", "--images.num", str(NUM), "--device", "cpu"]
SCORED += ["--steps", "2", "--runs", "1", "--bound_samples", "4"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Images of 8 x 8 pixels, their tokens (2 x 2, with mirrored ones), networks, and a model of scrambled tokens."""
    monkeypatch.chdir(tmp_path)
    pixels = np.random.default_rng(0).integers(256, size=(32, 8, 8, 3), dtype=np.uint8)
    pixels[::2] //= 3  # some are darker
    np.savez("images.npz", train=pixels[:20], test=pixels[20:], train_labels=np.arange(20) % 2)
    torch.manual_seed(0)
    for name in ("vqgan", "other"):
        save_network(name, VQGAN(16, 4, (4, 4, 4), 1), size=[8, 8])
    save_network("classifier", Classifier(2, 4, 1), size=[8, 8])
    for name in ("vqgan", "other", "classifier"):  # as if trained to their end
        write_results(name, {})
    encode = ["encode", "vqgan", "--images", "images.npz", "--out", "tokens.npz", "--flips", "true"]
    assert main([*encode, "--device", "cpu"]) == 0
    data = DataConfig(source="image_tokens", path="tokens.npz", scramble=3)
    diffusion, network = DiffusionConfig(noise="absorbing"), ModelConfig(dim=8, depth=1, heads=1, time_dim=4)
    model = pipeline_for(Recipe(data, diffusion, model=network), data.load())
    for weight in model.model.parameters():  # an untrained network finds all tokens equally likely
        torch.nn.init.normal_(weight)
    model.save_pretrained("model")


def evaluated(*options: str) -> dict:
    assert main(["evaluate", "model", *SCORED, "--out", "found.json", *options]) == 0
    with open("found.json") as file:
        return json.load(file)


def test_every_row_is_that_of_the_images_it_names(here):
    found = evaluated("--save_samples", "drawn.npz")
    images, vqgan, model = load_images("images.npz"), load_vqgan("vqgan", "cpu"), Pipeline.from_pretrained("model")
    tokens = torch.from_numpy(np.load("drawn.npz")["tokens"][0])
    evenly = [row * 20 // NUM for row in range(NUM)]
    shown = {
        "model": vqgan.decode_images(tokens),
        "VQGAN reconstruction": vqgan.decode_images(vqgan.encode_images(images.train[evenly])),
        "held-out images": images.test[[row * 12 // NUM for row in range(NUM)]],
    }
    assert list(found["rows"]) == list(shown)
    for name, some in shown.items():
        expected = image_metrics(some, images.train, load_classifier("classifier", "cpu"))
        assert {key: cell["mean"] for key, cell in found["rows"][name].items()} == pytest.approx(expected), name
    truth = vqgan.encode_images(images.test)
    bits = model.bound(truth, num_samples=4).sum() / truth.numel() / np.log(2)
    assert found["bits_per_element"]["model (upper bound)"] == pytest.approx(float(bits))
    assert (model.config.given, model.kind) == ("random", load_image_tokens("tokens.npz").kind)


def test_samples_are_pictures_and_can_be_measured(here):
    assert main(["sample", "model", "--num", str(NUM), "--steps", "2", "--out", "drawn", "--device", "cpu"]) == 0
    assert main(["decode", "vqgan", "--tokens", "drawn/samples.npz", "--out", "again", "--device", "cpu"]) == 0
    tokens = torch.from_numpy(np.load("drawn/samples.npz")["tokens"])
    images = load_vqgan("vqgan", "cpu").decode_images(tokens)
    for number, image in enumerate(images, start=1):
        for file in (f"drawn/images/sample-{number:04d}.png", f"again/image-{number}.png"):
            with Image.open(file) as made:
                assert np.array_equal(np.asarray(made), image.movedim(0, -1).numpy())
    found = evaluated("--samples", "drawn/samples.npz", "--baselines", "false", "--bound_samples", "0")
    train = load_images("images.npz").train
    expected = image_metrics(images, train, load_classifier("classifier", "cpu"))
    assert {key: cell["mean"] for key, cell in found["rows"]["model"].items()} == pytest.approx(expected)


def test_a_box_of_a_held_out_image_is_filled(here):
    box = ["--prompt", "test", "--fill", "0:1,0:2", "--num", "4", "--steps", "2", "--out", "x.npz", "--device", "cpu"]
    assert main(["sample", "model", *box]) == 0
    truth = load_vqgan("vqgan", "cpu").encode_images(load_images("images.npz").test[:4])
    filled = torch.from_numpy(np.load("x.npz")["tokens"])
    assert torch.equal(filled[:, 1], truth[:, 1])
    assert not torch.equal(filled, truth)


def test_another_vqgan_is_refused(here, capsys):
    expected = "vqgan = other: expected the VQGAN that made the tokens; this one has other weights"
    assert main(["evaluate", "model", *SCORED, "--images.vqgan", "other"]) == 1
    assert f"images.{expected}" in capsys.readouterr().err
    assert main(["sample", "model", "--vqgan", "other", "--device", "cpu"]) == 1
    assert expected in capsys.readouterr().err
