"""Images of an untrained model beside real ones: the VQGAN and the classifier are tiny, and what they say is known."""

import json
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch

from usd3.cli import compare_jobs
from usd3.cli.main import main
from usd3.kinds.image import folders, judge, opening
from usd3.kinds.image.folders import fingerprint
from usd3.kinds.image.images import Images, spread
from usd3.kinds.image.source import ImageSource
from usd3.kinds.image.tokens import write_image_tokens
from usd3.kinds.options import DataConfig
from usd3.nets.options import ModelConfig
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.pipeline import Pipeline

K, SIDE = 5, 2
SMALL = ["--steps", "2", "--runs", "2", "--bound_samples", "2", "--images.num", "4", "--device", "cpu"]
CHOSEN = ["--images.classifier", "classifier"]
CHOSEN_THERE = ["--evaluation.images.classifier", "classifier"]


def decode(tokens: torch.Tensor) -> torch.Tensor:
    """Each token a square of 2 x 2 pixels, as bright as its number."""
    grey = (tokens * 50).to(torch.uint8).repeat_interleave(2, 1).repeat_interleave(2, 2)
    return grey[:, None].expand(-1, 3, -1, -1).contiguous()


def encode(images: torch.Tensor) -> torch.Tensor:
    return images[:, 0, ::2, ::2].long() // 50


class Brightness:
    """The distance of the mean brightness of two sets, and how bright the brightest is."""

    made: ClassVar[list[int]] = []

    def __init__(self, real, classifier, inception=None):
        assert classifier is not None
        self.real, self.inception = real.double().mean(), inception
        Brightness.made.append(len(real))

    def __call__(self, generated):
        found = {"classifier_frechet": float(abs(generated.double().mean() - self.real)), "precision": 0.5}
        return found | ({"fid": 7.0} if self.inception else {})


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A token file, its images, and two models of it; VQGAN, classifier and metrics are those above."""
    generator = torch.Generator().manual_seed(0)
    train, test = (torch.randint(K, (n, SIDE, SIDE), generator=generator) for n in (12, 6))
    write_image_tokens(tmp_path / "tokens.npz", train, test, K, ImageSource(str(tmp_path / "vqgan"), "pictures"))
    for name in ("vqgan", "classifier"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps({"kind": name}))
        (tmp_path / name / "model.safetensors").touch()
    (tmp_path / "classifier" / "results.json").write_text('{"test_accuracy": 0.75}')
    data = DataConfig(source="image_tokens", path=str(tmp_path / "tokens.npz"))
    for seed, name in enumerate(("one", "two")):
        torch.manual_seed(seed)
        config = PipelineConfig(K, [SIDE, SIDE], data=data, kind=data.load().kind.as_dict(), steps=3)
        config.model = ModelConfig(dim=8, depth=1, heads=1, time_dim=4)
        Pipeline(config).save_pretrained(tmp_path / name)
    (tmp_path / "pictures").mkdir()
    vqgan = SimpleNamespace(num_codes=K, factor=2, decode_images=decode, encode_images=encode)
    for module in (opening, folders):
        monkeypatch.setattr(module, "load_vqgan", lambda folder, device=None: vqgan)
    monkeypatch.setattr(opening, "load_classifier", lambda folder, device=None: object())
    monkeypatch.setattr(judge, "ImageMetrics", Brightness)
    found = Images("pictures", decode(train) + 1, decode(test) + 2)  # the VQGAN loses 1 of the brightness
    monkeypatch.setattr(opening, "load_images", lambda path, size=None: found)
    monkeypatch.setattr(Brightness, "made", [])
    monkeypatch.chdir(tmp_path)
    return SimpleNamespace(folder=tmp_path, train=train, test=test, images=found)


def evaluated(world, *options: str) -> dict:
    out = world.folder / "found.json"
    assert main(["evaluate", "one", *SMALL, *CHOSEN, "--out", str(out), *options]) == 0
    found = json.loads(out.read_text())
    out.unlink()
    return found


def mean_of(found: dict, row: str, metric: str = "classifier_frechet") -> float:
    return found["rows"][row][metric]["mean"]


def test_samples_real_images_and_reconstructions_are_scored_against_the_training_images(world, capsys):
    tokens = spread(world.train, 4)
    np.savez(world.folder / "mine.npz", tokens=torch.stack([tokens, tokens.flip(1)]).numpy())
    found = evaluated(world, "--samples", "mine.npz")
    real = world.images.train.double().mean()
    limit = float(abs(decode(tokens).double().mean() - real))
    assert mean_of(found, "VQGAN reconstruction") == pytest.approx(limit)
    assert found["rows"]["model"]["classifier_frechet"] == pytest.approx({"mean": limit, "std": 0})
    held_out = float(abs(spread(world.images.test, 4).double().mean() - real))
    assert mean_of(found, "held-out images") == pytest.approx(held_out)
    assert Brightness.made == [12]  # what is needed of the training images is computed once
    assert (found["objects"], found["settings"]["runs"], found["settings"]["prefix"]) == (4, 2, 0)
    expected = {"images": "pictures", "training_images": 12, "classifier": "classifier", "classifier_accuracy": 0.75}
    assert found["compared_with"].items() >= expected.items()
    assert {"trained", "sampling_seconds", "data", "model", "usd3", "torch"} <= set(found)
    printed = capsys.readouterr().out
    assert "2 sets of 4 images in 2 steps, seed 0, against 12 training images, by the classifier classifier" in printed
    assert "classifier Fréchet ↓  precision ↑" in printed
    assert "Hellinger" not in printed


def test_the_bound_is_that_of_the_held_out_tokens(world):
    found = evaluated(world, "--limit", "3", "--baselines", "false")
    nats = Pipeline.from_pretrained("one", device="cpu").bound(world.test[:3], num_samples=2)
    bits = float(nats.sum() / world.test[:3].numel() / np.log(2))
    assert found["bits_per_element"] == pytest.approx({"model (upper bound)": bits})
    assert list(found["rows"]) == ["model"]
    assert found["sampling_seconds"] > 0


def test_samples_can_be_kept_and_measured_again(world):
    first = evaluated(world, "--save_samples", "kept.npz")
    kept = np.load("kept.npz")["tokens"]
    np.savez("kept.npz", tokens=kept, about=np.array("{}"))  # as `usd3 sample` writes it
    assert kept.shape == (2, 4, SIDE, SIDE)
    assert not (kept[0] == kept[1]).all()
    again = evaluated(world, "--samples", "kept.npz", "--images.num", "6")
    assert first["rows"] == again["rows"]
    assert again["settings"]["images"]["num"] == 4  # as many as there are


def test_an_interruption_of_the_measurement_says_where_the_samples_are(world, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Brightness, "__call__", interrupted)
    assert main(["evaluate", "one", *SMALL, *CHOSEN, "--save_samples", "kept.npz"]) == 130
    message = "usd3 evaluate: interrupted (the samples are in kept.npz; --samples kept.npz measures them)"
    assert capsys.readouterr().err.strip().endswith(message)
    assert np.load("kept.npz")["tokens"].shape == (2, 4, SIDE, SIDE)


def test_few_held_out_images_are_no_scale_and_the_reference_may_be_smaller(world):
    (world.folder / "classifier" / "results.json").write_text("{}")
    found = evaluated(world, "--images.num", "7", "--images.reference", "5", "--images.inception", "x")
    assert list(found["rows"]) == ["model", "VQGAN reconstruction"]
    assert mean_of(found, "model", "fid") == 7
    assert (Brightness.made, found["compared_with"]["training_images"]) == ([5], 5)
    assert found["compared_with"]["classifier_accuracy"] is None
    found = evaluated(world, "--images.num", "13")
    assert list(found["rows"]) == ["model"]


@pytest.mark.filterwarnings("always:images.classifier")
@pytest.mark.parametrize(
    ("results", "perceptual", "message"),
    [
        (None, None, "images.classifier = classifier was not trained to its end"),
        ({"test_accuracy": 0.19, "classes": 10}, "another", "is right on 19.0% of held-out images, near chance"),
        ({"test_accuracy": 0.5, "classes": 2}, None, "is right on 50.0% of held-out images, near chance"),
        ({"test_accuracy": 0.8, "classes": 2}, "same", "is the classifier that trained the VQGAN"),
        ({"test_accuracy": 0.2, "classes": 10}, "another", None),
    ],
)
def test_a_judge_that_says_little_is_told_of(world, capsys, results, perceptual, message):
    file = world.folder / "classifier" / "results.json"
    file.unlink() if results is None else file.write_text(json.dumps(results))
    known = fingerprint("classifier") if perceptual == "same" else perceptual
    told = {"kind": "vqgan"} | ({} if known is None else {"perceptual_fingerprint": known})
    (world.folder / "vqgan" / "config.json").write_text(json.dumps(told))
    evaluated(world, "--baselines", "false")
    warned = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert len(warned) == (message is not None)
    assert message is None or message in warned[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "images.classifier = None: expected the folder of a classifier, as `usd3 classifier"),
        ([*CHOSEN, "--prefix", "2"], "prefix = 2: expected null or 0"),
        ([*CHOSEN, "--include_prefix", "false"], "include_prefix = False: expected true"),
        ([*CHOSEN, "--images.num", "3"], "images.num = 3"),
        ([*CHOSEN, "--samples", "flat.npz"], "samples = int64 (4, 4): expected integers (runs, objects, ...)"),
        ([*CHOSEN, "--samples", "large.npz"], "shape of the samples = (1, 2, 4, 4): expected (runs, im"),
        ([*CHOSEN, "--images.vqgan", "gone"], "images.vqgan = gone: no such folder; expected that of the VQGAN"),
        ([*CHOSEN, "--images.path", "gone"], "images.path = gone: no such file or folder; expected the images"),
        (["--images.classifier", "gone"], "images.classifier = gone: gone/config.json: expected a folder that"),
        (["--images.classifier", "vqgan"], "images.classifier = vqgan: vqgan: kind = vqgan: expected classifier"),
        ([*CHOSEN, "--data_path", "gone.npz"], "gone.npz: no such file; expected a .npy or .npz file (--data_path"),
        ([*CHOSEN, "--test_key", "a"], "test_key = a: expected null"),
        ([*CHOSEN, "--ratios", "a"], "ratios = a: expected null"),
    ],
)
def test_wrong_options_end_in_one_line(world, capsys, options, message):
    np.savez("flat.npz", tokens=np.zeros((4, 4), dtype=int))
    np.savez("large.npz", tokens=np.zeros((2, 4, 4), dtype=int))
    before = sorted(world.folder.rglob("*"))
    assert main(["evaluate", "one", *SMALL, *options]) != 0
    errors = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert len(errors) == 1
    assert message in errors[0]
    assert sorted(world.folder.rglob("*")) == before


def test_what_does_not_belong_to_the_tokens_is_refused_before_anything_is_drawn(world, monkeypatch, capsys):
    monkeypatch.setattr(Pipeline, "sample", lambda *_, **__: pytest.fail("sampled"))
    train, test = world.images.train, world.images.test

    def refused(message, *others):
        assert main(["evaluate", "one", *SMALL, *CHOSEN, *others]) == 1
        assert message in capsys.readouterr().err

    expected = "images.path = pictures with 11 and 6: expected 12 training and 6 test images"
    monkeypatch.setattr(opening, "load_images", lambda path, size=None: Images("x", train[1:], test))
    refused(expected)
    monkeypatch.setattr(opening, "load_images", lambda path, size=None: Images("x", train[..., :2], test[..., :2]))
    refused("images.path = pictures of 4 x 2: expected images of 4 x 4")
    monkeypatch.setattr(opening, "load_images", lambda path, size=None: Images("x", train.flip(0), test))
    refused("images.path = pictures: expected the images of the tokens")
    (world.folder / "classifier" / "config.json").write_text('{"kind": "classifier", "size": [8, 8]}')
    monkeypatch.setattr(opening, "load_images", lambda path, size=None: world.images)
    refused("images.classifier = classifier: size = 8 x 8: expected 4 x 4")
    (world.folder / "classifier" / "config.json").write_text('{"kind": "classifier", "size": [4, 4]}')

    def failing(real, classifier, inception=None):
        raise FileNotFoundError(f"{inception}: no such file")

    monkeypatch.setattr(judge, "ImageMetrics", failing)
    refused("gone.pth: no such file", "--images.inception", "gone.pth")


def test_a_comparison_has_the_scale_once_and_a_picture_of_the_samples(world, monkeypatch, capsys):
    drawn, asked = {}, []

    def here(title, jobs, at_once):
        asked.append([job.label for job in jobs])
        return {job.label: "failed" for job in jobs if main(list(job.arguments))}

    def picture(rows, path):
        drawn.update(rows)
        path.touch()

    monkeypatch.setattr(compare_jobs, "run_jobs", here)
    monkeypatch.setattr("usd3.pictures.image_rows", picture)
    measured = ["--evaluation." + option[2:] if option.startswith("--") else option for option in SMALL[:-2]]
    command = ["compare", "--methods", "one two", *measured, "--out", "out", "--device", "cpu"]
    assert main(command) == 1
    assert "error: evaluation.images.classifier = None: expected the folder" in capsys.readouterr().err
    assert main([*command, "--evaluation.images.classifier", "nowhere"]) == 1
    assert "evaluation.images.classifier = nowhere: nowhere/config.json: expected" in capsys.readouterr().err
    command += CHOSEN_THERE
    assert main([*command, "--evaluation.images.path", "nowhere"]) == 1
    assert "evaluation.images.path = nowhere: no such file or folder" in capsys.readouterr().err
    assert not (world.folder / "out").exists()
    assert main(command) == 0
    table = (world.folder / "out" / "table.txt").read_text()
    assert table.startswith("tokens: 2 sets of 4 images in 2 steps, seed 0, against 12 training images")
    for word in ("one", "two", "VQGAN reconstruction", "held-out images", "precision ↑", "bits/element ↓"):
        assert word in table
    for word in ("Hellinger", "FID", "Markov chain"):
        assert word not in table
    tokens = np.load("out/one/comparison.npz")["tokens"][0]
    assert list(drawn) == ["one", "two"]
    assert torch.equal(drawn["one"], decode(torch.as_tensor(tokens)))
    assert asked == [[], ["one", "two"]]
    assert Brightness.made == [12, 12, 12]
    assert main(command) == 0
    assert asked[2:] == [[], []]
    drawn.clear()
    (world.folder / "out" / "one" / "comparison.npz").unlink()
    assert main(command) == 0
    assert list(drawn) == ["two"]


def test_a_sweep_measures_real_images_and_the_bound_once(world):
    assert main(["evaluate", "one", *SMALL, *CHOSEN, "--sweep", "0 2,0.1,1"]) == 0
    none, two = json.loads((world.folder / "one" / "sweep" / "sweep.json").read_text())
    assert Brightness.made == [12]
    assert none["bits_per_element"] == two["bits_per_element"] != {}
    assert list(none["rows"]) == list(two["rows"])
    assert "against 12 training images" in (world.folder / "one" / "sweep" / "sweep.txt").read_text()
