"""The chunked losses: what is particular to their sums and buffers."""

import pytest
import torch

import usd3
from support.problems import LargestTensor
from usd3.kernels import chunked_common, chunked_loss
from usd3.kernels.loss import NoiseTables, Problem, loss_rows


def terms(impl, noise, logits, x_t, x_0, t, s=None):
    found = usd3.Diffusion(noise, usd3.Cosine(), impl=impl).loss_terms(logits, x_t, x_0, t, s)
    return torch.stack([found.vlb.double(), found.ce.double()])


@pytest.mark.parametrize("s", [None, 0.2])
def test_the_mask_may_be_the_first_category(s):
    noise, x_0 = usd3.Absorbing(4, mask=0), torch.tensor([[1, 2, 3]])
    logits = torch.randn(1, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    eager, chunked = (terms(impl, noise, logits, torch.zeros_like(x_0), x_0, 0.6, s) for impl in ("eager", "chunked"))
    torch.testing.assert_close(chunked, eager, rtol=1e-12, atol=0)


def test_products_of_many_categories_do_not_overflow(monkeypatch):
    """Logarithms are added as that of a product. All of 512 factors are 3 here: 128 of them are too much for float32.

    With equal logits a factor is 1 + f alpha_bar / ((1 - alpha_bar) m), and alpha_bar is 2/3. A product that overflows
    would be noticed and the row computed again in float64, slowly: that must not be needed.
    """
    monkeypatch.delattr(chunked_loss, "_others_in_float64")
    t = float(usd3.Cosine().time(torch.tensor(2 / 3, dtype=torch.float64)))
    x_0, x_t, logits = torch.tensor([[0, 1]]), torch.tensor([[5, 6]]), torch.zeros(1, 2, 512)
    eager = terms("eager", usd3.Uniform(512), logits.double(), x_t, x_0, t)
    torch.testing.assert_close(terms("chunked", usd3.Uniform(512), logits, x_t, x_0, t), eager, rtol=1e-5, atol=0)


@pytest.mark.parametrize("free", [None, torch.arange(64) % 2 == 0], ids=["all free", "half free"])
def test_many_rows_need_no_more_memory_than_a_chunk(free, monkeypatch):
    """Of the size of all logits there are the logits and their gradient alone; here they are float16."""
    K, R = 32, 64
    monkeypatch.setattr(chunked_common, "CELLS", 4 * K)
    logits = torch.zeros(R, K, dtype=torch.float16)
    coefficients = torch.tensor([0.5, 0.25, 0.25, 0.5, 0.5], dtype=torch.float64)[:, None]
    zeros = torch.zeros(R, dtype=torch.long)
    p = Problem(zeros, zeros + 1, coefficients, True, NoiseTables(K), free=free, elements=R)
    gradient, weights = torch.empty_like(logits), torch.ones(3, 1, dtype=torch.float64)
    with LargestTensor() as largest:
        loss_rows(logits, p, weights, True, gradient, "chunked")
    assert largest.bytes <= logits.untyped_storage().nbytes()
