"""The script that changes one operator at a time: what it changes, and whether it knows caught from survived."""

import csv
import importlib
import subprocess
import sys

import pytest

from support.places import ROOT

CODE = '''"""1 + 1 is no code."""

def both(a: int = 0, *, b: "int | None" = None) -> "list[1 + 1]":
    if a < b and not a == -b:
        raise ValueError(f"{a + 1}: expected more than {b - 1}" + "!")
    return where(a, max(a[b:], 1), x.clamp(min=2.0))

def __repr__(self):
    return 1 - 1
'''


@pytest.fixture
def mutants(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("mutants")


def test_what_is_computed_is_changed_and_texts_and_types_are_not(mutants):
    found = [(CODE[place.start : place.end], place.choices) for place in mutants.places(CODE)]
    assert found == [
        ("0", ("1",)),
        ("<", ("<=", ">=")),
        ("and", ("or",)),
        ("not ", ("",)),
        ("==", ("!=",)),
        ("-", ("",)),
        ("max", ("min",)),
        ("max(a[b:], 1), x.clamp(min=2.0)", ("x.clamp(min=2.0), max(a[b:], 1)",)),
        ("b", ("(b) + 1",)),
        ("1", ("0", "2")),
        ("min", ("max",)),
        ("2.0", ("1.0",)),
    ]
    for place in mutants.places(CODE):
        for choice in place.choices:
            compile(mutants.changed(CODE, place, choice), "changed", "exec")


def test_one_change_is_caught_and_one_survives(tmp_path):
    for folder in ("tiny/core", "tests/core"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "tiny/core/sums.py").write_text(
        "def add(a, b):\n    return a + b\n\n\ndef difference(a, b):\n    return a - b\n"
    )
    (tmp_path / "tests/core/test_sums.py").write_text(
        "from tiny.core.sums import add, difference\n\n\ndef test_add():\n    assert add(1, 2) == 3\n\n\n"
        "def test_it_fails_without_any_change():\n    assert difference(0, 0) == 1\n"
    )
    judged = tmp_path / "judged.csv"
    command = [sys.executable, str(ROOT / "benchmarks" / "mutation.py"), "--package", "tiny", "--packages", "core"]
    command += ["--tests", "tests", "--csv", "found.csv", "--judged", "judged.csv", "--jobs", "2"]

    def run(*options):
        return subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True, timeout=600)

    done = run()
    assert done.returncode == 1, done.stderr
    assert "left out, as it fails without any change: tests/core/test_sums.py::test_it_fails" in done.stdout
    assert "= 50.0%" in done.stdout
    with (tmp_path / "found.csv").open() as lines:
        rows = {row["before"]: row for row in csv.DictReader(lines)}
    caught, survived = rows["return a + b"], rows["return a - b"]
    assert (caught["after"], caught["outcome"], caught["line"]) == ("return a - b", "caught", "2")
    assert caught["test"] == "tests/core/test_sums.py::test_add"
    assert (survived["after"], survived["outcome"], survived["test"]) == ("return a + b", "survived", "")
    assert "2 changes, 2 done before" in run().stdout
    judged.write_text("file,before,after,verdict,why\ncore/sums.py,return a - b,return a + b,equivalent,planted\n")
    assert "= 100.0%" in run("--summary").stdout
