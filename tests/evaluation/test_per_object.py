"""Values of each object, as the results of an evaluation keep them."""

import math

import numpy as np
import pytest

from usd3.evaluation.per_object import PerObject

STORED = {"1g_hellinger": [0.1, 0.3], "nats": [2.0, 9.0], "elements": [2, 3], "group": [4, 4]}


def test_nats_become_bits_that_weigh_as_many_elements():
    found = PerObject.of({"per_object": STORED})
    assert found.values["1g_hellinger"].tolist() == [[0.1, 0.3]]
    weight = found.weights["bits_per_element"]
    mean = np.average(found.values["bits_per_element"][0], weights=weight)
    assert mean == pytest.approx(11 / 5 / math.log(2))
    assert found.groups.tolist() == [4, 4]
    assert list(found.weights) == ["bits_per_element"]


def test_without_groups_each_object_is_its_own():
    assert PerObject.of({"per_object": {"1g_hellinger": [0.1, 0.3, 0.2]}}).groups.tolist() == [0, 1, 2]


@pytest.mark.parametrize("results", [{}, {"per_object": {}}, {"per_object": {"1g_hellinger": [0.1, None]}}])
def test_results_without_a_value_for_each_object_have_none(results):
    assert PerObject.of(results) is None


def test_an_infinite_bound_leaves_the_other_metrics():
    found = PerObject.of({"per_object": STORED | {"nats": [2.0, None]}})
    assert set(found.values) == {"1g_hellinger"}


def test_trainings_are_joined_in_what_they_share():
    whole = PerObject.of({"per_object": STORED})
    part = PerObject.of({"per_object": {"1g_hellinger": [0.5, 0.6], "group": [4, 4]}})
    joined = PerObject.joined([whole, part])
    assert {key: values.tolist() for key, values in joined.values.items()} == {"1g_hellinger": [[0.1, 0.3], [0.5, 0.6]]}
    assert PerObject.joined([whole]).values.keys() == whole.values.keys()
    others = PerObject.of({"per_object": STORED | {"group": [4, 5]}})
    longer = PerObject.of({"per_object": STORED | {"elements": [2, 4]}})
    for unfit in (None, others, longer):
        assert PerObject.joined([whole, unfit]) is None
