"""Differences of methods, on values whose order is known."""

import csv
import io
import math
from dataclasses import replace

import numpy as np
import pytest

from usd3.evaluation.comparison import Row, marks
from usd3.evaluation.differences import Intervals, differences_csv, paired
from usd3.evaluation.per_object import PerObject
from usd3.metrics.summary import Summary

N = 60
GROUPS = np.arange(N) // 3


def row(label: str, mean: float, trainings: int = 1, spread: float = 0.05, metric: str = "3g_hellinger") -> Row:
    """A method whose values differ from a common value of each object by `mean` and noise."""
    noise = np.random.default_rng(list(map(ord, label))).normal(0, spread, (trainings, N))
    values = np.random.default_rng(0).random(N) + mean + noise
    summary = Summary(float(values.mean()), 0.0)
    return Row(label, {metric: summary}, per_object=PerObject({metric: values}, GROUPS))


def test_of_three_methods_the_two_that_are_as_good_are_marked():
    rows = [row("good", 0.0, 3), row("as-good", 0.0, 3), row("bad", 0.1, 3)]
    pairs = paired(rows)
    intervals = Intervals.of(rows, pairs)
    assert intervals == Intervals(
        {"3g_hellinger": {"good": [], "as-good": [], "bad": ["good", "as-good"]}}, N, N // 3, "all"
    )
    assert marks(rows, "3g_hellinger", intervals.worse) == [1, 1, 0]


def test_bits_weigh_elements_also_where_the_first_method_has_no_bound():
    distances = {"3g_hellinger": [0.1, 0.2, 0.3]}
    stored = {
        "without": distances,
        "a": distances | {"nats": [1.0, 3.0, 10.0], "elements": [1, 2, 9]},
        "b": distances | {"nats": [2.0, 3.0, 8.0], "elements": [1, 2, 9]},
    }
    bits = {"bits_per_element": Summary(0.5, 0.0)}
    rows = [Row(label, bits, per_object=PerObject.of({"per_object": found})) for label, found in stored.items()]
    difference = paired(rows)["bits_per_element"]["a", "b"]
    assert difference.mean == pytest.approx(1 / 12 / math.log(2))  # 1 nat of 12 elements


def test_more_is_better_for_some_metrics():
    rows = [row("a", 0.0, metric="recall"), row("b", 0.2, metric="recall")]
    intervals = Intervals.of(rows, paired(rows))
    assert intervals.worse == {"recall": {"a": ["b"], "b": []}}
    assert intervals.over_trainings == "none"


def test_the_note_is_true_where_one_method_alone_has_several_trainings():
    rows = [row("a", 0.0, 3), row("b", 0.2)]
    note = Intervals.of(rows, paired(rows)).note()
    assert note.endswith("resampled are 20 groups of the 60 objects, not trainings, though another may differ by more)")


def test_all_pairs_are_in_the_file_with_their_numbers():
    rows = [row("a", 0.0, 2), row("b", 0.1, 3), row("c", 0.1)]
    table = list(csv.DictReader(io.StringIO(differences_csv(paired(rows), rows))))
    assert [(line["first"], line["second"]) for line in table] == [("a", "b"), ("a", "c"), ("b", "c")]
    first = table[0]
    assert float(first["difference"]) == pytest.approx(rows[0].mean("3g_hellinger") - rows[1].mean("3g_hellinger"))
    assert float(first["first_mean"]) - float(first["second_mean"]) == pytest.approx(float(first["difference"]))
    assert float(first["low"]) < -0.1 < float(first["high"]) < 0
    assert float(first["other_side"]) < 0.05
    counts = ("first_trainings", "second_trainings", "over_trainings", "objects", "groups")
    assert [[line[name] for name in counts] for line in table] == [
        ["2", "3", "1", "60", "20"],
        ["2", "1", "0", "60", "20"],
        ["3", "1", "0", "60", "20"],
    ]
    assert Intervals.of(rows, paired(rows)).over_trainings == "some"


def test_metrics_without_a_direction_are_compared_and_not_marked():
    rows = [row("a", 0.0, metric="edit_diversity"), row("b", 0.2, metric="edit_diversity")]
    pairs = paired(rows)
    assert pairs["edit_diversity"]["a", "b"].is_clear
    assert Intervals.of(rows, pairs) == Intervals()


def test_where_a_method_has_means_alone_the_marks_are_those_of_the_means():
    older = replace(row("older", 0.3), per_object=None)
    rows = [row("a", 0.0), row("b", 0.1), older]
    pairs = paired(rows)
    assert list(pairs["3g_hellinger"]) == [("a", "b")]
    assert Intervals.of(rows, pairs).worse == {}
    unmeasured = Row("failed", {"3g_hellinger": Summary(float("nan"), 0.0)})
    assert Intervals.of([*rows[:2], unmeasured], pairs).worse == {"3g_hellinger": {"a": [], "b": ["a"]}}


def test_methods_with_other_objects_are_not_compared():
    other = row("b", 0.1)
    other = replace(other, per_object=PerObject(other.per_object.values, GROUPS + 1))
    assert paired([row("a", 0.0), other]) == {}
    assert paired([row("a", 0.0)]) == {}
    assert paired([]) == {}


def test_bits_weigh_each_element_the_same():
    elements = np.where(np.arange(N) < N // 2, 1.0, 9.0)
    rows = []
    for label, bits in (("a", [1.0, 3.0]), ("b", [2.0, 2.0])):
        values = np.where(elements == 1, *bits)[None]
        rows.append(
            Row(label, {}, per_object=PerObject({"bits_per_element": values}, GROUPS, {"bits_per_element": elements}))
        )
    assert paired(rows)["bits_per_element"]["a", "b"].mean == pytest.approx(0.9 * 1 - 0.1 * 1)


def test_objects_of_one_group_have_no_interval_and_no_mark():
    rows = [row("a", 0.0), row("b", 0.3)]
    rows = [replace(one, per_object=PerObject(one.per_object.values, np.zeros(N, dtype=int))) for one in rows]
    pairs = paired(rows)
    assert Intervals.of(rows, pairs) == Intervals()
    (line,) = csv.DictReader(io.StringIO(differences_csv(pairs, rows)))
    assert (line["low"], line["high"], line["other_side"]) == ("", "", "")
