import sys

import numpy as np
import pytest
import torch

pytest.importorskip("matplotlib")
from PIL import Image

from usd3 import pictures
from usd3.pictures import animate_denoising, loss_plot, piano_roll, token_grid

GIVEN_MASK = np.arange(32) < 8


@pytest.fixture
def rng():
    return np.random.default_rng(3)


@pytest.fixture
def tune(rng):
    """Notes of two steps, some of them rests."""
    notes = rng.integers(55, 80, (3, 16))
    return np.where(rng.random((3, 16)) < 0.2, pictures.REST, notes).repeat(2, axis=1)


def pixels(path, frame=0):
    with Image.open(path) as image:
        image.seek(frame)
        return np.asarray(image.convert("RGB")).copy()


def has(picture, colour):
    return bool((picture == pictures._rgb(colour)).all(-1).any())


def colours_of(path, frame=0):
    return {tuple(c) for c in np.unique(pixels(path, frame).reshape(-1, 3), axis=0).tolist()}


def test_piano_roll(tune, tmp_path):
    path = tmp_path / "new" / "folder" / "roll.png"
    piano_roll(tune, path, titles=["a", "b", "c"], given=GIVEN_MASK)
    picture = pixels(path)
    assert picture.shape == (round((0.5 + 3 * 1.25) * 160), 9 * 160, 3)
    assert has(picture, pictures.GIVEN)
    assert has(picture, pictures.GENERATED)
    assert [p.name for p in path.parent.iterdir()] == ["roll.png"]
    piano_roll(torch.from_numpy(tune), tmp_path / "same.png", titles=["a", "b", "c"], given=torch.tensor(GIVEN_MASK))
    np.testing.assert_array_equal(pixels(tmp_path / "same.png"), picture)


def test_piano_roll_without_given_or_with_pad(tune, tmp_path):
    piano_roll(tune, tmp_path / "plain.png")
    plain = pixels(tmp_path / "plain.png")
    assert not has(plain, pictures.GIVEN)
    pad = np.zeros(tune.shape, bool)
    pad[1, 16:] = True
    piano_roll(np.where(pad, 0, tune), tmp_path / "padded.png", pad=pad)
    assert pixels(tmp_path / "padded.png").shape == plain.shape
    assert not np.array_equal(pixels(tmp_path / "padded.png"), plain)
    piano_roll(tune[:, ::-1], tmp_path / "other.png")
    assert not np.array_equal(pixels(tmp_path / "other.png"), plain)


@pytest.mark.parametrize("rows", [np.full((1, 4), 128), np.array([[0, 127]]), np.full((8, 1), 60)])
def test_piano_roll_of_little(rows, tmp_path):
    piano_roll(rows, tmp_path / "roll.svg", steps_per_bar=1)
    assert "<svg" in (tmp_path / "roll.svg").read_text()


def test_notes_are_runs():
    assert pictures._runs(np.array([5, 5, 7, 5])) == [(0, 2), (2, 1), (3, 1)]
    assert pictures._runs(np.array([[5, 1], [5, 0], [5, 0]])) == [(0, 1), (1, 2)]
    assert pictures._octaves(59, 73) == ([60, 72], ["C4", "C5"])


@pytest.mark.parametrize("classes", [2, 8, 9, 129, 1000])
@pytest.mark.parametrize("mask", [None, 1])
def test_token_grid(classes, mask, rng, tmp_path):
    rows = rng.integers(0, classes, (3, 20))
    rows[0, 0] = 1
    token_grid(rows, tmp_path / "grid.png", classes, given=np.arange(20) < 5, titles=list("abc"), mask=mask)
    picture = pixels(tmp_path / "grid.png")
    assert has(picture, pictures.INK)  # the line under given elements
    assert has(picture, pictures.UNKNOWN) == (mask is not None)
    token_grid(rows[::-1], tmp_path / "other.png", classes, given=np.arange(20) < 5, titles=list("abc"), mask=mask)
    assert not np.array_equal(pixels(tmp_path / "other.png"), picture)


def test_few_categories_have_colours_of_their_own():
    for classes, mask in ((8, None), (9, 8), (9, 0), (3, 1)):
        assert len(np.unique(pictures._category_colours(classes, mask), axis=0)) == classes


def denoising(tune, rng, noise, steps=6):
    when = rng.random(tune.shape)
    return [np.where((when < i / (steps - 1)) | GIVEN_MASK, tune, noise) for i in range(steps - 1)] + [tune]


def test_animated_music(tune, rng, tmp_path):
    frames = denoising(tune, rng, pictures.REST + 1)
    path = tmp_path / "new" / "film.gif"
    animate_denoising(frames, path, given=GIVEN_MASK, frames_per_second=10, hold=2)
    with Image.open(path) as film:
        assert (film.format, film.n_frames, film.info["loop"]) == ("GIF", 6, 0)
        width = 32 * 16 + 2 * pictures.MARGIN
        assert film.size[0] == width
        durations = []
        for i in range(6):
            film.seek(i)
            durations.append(film.info["duration"])
    assert durations == [100] * 5 + [2000]
    first, last = pixels(path), pixels(path, 5)
    assert has(first[pictures.HEADER :], pictures.GIVEN)
    assert not has(first[pictures.HEADER :], pictures.GENERATED)
    assert has(first[pictures.HEADER :], pictures.UNKNOWN)
    assert has(last[pictures.HEADER :], pictures.GENERATED)
    assert not has(last[pictures.HEADER :], pictures.UNKNOWN)
    bar = (last[-pictures.MARGIN - 1] == pictures._rgb(pictures.INK)).all(-1)
    assert bar.sum() == width - 2 * pictures.MARGIN
    assert (first[-pictures.MARGIN - 1] == pictures._rgb(pictures.INK)).all(-1).sum() == round(bar.sum() / 6)
    assert [p.name for p in path.parent.iterdir()] == ["film.gif"]


def test_equal_frames_are_kept(tune, tmp_path):
    animate_denoising([tune] * 9, tmp_path / "film.gif")
    with Image.open(tmp_path / "film.gif") as film:
        assert film.n_frames == 9


@pytest.mark.parametrize(("classes", "mask"), [(5, None), (6, 5), (6, 0), (300, None), (300, 299)])
def test_animated_grid(classes, mask, rng, tmp_path):
    rows = np.arange(3 * 32).reshape(3, 32) % classes
    frames = [torch.from_numpy(f) for f in denoising(rows, rng, classes - 1 if mask is None else mask)]
    animate_denoising(frames, tmp_path / "film.gif", num_classes=classes, mask=mask, given=GIVEN_MASK)
    colours = pictures._category_colours(classes, mask)
    seen = colours_of(tmp_path / "film.gif", 5)
    if classes < 200:
        assert {tuple(c) for c in colours[np.unique(rows)].tolist()} <= seen
    assert len(seen) > min(classes, 50)
    assert has(pixels(tmp_path / "film.gif"), pictures.UNKNOWN) == (mask is not None)


def test_a_film_of_usual_size_is_small(rng, tmp_path):
    tune = rng.integers(50, 80, (4, 64)).repeat(4, axis=1)
    when = rng.random(tune.shape)
    frames = [np.where(when < i / 39, tune, rng.integers(0, 129, tune.shape)) for i in range(40)]
    animate_denoising(frames, tmp_path / "film.gif")
    assert (tmp_path / "film.gif").stat().st_size < 2_000_000


HEADER = "epoch,step,train/loss,train/bits_per_element,val/bits_per_element\n"
LOGS = {
    "usual": HEADER
    + "".join(f"0,{i},1,{2 + 1 / (i + 1)},\n" + f"0,{i},,,{3 + i % 2}\n" * (i % 50 == 49) for i in range(200)),
    "one row": HEADER + "0,0,1.0,2.0,\n",
    "only val": "step,val/bits_per_element\n1,2.5\n2,2.25\n",
    "only train": "step,train/bits_per_element\n1,2.5\n2,2.25\n3,nan\n",
    "loss": "step,train/loss\n1,2.5\n2,2.25\n3,2\n",
    "constant": "step,train/loss\n" + "".join(f"{i},1\n" for i in range(30)),
    "suffix": "step,train/bits_per_element_step,train/bits_per_element_epoch\n1,2.5,\n2,2.25,\n2,,2.4\n",
}


@pytest.mark.parametrize("name", LOGS)
def test_loss_plot(name, tmp_path):
    (tmp_path / "metrics.csv").write_text(LOGS[name])
    loss_plot(tmp_path / "metrics.csv", tmp_path / "loss.png")
    picture = pixels(tmp_path / "loss.png")
    assert picture.shape == (640, 1280, 3)
    assert has(picture, pictures.GENERATED) == (name != "only val")
    assert has(picture, "#D55E00") == ("val" in LOGS[name] and name not in ("one row", "suffix"))


def test_smoothing():
    values = np.arange(400.0)
    np.testing.assert_allclose(pictures._smooth(values)[:390], values[:390])
    np.testing.assert_array_equal(pictures._smooth(values[:9]), values[:9])
    assert pictures._smooth(np.random.default_rng(0).normal(size=4000)).std() < 0.2


def test_a_failed_write_leaves_the_old_file(tune, tmp_path):
    (tmp_path / "roll.png").write_text("old")

    def fail(file):
        file.write_text("half")
        raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        pictures._write(tmp_path / "roll.png", fail)
    assert [p.read_text() for p in tmp_path.iterdir()] == ["old"]


X = np.full((2, 4), 60)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: piano_roll(X[0], p), r"rows.shape = \(4,\): expected \(N, L\)"),
        (lambda p: piano_roll(X[:0], p), r"rows.shape = \(0, 4\): expected"),
        (lambda p: piano_roll(X + 69, p), r"rows = ... \[129\] ...: expected categories 0..128"),
        (lambda p: piano_roll(X - 61, p), r"\[-1\]"),
        (lambda p: piano_roll(np.tile(X, (5, 1)), p), r"len\(rows\) = 10: expected at most 8 rows"),
        (lambda p: piano_roll(np.tile(X, (1, 600)), p), r"rows of at most 2048 elements"),
        (lambda p: piano_roll(X, p, titles=["a"]), r"len\(titles\) = 1: expected one for each row, 2"),
        (
            lambda p: piano_roll(X, p, given=GIVEN_MASK),
            r"given.shape = \(32,\): expected one that broadcasts to \(2, 4\)",
        ),
        (lambda p: piano_roll(X, p, steps_per_bar=0), "steps_per_bar = 0: expected"),
        (lambda p: token_grid(X, p, 60), r"rows = ... \[60\] ...: expected categories 0..59"),
        (lambda p: token_grid(X, p, 61, mask=61), "mask = 61: expected an integer 0..60"),
        (lambda p: animate_denoising([], p), r"len\(frames\) = 0: expected at least one frame"),
        (lambda p: animate_denoising([X], "film.png"), "path = film.png: expected a name that ends with .gif"),
        (lambda p: animate_denoising([X, X[:1]], p), r"frames\[1\].shape = \(1, 4\): expected that of the first"),
        (lambda p: animate_denoising([X], p, mask=3), "mask = 3: expected none for music"),
        (lambda p: animate_denoising([X], p, frames_per_second=0), "frames_per_second = 0: expected"),
    ],
)
def test_bad_values(call, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        call(tmp_path / "picture.gif")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: piano_roll(X + 0.5, p), "rows has dtype float64: expected integers"),
        (lambda p: piano_roll(X, p, pad=X), "pad has dtype int64: expected booleans"),
        (lambda p: piano_roll(X, p, titles="ab"), "titles is a str: expected a list of strings"),
    ],
)
def test_bad_types(call, message, tmp_path):
    with pytest.raises(TypeError, match=message):
        call(tmp_path / "picture.png")


@pytest.mark.parametrize("text", ["", "step,other\n1,2\n", HEADER + "0,1,,,\n"])
def test_a_log_without_losses(text, tmp_path):
    (tmp_path / "metrics.csv").write_text(text)
    with pytest.raises(ValueError, match="expected numbers under train/ or val/bits_per_element"):
        loss_plot(tmp_path / "metrics.csv", tmp_path / "loss.png")


def test_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"piano_roll needs matplotlib: pip install 'usd3\[pictures\]'"):
        piano_roll(X, tmp_path / "roll.png")
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ImportError, match="animate_denoising needs pillow"):
        animate_denoising([X], tmp_path / "film.gif")
