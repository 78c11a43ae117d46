"""Pictures of tables."""

import numpy as np
import pytest
from PIL import Image

from support.pixels import has, pixels
from usd3.pictures.figures import GENERATED, GIVEN
from usd3.pictures.tables import REAL, Bars, PairMap, Steps, marginals_sheet, pair_maps, table_sheet, trend_map


def size(path):
    with Image.open(path) as image:
        return image.size


def test_columns_that_are_too_many_for_one_width_stand_below(tmp_path):
    wide = {f"a column with a long name {i}": ["a long cell, cut at its end"] * 3 for i in range(20)}
    table_sheet({"a": ["1", "2", "3"]}, tmp_path / "small.png")
    table_sheet(wide, tmp_path / "wide.png")
    assert size(tmp_path / "wide.png")[0] < 2200
    assert size(tmp_path / "wide.png")[1] > 2 * size(tmp_path / "small.png")[1]


def test_given_cells_are_marked_in_their_own_place(tmp_path):
    columns = {"a": ["1", "2"], "b": ["$x_1$", "4"]}  # dollars are no mathematics
    first, last = np.array([[True, False], [False, False]]), np.array([[False, False], [False, True]])
    for name, given in (("none", None), ("first", first), ("last", last)):
        table_sheet(columns, tmp_path / f"{name}.png", given)
    none, first, last = (pixels(tmp_path / f"{name}.png") for name in ("none", "first", "last"))
    assert not has(none, GIVEN)
    assert has(first, GIVEN)
    shaded = [(np.abs(picture.astype(int) - [246, 222, 166]).sum(-1) < 30) for picture in (first, last)]
    assert all(mask.any() for mask in shaded)
    assert np.argwhere(shaded[0])[:, 0].mean() < np.argwhere(shaded[1])[:, 0].mean()


def test_real_stands_beside_generated(tmp_path):
    half = np.array([0.5, 0.5])
    panels = [Bars("colour", ["red", "a very long label"], half, half), Steps("size", np.arange(3.0), half, half)]
    marginals_sheet(panels, tmp_path / "sheet.png")
    picture = pixels(tmp_path / "sheet.png")
    assert has(picture, REAL)
    assert has(picture, GENERATED)


def test_maps_of_pairs_are_drawn(tmp_path):
    scores = np.array([[np.nan, 0.5], [0.5, np.nan]])
    trend_map(["a", "b"], scores, tmp_path / "trends.png")
    shares = np.array([[0.5, 0.0], [0.25, 0.25]])
    pair_maps([PairMap("a, b", ["x", "y"], ["u", "v"], shares, shares[::-1])], tmp_path / "pairs.png")
    assert len(np.unique(pixels(tmp_path / "trends.png").reshape(-1, 3), axis=0)) > 50
    left, right = np.array_split(pixels(tmp_path / "pairs.png"), 2, axis=1)
    assert not np.array_equal(left[:, : right.shape[1]], right)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda path: table_sheet({}, path), "columns = {}: expected at least one column"),
        (lambda path: table_sheet({"a": ["x"] * 41}, path), "rows = 41: expected 1..40"),
        (lambda path: table_sheet({"a": ["x"]}, path, np.ones((5, 1), bool)), "given.shape"),
        (lambda path: marginals_sheet([], path), "panels"),
        (lambda path: pair_maps([], path), "pairs"),
        (lambda path: trend_map(["a"], np.zeros((2, 2)), path), r"scores.shape = \(2, 2\): expected \(1, 1\)"),
    ],
)
def test_what_cannot_be_drawn_is_refused(draw, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        draw(tmp_path / "x.png")
    assert list(tmp_path.iterdir()) == []
