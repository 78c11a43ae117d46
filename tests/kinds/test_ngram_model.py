"""n-gram models: probabilities that sum to 1, by the formula, and draws that follow them."""

import itertools
import math

import numpy as np
import pytest
import torch

from usd3.kinds.ngram_model import NgramModel

K = 3
DATA = torch.randint(K, (4, 30), generator=torch.Generator().manual_seed(0))


def by_formula(order, history, token):
    """Witten-Bell by counting in Python."""
    p = 1 / K
    for m in range(min(order, len(history)) + 1):
        context = tuple(history[len(history) - m :])
        after = [row[i + m] for row in DATA.tolist() for i in range(len(row) - m) if tuple(row[i : i + m]) == context]
        if after:
            kinds = len(set(after))
            p = (after.count(token) + kinds * p) / (len(after) + kinds)
    return p


@pytest.mark.parametrize("order", [0, 1, 3])
def test_probabilities_are_those_of_the_formula(order):
    model = NgramModel(order, K).fit(DATA)
    row = [0, 2, 1, 1, 0, 2, 2]
    found = model.log_prob(torch.tensor([row]))[0].exp().tolist()
    assert found == pytest.approx([by_formula(order, row[:i], token) for i, token in enumerate(row)])


@pytest.mark.parametrize("order", [1, 3])
def test_probabilities_sum_to_one(order):
    rows = torch.tensor(list(itertools.product(range(K), repeat=4)))
    assert float(NgramModel(order, K).fit(DATA).log_prob(rows).sum(1).exp().sum()) == pytest.approx(1)


@pytest.mark.parametrize("order", [0, 2])
def test_draws_follow_the_probabilities(order):
    """Chi-square over all rows of 4 after a prefix of 1, alarmed above 4 standard deviations (1 in 10,000)."""
    model, num = NgramModel(order, K).fit(DATA), 20_000
    prefix = torch.full((num, 1), 2)
    drawn = model.extend(prefix, 4, torch.Generator().manual_seed(1))
    assert (drawn[:, 0] == 2).all()
    rows = torch.tensor([[2, *rest] for rest in itertools.product(range(K), repeat=3)])
    expected = num * model.log_prob(rows)[:, 1:].sum(1).exp().numpy()
    found = np.bincount((drawn[:, 1] * 9 + drawn[:, 2] * 3 + drawn[:, 3]).numpy(), minlength=27)
    chi_square = ((found - expected) ** 2 / expected).sum()
    assert (chi_square - 26) / math.sqrt(2 * 26) < 4


def test_a_long_context_helps_where_the_data_have_one():
    rows = torch.arange(400).reshape(1, -1) % 7
    rows = torch.cat([rows, rows // 2 % 7], 1)
    first, third = (-NgramModel(order, 7).fit(rows).log_prob(rows).mean() for order in (1, 3))
    assert third < first


def test_nothing_given_draws_from_the_frequencies():
    model = NgramModel(2, K).fit(torch.zeros(1, 1000, dtype=torch.long))
    assert model.extend(torch.zeros(200, 0, dtype=torch.long), 5).float().mean() < 0.1


def test_orders_that_no_number_holds_are_refused():
    assert NgramModel.is_possible(5, 256)
    with pytest.raises(ValueError, match="order = 5: expected less for 50257 categories"):
        NgramModel(5, 50257)
