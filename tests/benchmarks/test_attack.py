"""The script that attacks the program: it finds nothing in a short time, and would notice."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.places import ROOT


def attack(folder: Path, *options: str) -> tuple[int, list[dict[str, str]], str]:
    """Its status, the rows of its table, and what it printed; in a process of its own, as it forks."""
    file = folder / "attack.csv"
    command = [sys.executable, str(ROOT / "benchmarks" / "attack.py"), "--show", "--csv", str(file), *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, env=dict(os.environ))
    assert file.is_file(), done.stderr
    with file.open() as lines:
        return done.returncode, list(csv.DictReader(lines)), done.stdout


@pytest.mark.parametrize(
    "families",
    [
        ["damaged files", "strangers", "logits"],  # trainings are killed in training/test_run.py, too
        pytest.param(["kills"], marks=pytest.mark.slow),
    ],
    ids="-".join,
)
def test_a_short_attack_finds_nothing(tmp_path, families):
    status, rows, told = attack(tmp_path, "--quick", "--families", *families)
    assert status == 0, told
    assert {row["family"] for row in rows} == set(families)
    assert all(int(row["tried"]) > 0 and row["failed"] == "0" for row in rows)
    assert all(row["seed"] == "0" and row["machine"] and row["torch"] for row in rows)
    assert [path.name for path in tmp_path.iterdir()] == ["attack.csv"]


def test_what_is_known_to_fail_is_counted(tmp_path):
    status, rows, told = attack(tmp_path, "--plant")
    assert [row["family"] for row in rows] == ["kills", "damaged files", "strangers", "logits"]
    assert all(row["tried"] == row["failed"] and int(row["tried"]) >= 2 for row in rows)
    assert told.count("  planted: ") == status == sum(int(row["tried"]) for row in rows)


def test_the_page_has_the_counts_of_the_full_attack():
    page = (ROOT / "docs" / "reliability.md").read_text()
    with (ROOT / "benchmarks" / "results" / "attack.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    for row in rows:
        assert f"| {row['attack']} | {int(row['tried']):,} | {int(row['failed']):,} |" in page
    for name in ("seed", "machine", "python", "torch"):
        assert rows[0][name] in page
