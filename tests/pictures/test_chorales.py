import numpy as np
import pytest
import torch
from PIL import Image

from support.pixels import has, is_colour, pixels
from usd3.pictures import animate_chorales, chorale_rolls
from usd3.pictures.chorales import VOICE_COLOURS
from usd3.pictures.figures import LINE, UNKNOWN

REST, UNSEEN = 128, 129
SOPRANO, ALTO, TENOR, BASS = VOICE_COLOURS.values()
X = np.tile([72, 64, 55, 48], (2, 32, 1))
X[1, 16:] += 2
SUNG = np.arange(4) == 0  # the soprano is given


def dark(colour):
    return f"#{''.join(f'{round(0.55 * part):02X}' for part in bytes.fromhex(colour[1:]))}"


def area(picture, colour):
    return int(is_colour(picture, colour).sum())


def test_each_voice_has_its_colour(tmp_path):
    chorale_rolls(X, tmp_path / "new" / "rolls.png", titles=["a", "b"])
    picture = pixels(tmp_path / "new" / "rolls.png")
    assert picture.shape == (round((0.6 + 2 * 2.2) * 160), 9 * 160, 3)
    for colour in VOICE_COLOURS.values():
        assert has(picture, colour)
        assert not has(picture, dark(colour))
    chorale_rolls(torch.from_numpy(X), tmp_path / "same.png", titles=["a", "b"])
    np.testing.assert_array_equal(pixels(tmp_path / "same.png"), picture)


def test_given_notes_are_darker(tmp_path):
    chorale_rolls(X, tmp_path / "rolls.png", given=SUNG)
    picture = pixels(tmp_path / "rolls.png")
    assert area(picture, dark(SOPRANO)) > 1000
    for colour in (ALTO, TENOR, BASS):
        assert not has(picture, dark(colour))


def test_a_silent_voice_is_not_drawn_and_padding_is_shaded(tmp_path):
    silent = np.where(np.arange(4) == 3, REST, X)
    pad = np.broadcast_to(np.arange(32)[:, None] >= 24, X.shape)
    pictures = {}
    for name, x, hidden in (("all", X, None), ("silent", silent, None), ("padded", X, pad)):
        chorale_rolls(x, tmp_path / f"{name}.png", pad=hidden)
        pictures[name] = pixels(tmp_path / f"{name}.png")
    assert area(pictures["silent"], BASS) < area(pictures["all"], BASS) / 4  # the legend alone
    assert area(pictures["padded"], ALTO) < area(pictures["all"], ALTO)
    assert area(pictures["padded"], LINE) > area(pictures["all"], LINE) + 10_000


def test_two_voices_on_one_pitch_are_both_seen(tmp_path):
    meeting = X.copy()
    meeting[..., 1] = meeting[..., 2]
    chorale_rolls(meeting, tmp_path / "rolls.png")
    picture = pixels(tmp_path / "rolls.png")
    assert area(picture, ALTO) > 3000
    assert area(picture, TENOR) > 3000


@pytest.mark.parametrize("x", [np.full((1, 1, 4), REST), np.array([[[127, 90, 20, 0]]]), np.tile(X, (2, 20, 1))])
def test_rolls_of_little_and_of_much(x, tmp_path):
    chorale_rolls(x, tmp_path / "rolls.svg", steps_per_bar=1)
    assert "<svg" in (tmp_path / "rolls.svg").read_text()


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (X[0], r"chorales\.shape"),
        (X[..., :3], r"chorales\.shape .* \(N, T, 4\)"),
        (np.tile(X, (3, 1, 1)), r"len\(chorales\) = 6: expected at most 4"),
        (X + 100, r"chorales .* expected categories 0\.\.128"),
    ],
)
def test_other_arrays_are_refused(x, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        chorale_rolls(x, tmp_path / "rolls.png")
    with pytest.raises(TypeError, match="expected integers"):
        chorale_rolls(X.astype(float), tmp_path / "rolls.png")


def frames():
    """A soprano that is known, then all voices one after the other."""
    return [np.where(np.arange(4) <= count, X, UNSEEN) for count in range(4)]


def test_an_animation_shows_what_is_not_known_yet(tmp_path):
    animate_chorales(frames(), tmp_path / "a.gif", given=SUNG)
    with Image.open(tmp_path / "a.gif") as image:
        assert image.n_frames == 4
    first, last = (pixels(tmp_path / "a.gif", frame) for frame in (0, 3))
    assert has(first, dark(SOPRANO))
    assert area(first, BASS) < area(last, BASS) / 4  # the legend alone
    greys = [pixels(tmp_path / "a.gif", frame)[60, 100] for frame in range(4)]
    assert (np.diff([grey.sum() for grey in greys]) > 0).all()  # the more is known, the lighter


def test_an_animation_of_nothing_known(tmp_path):
    unknown = np.full(X.shape, UNSEEN)
    animate_chorales([unknown, X], tmp_path / "a.gif")
    assert area(pixels(tmp_path / "a.gif"), UNKNOWN) > 10_000


def test_frames_of_other_shapes_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"frames\[1\]\.shape"):
        animate_chorales([X, X[:1]], tmp_path / "a.gif")
    with pytest.raises(ValueError, match=r"len\(frames\) = 0"):
        animate_chorales([], tmp_path / "a.gif")
