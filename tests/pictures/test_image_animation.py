import numpy as np
import pytest
import torch
from PIL import Image

from support.pixels import as_drawn, has, is_colour, pixels, shows
from usd3.pictures import animate_images
from usd3.pictures.figures import INK, UNKNOWN, rgb
from usd3.pictures.sheets import GAP, MARGIN

X = torch.randint(256, (40, 3, 6, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
WHITE = "#FFFFFF"


def test_a_film_of_images(tmp_path):
    grey = torch.tensor(rgb(UNKNOWN), dtype=torch.uint8)[:, None, None].expand(3, 6, 8)
    colours = X[:3, :, :1, :1].expand(3, 3, 6, 8)  # few colours, which the palette has
    frames = [torch.stack([*colours[:i], *[grey] * (3 - i)]) for i in range(4)]
    animate_images(frames, tmp_path / "film.gif", columns=2, scale=4, frames_per_second=10, hold=2)
    durations = []
    with Image.open(tmp_path / "film.gif") as film:
        assert (film.format, film.n_frames, film.info["loop"]) == ("GIF", 4, 0)
        for i in range(4):
            film.seek(i)
            durations.append(film.info["duration"])
    assert durations == [100] * 3 + [2000]
    for i, frame in enumerate(frames):
        picture = pixels(tmp_path / "film.gif", i)
        assert is_colour(picture[-MARGIN - 1], INK).sum() == round((picture.shape[1] - 2 * MARGIN) * (i + 1) / 4)
        assert has(picture, UNKNOWN) == (i < 3)
        for k, image in enumerate(frame):
            assert shows(picture, image, MARGIN + k // 2 * (24 + GAP), MARGIN + k % 2 * (32 + GAP), 4)
    assert is_colour(picture[MARGIN + 24 + GAP : MARGIN + 48 + GAP, MARGIN + 32 + GAP :], WHITE).all()


def test_colours_of_a_film_are_near_and_do_not_flicker(tmp_path):
    smooth = torch.linspace(0, 255, 32)
    x = torch.stack([smooth.expand(32, 32), smooth[:, None].expand(32, 32), smooth.flip(0).expand(32, 32)])
    still = torch.stack([x, x.flip(0)]).to(torch.uint8)
    frames = [torch.cat([still, X[i, :, :1, :1].expand(1, 3, 32, 32)]) for i in range(6)]  # only the third changes
    animate_images(frames, tmp_path / "film.gif", columns=3, scale=1)
    shown = [pixels(tmp_path / "film.gif", i)[MARGIN : MARGIN + 32, MARGIN : MARGIN + 64 + GAP] for i in range(6)]
    assert all(np.array_equal(picture, shown[0]) for picture in shown)
    assert np.abs(shown[0][:, :32].astype(int) - as_drawn(still[0], 1)).mean() < 6


@pytest.mark.parametrize(
    ("frames", "name", "message"),
    [
        ([X], "film.png", "ends with .gif"),
        ([], "film.gif", r"len\(frames\) = 0"),
        ([X, X[:1]], "film.gif", r"frames\[1\].shape"),
    ],
)
def test_bad_values(frames, name, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        animate_images(frames, tmp_path / name)
    assert not list(tmp_path.iterdir())
