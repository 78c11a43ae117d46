"""What the benchmark scripts share: their CSV files."""

import csv
import importlib
import sys

import pytest
import torch

from support.places import ROOT
from usd3.bench import Bench, Budget, Job, Problem, Size, floor


@pytest.fixture
def shared(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    monkeypatch.setitem(floor._COPIED, "cpu", 1 << 16)
    monkeypatch.setattr("usd3.bench.problem._MOST_SETS", 2)
    yield importlib.import_module("shared")
    sys.modules.pop("shared")


def test_the_table_of_a_gpu_has_the_anchors_of_known_sizes(shared, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(shared, "STEP_SIZES", ("2,3,5",))
    monkeypatch.setattr(shared, "STEP", {5: shared.Anchor(authors=1.5, target=0.25)})
    file, bench = tmp_path / "step.csv", Bench("cpu", Budget(2, 0.02))
    jobs = [Job("step", Problem(Size(2, 3, 5))), Job("step", Problem(Size(2, 3, 5), noise="absorbing"))]
    for device, columns in (("cuda", {"authors_ms", "target_ms"}), ("cpu", set())):
        given = shared.Options(torch.device(device), (), file, bench)
        assert len(shared.measure_table(given, "sampling", jobs)) == 6
        assert f"wrote {file}" in capsys.readouterr().out
        with open(file, newline="") as lines:
            rows = list(csv.DictReader(lines))
        assert {name for name in rows[0] if name in ("authors_ms", "target_ms")} == columns
        for row in rows if columns else ():
            expected = ("1.5", "0.25") if row["noise"] == "uniform" else ("", "")
            assert (row["authors_ms"], row["target_ms"]) == expected


def test_rows_are_written_with_their_keys_as_columns(shared, tmp_path):
    shared.write_rows(tmp_path / "new" / "rows.csv", [{"a": 1, "b": None}, {"a": 0.5, "b": "x, y"}])
    assert (tmp_path / "new" / "rows.csv").read_bytes() == b'a,b\n1,\n0.5,"x, y"\n'
