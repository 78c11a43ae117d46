"""How time and memory grow with K, B and D, one of them at a time."""

import math
from collections.abc import Sequence

import numpy as np

from usd3._internal.checks import require
from usd3.bench.problem import Problem
from usd3.bench.rows import Row

__all__ = ["FLOOR", "VARIED", "fit_slopes", "growing", "series", "slope", "values"]

VARIED = ("K", "B", "D")
FLOOR = "floor"


def values(problem: Problem, name: str, most: int, factor: int = 4) -> list[int]:
    """Values of B, D or K, a `factor` apart, up to `most` elements of the logits."""
    rest = math.prod(problem.size) // getattr(problem.size, name)
    least, top = 2 if name == "K" else 1, most // rest
    grown = []
    value = 1 << max(0, top.bit_length() - 1)
    while value > least:
        grown.append(value)
        value //= factor
    return [least, *reversed(grown)] if top >= least else []


def growing(problem: Problem, most: int, factor: int = 4) -> dict[str, list[Problem]]:
    """For each of K, B and D the problems in which it grows and the other two stay."""
    problems = {}
    for name in VARIED:
        sizes = values(problem, name, most, factor)
        require(len(sizes) > 1, "most", most, f"room to grow {name} from the size {problem.size}")
        problems[name] = [problem.resized(**{name: value}) for value in sizes]
    return problems


def slope(sizes: Sequence[float], ms: Sequence[float]) -> float | None:
    """Exponent p of ms ~ size^p, fitted on the larger half of the sizes; None if there are too few points."""
    points = sorted(zip(sizes, ms))
    points = points[len(points) // 2 :]
    if len(points) < 2:
        return None
    x, y = np.log(np.array(points, dtype=np.float64)).T
    return float(np.polyfit(x, y, 1)[0])


def series(rows: Sequence[Row], kind: str, name: str, column: str = "ms") -> dict[str, list[tuple[int, float]]]:
    """The points (value of `name`, value of `column`) of each contestant and, for times, of the floor."""
    points: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        value = getattr(row, column)
        if row.kind == kind and value is not None:
            points.setdefault(row.contestant, []).append((getattr(row, name), value))
    if column == "ms" and points:
        floor = {getattr(row, name): row.floor_ms for row in rows if row.kind == kind and row.floor_ms is not None}
        points[FLOOR] = sorted(floor.items())
    return points


def fit_slopes(rows: Sequence[Row], name: str) -> dict[tuple[str, str], float]:
    """The exponent of time in `name`, by kind and contestant.

    With ", graph" after the contestant, time is that of a CUDA graph, without launches.
    """
    fitted = {}
    for kind in dict.fromkeys(row.kind for row in rows):
        for column, suffix in (("ms", ""), ("graph_ms", ", graph")):
            for contestant, points in series(rows, kind, name, column).items():
                exponent = slope(*zip(*points))
                if exponent is not None and contestant != FLOOR:
                    fitted[kind, contestant + suffix] = round(exponent, 3)
    return fitted
