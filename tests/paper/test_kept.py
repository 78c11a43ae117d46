"""Results that are kept are looked at again: intervals over trainings, and pictures."""

import importlib.util
import json
import math
import statistics
from pathlib import Path

import numpy as np
import pytest

PAPER = Path(__file__).parents[2] / "paper"


@pytest.fixture(scope="module")
def kept():
    spec = importlib.util.spec_from_file_location("kept", PAPER / "studies" / "kept.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def table(folder, values):
    """A table.csv of methods whose trainings have these bits."""
    rows = [f"{label},method,{statistics.mean(bits)},{statistics.stdev(bits)},," for label, bits in values.items()] + [
        "Markov chain,reference,2.0,,,"
    ]
    head = "label,kind,bits_per_element_mean,bits_per_element_std,on_beat_mean,on_beat_std"
    (folder / "table.csv").write_text("\n".join([head, *rows]) + "\n")
    return folder / "table.csv"


def test_an_interval_is_welchs_with_few_degrees_of_freedom(kept, tmp_path, capsys):
    file = table(tmp_path, {"a": [1.0, 1.1, 1.3], "b": [0.9, 0.8, 0.85]})
    assert kept.main(["intervals", str(file), "--pairs", "a,b"]) == 0
    error = math.sqrt(statistics.variance([1.0, 1.1, 1.3]) / 3 + statistics.variance([0.9, 0.8, 0.85]) / 3)
    difference = 3.4 / 3 - 0.85
    low, high = difference - 4.303 * error, difference + 4.303 * error
    assert capsys.readouterr().out == f"a - b  bits_per_element  {difference:+.3f} [{low:+.3f}, {high:+.3f}]\n"


def test_intervals_contain_the_true_difference_at_least_as_often_as_they_say(kept):
    """1,000 pairs of three trainings each: 95 % of 1,000 has a standard deviation of 7, and more is no fault."""
    random, found = np.random.default_rng(0), 0
    for _ in range(1000):
        rows = []
        for mean, spread in ((1.0, 0.1), (2.0, 0.3)):
            bits = random.normal(mean, spread, 3)
            rows.append(kept.Row("", {"bits_per_element": kept.Summary(float(bits.mean()), float(bits.std(ddof=1)))}))
        _, low, high = kept.interval(*rows, "bits_per_element", 3)
        found += low <= -1.0 <= high
    assert found >= 950 - 3 * 7


def test_a_pair_of_unknown_methods_is_refused(kept, tmp_path, capsys):
    file = table(tmp_path, {"a": [1.0, 1.1], "b": [0.9, 0.8]})
    assert kept.main(["intervals", str(file), "--pairs", "a,c"]) == 1
    assert "pairs = a,c: expected two of a, b, with a comma between" in capsys.readouterr().err


@pytest.mark.parametrize("study", ["music/results.json", "bach/table.csv"])
def test_a_picture_of_kept_results_is_drawn(kept, tmp_path, study):
    metrics = ["--metrics", "3g_hellinger", "bits_per_element", "--discrete", "d3pm", "rdm"]
    assert kept.main(["draw", str(PAPER / "studies" / study), str(tmp_path / "new.png"), *metrics]) == 0
    assert (tmp_path / "new.png").read_bytes().startswith(b"\x89PNG")


def test_both_forms_of_results_are_read(kept):
    methods, references = kept.read(PAPER / "studies/music/results.json")
    results = json.loads((PAPER / "studies/music/results.json").read_text())
    assert {row.label for row in methods} == results["rows"].keys()
    assert methods[0].mean("3g_hellinger") == next(iter(results["rows"].values()))["3g_hellinger"]["mean"]
    methods, references = kept.read(PAPER / "studies/bach/table.csv")
    assert [row.label for row in references] == ["Markov chain", "another held-out object", "the truth itself"]
    assert methods[0].mean("bits_per_element") == pytest.approx(1.32995332)
