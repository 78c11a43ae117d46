"""The Gaussian copula: each column keeps its distribution, and pairs their correlation."""

import torch

from usd3.kinds.table.copula import GaussianCopula


def normal_table(rows):
    """Two correlated columns of 5 categories, an independent one of 3, and a constant one."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, 3, generator=generator)
    y = 0.8 * x[:, 0] + 0.6 * x[:, 1]
    edges = torch.tensor([-1.0, -0.3, 0.4, 1.2])
    columns = [torch.bucketize(x[:, 0].contiguous(), edges), torch.bucketize(y, edges)]
    columns += [torch.bucketize(x[:, 2].contiguous(), edges[1:3]), torch.full((rows,), 2)]
    return torch.stack(columns, dim=1)


def test_columns_and_pairs_are_those_of_normal_data():
    """Frequencies of 40,000 rows: one of 20 is off by 0.0125, five standard errors, once in 80,000 times."""
    rows = normal_table(40_000)
    drawn = GaussianCopula.fitted(rows, 5).draw(40_000, seed=1)
    for column in range(4):
        shares = [torch.bincount(x[:, column], minlength=5) / len(x) for x in (rows, drawn)]
        assert (shares[0] - shares[1]).abs().max() < 0.0125
    pairs = [torch.bincount(5 * x[:, 0] + x[:, 1], minlength=25) / len(x) for x in (rows, drawn)]
    assert (pairs[0] - pairs[1]).abs().sum() / 2 < 0.06  # few categories hide a part of the correlation
    apart = [torch.bincount(x[:, column], minlength=5) / len(x) for column, x in ((0, rows), (1, rows))]
    assert (pairs[0] - (apart[0][:, None] * apart[1]).flatten()).abs().sum() / 2 > 0.3


def test_a_category_that_does_not_occur_is_not_drawn():
    rows = normal_table(200)
    drawn = GaussianCopula.fitted(rows, 7).draw(5000, seed=2)
    assert (drawn[:, 3] == 2).all()
    assert drawn.max() <= rows.max()
    assert drawn.min() >= 0


def test_draws_depend_on_the_seed():
    copula = GaussianCopula.fitted(normal_table(100), 5)
    assert torch.equal(copula.draw(10, 1), copula.draw(10, 1))
    assert not torch.equal(copula.draw(10, 1), copula.draw(10, 2))
