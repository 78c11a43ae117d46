"""The script that attacks the studio: it finds nothing in a short time, and the page has what the long one found."""

import csv
import os
import subprocess
import sys

import pytest

from support.places import ROOT

RESULTS = ROOT / "benchmarks" / "results" / "studio.csv"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the memory of a process from /proc")
def test_a_short_attack_finds_nothing(tmp_path):
    file = tmp_path / "studio.csv"
    command = [sys.executable, str(ROOT / "benchmarks" / "studio.py"), "--quick", "--csv", str(file)]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    with file.open() as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == 15
    assert {row["verdict"] for row in rows} == {"PASS"}
    assert all(row["machine"] and row["torch"] for row in rows)


def test_the_page_has_the_table_of_the_whole_attack():
    page = (ROOT / "docs" / "reliability.md").read_text().partition("## The studio")[2]
    with RESULTS.open() as lines:
        rows = list(csv.DictReader(lines))
    for row in rows:
        cells = [row[name] for name in ("sent", "came back", "verdict", "MiB before", "MiB after")]
        assert f"| {' | '.join(cells)} |" in page
    for name in ("machine", "python", "torch"):
        assert rows[0][name] in page
