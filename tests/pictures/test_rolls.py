import numpy as np
import pytest
import torch

from support.pixels import GIVEN_MASK, TUNE, has, pixels
from usd3.pictures import piano_roll
from usd3.pictures.figures import GENERATED, GIVEN
from usd3.pictures.rolls import pitch_range

X = np.full((2, 4), 60)


def test_piano_roll(tmp_path):
    path = tmp_path / "new" / "folder" / "roll.png"
    piano_roll(TUNE, path, titles=["a", "b", "c"], given=GIVEN_MASK)
    picture = pixels(path)
    assert picture.shape == (round((0.5 + 3 * 1.25) * 160), 9 * 160, 3)
    assert has(picture, GIVEN)
    assert has(picture, GENERATED)
    assert [p.name for p in path.parent.iterdir()] == ["roll.png"]
    piano_roll(torch.from_numpy(TUNE), tmp_path / "same.png", titles=["a", "b", "c"], given=torch.tensor(GIVEN_MASK))
    np.testing.assert_array_equal(pixels(tmp_path / "same.png"), picture)


def test_piano_roll_without_given_or_with_pad(tmp_path):
    piano_roll(TUNE, tmp_path / "plain.png")
    plain = pixels(tmp_path / "plain.png")
    assert not has(plain, GIVEN)
    pad = np.zeros(TUNE.shape, bool)
    pad[1, 16:] = True
    piano_roll(np.where(pad, 0, TUNE), tmp_path / "padded.png", pad=pad)
    assert pixels(tmp_path / "padded.png").shape == plain.shape
    assert not np.array_equal(pixels(tmp_path / "padded.png"), plain)
    piano_roll(TUNE[:, ::-1], tmp_path / "other.png")
    assert not np.array_equal(pixels(tmp_path / "other.png"), plain)


@pytest.mark.parametrize("rows", [np.full((1, 4), 128), np.array([[0, 127]]), np.full((8, 1), 60), np.tile(X, 10)])
def test_piano_roll_of_little(rows, tmp_path):
    piano_roll(rows, tmp_path / "roll.svg", steps_per_bar=1)
    assert "<svg" in (tmp_path / "roll.svg").read_text()


def test_pitch_range():
    assert pitch_range(np.array([60, 72, 128]), around=2) == (54, 78)  # two octaves
    assert pitch_range(np.array([40, 80]), around=2) == (38, 82)
    assert pitch_range(np.array([0, 127]), around=2) == (0, 127)
    assert pitch_range(np.array([128]), around=2) == (54, 78)


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (X[0], {}, r"rows.shape = \(4,\): expected \(N, L\)"),
        (X[:0], {}, r"rows.shape = \(0, 4\): expected"),
        (X + 69, {}, r"rows = ... \[129\] ...: expected categories 0..128"),
        (X - 61, {}, r"\[-1\]"),
        (np.tile(X, (5, 1)), {}, r"len\(rows\) = 10: expected at most 8 rows"),
        (X, {"titles": ["a"]}, r"len\(titles\) = 1: expected one for each row, 2"),
        (X, {"given": GIVEN_MASK}, r"given.shape = \(32,\): expected one that broadcasts to \(2, 4\)"),
        (X, {"steps_per_bar": 0}, "steps_per_bar = 0: expected"),
    ],
)
def test_bad_values(rows, options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        piano_roll(rows, tmp_path / "roll.png", **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (X + 0.5, {}, "rows has dtype float64: expected integers"),
        (X, {"pad": X}, "pad has dtype int64: expected booleans"),
        (X, {"titles": "ab"}, "titles is a str: expected a list of strings"),
    ],
)
def test_bad_types(rows, options, message, tmp_path):
    with pytest.raises(TypeError, match=message):
        piano_roll(rows, tmp_path / "roll.png", **options)
