"""Samples of a model of image tokens, with a VQGAN whose tokens are flat patches of 4 x 4 pixels."""

import json
import runpy
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from support.places import ROOT
from usd3.cli.main import main
from usd3.core.options import DiffusionConfig
from usd3.kinds.image import opening, rendering
from usd3.kinds.image.images import Images
from usd3.kinds.image.kind import ImageTokens
from usd3.kinds.image.source import ImageSource
from usd3.kinds.image.tokens import load_image_tokens, write_image_tokens
from usd3.kinds.options import DataConfig
from usd3.nets.options import ModelConfig
from usd3.pictures.figures import UNKNOWN, rgb
from usd3.pictures.sheets import GAP, MARGIN, TEXT, WIDE_GAP
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.pipeline import Pipeline

K, SIDE, PATCH = 8, 4, 4
COLOURS = torch.stack([torch.arange(K) * 30, 255 - torch.arange(K) * 30, torch.full((K,), 100)], 1).to(torch.uint8)
GREY = torch.tensor(rgb(UNKNOWN), dtype=torch.uint8)


class FlatVQGAN:
    num_codes, factor = K, PATCH

    def decode_images(self, tokens, batch_size=256):
        assert 0 <= int(tokens.min()) <= int(tokens.max()) < K
        return COLOURS[tokens].repeat_interleave(PATCH, 1).repeat_interleave(PATCH, 2).permute(0, 3, 1, 2).contiguous()

    def encode_images(self, images, batch_size=256):
        return (images[:, 0, ::PATCH, ::PATCH].long() + 15) // 30


class TopClassifier(torch.nn.Module):
    """Sees the first row of an image and nothing else."""

    def features(self, x):
        return x[:, 0, 0]


VQGAN = FlatVQGAN()


def tokens(count, seed=0):
    return torch.randint(K, (count, SIDE, SIDE), generator=torch.Generator().manual_seed(seed))


def read_png(path):
    with Image.open(path) as image:
        return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with an untrained model, its VQGAN, tokens and images."""
    monkeypatch.chdir(tmp_path)
    for folder in ("vqgan", "classifier", "pictures"):
        Path(folder).mkdir()
    source = ImageSource("vqgan", "pictures")
    write_image_tokens("tokens.npz", tokens(20, 1), tokens(6, 2), K, source)
    data = Images("flat", VQGAN.decode_images(tokens(20, 1)), VQGAN.decode_images(tokens(6, 2)) + 1)
    Path("classifier/config.json").write_text('{"kind": "classifier", "size": [16, 16]}')
    Path("classifier/model.safetensors").touch()
    monkeypatch.setattr(opening, "load_vqgan", lambda folder, device: VQGAN)
    monkeypatch.setattr(opening, "load_classifier", lambda folder, device: TopClassifier())
    monkeypatch.setattr(opening, "load_images", lambda path, size: data)
    monkeypatch.setattr(rendering, "read_image", lambda path, size: read_png(path))
    save_model("model", "absorbing", source)
    return tmp_path


def write_png(image, path):
    Path(path).parent.mkdir(exist_ok=True)
    Image.fromarray(image.permute(1, 2, 0).numpy()).save(path)


def save_model(folder, noise, source, given=None):
    torch.manual_seed(0)
    config = PipelineConfig(
        num_classes=K,
        shape=[SIDE, SIDE],
        diffusion=DiffusionConfig(noise=noise, num_steps=20),
        model=ModelConfig(dim=16, depth=1, heads=2, mlp=16, time_dim=8),
        data=DataConfig(source="image_tokens", path="tokens.npz"),
        kind={"name": "array"} if source is None else ImageTokens(K, (SIDE, SIDE), source).as_dict(),
        prefix=8,
        given=given,
    )
    Pipeline(config).save_pretrained(folder)


def names(folder):
    return {str(p.relative_to(folder)) for p in Path(folder).rglob("*") if p.is_file()}


def tokens_in(path):
    with np.load(path) as found:
        return torch.from_numpy(found["tokens"])


def cell(picture, top, left, scale=6):
    """The image drawn at a place of a picture, in its own size."""
    size = SIDE * PATCH * scale
    return picture[:, top : top + size : scale, left : left + size : scale]


def test_samples_become_images(place):
    assert main(["sample", "model", "--num", "3", "--steps", "4", "--animate", "true", "--neighbours", "2"]) == 0
    out = Path("model/samples")
    files = [f"images/sample-000{i}.png" for i in (1, 2, 3)]
    assert names(out) == {"samples.npz", "samples.png", "denoising.gif", "neighbours.png", *files}
    images = VQGAN.decode_images(tokens_in(out / "samples.npz"))
    assert all(torch.equal(read_png(out / file), image) for file, image in zip(files, images))
    picture = read_png(out / "samples.png")
    assert torch.equal(cell(picture, MARGIN, MARGIN), images[0])
    assert torch.equal(cell(picture, MARGIN, MARGIN + 96 + GAP), images[1])
    train = VQGAN.decode_images(tokens(20, 1))
    distances = (images[0].float() - train.float()).square().flatten(1).sum(1)
    assert torch.equal(
        cell(read_png(out / "neighbours.png"), MARGIN + TEXT + 8, MARGIN + 96 + WIDE_GAP), train[distances.argmin()]
    )


@pytest.mark.parametrize("noise", ["absorbing", "uniform"])
def test_a_film_shows_unknown_tokens_in_grey_and_ends_with_the_samples(noise, place):
    save_model("other", noise, ImageSource("vqgan", "pictures"))
    common = ["sample", "other", "--num", "2", "--steps", "5", "--out"]
    assert main([*common, "x.gif"]) == 0
    assert main([*common, "x.npz"]) == 0
    with Image.open("x.gif") as film:
        assert film.n_frames >= 5
        pages = []
        for i in range(film.n_frames):
            film.seek(i)
            pages.append(torch.from_numpy(np.array(film.convert("RGB"))).permute(2, 0, 1))
    grey = [bool((page == GREY[:, None, None]).all(0).any()) for page in pages]
    assert (grey[0], grey[-1]) == (noise == "absorbing", False)
    last = VQGAN.decode_images(tokens_in("x.npz"))
    assert torch.equal(cell(pages[-1], MARGIN, MARGIN), last[0])
    assert torch.equal(cell(pages[-1], MARGIN, MARGIN + 96 + GAP), last[1])


def test_single_files_and_features_of_a_classifier(place):
    for out in ("x.png", "y.npz"):
        assert main(["sample", "model", "--num", "5", "--steps", "2", "--out", out]) == 0
    images = VQGAN.decode_images(tokens_in("y.npz"))
    assert torch.equal(cell(read_png("x.png"), MARGIN + 96 + GAP, MARGIN), images[3])  # five are three and two
    near = ["--neighbours", "1", "--classifier", "classifier"]
    assert main(["sample", "model", "--num", "5", "--steps", "2", "--out", "z", *near]) == 0
    train = VQGAN.decode_images(tokens(20, 1))
    far = (images[:, 0, 0].float()[:, None] - train[:, 0, 0].float()).square().sum(-1)
    sure = [i for i in range(5) if (far[i] == far[i].min()).sum() == 1]
    assert sure
    picture = read_png("z/neighbours.png")
    for i in sure:
        found = cell(picture, MARGIN + TEXT + 8 + i * (96 + GAP), MARGIN + 96 + WIDE_GAP)
        assert torch.equal(found, train[far[i].argmin()])


def test_many_samples_have_no_files_of_their_own(place, monkeypatch):
    monkeypatch.setattr("usd3.kinds.image.rendering._MOST_FILES", 4)
    assert main(["sample", "model", "--num", "5", "--steps", "2", "--out", "x"]) == 0
    assert names("x") == {"samples.npz", "samples.png"}


HOLE = torch.ones(SIDE, SIDE, dtype=torch.bool)
HOLE[1:3, 0:2] = False


@pytest.mark.parametrize("images", ["at hand", "elsewhere", "others"])
def test_boxes_of_held_out_images_are_filled(images, place, monkeypatch):
    if images == "elsewhere":
        Path("pictures").rmdir()
    if images == "others":
        wrong = Images("wrong", *[VQGAN.decode_images(tokens(6, seed)) for seed in (7, 8)])
        monkeypatch.setattr(opening, "load_images", lambda path, size: wrong)
    box = ["--prompt", "test", "--first", "2", "--num", "3", "--fill", "1:3,0:2"]
    assert main(["sample", "model", "--steps", "4", "--out", "x", *box]) == 0
    found, test = tokens_in("x/samples.npz"), load_image_tokens("tokens.npz").test.tokens[2:5].long()
    assert torch.equal(found[:, HOLE], test[:, HOLE])
    assert not torch.equal(found, test)
    assert names("x") >= {"inpainting.png", "samples.png"}
    picture, top = read_png("x/inpainting.png"), MARGIN + TEXT + 8 + 96 + GAP  # the second row
    original = VQGAN.decode_images(test)[1] + (images == "at hand")  # the real ones are a little brighter
    left = picture.shape[2] - MARGIN - 96
    assert torch.equal(cell(picture, top, MARGIN), original)
    hole = HOLE.repeat_interleave(PATCH, 0).repeat_interleave(PATCH, 1)
    given = cell(picture, top, left - 96 - WIDE_GAP)
    # decoded, as the fills are
    assert torch.equal(given, torch.where(hole, VQGAN.decode_images(test)[1], GREY[:, None, None]))
    assert torch.equal(cell(picture, top, left), VQGAN.decode_images(found)[1])


def test_an_image_file_is_filled_in_several_ways(place):
    wanted = tokens(1, 5)
    write_png(VQGAN.decode_images(wanted)[0], "mine.png")
    for out in ("x.npz", "x.png"):
        box = ["--prompt", "mine.png", "--num", "2", "--fill", "4:8"]  # the second row of tokens
        assert main(["sample", "model", "--steps", "4", "--out", out, *box]) == 0
    found = tokens_in("x.npz")
    assert torch.equal(found[:, [0, 2, 3]], wanted[:, [0, 2, 3]].expand(2, -1, -1))
    picture, left = read_png("x.png"), MARGIN + 2 * (96 + WIDE_GAP)
    for image, x in zip(VQGAN.decode_images(found), (left, left + 96 + GAP)):
        assert torch.equal(cell(picture, MARGIN + TEXT + 8, x), image)


def test_one_object_of_an_array_file_is_a_prompt_too(place):
    np.savez("one.npz", tokens=tokens(1, 5)[0].numpy())
    prompt = ["--prompt", "one.npz", "--prefix", "8"]
    assert main(["sample", "model", "--steps", "2", "--num", "2", "--out", "x", *prompt]) == 0
    assert torch.equal(tokens_in("x/samples.npz")[:, :2], tokens(1, 5)[:, :2].expand(2, -1, -1))  # the prefix
    assert "inpainting.png" in names("x")


def test_the_example_fills_a_box(place, monkeypatch):
    image = VQGAN.decode_images(tokens(1, 5))[0]
    write_png(image, "mine.png")
    arguments = ["model", "vqgan", "mine.png", "--rows", "1:3", "--columns", "0:2", "--num", "2", "--steps", "2"]
    monkeypatch.setattr(sys, "argv", ["inpainting.py", *arguments, "--out", "x.png"])
    script = str(ROOT / "examples" / "inpainting.py")
    runpy.run_path(script, run_name="__main__")
    picture, top = read_png("x.png"), MARGIN + TEXT + 8
    hole = HOLE.repeat_interleave(PATCH, 0).repeat_interleave(PATCH, 1)
    assert torch.equal(cell(picture, top, MARGIN + 96 + WIDE_GAP), torch.where(hole, image, GREY[:, None, None]))
    assert torch.equal(cell(picture, top, MARGIN + 2 * (96 + WIDE_GAP))[:, hole], image[:, hole])
    for out in ("x.png", "x.jpg"):  # the one is there, the other no .png
        monkeypatch.setattr(sys, "argv", ["inpainting.py", *arguments, "--out", out])
        with pytest.raises(SystemExit):
            runpy.run_path(script, run_name="__main__")


@pytest.mark.filterwarnings("always:images_path")
def test_neighbours_are_looked_for_among_the_training_images_alone(place, monkeypatch, capsys):
    near = ["sample", "model", "--num", "2", "--steps", "2", "--neighbours", "1", "--images_path", "pictures"]
    train, test = (VQGAN.decode_images(tokens(count, seed)) for count, seed in ((20, 1), (6, 2)))
    for wrong, message in (
        (Images("few", train[1:], test), "images_path = pictures with 19 and 6: expected 20 training and 6 test"),
        (Images("other", train.flip(0), test), "images_path = pictures: expected the images of the tokens"),
    ):
        monkeypatch.setattr(opening, "load_images", lambda path, size, wrong=wrong: wrong)
        assert main([*near, "--out", "x"]) == 1
        assert message in capsys.readouterr().err
    assert main([*near, "--data_path", "gone.npz"]) == 1
    Path("tokens.npz").rename("moved.npz")
    assert main([*near, "--data_path", "moved.npz"]) == 1
    capsys.readouterr()
    assert main([*near, "--out", "x"]) == 0
    assert "warning: images_path = pictures: whether the model learned" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--vqgan", "nothing"],
            "no such folder; expected that of the VQGAN that made the tokens (--vqgan FOLDER), or --out",
        ),
        (["--neighbours", "21"], "neighbours = 21: expected at most 20"),
        (["--neighbours", "-1"], "neighbours = -1"),
        (["--neighbours", "1", "--out", "x.png"], "neighbours = 1: expected 0 where `out` is one file"),
        (["--neighbours", "1", "--images_path", "nothing"], "images_path = nothing: no such file or folder; expected"),
        (["--images_path", "pictures"], "images_path = pictures: expected null, as nothing"),
        (["--vqgan", "vqgan", "--out", "x.npz"], "vqgan = vqgan: expected null, as nothing"),
        (["--classifier", "classifier"], "classifier = classifier: expected null, as nothing"),
        (["--classifier", "nothing", "--neighbours", "1"], "classifier = nothing: nothing/config.json: expected"),
        (["--prompt", "nothing.png", "--prefix", "8"], "prompt = nothing.png: no such file; expected"),
        (["--prompt", "small.png", "--prefix", "8"], "prompt = small.png of size (4, 4): expected (16, 16)"),
        (["--prompt", "test"], "fill = None: expected the tokens to fill, as in 1:3,1:3, or `prefix`"),
        (
            ["--prompt", "test", "--prefix", "8", "--data_path", "gone.npz"],
            "gone.npz: no such file; expected a .npy or .npz file (--data_path PATH says where the data are)",
        ),
        (["--prompt", "test", "--fill", "0:2,0:9"], "fill = 0:2,0:9: expected 0 <= START < STOP <= 4, not 0:9"),
        (["--prompt", "test", "--fill", "9:20"], "fill = 9:20: expected 0 <= START < STOP <= 16, not 9:20"),
        (["--prompt", "test", "--fill", "0:2,0:2,0:2"], "or 2 of them with commas between"),
        (["--prompt", "test", "--fill", "0:2,x"], "fill = 0:2,x: expected START:STOP"),
    ],
)
def test_wrong_requests_are_refused_before_sampling(arguments, message, place, capsys, monkeypatch):
    write_png(torch.zeros(3, 4, 4, dtype=torch.uint8), "small.png")
    monkeypatch.setattr(Pipeline, "sample", lambda *_, **__: pytest.fail("sampled"))
    before = names(place)
    assert main(["sample", "model", *arguments]) == 1
    assert message in capsys.readouterr().err
    assert names(place) == before


def test_other_models_have_no_images(place, capsys):
    save_model("plain", "uniform", None)
    write_png(VQGAN.decode_images(tokens(1))[0], "mine.png")
    for extra, message in (
        (["--vqgan", "vqgan"], "vqgan = vqgan: expected null, as the model is not about images"),
        (["--tempo", "90"], "tempo = 90: expected 100, as the model is not about melodies"),
        (["--neighbours", "2"], "neighbours = 2: expected 0, as the model is not about images"),
        (
            ["--prompt", "mine.png", "--prefix", "8"],
            "prompt = mine.png: expected a file that ends with .npy or .npz, as the model is about arrays",
        ),
    ):
        assert main(["sample", "plain", *extra]) == 1
        assert message in capsys.readouterr().err


@pytest.mark.filterwarnings("always:the model was trained")
def test_a_model_that_never_saw_given_elements_says_so(place, capsys):
    save_model("free", "absorbing", ImageSource("vqgan", "pictures"), given="none")
    box = ["--prompt", "test", "--num", "1", "--fill", "1:3,0:2", "--steps", "2", "--out", "x.npz"]
    assert main(["sample", "free", *box]) == 0
    assert "usd3: warning: the model was trained with training.given none" in capsys.readouterr().err


def test_tokens_of_another_vqgan_are_no_prompt(place, capsys):
    write_image_tokens("tokens.npz", tokens(20, 1), tokens(6, 2), K, ImageSource("vqgan", "pictures", False, "new"))
    save_model("old", "absorbing", ImageSource("vqgan", "pictures", False, "old"))
    assert main(["sample", "old", "--prompt", "test", "--fill", "1:3,0:2", "--out", "x.npz"]) == 1
    assert "prompt = tokens of the VQGAN vqgan (new): expected those of vqgan (old)" in capsys.readouterr().err


def test_samples_say_which_vqgan_made_their_tokens_and_can_be_prompts(place):
    source = ImageSource("vqgan", "pictures", False, "known")
    save_model("own", "absorbing", source)
    assert main(["sample", "own", "--num", "2", "--steps", "2", "--out", "x.npz"]) == 0
    with np.load("x.npz") as found:
        assert json.loads(str(found["about"])) == {"num_classes": K, **asdict(source)}
    assert main(["sample", "own", "--prompt", "x.npz", "--fill", "1:3,1:3", "--steps", "2", "--out", "y.npz"]) == 0
    found = tokens_in("x.npz"), tokens_in("y.npz")
    assert torch.equal(found[0][:, 0], found[1][:, 0])


def test_an_interruption_says_where_the_samples_are(place, monkeypatch, capsys):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(rendering, "image_grid", interrupted)
    for out, message in (("x", f"(the samples are in {Path('x/samples.npz')})"), ("x.png", "")):
        assert main(["sample", "model", "--num", "2", "--steps", "2", "--out", out]) == 130
        assert capsys.readouterr().err.strip().endswith(f"usd3 sample: interrupted {message}".strip())
    assert tokens_in("x/samples.npz").shape == (2, SIDE, SIDE)


def test_tokens_alone_need_no_vqgan(place):
    Path("vqgan").rmdir()
    assert main(["sample", "model", "--num", "2", "--steps", "2", "--out", "x.npz"]) == 0
    assert tokens_in("x.npz").shape == (2, SIDE, SIDE)
