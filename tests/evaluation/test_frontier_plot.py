"""The page of `usd3 frontier`."""

import pytest

from support.pixels import has, pixels
from usd3.evaluation.frontier import Point, Way
from usd3.evaluation.frontier_plot import _draw_references, _lines, _with_error, frontier_plot, look
from usd3.metrics.summary import Metric, Summary


def points():
    ways = [Way(sampler, n, t) for sampler in ("exact", "euler") for t in (1.0, 0.5) for n in (4, 8)]
    return [
        Point(way, float(way.steps), 0.1, {"valid": Summary(0.1 * i, 0.02), "element_entropy": Summary(2 + i, 0.1)})
        for i, way in enumerate(ways)
    ]


def test_samplers_are_colours_and_references_are_grey(tmp_path):
    quality, spread = ("valid", Metric("valid", "higher")), ("element_entropy", "entropy")
    frontier_plot(points(), tmp_path / "f.png", quality, spread, {"held-out": 1.0, "far": 90.0}, 3.0, "a $title", 2)
    picture = pixels(tmp_path / "f.png")
    for colour in ("#0072B2", "#D55E00", "#9AA5B1"):
        assert has(picture, colour)


def test_a_point_without_the_metric_is_left_out_and_no_points_are_refused(tmp_path):
    quality, spread = ("valid", Metric("valid", "higher")), ("element_entropy", "entropy")
    with pytest.raises(ValueError, match="points"):
        frontier_plot([], tmp_path / "f.png", quality, spread, {})
    odd = [
        *points(),
        Point(Way("exact", 16), 16.0, 0.1, {"valid": Summary(float("nan"), 0), "element_entropy": Summary(1, 0)}),
    ]
    frontier_plot(odd, tmp_path / "f.png", quality, spread, {})
    assert (tmp_path / "f.png").is_file()


def test_a_reference_far_from_all_points_is_written_but_not_drawn():
    found = _draw_references([], {"near": 0.5, "far": 50.0, "unknown": float("nan")}, [0.1, 0.6])
    assert list(found) == ["near: 0.5", "far: 50 (not shown)"]


def test_error_bars_are_two_standard_errors_and_lines_go_from_few_to_many_steps():
    assert _with_error(Summary(0.5, 0.3), 9) == (0.5, pytest.approx(0.2))
    assert _with_error(Summary(0.5, float("nan")), 1) == (0.5, 0.0)
    mixed = list(reversed(points()))
    for line in _lines(mixed).values():
        assert [point.way.steps for point in line] == [4, 8]


def test_the_options_of_a_line_in_words():
    assert look(Way("exact", 4)) == "temperature 1"
    assert (
        look(Way("exact", 4, 0.5, 0.9, 3, 2.0, "best")) == "temperature 0.5, top p 0.9, top k 3, guidance 2, best grid"
    )
