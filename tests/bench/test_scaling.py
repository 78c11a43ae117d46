from dataclasses import replace

import pytest
from PIL import Image

from usd3.bench import Problem, Row, Size, fit_slopes, growing, slope
from usd3.bench.plots import memory_plot, time_plot
from usd3.bench.scaling import series, values


def rows(launch=0.0, per_element=1e-6, peak=None, kinds=("loss", "step")):
    """A synthetic cost: launch + elements * per_element."""
    made = []
    for K in (2, 8, 32, 128, 512, 2048):
        elements = 4 * 16 * K
        for kind in kinds:
            for i, name in enumerate(("usd3", "usd3 eager", "mine")):
                ms = launch + (i + 1) * elements * per_element
                used = None if peak is None else peak * elements * 4 * (i + 1)
                about = (kind, "uniform", "continuous", "usd3", "fp32", 4, 16, K, None, name)
                multiple = None if used is None else used / (elements * 4)
                made.append(Row(*about, ms, ms, ms, ms / 2, elements * 1e-7, None, None, used, multiple, None, ""))
    return made


@pytest.mark.parametrize("power", [0.0, 1.0, 2.0])
def test_the_slope_of_a_power_is_its_exponent(power):
    sizes = [1, 2, 4, 8, 16]
    assert slope(sizes, [3 * size**power for size in sizes]) == pytest.approx(power)


def test_only_the_larger_half_counts():
    sizes = [1, 2, 4, 8, 16, 32]
    assert slope(sizes, [5, 5, 5, 8, 16, 32]) == pytest.approx(1)
    assert slope([1], [5]) is None


def test_a_linear_cost_is_found_linear_and_launches_lower_the_exponent():
    found = fit_slopes(rows(), "K")
    assert len(found) == 2 * 3 * 2
    assert set(found.values()) == {1.0}
    assert fit_slopes(rows(launch=10.0), "K")["loss", "usd3"] < 0.1


def test_a_row_without_a_time_has_no_point():
    part = [replace(row, ms=None, graph_ms=None) if row.K > 500 else row for row in rows()]
    assert [x for x, _ in series(part, "loss", "K")["usd3"]] == [2, 8, 32, 128]
    assert [x for x, _ in series(part, "loss", "K")["floor"]] == [2, 8, 32, 128, 512, 2048]
    assert "floor" not in series(part, "loss", "K", "peak_bytes")


def test_values_grow_to_the_most():
    problem = Problem(Size(16, 256, 512))
    assert values(problem, "K", 1 << 30, 4) == [2, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144]
    assert values(problem, "B", 1 << 20, 2) == [1, 2, 4, 8]
    assert values(problem, "D", 100) == []
    grown = growing(Problem(Size(2, 2, 2)), 64, 2)
    assert [str(p.size) for p in grown["D"]] == ["2,1,2", "2,2,2", "2,4,2", "2,8,2", "2,16,2"]
    with pytest.raises(ValueError, match="most = 8: expected room to grow K from the size 2,2,2"):
        growing(Problem(Size(2, 2, 2)), 8)


@pytest.mark.parametrize("kinds", [("loss",), ("loss", "step")])
def test_time_is_drawn(kinds, tmp_path):
    time_plot(rows(kinds=kinds), tmp_path / "time.png")
    with Image.open(tmp_path / "time.png") as picture:
        assert picture.width == 960 * len(kinds)
        assert len(picture.convert("RGB").getcolors(1 << 20)) > 20


def test_memory_is_drawn_where_it_is_known(tmp_path):
    assert not memory_plot(rows(), tmp_path / "memory.png")
    assert not (tmp_path / "memory.png").exists()
    assert memory_plot(rows(peak=1.0), tmp_path / "memory.png")
    with Image.open(tmp_path / "memory.png") as picture:
        assert picture.width == 1920
