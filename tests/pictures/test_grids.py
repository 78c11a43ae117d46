import numpy as np
import pytest

from support.pixels import has, pixels
from usd3.pictures import token_grid, token_maps
from usd3.pictures.figures import INK, LINE, UNKNOWN
from usd3.pictures.grids import category_colours


@pytest.mark.parametrize("classes", [2, 8, 9, 129, 1000])
@pytest.mark.parametrize("mask", [None, 1])
def test_token_grid(classes, mask, tmp_path):
    rows = np.random.default_rng(3).integers(0, classes, (3, 20))
    rows[0, 0] = 1
    options = {"given": np.arange(20) < 5, "titles": list("abc"), "mask": mask}
    token_grid(rows, tmp_path / "grid.png", classes, **options)
    picture = pixels(tmp_path / "grid.png")
    assert has(picture, INK)  # the line under given elements
    assert has(picture, UNKNOWN) == (mask is not None)
    token_grid(rows[::-1], tmp_path / "other.png", classes, **options)
    assert not np.array_equal(pixels(tmp_path / "other.png"), picture)


def test_padding_is_shaded_and_no_category(tmp_path):
    rows, pad = np.tile(np.arange(8), (2, 1)), np.arange(8) > 5
    token_grid(rows, tmp_path / "all.png", 8)
    token_grid(rows, tmp_path / "padded.png", 8, given=pad, pad=pad)
    token_grid(np.where(pad, 0, rows), tmp_path / "other.png", 8, pad=pad)
    drawn, padded = pixels(tmp_path / "all.png"), pixels(tmp_path / "padded.png")
    assert has(padded, LINE)
    assert not has(drawn, LINE)
    assert np.array_equal(padded, pixels(tmp_path / "other.png"))  # nothing is underlined


@pytest.mark.parametrize(("classes", "mask"), [(8, None), (9, 8), (9, 0), (3, 1)])
def test_few_categories_have_colours_of_their_own(classes, mask):
    assert len(np.unique(category_colours(classes, mask), axis=0)) == classes


@pytest.mark.parametrize(
    ("classes", "mask", "message"),
    [
        (60, None, r"rows = ... \[60\] ...: expected categories 0..59"),
        (61, 61, "mask = 61: expected an integer 0..60"),
        (1, None, "num_classes = 1: expected"),
    ],
)
def test_bad_values(classes, mask, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        token_grid(np.full((2, 4), 60), tmp_path / "grid.png", classes, mask=mask)
    assert not list(tmp_path.iterdir())


def test_maps_of_objects_of_two_dimensions(tmp_path):
    x = np.random.default_rng(3).integers(0, 7, (5, 4, 6))
    given, pad = np.arange(6) < 2, np.arange(6) > 4
    pictures = {}
    for name, options in {
        "plain": {},
        "given": {"given": given},
        "pad": {"pad": pad},
        "both": {"given": pad, "pad": pad},
    }.items():
        token_maps(x, tmp_path / f"{name}.png", 7, titles=list("abcde"), **options)
        pictures[name] = pixels(tmp_path / f"{name}.png")
    assert has(pictures["pad"], LINE)
    assert not has(pictures["given"], LINE)
    assert np.sum(np.all(pictures["given"] == [31, 41, 51], -1)) > np.sum(np.all(pictures["plain"] == [31, 41, 51], -1))
    np.testing.assert_array_equal(pictures["both"], pictures["pad"])
    token_maps(np.where(pad, 0, x), tmp_path / "other.png", 7, titles=list("abcde"), pad=pad)
    np.testing.assert_array_equal(pixels(tmp_path / "other.png"), pictures["pad"])
    for objects, message in (
        (x[0], r"objects.shape = \(4, 6\): expected \(N, H, W\)"),
        (x + 7, "expected categories 0..6"),
    ):
        with pytest.raises(ValueError, match=message):
            token_maps(objects, tmp_path / "bad.png", 7)
    assert not (tmp_path / "bad.png").exists()
