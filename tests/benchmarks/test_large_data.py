"""Training on a file takes little more memory than the program itself: quick forms of benchmarks/large_data.py."""

import importlib
import os
import sys
from contextlib import nullcontext

import pytest

from support.places import ROOT


@pytest.fixture
def large_data(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    yield importlib.import_module("large_data")
    for name in ("large_data", "shared"):
        sys.modules.pop(name, None)


def test_an_array_of_a_gigabyte_takes_a_part_of_it(large_data, tmp_path):
    """The program itself takes 0.3 GB, numbers of rows at most 0.3; the array in memory would be 1.2 GB more."""
    row = large_data.measured(large_data.sparse_array(tmp_path, 1.2), 2, tmp_path)
    assert row["disk_gb"] < 0.1
    assert 0.1 < row["anonymous_gb"] < 0.8
    assert row["mapped_gb"] > 1.2  # its values were checked


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sparse_text", "real_text"])
def test_a_text_takes_a_part_of_its_size(large_data, tmp_path, kind):
    row = large_data.measured(getattr(large_data, kind)(tmp_path, 1.2), 2, tmp_path)
    assert 0.1 < row["anonymous_gb"] < 0.6


@pytest.mark.parametrize("status", [0, 3])
def test_a_child_that_prints_much_comes_to_its_end(large_data, status):
    """A pipe holds 64 kB."""
    command = [sys.executable, "-c", f"print('x' * 10**6 + 'end'); raise SystemExit({status})"]
    expected = pytest.raises(RuntimeError, match="xend") if status else nullcontext()
    with expected, large_data._started(command, dict(os.environ)) as child:
        assert large_data._most_memory(child)[0] > 0


def test_the_table_is_printed_and_written(large_data, tmp_path, monkeypatch, capsys):
    """With the trainings left out."""
    sizes = []

    def measured(case, steps, folder):
        sizes.append((case.name, case.path.stat().st_size))
        return {"data": case.name, "anonymous_gb": 0.5}

    monkeypatch.setattr(large_data, "measured", measured)
    options = [str(tmp_path / "files"), "--gigabytes", "0.1", "--real", "0.001", "--csv", str(tmp_path / "rows.csv")]
    assert large_data.main(options) == 0
    assert large_data.main([*options, "--limit", "0.4"]) == 1
    assert [round(size / 1e6) for _, size in sizes[:4]] == [1, 100, 100, 2]
    assert list((tmp_path / "files").iterdir()) == []
    assert "text, bytes" in capsys.readouterr().out
    assert "anonymous_gb" in (tmp_path / "rows.csv").read_text()
