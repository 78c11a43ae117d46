"""The losses in C++: what is particular to their vectors, threads and memory."""

import pytest
import torch

from support.problems import NEEDS_CPP
from usd3.kernels import cpp_common, cpp_loss
from usd3.kernels.loss import NoiseTables, Problem, loss_rows

pytestmark = NEEDS_CPP


def problem(R, K, seed=0, **fields):
    """Logits (R, K), a step of R / 2 objects of two elements, and weights."""
    generator = torch.Generator().manual_seed(seed)
    x, x_0 = torch.randint(K, (2, R), generator=generator)
    coefficients = torch.rand(5, R // 2, generator=generator, dtype=torch.float64)
    p = Problem(x, x_0, coefficients, True, NoiseTables(K), elements=2, **fields)
    return torch.randn(R, K, generator=generator), p, torch.rand(3, R // 2, generator=generator, dtype=torch.float64)


def rows(logits, p, weights, impl="cpp"):
    gradient = torch.full_like(logits, torch.nan)
    return loss_rows(logits, p, weights, True, gradient, impl), gradient


@pytest.mark.parametrize("K", [2, 15, 16, 17, 511, 512, 513, 3000])
def test_rows_of_any_length_are_padded_and_cut_into_blocks(K):
    """A vector has up to 16 numbers, a block up to 512, and a group of four rows 4096."""
    logits, p, weights = problem(10, K)
    for found, expected in zip(rows(logits, p, weights), rows(logits.double(), p, weights, "chunked")):
        torch.testing.assert_close(found, expected.float(), rtol=1e-4, atol=1e-6)


def test_a_result_does_not_depend_on_the_number_of_threads(monkeypatch):
    logits, p, weights = problem(1000, 129)
    alone = rows(logits, p, weights)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert all(torch.equal(a, b) for a, b in zip(rows(logits, p, weights), alone))


def test_rows_that_are_not_free_may_stand_anywhere(monkeypatch):
    """They leave their place in a group to others."""
    free = torch.rand(100, generator=torch.Generator().manual_seed(1)) < 0.4
    logits, p, weights = problem(100, 9)
    whole_terms, whole_gradient = rows(logits, p, weights)
    logits, p, weights = problem(100, 9, free=free)
    terms, gradient = rows(logits, p, weights)
    assert torch.equal(terms, torch.where(free, whole_terms, 0.0))
    assert torch.equal(gradient, torch.where(free[:, None], whole_gradient, 0.0))


@pytest.mark.parametrize("bad", [-1, 9])
def test_a_category_out_of_range_is_refused(bad):
    logits, p, weights = problem(10, 9)
    p.x_0[7] = bad
    with pytest.raises(IndexError, match=r"^x or x_0 is out of range: expected 0 to 8$"):
        rows(logits, p, weights)


def test_a_bad_row_does_not_spoil_the_others():
    logits, p, weights = problem(10, 9)
    expected = rows(logits, p, weights)
    logits[3] = torch.nan
    terms, gradient = rows(logits, p, weights)
    others = torch.arange(10) != 3
    assert terms[1, 3].isnan()
    assert torch.equal(terms[:, others], expected[0][:, others])
    assert torch.equal(gradient[others], expected[1][others])


def test_a_bound_of_a_nearly_perfect_model_is_not_below_zero():
    """h - k of the cell at x is 1e-20 of k and less: rounded, it may be larger than k log(h/k)."""
    logits, p, weights = problem(4000, 2)
    logits = (40 * logits.abs()).scatter(1, p.x_0[:, None], 80 * logits[:, :1].abs() + 40)
    vlb = rows(logits, p, weights)[0][0]
    assert (vlb >= 0).all()
    assert ((vlb > 0) & (vlb < 1e-20)).any()


def test_without_a_library_the_chunked_code_runs(monkeypatch):
    logits, p, weights = problem(10, 9)
    expected = rows(logits, p, weights, "chunked")
    monkeypatch.setattr(cpp_loss, "library", lambda: None)
    assert all(torch.equal(a, b) for a, b in zip(rows(logits, p, weights), expected))


def test_without_an_openmp_runtime_one_thread_does_everything(monkeypatch):
    logits, p, weights = problem(1000, 129)
    expected = rows(logits, p, weights)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(cpp_loss, "parallel", lambda: cpp_common.ctypes.c_void_p())
    assert all(torch.equal(a, b) for a, b in zip(rows(logits, p, weights), expected))


def test_terms_are_where_the_logits_are_whatever_the_default_device():
    logits, p, weights = problem(4, 5)
    gradient = torch.empty_like(logits)
    with torch.device("meta"):
        terms = loss_rows(logits, p, weights, True, gradient, "cpp")
    assert torch.equal(terms, rows(logits, p, weights)[0])
