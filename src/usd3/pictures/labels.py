"""Short texts beside points of a plot, placed so that they do not cover each other."""

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Label", "Line", "write_labels"]

Line: TypeAlias = Sequence[tuple[float, float]]
_Box: TypeAlias = tuple[float, float, float, float]  # left, bottom, right, top, in points

_WIDTH, _HEIGHT = 0.72, 1.2  # of a letter, as parts of the font size
_DISTANCES = (5.0, 10.0, 16.0, 24.0)  # of a text from its point, in points
_DIRECTIONS = 16
_SPACING = 3.0  # between the dots that stand for a line, in points
_MARKER = 3.0  # radius of a marker at such a dot
_COVERS_TEXT, _LEAVES = 1000.0, 100.0  # what a place costs, beside 1 for each dot of a line and 0.1 for each point away


class Label(NamedTuple):
    """A text beside a point.

    Args:
        text: what it says.
        place: the point, in data.
        colour: of the text.
    """

    text: str
    place: tuple[float, float]
    colour: str


def write_labels(axes: "Axes", labels: Sequence[Label], lines: Sequence[Line], size: float) -> None:
    """Write each text near its point, where it covers no other text and little of the lines.

    Call it last: limits, scales and layout of the figure, and its other texts, must be what they stay.

    Args:
        axes: where the texts are.
        labels: the texts.
        lines: what should stay visible, lines through points in data.
        size: font size.
    """
    from matplotlib.patheffects import withStroke

    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    per_point = figure.dpi / 72
    known = [np.asarray(line, dtype=float).reshape(-1, 2) for line in lines]
    inked = [_dots(axes.transData.transform(line[np.isfinite(line).all(1)]) / per_point) for line in known]
    dots = np.concatenate([np.empty((0, 2)), *inked])
    frame = _box(axes.get_window_extent().get_points() / per_point)
    taken = [_box(text.get_window_extent().get_points() / per_point) for text in axes.texts]
    for text, place, colour in labels:
        if not all(map(math.isfinite, place)):
            continue
        point = axes.transData.transform(place) / per_point
        half = (_WIDTH * size * len(text) / 2, _HEIGHT * size / 2)
        steps = [
            ((distance + half[0]) * math.cos(angle), (distance + half[1]) * math.sin(angle))
            for distance in _DISTANCES
            for angle in np.linspace(0, 2 * math.pi, _DIRECTIONS, endpoint=False) + math.pi / 4
        ]
        boxes = [_around(point[0] + x, point[1] + y, half) for x, y in steps]
        costs = [_cost(box, taken, dots, frame) + 0.1 * math.hypot(*step) for box, step in zip(boxes, steps)]
        best = int(np.argmin(costs))
        taken.append(boxes[best])
        axes.annotate(
            text,
            place,
            steps[best],
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=size,
            color=colour,
            zorder=10,
            path_effects=[withStroke(linewidth=2, foreground="white")],
        )


def _dots(line: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Dots along a line (N, 2), so dense that no text lies between two of them."""
    dots = [line[:1]]
    for start, end in itertools.pairwise(line):
        count = 1 + int(np.hypot(*(end - start)) / _SPACING)
        dots.append(start + (end - start) * np.arange(1, count + 1)[:, None] / count)
    return np.concatenate(dots)


def _box(corners: npt.NDArray[np.float64]) -> _Box:
    return float(corners[0, 0]), float(corners[0, 1]), float(corners[1, 0]), float(corners[1, 1])


def _around(x: float, y: float, half: tuple[float, float]) -> _Box:
    return x - half[0], y - half[1], x + half[0], y + half[1]


def _cost(box: _Box, taken: Sequence[_Box], dots: npt.NDArray[np.float64], frame: _Box) -> float:
    """How bad a place is: texts and lines that it covers, and whether it leaves the frame."""
    covered = sum(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in taken)
    leaves = box[0] < frame[0] or box[1] < frame[1] or box[2] > frame[2] or box[3] > frame[3]
    inside = (dots > np.subtract(box[:2], _MARKER)).all(1) & (dots < np.add(box[2:], _MARKER)).all(1)
    return _COVERS_TEXT * covered + _LEAVES * leaves + float(inside.sum())
