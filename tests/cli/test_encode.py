"""usd3 encode and usd3 decode, called as a user calls them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from usd3.cli.main import main
from usd3.kinds.image.folders import fingerprint, load_vqgan, save_network
from usd3.kinds.image.tokens import load_image_tokens
from usd3.kinds.image.vqgan import VQGAN


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A place with images and an untrained VQGAN that makes 2 x 2 tokens of 4 x 4 pixels."""
    torch.manual_seed(0)
    pixels = np.random.default_rng(0).integers(256, size=(9, 4, 4, 3), dtype=np.uint8)
    np.savez(tmp_path / "images.npz", train=pixels[:6], test=pixels[6:])
    for name in ("vqgan", "other"):
        save_network(tmp_path / name, VQGAN(16, 4, (4, 4), 1), size=[4, 4])
    (tmp_path / "vqgan" / "results.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    return torch.from_numpy(pixels).movedim(-1, 1)


ENCODE = ["encode", "vqgan", "--images", "images.npz", "--device", "cpu", "--out"]
DECODE = ["decode", "vqgan", "--device", "cpu", "--tokens"]


def test_tokens_of_both_splits_and_where_they_come_from(here, tmp_path, capsys):
    assert main([*ENCODE, "tokens.npz"]) == 0
    found, vqgan = load_image_tokens("tokens.npz"), load_vqgan("vqgan", "cpu")
    assert torch.equal(found.train.tokens.long(), vqgan.encode_images(here[:6]))
    assert torch.equal(found.test.tokens.long(), vqgan.encode_images(here[6:]))
    assert found.kind.source.vqgan == str(tmp_path / "vqgan")
    assert found.kind.source.fingerprint == fingerprint("vqgan") != fingerprint("other")
    assert found.kind.source.images == str(tmp_path / "images.npz")
    printed = capsys.readouterr().out
    assert "train: 6 images as 2 x 2 tokens" in printed
    assert "of the codes used, perplexity" in printed


def test_mirrored_images_come_after_the_others(here):
    assert main([*ENCODE, "tokens.npz", "--flips", "true"]) == 0
    found, vqgan = load_image_tokens("tokens.npz"), load_vqgan("vqgan", "cpu")
    assert found.kind.source.flips
    assert torch.equal(found.train.tokens.long()[6:], vqgan.encode_images(here[:6].flip(3)))
    assert len(found.test) == 3


@pytest.mark.filterwarnings("always:images of 4 x 4")
def test_images_have_the_size_the_vqgan_learned_from(here, capsys):
    save_network("large", load_vqgan("vqgan", "cpu"), size=[8, 8])
    Path("large/results.json").write_text("{}")
    assert main(["encode", "large", *ENCODE[2:], "a.npz"]) == 0
    assert load_image_tokens("a.npz").shape == (4, 4)
    assert "warning" not in capsys.readouterr().err
    assert main(["encode", "large", *ENCODE[2:], "b.npz", "--size", "4"]) == 0
    assert "warning: images of 4 x 4 pixels, but the VQGAN learned from 8 x 8" in capsys.readouterr().err
    assert load_image_tokens("b.npz").shape == (2, 2)


@pytest.mark.filterwarnings("always:vqgan = other")
def test_an_unfinished_vqgan_is_told_of(capsys):
    assert main(["encode", "other", *ENCODE[2:], "a.npz"]) == 0
    assert "usd3: warning: vqgan = other was not trained to its end" in capsys.readouterr().err


def test_tokens_become_images_again(here, capsys, monkeypatch):
    main([*ENCODE, "tokens.npz"])
    expected = load_vqgan("vqgan", "cpu").decode_images(load_image_tokens("tokens.npz").train.tokens.long())
    monkeypatch.setattr("usd3.cli.encode._AT_ONCE", 2)
    assert main([*DECODE, "tokens.npz", "--split", "train", "--num", "5", "--out", "some"]) == 0
    printed = capsys.readouterr()
    assert "5 images in some" in printed.out
    assert "decoding 5/5" in printed.err
    for i in range(5):
        with Image.open(f"some/image-{i + 1}.png") as made:
            assert np.array_equal(np.asarray(made), expected[i].movedim(0, -1).numpy())
    np.save("more.npy", np.zeros((2, 3, 2, 2), dtype=np.int64))  # two runs of three samples
    assert main([*DECODE, "more.npy", "--out", "grid.png"]) == 0
    assert "6 images in grid.png" in capsys.readouterr().out
    with Image.open("grid.png") as grid:
        assert grid.width > 3 * 4


def test_tokens_of_another_vqgan_are_not_decoded(capsys):
    assert main([*ENCODE, "tokens.npz"]) == 0
    assert main(["decode", "other", *DECODE[2:], "tokens.npz", "--split", "test", "--out", "some"]) == 1
    error = capsys.readouterr().err
    assert "vqgan = other: expected the VQGAN that made the tokens" in error
    assert fingerprint("vqgan") in error
    assert not Path("some").exists()
    np.savez("mine.npz", tokens=np.zeros((2, 2, 2), dtype=int), about=np.arange(3))
    assert main(["decode", "other", *DECODE[2:], "mine.npz", "--out", "some"]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["encode", "vqgan", "--out", "a.npz"], "images = None: expected the path of the images"),
        (["encode", "--images", "images.npz"], "vqgan is missing: expected the folder of a trained VQGAN"),
        (["encode", "nowhere", "--images", "images.npz", "--out", "a.npz"], "a folder that `usd3 vqgan` made"),
        ([*ENCODE, "images.npz"], "out = images.npz: expected an .npz file that does not exist"),
        ([*ENCODE[:-1]], "out is missing: expected an .npz file"),
        ([*DECODE, "bad.npz"], "out is missing: expected a new folder, or a .png file"),
        (["decode", "vqgan", "--out", "some"], "tokens = None: expected an .npy or .npz file of tokens"),
        ([*DECODE, "bad.npz", "--out", "some"], "split = tokens: expected an array of bad.npz: train"),
        ([*DECODE, "bad.npz", "--split", "train", "--out", "some"], "expected categories 0..15"),
        ([*DECODE, "bad.npz", "--split", "train", "--out", "vqgan"], "out = vqgan: expected a new folder"),
        ([*DECODE, "bad.npz", "--split", "train", "--out", "some.jpg"], "out = some.jpg: expected a new folder"),
        ([*DECODE, "bad.npz", "--split", "train", "--out", "some", "--num", "0"], "num = 0: expected an integer >= 1"),
        ([*DECODE, "bad.npz", "--split", "train", "--out", "some", "--num", "-2"], "num = -2: expected an integer"),
        ([*DECODE, "images.npz", "--split", "float", "--out", "some"], "split = float"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(arguments, message, tmp_path, capsys):
    np.savez("bad.npz", train=np.full((2, 2, 2), 99), about=np.array("{}"))
    before = sorted(tmp_path.rglob("*"))
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before
