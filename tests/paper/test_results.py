"""The results of a study, from the files of its commands."""

import json
from pathlib import Path

import pytest

from support.results import evaluation_results
from usd3_paper.results import _compare

SETTINGS = {"runs": 4, "steps": 100, "prefix": 2, "seed": 0}


def write(folder: Path, name: str, value: float, per_object: bool = True) -> None:
    """What a comparison has measured of one training, with `value` for each of 12 objects in four groups."""
    results = evaluation_results() | {"data": "x", "settings": SETTINGS}
    results["rows"]["model"]["3g_hellinger"] = {"mean": value, "std": 0.01}
    if per_object:
        results["per_object"] = {
            "3g_hellinger": [value + i % 5 / 1e6 for i in range(12)],
            "group": [i // 3 for i in range(12)],
        }
    (folder / name).mkdir()
    (folder / name / "comparison.json").write_text(json.dumps(results))


def comparison(folder: Path, **about: object) -> None:
    methods = dict.fromkeys(("a", "a-2", "b", "b-2"), "usd3")
    (folder / "comparison.json").write_text(json.dumps({"methods": methods, **about}))


TRAININGS = {"a": ["a", "a-2"], "b": ["b", "b-2"]}


def test_trainings_of_a_method_are_one_row_with_marks_by_intervals(tmp_path):
    comparison(tmp_path, trainings=TRAININGS)
    for name, value in (("a", 0.50), ("a-2", 0.52), ("b", 0.90), ("b-2", 0.92)):
        write(tmp_path, name, value)
    found = _compare(tmp_path)
    assert found["recipes"] == {"a": "usd3", "b": "usd3"}
    assert found["rows"]["a"]["3g_hellinger"] == {"mean": pytest.approx(0.51), "std": pytest.approx(0.01 * 2**0.5)}
    assert found["about"].endswith("; trainings: a 2, b 2; ± is over these where there are several")
    assert found["intervals"] == {
        "worse": {"3g_hellinger": {"a": [], "b": ["a"]}},
        "objects": 12,
        "groups": 4,
        "over_trainings": "all",
    }
    json.dumps(found)


def test_a_training_that_failed_is_left_out(tmp_path):
    comparison(tmp_path, trainings=TRAININGS)
    write(tmp_path, "a-2", 0.52)
    found = _compare(tmp_path)
    assert list(found["rows"]) == ["a"]
    assert "trainings" not in found["about"]


def test_a_comparison_of_an_older_version_has_a_row_for_each_training_and_no_intervals(tmp_path):
    comparison(tmp_path)
    for name, value in (("a", 0.50), ("a-2", 0.52), ("b", 0.90)):
        write(tmp_path, name, value, per_object=False)
    found = _compare(tmp_path)
    assert list(found["rows"]) == ["a", "a-2", "b"]
    assert "intervals" not in found
