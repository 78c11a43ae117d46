"""Holes are filled with values, although the model also knows cells without one."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from support.statistics import chi_square_p_value
from usd3.core.options import DiffusionConfig
from usd3.kinds.array import Array
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.filling import holes_without_value
from usd3.pipeline.pipeline import Pipeline

from .test_conditions import FALSE_ALARM, PRODUCT, D, Independent, K, Knows, counts

MISSING = 2  # in the first element


@dataclass(frozen=True)
class WithMissing(Array):
    """Objects whose first element may be missing."""

    @property
    def filling(self):
        weights = torch.ones(D, K, dtype=torch.float64)
        weights[0, MISSING] = 0.0
        return weights


def pipeline(joint, noise="absorbing"):
    config = PipelineConfig(K, [D], DiffusionConfig(noise=noise, schedule="linear"))
    made = Pipeline(config, (Knows(joint) if noise == "absorbing" else Independent(joint)).double())
    made.method.prefer("first_hitting" if noise == "absorbing" else "exact", "sampler")
    made.kind = WithMissing(K, (D,))
    return made


def joint_with(share):
    """A joint distribution whose first element is missing with this probability."""
    joint = np.random.default_rng(5).dirichlet(np.full(K**D, 0.5)).reshape((K,) * D)
    missing = joint[MISSING].sum()
    joint[MISSING] *= share / missing
    joint[:MISSING] *= (1 - share) / (1 - missing)
    return joint


def test_holes_are_drawn_given_that_they_have_a_value():
    """Where the model does not take the hole for missing: p(objects | the first element has a value)."""
    joint, n = joint_with(0.3), 4_000
    x = pipeline(joint).fill(torch.zeros(n, D, dtype=torch.long), torch.zeros(n, D, dtype=torch.bool), seed=1)
    law = joint.copy()
    law[MISSING] = 0
    assert chi_square_p_value(counts(x), n * (law / law.sum()).flatten()) > FALSE_ALARM


def test_a_hole_that_is_missing_in_the_data_counts_as_missing_until_it_is_filled_last():
    joint, n = joint_with(0.9), 4_000
    x = pipeline(joint).fill(torch.zeros(n, D, dtype=torch.long), torch.zeros(n, D, dtype=torch.bool), seed=1)
    others = joint[MISSING] / joint[MISSING].sum()
    law = np.zeros_like(joint)
    law[:MISSING] = joint[:MISSING] / joint[:MISSING].sum(0) * others
    assert chi_square_p_value(counts(x), n * law.flatten()) > FALSE_ALARM


def test_known_elements_stay_and_each_object_has_its_own_holes():
    tokens = torch.tensor([[2, 0, 1], [0, 1, 2], [1, 1, 1]]).repeat(50, 1)
    given = torch.tensor([[True, True, False], [False, True, True], [True, True, True]]).repeat(50, 1)
    x = pipeline(joint_with(0.9)).fill(tokens, given)
    assert torch.equal(x[given], tokens[given])
    assert (x[1::3, 0] != MISSING).all()
    assert torch.equal(x, pipeline(joint_with(0.9)).fill(tokens, given))


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_other_noise_never_fills_with_a_missing_value_either(share):
    x = pipeline(PRODUCT if share < 0.5 else joint_with(share), "uniform").fill(
        torch.zeros(200, D, dtype=torch.long), torch.zeros(200, D, dtype=torch.bool), num_steps=3
    )
    assert (x[:, 0] != MISSING).all()


def test_holes_without_value_are_those_that_the_model_takes_for_missing():
    joint = joint_with(0.9)
    tokens, given = torch.tensor([[0, 0, 0], [1, 0, 0]]), torch.tensor([[False] * 3, [True, False, False]])
    found, assumed = holes_without_value(pipeline(joint), tokens, given)
    assert found.tolist() == [[True, False, False], [False, False, False]]
    assert assumed.tolist() == [[MISSING, 0, 0], [1, 0, 0]]
