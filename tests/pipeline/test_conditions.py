"""Objects under conditions against enumeration: the law is p(object) times the weights, normalised."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from support.statistics import chi_square_p_value
from usd3.core.options import DiffusionConfig
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.pipeline import Pipeline

K, D = 3, 3
FALSE_ALARM = 1e-6
JOINT = np.random.default_rng(2).dirichlet(np.full(K**D, 0.3)).reshape((K,) * D)
PRODUCT = np.einsum("a,b,c->abc", *np.random.default_rng(4).dirichlet(np.ones(K), size=D))
WEIGHTS = torch.tensor([[1.0, 0.5, 0.0], [1.0, 1.0, 1.0], [0.0, 0.25, 1.0]], dtype=torch.float64)
OBJECTS = list(itertools.product(range(K), repeat=D))


class Knows(nn.Module):
    """Exact p(x_0 | x_t) of a known distribution: of the unmasked elements, or, for a product, of nothing."""

    ignores_time = True

    def __init__(self, w):
        super().__init__()
        self.w, self.anchor = torch.from_numpy(w), nn.Parameter(torch.zeros(()))

    def forward(self, x_t, t):
        rows = []
        for x in x_t.tolist():
            w = self.w
            for d, z in enumerate(x):
                if z < K:
                    w = w * (torch.arange(K) == z).reshape([-1 if e == d else 1 for e in range(D)])
            rows.append(torch.stack([w.sum([e for e in range(D) if e != d]) for d in range(D)]))
        probs = torch.stack(rows)
        return torch.nn.functional.pad((probs / probs.sum(-1, keepdim=True).clamp(min=1e-300)).log(), (0, 1))


class Independent(nn.Module):
    """Exact p(x_0 | x_t) of a product of distributions under uniform noise, (1 - t) / K + t."""

    def __init__(self, w):
        super().__init__()
        self.m = torch.stack([torch.from_numpy(w).sum([e for e in range(D) if e != d]) for d in range(D)])
        self.anchor = nn.Parameter(torch.zeros(()))

    def forward(self, x_t, t):
        kept = (1 - t.double())[:, None, None]
        likelihood = kept * torch.nn.functional.one_hot(x_t, K) + (1 - kept) / K
        return (self.m * likelihood).log()


def pipeline(noise):
    config = PipelineConfig(K, [D], DiffusionConfig(noise=noise, schedule="linear"))
    model = Knows(JOINT) if noise == "absorbing" else Independent(PRODUCT)
    made = Pipeline(config, model.double())
    made.method.prefer("first_hitting" if noise == "absorbing" else "exact", "sampler")
    return made


def wanted(w, weights, known=None):
    """p(object | condition), flat."""
    law = w.copy()
    for d in range(D):
        law = law * weights[d].numpy().reshape([-1 if e == d else 1 for e in range(D)])
    for d, z in (known or {}).items():
        law = law * (np.arange(K) == z).reshape([-1 if e == d else 1 for e in range(D)])
    return (law / law.sum()).flatten()


def counts(x):
    return torch.bincount((x * torch.tensor([9, 3, 1])).sum(1), minlength=K**D)


@pytest.mark.parametrize("noise", ["absorbing", "uniform"])
@pytest.mark.parametrize("known", [{}, {1: 2}])
def test_the_law_is_that_of_the_objects_that_fulfil_the_condition(noise, known):
    """Two elements in sequence with rejection, or whole objects with rejection; weights between 0 and 1 count."""
    n, w = 4_000, JOINT if noise == "absorbing" else PRODUCT
    tokens = torch.tensor([[known.get(d, 0) for d in range(D)]]).expand(n, D)
    given = torch.tensor([d in known for d in range(D)])
    x = pipeline(noise).sample(n, num_steps=3, tokens=tokens, given=given, where=WEIGHTS, seed=3)
    assert chi_square_p_value(counts(x), n * wanted(w, WEIGHTS, known)) > FALSE_ALARM


@pytest.mark.parametrize("noise", ["absorbing", "uniform"])
def test_objects_with_prompts_of_their_own_have_laws_of_their_own(noise):
    n, w = 3_000, JOINT if noise == "absorbing" else PRODUCT
    tokens = torch.tensor([[0, 0, 0], [0, 2, 0]]).repeat(n, 1)
    given = torch.tensor([False, True, False])
    x = pipeline(noise).sample(tokens=tokens, given=given, num_steps=3, where=WEIGHTS, seed=1)
    assert torch.equal(x[:, 1], tokens[:, 1])
    for first, known in ((0, {1: 0}), (1, {1: 2})):
        assert chi_square_p_value(counts(x[first::2]), n * wanted(w, WEIGHTS, known)) > FALSE_ALARM


@pytest.mark.parametrize("noise", ["absorbing", "uniform"])
def test_a_condition_of_each_object_is_its_own(noise):
    n = 200
    first, second = torch.ones(D, K), torch.ones(D, K)
    first[0], second[0] = torch.tensor([1.0, 1.0, 0.0]), torch.tensor([0.0, 0.0, 1.0])
    x = pipeline(noise).sample(2 * n, num_steps=3, where=torch.stack([first, second]).repeat(n, 1, 1))
    assert (x[::2, 0] < 2).all()
    assert (x[1::2, 0] == 2).all()


def test_one_allowed_category_is_given_and_costs_no_attempt():
    """Also where its weight is small: all attempts have it alike."""
    weights = torch.ones(D, K)
    weights[0] = torch.tensor([0.0, 0.0, 1e-9])
    n = 4_000
    x = pipeline("absorbing").sample(n, where=weights)
    assert chi_square_p_value(counts(x), n * wanted(JOINT, torch.ones(D, K), {0: 2})) > FALSE_ALARM


def test_the_same_seed_draws_the_same_and_another_seed_others():
    draw = lambda seed: pipeline("absorbing").sample(50, where=WEIGHTS, seed=seed)
    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))


def test_conditions_that_cannot_be_are_refused(monkeypatch):
    made = pipeline("uniform")
    with pytest.raises(ValueError, match=r"where = \(3, 2\): expected \(3, 3\), the share of each category"):
        made.sample(where=torch.ones(D, 2))
    with pytest.raises(ValueError, match="leaves each element at least one category"):
        made.sample(where=torch.zeros(D, K))
    with pytest.raises(ValueError, match="where = a=1: expected no condition, as the elements of arrays have no names"):
        made.sample(where="a=1")
    monkeypatch.setattr("usd3.pipeline.conditions._MOST_ATTEMPTS", (40, 0))
    with pytest.raises(ValueError, match=r"where: (none|one in \d+) of \d+ attempts fulfils the condition"):
        made.sample(2, num_steps=2, where=torch.full((D, K), 1e-4))


# ---- predictions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["absorbing", "uniform"])
def test_a_prediction_is_the_distribution_given_what_is_known(noise):
    w = JOINT if noise == "absorbing" else PRODUCT
    tokens, given = torch.tensor([[0, 1, 2], [2, 0, 0]]), torch.tensor([[False, True, False], [True, False, True]])
    probs = pipeline(noise).predict(tokens, given)
    for row, objects in enumerate(tokens.tolist()):
        law = wanted(w, torch.ones(D, K), {d: z for d, z in enumerate(objects) if given[row, d]}).reshape((K,) * D)
        for d in range(D):
            expected = law.sum(tuple(e for e in range(D) if e != d))
            np.testing.assert_allclose(probs[row, d], expected, atol=1e-6)


def test_predictions_are_in_the_categories_of_the_data():
    """Of a network whose categories are renamed."""
    plain = pipeline("absorbing")
    config = PipelineConfig(K, [D], DiffusionConfig(noise="absorbing", schedule="linear"), decode=[2, 0, 1])
    renamed = Pipeline(config, plain.model)  # category z of the network is decode[z] of the data
    tokens, given = torch.tensor([[0, 1, 2]]), torch.tensor([False, True, False])
    own = plain.predict(torch.tensor([[0, 2, 0]]), given)  # 1 of the data is 2 of the network
    torch.testing.assert_close(renamed.predict(tokens, given)[..., [2, 0, 1]], own)
