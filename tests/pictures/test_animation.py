import numpy as np
import pytest
import torch
from PIL import Image

from support.pixels import GIVEN_MASK, TUNE, has, is_colour, pixels
from usd3.pictures import animate_denoising, animate_roll
from usd3.pictures.animation import HEADER, MARGIN
from usd3.pictures.figures import GENERATED, GIVEN, INK, UNKNOWN
from usd3.pictures.grids import category_colours
from usd3.pictures.rolls import REST

X = np.full((2, 4), 60)


def denoising(rows, noise, steps=6):
    when = np.random.default_rng(3).random(rows.shape)
    return [np.where((when < i / (steps - 1)) | GIVEN_MASK, rows, noise) for i in range(steps - 1)] + [rows]


def test_animated_music(tmp_path):
    path = tmp_path / "new" / "film.gif"
    animate_roll(denoising(TUNE, REST + 1), path, given=GIVEN_MASK, frames_per_second=10, hold=2)
    durations = []
    with Image.open(path) as film:
        assert (film.format, film.n_frames, film.info["loop"]) == ("GIF", 6, 0)
        assert film.size[0] == 32 * 16 + 2 * MARGIN
        for i in range(6):
            film.seek(i)
            durations.append(film.info["duration"])
    assert durations == [100] * 5 + [2000]
    first, last = pixels(path), pixels(path, 5)
    assert [has(first[HEADER:], c) for c in (GIVEN, GENERATED, UNKNOWN)] == [True, False, True]
    assert [has(last[HEADER:], c) for c in (GIVEN, GENERATED, UNKNOWN)] == [True, True, False]
    assert is_colour(last[-MARGIN - 1], INK).sum() == 32 * 16  # the progress
    assert is_colour(first[-MARGIN - 1], INK).sum() == round(32 * 16 / 6)
    assert [p.name for p in path.parent.iterdir()] == ["film.gif"]


def test_equal_frames_are_kept(tmp_path):
    animate_roll([TUNE] * 9, tmp_path / "film.gif")
    with Image.open(tmp_path / "film.gif") as film:
        assert film.n_frames == 9


@pytest.mark.parametrize(("classes", "mask"), [(5, None), (6, 5), (6, 0), (300, None), (300, 299), (300, 5)])
def test_animated_grid(classes, mask, tmp_path):
    rows = np.arange(3 * 32).reshape(3, 32) % classes
    frames = [torch.from_numpy(f) for f in denoising(rows, classes - 1 if mask is None else mask)]
    animate_denoising(frames, tmp_path / "film.gif", num_classes=classes, mask=mask, given=GIVEN_MASK)
    last = pixels(tmp_path / "film.gif", 5)
    seen = {tuple(c) for c in np.unique(last.reshape(-1, 3), axis=0).tolist()}
    if classes < 200:
        assert {tuple(c) for c in category_colours(classes, mask)[np.unique(rows)].tolist()} <= seen
    assert len(seen) > min(classes, 50)
    assert has(pixels(tmp_path / "film.gif"), UNKNOWN) == (mask is not None)
    assert has(last, UNKNOWN) == (mask is not None and mask in rows)


def test_a_film_may_have_colours_of_its_own(tmp_path):
    own = ["#112233", "#445566", UNKNOWN]
    animate_denoising([np.array([[2, 2, 0]]), np.array([[0, 1, 0]])], tmp_path / "film.gif", 3, mask=2, colours=own)
    first, last = pixels(tmp_path / "film.gif"), pixels(tmp_path / "film.gif", 1)
    assert [has(first, colour) for colour in own] == [True, False, True]
    assert [has(last, colour) for colour in own] == [True, True, False]
    with pytest.raises(ValueError, match=r"len\(colours\) = 2: expected one for each category, 3"):
        animate_denoising([np.array([[0]])], tmp_path / "other.gif", 3, colours=own[:2])


def test_a_film_of_usual_size_is_small(tmp_path):
    rng = np.random.default_rng(3)
    tune = rng.integers(50, 80, (4, 64)).repeat(4, axis=1)
    when = rng.random(tune.shape)
    frames = [np.where(when < i / 39, tune, rng.integers(0, 129, tune.shape)) for i in range(40)]
    animate_roll(frames, tmp_path / "film.gif")
    assert (tmp_path / "film.gif").stat().st_size < 2_000_000


@pytest.mark.parametrize(
    ("frames", "options", "message"),
    [
        ([], {}, r"len\(frames\) = 0: expected at least one frame"),
        ([X, X[:1]], {}, r"frames\[1\].shape = \(1, 4\): expected that of the first"),
        ([X], {"frames_per_second": 0}, "frames_per_second = 0: expected"),
        ([X], {"hold": -1}, "hold = -1: expected"),
        ([X], {"path": "film.png"}, "path = film.png: expected a name that ends with .gif"),
    ],
)
def test_bad_values(frames, options, message, tmp_path):
    options = {"path": tmp_path / "film.gif"} | options
    with pytest.raises(ValueError, match=message):
        animate_roll(frames, **options)
    with pytest.raises(ValueError, match=message):
        animate_denoising(frames, num_classes=61, **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_classes": 61, "mask": 61}, "mask = 61: expected an integer 0..60"),
        ({"num_classes": 60}, r"categories 0..59"),
        ({"num_classes": 1}, "num_classes = 1: expected"),
    ],
)
def test_bad_categories(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        animate_denoising([X], tmp_path / "film.gif", **options)
    assert not list(tmp_path.iterdir())
