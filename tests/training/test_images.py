"""Runs of the VQGAN and of the classifier: they learn, resume exactly, and say how well they do."""

import csv
import json

import pytest
import torch
import yaml
from torch._subclasses.fake_tensor import FakeTensorMode

from usd3.kinds.image import reports
from usd3.kinds.image.classifier import Classifier
from usd3.kinds.image.folders import fingerprint, load_classifier, load_vqgan, save_network
from usd3.kinds.image.images import Images, spread
from usd3.kinds.image.perceptual import load_perceptual
from usd3.kinds.image.reports import accuracy, reconstruction_report, usage
from usd3.kinds.image.vqgan import VQGAN
from usd3.training import images as fitting
from usd3.training import vqgan as vqgan_training
from usd3.training.checkpoints import find_checkpoints
from usd3.training.classifier import ClassifierConfig, ClassifierTraining, train_classifier
from usd3.training.vqgan import VQGANConfig, VQGANTraining, train_vqgan


@pytest.fixture
def images():
    """Two kinds: dark above, or dark below."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (80,), generator=generator)
    pixels = torch.randint(0, 80, (80, 3, 8, 8), generator=generator)
    pixels[:, :, :4] += 150 * labels[:, None, None, None]
    pixels[:, :, 4:] += 150 * (1 - labels)[:, None, None, None]
    pixels = pixels.to(torch.uint8)
    return Images("two", pixels[:60], pixels[60:], labels[:60], labels[60:], ("below", "above"))


@pytest.fixture(autouse=True)
def drawn(monkeypatch):
    """What would be drawn."""
    calls = []
    monkeypatch.setattr(vqgan_training, "reconstruction_grid", lambda *call: calls.append(call))
    return calls


def without_labels(images):
    return Images("none", images.train, images.test)


SMALL = {"accelerator": "cpu", "batch_size": 16, "warmup": 2, "log_every": 2, "checkpoint_every": 4, "steps": 8}


def vqgan_config(**changes):
    sizes = {"num_codes": 8, "code_dim": 4, "filters": [8, 8], "blocks": 1, "discriminator_width": 4}
    return VQGANConfig(**{**SMALL, **sizes, "lr": 3e-3, **changes})


def classifier_config(**changes):
    return ClassifierConfig(**{**SMALL, "width": 4, "blocks": 1, "crop": 1, "lr": 1e-2, **changes})


def log_of(folder):
    with open(folder / "logs" / "version_0" / "metrics.csv") as file:
        return list(csv.DictReader(file))


def test_a_vqgan_learns_and_says_how_well_it_does(images, tmp_path, drawn):
    save_network(tmp_path / "classifier", Classifier(2, 4, 1))
    config = vqgan_config(steps=50, log_every=5, perceptual=str(tmp_path / "classifier"), gan_start=0.5)
    net = train_vqgan(config, tmp_path / "run", images, progress=False)
    log = log_of(tmp_path / "run")
    assert float(log[-1]["train/l1"]) < 0.5 * float(log[0]["train/l1"])
    assert float(log[3]["train/discriminator"]) == 0 < float(log[-1]["train/discriminator"])
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results == {"perceptual": "classifier", **reconstruction_report(net, images)}
    told = json.loads((tmp_path / "run" / "config.json").read_text())
    assert told["perceptual"] == "classifier"
    assert told["perceptual_fingerprint"] == fingerprint(tmp_path / "classifier")
    decoded = net.decode_images(net.encode_images(images.test))
    gaps = images.test.double() - decoded.double()
    assert results["test"]["l1"] == pytest.approx((gaps.abs() / 127.5).mean().item(), rel=1e-5)
    each = [10 * torch.log10(255**2 / gap.square().mean()) for gap in gaps]
    assert results["test"]["psnr"] == pytest.approx(torch.stack(each).mean().item(), rel=1e-5)
    ((originals, again, path),) = drawn
    assert torch.equal(originals, spread(images.test, 16))
    assert torch.equal(again, spread(decoded, 16))
    assert path == tmp_path / "run" / "reconstructions.png"
    assert {"checkpoints", "logs", "recipe.yaml", "model.safetensors"} <= {p.name for p in (tmp_path / "run").iterdir()}


@pytest.mark.parametrize("labelled", [True, False])
def test_a_classifier_learns_labels_or_rotations(labelled, images, tmp_path):
    data = images if labelled else without_labels(images)
    if not labelled:  # so that all four turns differ
        data.train[:, 0, :, :4], data.test[:, 0, :, :4] = 255, 255
        data.train[:, 1, :4], data.test[:, 1, :4] = 255, 255
    net = train_classifier(classifier_config(steps=60, smoothing=0.1), tmp_path / "run", data, progress=False)
    assert net.labelled is labelled
    assert net.num_classes == (2 if labelled else 4)
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["learned"] == ("labels" if labelled else "rotations")
    assert results["test_accuracy"] > 0.9
    if labelled:
        right = [int(net(image[None].float() / 127.5 - 1).argmax()) for image in data.test]
        assert results["test_accuracy"] == (torch.tensor(right) == data.test_labels).double().mean()
        assert accuracy(net, data.test, data.test_labels, batch_size=7) == results["test_accuracy"]


@pytest.mark.parametrize("which", ["ema", "gradient", "classifier"])
def test_a_resumed_run_reaches_the_same_weights(which, images, tmp_path, monkeypatch):
    config = classifier_config() if which == "classifier" else vqgan_config(codebook=which, gan_start=0.4)
    train = train_classifier if which == "classifier" else train_vqgan
    train(config, tmp_path / "whole", images, progress=False)
    first = torch.load(find_checkpoints(tmp_path / "whole" / "checkpoints")[0])["state_dict"]
    if which != "classifier":
        assert any(name.startswith("discriminator.") for name in first)
    original = fitting.ImageTraining.training_step
    for stop in (3, 7):

        def failing(self, batch, batch_idx, stop=stop):
            if batch["step"] == stop:
                raise ZeroDivisionError
            return original(self, batch, batch_idx)

        parts = tmp_path / f"parts-{stop}"
        with monkeypatch.context() as patched:
            patched.setattr(fitting.ImageTraining, "training_step", failing)
            with pytest.raises(ZeroDivisionError):
                train(config, parts, images, progress=False)
        train(config, parts, images, resume=True, progress=False)
        second = torch.load(find_checkpoints(parts / "checkpoints")[0])["state_dict"]
        assert first.keys() == second.keys()
        assert all(torch.equal(value, second[name]) for name, value in first.items())


def test_minutes_end_a_run_and_a_stopped_one_is_no_result(images, tmp_path, monkeypatch):
    seconds = iter(range(1000))
    monkeypatch.setattr("usd3.training.clock.Clock.now", staticmethod(lambda: float(next(seconds))))
    train_classifier(classifier_config(steps=500, minutes=0.3), tmp_path / "run", images, progress=False)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["steps"] < 20
    original = fitting.ImageTraining.training_step

    def stopping(self, batch, batch_idx):
        self.trainer.should_stop = batch["step"] == 2
        return original(self, batch, batch_idx)

    monkeypatch.setattr(fitting.ImageTraining, "training_step", stopping)
    with pytest.raises(KeyboardInterrupt, match="stopped at step 3"):
        train_classifier(classifier_config(), tmp_path / "other", images, progress=False)
    assert [path.name for path in find_checkpoints(tmp_path / "other" / "checkpoints")] == ["step-00000003.ckpt"]
    assert not (tmp_path / "other" / "results.json").exists()


def test_the_learning_rate_rises_and_falls_and_the_gan_comes_in_slowly(images, tmp_path, monkeypatch):
    weights = []
    original = VQGANTraining.train_on_images

    def noting(self, *arguments):
        shown = original(self, *arguments)
        weights.append(self._gan_weight.item())
        assert self.optimisers()[0].param_groups[0]["lr"] == self.optimisers()[1].param_groups[0]["lr"]
        return shown

    monkeypatch.setattr(VQGANTraining, "train_on_images", noting)
    monkeypatch.setattr(vqgan_training, "_RAMP", 0.2)
    config = vqgan_config(steps=10, log_every=1, lr=1e-3, gan_start=0.5, gan_weight=0.1, precision="bf16")
    train_vqgan(config, tmp_path / "run", images, progress=False)
    assert weights == pytest.approx([0] * 6 + [0.05] + [0.1] * 3)
    rates = [float(row["train/lr"]) for row in log_of(tmp_path / "run")]
    falling = [0.5e-3 * (1 + torch.cos(torch.tensor(torch.pi * i / 8)).item()) for i in range(8)]
    assert rates == pytest.approx([0.5e-3, 1e-3, *falling])
    saved = torch.load(find_checkpoints(tmp_path / "run" / "checkpoints")[0])
    for state in (saved["optimizer_states"][0], saved["discriminator_optimizer"]):
        assert state["param_groups"][0]["betas"] == (0.0, 0.99)
        assert state["state"]


@pytest.mark.parametrize("codebook", ["ema", "gradient"])
def test_a_step_waits_for_nothing(codebook, images, tmp_path):
    """Tensors without values: whoever asks for one raises. So a step can be a CUDA graph."""
    save_network(tmp_path, Classifier(2, 4, 1))
    made = VQGANTraining(vqgan_config(codebook=codebook, perceptual=str(tmp_path)), images)
    made._gan_weight, made._discriminator_step = torch.ones(()), object()
    with FakeTensorMode(allow_non_fake_inputs=True):
        made._pair = torch.zeros(8, 3, 8, 8)
        loss, shown = made._generator_loss({"images": torch.zeros(4, 3, 8, 8, dtype=torch.uint8)})
        loss.backward()
        judged, gap = made._discriminator_loss({"pair": made._pair})
        judged.backward()
        assert len(shown) + len(gap) == len(made.names)


@pytest.mark.parametrize("labelled", [True, False])
def test_a_step_of_a_classifier_waits_for_nothing(labelled, images):
    made = ClassifierTraining(classifier_config(), images if labelled else without_labels(images))
    with FakeTensorMode(allow_non_fake_inputs=True):
        batch = {"images": torch.zeros(4, 3, 8, 8, dtype=torch.uint8)}
        if labelled:
            batch["labels"] = torch.zeros(4, dtype=torch.long)
        loss, shown = made._batch_loss(batch)
        loss.backward()
        assert len(shown) == len(made.names)


def test_the_loss_of_the_vqgan_is_the_sum_of_its_weighted_parts(images, tmp_path):
    save_network(tmp_path, Classifier(2, 4, 1))
    # nothing is moved or mirrored, and codes stay where they are, so that all can be computed again
    still = {"crop": 0, "flip": False, "codebook": "gradient", "restart_after": None}
    config = vqgan_config(**still, perceptual=str(tmp_path), perceptual_weight=0.3, gan_weight=0.7, gan_start=0.0)
    made = VQGANTraining(config, images)
    made.model.codebook.idle.zero_()
    made._gan_weight, made._last_gan_weight = torch.zeros(()), 0.0
    made._pair, made._discriminator_step = torch.zeros(8, 3, 8, 8), lambda _: (None, torch.zeros(2))
    made._step = lambda batch: made._generator_loss(batch)
    shown = made.train_on_images(images.train[:4], None, 1.0)
    real = images.train[:4].float() / 127.5 - 1
    fake, codebook, perplexity = made.model(real)
    l1, looks = (fake - real).abs().mean(), load_perceptual(str(tmp_path))(fake, real)
    gan = -made.discriminator(fake).mean()
    total = l1 + codebook + 0.3 * looks + 0.7 * gan
    by_hand = torch.stack([total, l1, codebook, looks, gan, perplexity, *torch.zeros(2)])
    assert torch.allclose(shown, by_hand)
    assert min(looks, gan.abs()) > 0.01 * l1  # so that a lost part is seen
    loss, _ = made._generator_loss({"images": images.train[:4]})
    assert torch.equal(loss, shown[0])
    wanted = torch.autograd.grad(total, list(made.model.parameters()))
    found = torch.autograd.grad(loss, list(made.model.parameters()))
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(found, wanted))
    assert torch.equal(made._pair, torch.cat([real, fake]).detach())


def test_the_discriminator_learns_nothing_from_the_step_of_the_vqgan(images):
    made = VQGANTraining(vqgan_config(), images)
    made._gan_weight, made._discriminator_step = torch.ones(()), object()
    made._pair = torch.zeros(8, 3, 8, 8)
    made._generator_loss({"images": images.train[:4]})[0].backward()
    assert all(p.grad is None for p in made.discriminator.parameters())
    assert all(p.grad is not None for p in made.model.parameters())
    made._discriminator_loss({"pair": made._pair})[0].backward()
    assert all(p.grad is not None for p in made.discriminator.parameters())
    real, fake = made.discriminator(made._pair).chunk(2)
    by_hand = 0.5 * ((1 - real).clamp(min=0).mean() + (1 + fake).clamp(min=0).mean())
    assert torch.allclose(made._discriminator_loss({"pair": made._pair})[0], by_hand)


def test_a_report_looks_at_images_from_everywhere(images, monkeypatch):
    monkeypatch.setattr(reports, "_MOST_IMAGES", 6)
    some = Images("some", images.train[::10], spread(images.test, 6))
    net = VQGAN(8, 4, (4, 4), 1)
    assert reconstruction_report(net, images) == reconstruction_report(net, some)


def test_usage():
    assert usage(torch.tensor([[0, 1], [2, 3]]), 8) == (0.5, pytest.approx(4))
    assert usage(torch.zeros(3, 2, 2, dtype=torch.long), 4) == (0.25, pytest.approx(1))


def test_folders_come_back_and_wrong_ones_are_refused(tmp_path):
    torch.manual_seed(0)
    net, namer = VQGAN(8, 4, (4, 4), 1, codebook="gradient"), Classifier(3, 4, 1, labelled=False)
    save_network(tmp_path / "v", net)
    save_network(tmp_path / "c", namer)
    loaded, named = load_vqgan(tmp_path / "v", "cpu"), load_classifier(str(tmp_path / "c"), "cpu")
    assert not loaded.training
    assert not named.labelled
    assert all(torch.equal(value, loaded.state_dict()[name]) for name, value in net.state_dict().items())
    with pytest.raises(ValueError, match="v: kind = vqgan: expected classifier"):
        load_classifier(tmp_path / "v")
    with pytest.raises(FileNotFoundError, match=r"config.json: expected a folder that `usd3 vqgan` made"):
        load_vqgan(tmp_path)
    config = json.loads((tmp_path / "v" / "config.json").read_text())
    for change, message in [
        ({"model": {**config["model"], "num_codes": 9}}, "expected the weights of its config"),
        ({"model": {"colour": 1}}, "colour"),
        ({"kind": "cat"}, "kind = cat: expected vqgan"),
    ]:
        (tmp_path / "v" / "config.json").write_text(json.dumps({**config, **change}))
        with pytest.raises(ValueError, match=message):
            load_vqgan(tmp_path / "v", "cpu")
    (tmp_path / "v" / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config.json: "):
        load_vqgan(tmp_path / "v")
    (tmp_path / "v" / "config.json").write_text('{"num_classes": 3}')
    with pytest.raises(ValueError, match="kind = diffusion model: expected vqgan"):
        load_vqgan(tmp_path / "v")


def test_what_does_not_fit_is_refused_before_anything_is_written(images, tmp_path):
    narrow = Images("narrow", images.train[:, :, :, :6], images.test[:, :, :, :6])
    for message, call in [
        ("height and width", lambda: train_vqgan(vqgan_config(filters=[4, 4, 4]), tmp_path / "a", narrow)),
        ("square ones", lambda: train_classifier(classifier_config(), tmp_path / "a", narrow)),
        ("crop = 8", lambda: train_classifier(classifier_config(crop=8), tmp_path / "a", images)),
        ("gan_start = 1", lambda: vqgan_config(gan_start=1)),
        ("gan_weight = -1", lambda: vqgan_config(gan_weight=-1)),
        ("steps = 0", lambda: vqgan_config(steps=0)),
        ("precision = fp8", lambda: vqgan_config(precision="fp8")),
        ("cuda_graph = always", lambda: vqgan_config(cuda_graph="always")),
        ("smoothing = 1", lambda: classifier_config(smoothing=1)),
        ("images = None", lambda: train_vqgan(vqgan_config(), tmp_path / "a")),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
    assert not (tmp_path / "a").exists()
    train_classifier(classifier_config(steps=1), tmp_path / "run", images, progress=False)
    with pytest.raises(ValueError, match=r"run = .*: expected a folder that is new or empty"):
        train_classifier(classifier_config(), tmp_path / "run", images)
    with pytest.raises(ValueError, match=r"width = 8: expected 4, as in .*start a new run"):
        train_classifier(classifier_config(width=8), tmp_path / "run", images, resume=True)
    for other, name in [
        (
            Images("few", images.train[:50], images.test, images.train_labels[:50], classes=images.classes),
            "train_images",
        ),
        (Images("small", *(x[:, :, :6, :6] for x in (images.train, images.test))), "size"),
        (Images("none", images.train, images.test), "classes"),
    ]:
        with pytest.raises(ValueError, match=f"{name} of the images = .*, as those that the run had"):
            train_classifier(classifier_config(), tmp_path / "run", other, resume=True)
    told = json.loads((tmp_path / "run" / "config.json").read_text())
    older = {name: value for name, value in told.items() if name not in ("train_images", "test_images")}
    (tmp_path / "run" / "config.json").write_text(json.dumps(older))
    train_classifier(classifier_config(steps=2), tmp_path / "run", images, resume=True, progress=False)
    with pytest.raises(ValueError, match="steps = 1: expected at least 2, which the run has done"):
        train_classifier(classifier_config(steps=1), tmp_path / "run", images, resume=True)
    assert yaml.safe_load((tmp_path / "run" / "recipe.yaml").read_text())["steps"] == 2
    with pytest.raises(ValueError, match=r"recipe.yaml = without num_codes: expected the recipe of a VQGANConfig"):
        train_vqgan(vqgan_config(), tmp_path / "run", images, resume=True)
    with pytest.raises(FileNotFoundError, match=r"expected the folder of a run, with its recipe.yaml"):
        train_vqgan(vqgan_config(), tmp_path / "none", images, resume=True)
