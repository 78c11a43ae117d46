"""Ranking, on numbers whose order is known, and reading of results."""

import math
from dataclasses import replace

import pytest

from support.results import evaluation_results, method_rows
from usd3.evaluation.comparison import combined, marks, read_references, read_row, require_comparable, trainings_note
from usd3.evaluation.tables import text_table
from usd3.kinds.options import DataConfig
from usd3.metrics.summary import Summary

NAN = math.nan


@pytest.mark.parametrize(
    ("means", "expected"),
    [
        ((0.3, 0.1, 0.2, 0.4), [0, 1, 2, 0]),
        ((0.1004, 0.0996, 0.2, 0.2001, 0.3), [1, 1, 2, 2, 0]),  # equal as printed
        ((0.1004, 0.1006, 0.2), [1, 2, 0]),
        ((NAN, 0.2, 0.1, math.inf), [0, 0, 1, 0]),
        ((0.1, 0.1, 0.1), [0, 0, 0]),  # none is better
        ((0.1, 0.1, 0.2), [1, 1, 2]),
        ((0.1, NAN), [0, 0]),
        ((NAN, NAN), [0, 0]),
        ((0.1,), [0]),
    ],
)
def test_the_best_two(means, expected):
    assert marks(method_rows(*means), "1g_hellinger") == expected


def test_with_intervals_the_best_and_all_that_are_not_shown_to_be_worse_are_marked():
    worse = {"1g_hellinger": {"m0": ["m1"], "m1": [], "m2": ["m0"], "m3": []}}
    assert marks(method_rows(0.3, 0.1, 0.2), "1g_hellinger", worse) == [0, 1, 1]
    assert marks(method_rows(0.1, 0.1, NAN), "1g_hellinger", worse) == [1, 1, 0]
    assert marks(method_rows(0.3, NAN, 0.2), "1g_hellinger", worse) == [1, 0, 1]  # m1 has no value to be worse than
    assert marks(method_rows(0.3, NAN), "1g_hellinger", worse) == [0, 0]
    higher = {"recall": {"m0": ["m1"], "m1": [], "m2": ["m1"]}}
    assert marks(method_rows(0.1, 0.3, 0.2, metric="recall"), "recall", higher) == [0, 1, 0]
    assert marks(method_rows(0.3, 0.1, 0.2), "1g_hellinger", higher) == [0, 1, 2]


def test_only_clear_directions_are_ranked():
    assert marks(method_rows(0.1, 0.2, metric="bits_per_element"), "bits_per_element") == [1, 0]
    assert marks(method_rows(0.1, 0.2, metric="edit_diversity"), "edit_diversity") == [0, 0]
    assert marks(method_rows(0.1, 0.2), "2g_hellinger") == [0, 0]  # nobody has it
    assert marks(method_rows(0.1, 0.3, 0.2, metric="recall"), "recall") == [0, 1, 2]
    assert marks(method_rows(3, 1, 2, metric="fid"), "fid") == [0, 1, 2]


def test_the_trainings_of_a_method_are_joined_with_the_values_of_their_objects():
    values = [{"1g_hellinger": [0.1, 0.2], "group": [5, 5]}, {"1g_hellinger": [0.3, 0.4], "group": [5, 5]}]
    rows = [read_row("a", evaluation_results() | {"per_object": one}) for one in values]
    joined = combined(rows)
    assert joined.per_object.values["1g_hellinger"].tolist() == [[0.1, 0.2], [0.3, 0.4]]
    assert combined([rows[0], read_row("a", evaluation_results())]).per_object is None  # an older training


def test_the_number_of_trainings_is_told_where_there_are_several():
    assert trainings_note({"a": 1, "b": 1}) == ""
    assert trainings_note({"a": 3, "b": 1}) == "; trainings: a 3, b 1; ± is over these where there are several"


def test_results_are_read_with_what_they_cost():
    row = read_row("mine", evaluation_results())
    assert row.metrics["3g_outliers"] == Summary(0.5, 0.25)
    assert math.isnan(row.mean("bits_per_element"))
    expected = {"parameters": 1234, "steps": 604, "minutes": 2, "ms_per_step": 200, "sampling_steps": 100}
    assert row.costs == pytest.approx(expected | {"seconds_per_object": 0.5})
    (chain,) = read_references(evaluation_results())
    assert (chain.label, chain.mean("bits_per_element")) == ("Markov chain", 2.5)
    assert math.isnan(chain.mean("edit_diversity"))


def test_costs_that_are_not_known_are_left_open():
    old = evaluation_results() | {"sampling_seconds": None, "trained": {"parameters": 5, "steps": 2, "minutes": None}}
    row = read_row("old", old)
    assert all(math.isnan(row.costs[key]) for key in ("minutes", "ms_per_step", "seconds_per_object"))
    last = text_table([row]).splitlines()[-1]
    assert last.split() == ["old", "5", "2", "-", "-", "100", "-"]


def test_runs_with_other_data_are_refused():
    data = DataConfig(source="array", path="/a.npz")
    same = replace(data, transpose=3, scramble=1)
    require_comparable({"a": (data, 8), "b": (same, 8)})
    other = {"path": "/b.npz", "seed": 1, "test_fraction": 0.2, "length": 9}
    for name, value in other.items():
        message = rf"data\.{name} of b = {value}: expected {getattr(data, name)}, as a has"
        with pytest.raises(ValueError, match=message):
            require_comparable({"a": (data, 8), "b": (replace(data, **{name: value}), 8)})
    with pytest.raises(ValueError, match="prefix of c = 4: expected 8, as a has"):
        require_comparable({"a": (data, 8), "b": (data, 8), "c": (data, 4)})
