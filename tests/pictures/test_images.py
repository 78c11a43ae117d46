import numpy as np
import pytest
import torch

from support.pixels import pixels, shows
from usd3.pictures import (
    image_grid,
    image_rows,
    inpainting_grid,
    neighbour_grid,
    reconstruction_grid,
    with_hole,
)
from usd3.pictures.sheets import GAP, MARGIN, TEXT, WIDE_GAP

X = torch.randint(256, (40, 3, 6, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))


def test_a_grid_has_every_pixel_of_every_image(tmp_path):
    path = tmp_path / "new" / "grid.png"
    image_grid(X[:7], path, columns=3, scale=5)
    picture = pixels(path)
    assert picture.shape == (2 * MARGIN + 3 * 30 + 2 * GAP, 2 * MARGIN + 3 * 40 + 2 * GAP, 3)
    for i, image in enumerate(X[:7]):
        assert shows(picture, image, MARGIN + i // 3 * (30 + GAP), MARGIN + i % 3 * (40 + GAP), 5)
    assert (
        picture[MARGIN + 2 * (30 + GAP) :, MARGIN + 40 + GAP :] == 255
    ).all()  # no image is left for the last places
    assert [p.name for p in path.parent.iterdir()] == ["grid.png"]


def test_a_grid_chooses_its_own_size(tmp_path):
    image_grid(X[:16], tmp_path / "few.png")
    assert pixels(tmp_path / "few.png").shape[1] == 2 * MARGIN + 4 * 8 * 6 + 3 * GAP  # four in a row, not larger than 6
    image_grid(np.zeros((80, 3, 2, 2), dtype=np.uint8), tmp_path / "even.png", scale=1)
    assert pixels(tmp_path / "even.png").shape[:2] == tuple(2 * MARGIN + n * 2 + (n - 1) * GAP for n in (8, 10))
    image_grid(np.zeros((9, 3, 200, 200), dtype=np.uint8), tmp_path / "large.png")
    assert pixels(tmp_path / "large.png").shape[1] == 2 * MARGIN + 3 * 200 + 2 * GAP
    image_grid(np.zeros((20, 3, 32, 32), dtype=np.uint8), tmp_path / "high.png", columns=1)
    assert pixels(tmp_path / "high.png").shape[0] == 2 * MARGIN + 20 * 32 * 3 + 19 * GAP  # 2000 pixels at most


def test_names_stand_beside_the_rows_and_not_on_them(tmp_path):
    image_rows({"a": X[:3], "a rather long name": X[3:6]}, tmp_path / "rows.png", scale=5)
    picture = pixels(tmp_path / "rows.png")
    left = picture.shape[1] - MARGIN - 3 * 40 - 2 * GAP
    for i, image in enumerate(X[:6]):
        assert shows(picture, image, MARGIN + i // 3 * (30 + GAP), left + i % 3 * (40 + GAP), 5)
    for top in (MARGIN, MARGIN + 30 + GAP):
        assert not (picture[top : top + 30, MARGIN : left - 1] == 255).all()


def test_reconstructions_stand_below_their_originals(tmp_path):
    reconstruction_grid(X[:5], X[5:10], tmp_path / "pairs.png", columns=3, scale=4)
    picture = pixels(tmp_path / "pairs.png")
    left = picture.shape[1] - MARGIN - 3 * 32 - 2 * GAP
    for i in range(5):
        top, x = MARGIN + i // 3 * (2 * 24 + GAP + WIDE_GAP), left + i % 3 * (32 + GAP)
        assert shows(picture, X[i], top, x, 4)
        assert shows(picture, X[5 + i], top + 24 + GAP, x, 4)
    assert not (picture[:, : left - 1] == 255).all()  # the captions


def test_neighbours_stand_beside_their_sample(tmp_path):
    neighbour_grid(X[:2], X[2:8].reshape(2, 3, 3, 6, 8), tmp_path / "near.png", scale=10)
    picture = pixels(tmp_path / "near.png")
    for i in range(2):
        top = MARGIN + TEXT + 8 + i * (60 + GAP)
        assert shows(picture, X[i], top, MARGIN, 10)
        for k in range(3):
            assert shows(picture, X[2 + 3 * i + k], top, MARGIN + 80 + WIDE_GAP + k * (80 + GAP), 10)


def test_fills_stand_beside_what_was_given(tmp_path):
    inpainting_grid(X[:2], X[2:4], X[4:8].reshape(2, 2, 3, 6, 8), tmp_path / "fills.png", scale=10)
    picture = pixels(tmp_path / "fills.png")
    for i in range(2):
        top = MARGIN + TEXT + 8 + i * (60 + GAP)
        lefts = [MARGIN, MARGIN + 80 + WIDE_GAP, MARGIN + 2 * (80 + WIDE_GAP), MARGIN + 3 * 80 + 2 * WIDE_GAP + GAP]
        for image, left in zip((X[i], X[2 + i], X[4 + 2 * i], X[5 + 2 * i]), lefts):
            assert shows(picture, image, top, left, 10)


def test_many_fills_stand_in_blocks(tmp_path):
    x = X[torch.arange(9) % len(X)]
    inpainting_grid(x, x, x[:, None], tmp_path / "fills.png", scale=10)
    picture = pixels(tmp_path / "fills.png")
    assert picture.shape[:2] == (2 * MARGIN + TEXT + 8 + 5 * 60 + 4 * GAP, 2 * MARGIN + 6 * 80 + 5 * WIDE_GAP)
    for i in range(9):
        top, block = MARGIN + TEXT + 8 + i % 5 * (60 + GAP), MARGIN + i // 5 * 3 * (80 + WIDE_GAP)
        for k in range(3):
            assert shows(picture, x[i], top, block + k * (80 + WIDE_GAP), 10)


def test_bad_values(tmp_path):
    path, five = tmp_path / "x.png", X[:4].reshape(2, 2, 3, 6, 8)
    cases = [
        (lambda: image_grid(X.float(), path), TypeError, "images has dtype float32: expected uint8"),
        (lambda: image_grid(X[0], path), ValueError, r"images.shape = \(3, 6, 8\): expected \(N, 3, H, W\)"),
        (lambda: image_grid(X[:0], path), ValueError, "images.shape"),
        (lambda: image_grid(X, path, columns=0), ValueError, "columns = 0"),
        (lambda: image_grid(X, path, scale=0), ValueError, "scale = 0"),
        (lambda: image_rows({}, path), ValueError, "at least one row"),
        (lambda: image_rows({"a": X, "b": X[:2]}, path), ValueError, r"rows\['b'\].shape = \(2, 3, 6, 8\): expected"),
        (lambda: image_grid(X, tmp_path / "x.bmp"), ValueError, "ends with .png"),
        (lambda: reconstruction_grid(X, X[:3], path), ValueError, r"reconstructions.shape = \(3, 3, 6, 8\): expected"),
        (lambda: neighbour_grid(X[:3], five, path), ValueError, r"neighbours.shape = \(2, 2, 3, 6, 8\): expected \(3"),
        (lambda: neighbour_grid(X[:3], X[:3], path), ValueError, "neighbours.shape"),
        (lambda: inpainting_grid(X[:2], X[:3], five, path), ValueError, "masked.shape"),
        (lambda: with_hole(X, torch.ones(4, 4, dtype=torch.bool)), ValueError, r"given.shape = \(4, 4\): expected \(h"),
    ]
    for call, kind, message in cases:
        with pytest.raises(kind, match=message):
            call()
    assert not list(tmp_path.iterdir())
