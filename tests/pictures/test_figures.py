import numpy as np
import pytest
from matplotlib.figure import Figure

from usd3.pictures import figures


def test_runs():
    assert figures.runs(np.array([[5, 5, 7, 5]])) == [(0, 2), (2, 1), (3, 1)]
    assert figures.runs(np.array([[5, 5, 5], [1, 0, 0]])) == [(0, 1), (1, 2)]
    assert figures.runs(np.array([[5]])) == [(0, 1)]


def test_a_name_without_a_suffix_gets_a_png(tmp_path):
    figures.save(figures.new_figure(1, 1), tmp_path / "picture")
    assert (tmp_path / "picture").read_bytes().startswith(b"\x89PNG")


def test_a_failed_write_leaves_the_old_file(monkeypatch, tmp_path):
    def fail(self, file, format):
        file.write_text("half")
        raise RuntimeError("disk full")

    (tmp_path / "roll.png").write_text("old")
    monkeypatch.setattr(Figure, "savefig", fail)
    with pytest.raises(RuntimeError, match="disk full"):
        figures.save(figures.new_figure(1, 1), tmp_path / "roll.png")
    assert [p.read_text() for p in tmp_path.iterdir()] == ["old"]
