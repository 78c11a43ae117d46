"""Texts beside points."""

import itertools

import pytest

from usd3.pictures.figures import new_figure, save
from usd3.pictures.labels import Label, write_labels


def written(labels, lines=(), texts=(), limits=(0, 1)):
    """The axes with labels, and the boxes of its texts in pixels."""
    figure = new_figure(4, 3)
    axes = figure.subplots()
    axes.set_xlim(*limits)
    axes.set_ylim(*limits)
    for text, x, y in texts:
        axes.text(x, y, text, fontsize=8)
    write_labels(axes, labels, lines, 8)
    figure.draw_without_rendering()
    return axes, [text.get_window_extent() for text in axes.texts]


def test_labels_of_one_place_cover_neither_each_other_nor_other_texts():
    _, boxes = written([Label(str(n), (0.5, 0.5), "red") for n in (64, 128, 255, 256)], texts=[("data", 0.5, 0.52)])
    assert len(boxes) == 5
    for a, b in itertools.combinations(boxes, 2):
        assert not a.overlaps(b)


@pytest.mark.parametrize("place", [(0.0, 0.0), (1.0, 1.0), (0.0, 1.0)])
def test_a_label_at_a_corner_stays_inside(place):
    axes, (box,) = written([Label("256", place, "red")])
    frame = axes.get_window_extent()
    assert frame.x0 <= box.x0 <= box.x1 <= frame.x1
    assert frame.y0 <= box.y0 <= box.y1 <= frame.y1


def test_a_label_leaves_lines_visible():
    flat = [(0.0, 0.5), (1.0, 0.5)]
    axes, (box,) = written([Label("256", (0.5, 0.5), "red")], [flat])
    line = axes.transData.transform((0.5, 0.5))[1]
    assert box.y0 > line or box.y1 < line


def test_a_place_that_is_not_finite_has_no_label_and_the_figure_can_be_saved(tmp_path):
    axes, boxes = written([Label("1", (float("nan"), 0.5), "red")], [[(0.1, float("nan")), (0.2, 0.2)]])
    assert boxes == []
    save(axes.get_figure(), tmp_path / "f.png")
    assert (tmp_path / "f.png").stat().st_size > 1000
