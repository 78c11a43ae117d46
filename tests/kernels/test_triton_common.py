"""Special functions of the Triton kernels, against those of float64."""

import pytest
import torch

from support.problems import NEEDS_TRITON, device_of

pytestmark = list(NEEDS_TRITON)
triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")
common = pytest.importorskip("usd3.kernels.triton_common")

log_1_plus = common.log_1_plus


@triton.jit
def _logarithms(y, out, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, log_1_plus(tl.load(y + at)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_logarithm_near_one_is_right_to_the_last_digits(dtype):
    """The largest error is where the series ends and 1 + y begins: at y = 0.3 in float32, 0.01 in float64."""
    y = torch.logspace(-9, 1, 1024, dtype=torch.float64).to(device_of("triton"), dtype)
    found, limit = torch.empty_like(y), 0.3 if dtype == torch.float32 else 0.01
    y[0], y[1] = limit * (1 - 1e-6), limit
    _logarithms[(1,)](y, found, N=1024)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(found.double(), y.double().log1p(), rtol=8 * eps + 2 * eps / limit, atol=0)


@triton.jit
def _differences(u, out, LONG: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    v = tl.load(u + at)
    tl.store(out + at, common.bregman(v, common.fast_log2(1 + v) * common.LN_2, LONG))


@pytest.mark.parametrize("long", [False, True])
def test_the_difference_to_the_logarithm_is_right_where_it_cancels(long):
    """u - log(1 + u). A GPU's logarithm is exact to 2^-22: that is 9e-6 of the difference at 0.2, and 2e-6 at 0.45."""
    u = torch.cat([torch.logspace(-5, 0.3, 512), -torch.logspace(-5, -0.05, 512)]).to(device_of("triton"))
    found = torch.empty_like(u)
    _differences[(1,)](u, found, LONG=long, N=1024)
    exact = u.double() - u.double().log1p()
    torch.testing.assert_close(found.double(), exact, rtol=3e-6 if long else 1.2e-5, atol=0)


@triton.jit
def _words(seeds, ours, theirs):
    at = tl.arange(0, 64)
    seed = tl.load(seeds + tl.program_id(0))
    out = tl.program_id(0) * 256 + at
    a, b, c, d = common.random_words(seed, at - 5)
    tl.store(ours + out, a)
    tl.store(ours + out + 64, b)
    tl.store(ours + out + 128, c)
    tl.store(ours + out + 192, d)
    a, b, c, d = tl.randint4x(seed, at - 5, 7)
    tl.store(theirs + out, a)
    tl.store(theirs + out + 64, b)
    tl.store(theirs + out + 128, c)
    tl.store(theirs + out + 192, d)


def test_random_words_are_those_of_triton():
    seeds = torch.tensor([0, 1, -1, 2**40 + 3, 2**62 - 1], device=device_of("triton"))
    found = torch.empty(2, len(seeds) * 256, dtype=torch.uint32, device=seeds.device)
    _words[(len(seeds),)](seeds, found[0], found[1])
    assert torch.equal(found[0], found[1])
    assert len(found[0].to(torch.int64).unique()) == found.shape[1]  # no two are the same
