"""ReLU with dropout after it, and the random numbers of dropout."""

import pytest
import torch
from torch.nn import functional as F

from support.problems import NEEDS_TRITON, device_of
from usd3.kernels.dropout import LEVELS, dropped_levels, kept_scale, relu_dropout

pytestmark = list(NEEDS_TRITON)
DEVICE = device_of("triton")


def seed_of(number):
    return torch.tensor([number], device=DEVICE)


def hidden(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(DEVICE, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(7, 333), (2, 3, 64), (1,), (0, 4), ()])
def test_what_is_kept_is_the_relu_scaled_and_has_its_gradient(shape, dtype):
    h, p = hidden(*shape, dtype=dtype).requires_grad_(), 0.3
    y = relu_dropout(h, p, seed_of(4))
    keep = y != 0
    assert not (keep & (h <= 0)).any()
    wanted = h.double().relu() * keep * kept_scale(p)
    torch.testing.assert_close(y.double(), wanted, rtol=torch.finfo(dtype).eps, atol=0)
    grad = hidden(*shape, dtype=dtype) + 3
    y.backward(grad)
    wanted = grad.double() * keep * kept_scale(p)
    torch.testing.assert_close(h.grad.double(), wanted, rtol=torch.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_share_of_kept_elements_is_that_of_p(p):
    """4 standard errors: a false alarm in 16,000."""
    kept = (relu_dropout(torch.ones(2**18, device=DEVICE), p, seed_of(8)) > 0).double()
    error = (p * (1 - p)) ** 0.5
    assert abs(kept.mean() - (1 - p)) < 4 * error / len(kept) ** 0.5
    of_bits = kept.unflatten(0, (-1, 8)).mean(0)  # the eight numbers of a counter: 5 standard errors
    assert (of_bits - (1 - p)).abs().max() < 5 * error / (len(kept) / 8) ** 0.5
    flat = kept - kept.mean()
    for lag in range(1, 17):
        assert abs((flat[:-lag] * flat[lag:]).mean()) < 5 * error**2 / len(flat) ** 0.5


def test_the_mean_is_that_of_the_relu():
    h = torch.full((2**18,), 2.0, device=DEVICE)
    mean = relu_dropout(h, 0.2, seed_of(2)).mean()
    assert abs(mean - 2) < 4 * 2 * 0.5 / len(h) ** 0.5  # a standard deviation of sqrt(p / (1 - p))


def test_the_seed_decides():
    h = torch.ones(4096, device=DEVICE)
    first, same, *others = (relu_dropout(h, 0.5, seed_of(s)) > 0 for s in (5, 5, 6, 5 + 2**32))
    assert torch.equal(first, same)
    for other in others:
        assert abs((first == other).double().mean() - 0.5) < 4 * 0.5 / 64


def test_nan_and_infinity_stay():
    y = relu_dropout(torch.tensor([float("nan"), float("inf"), -float("inf")] * 50, device=DEVICE), 0.1, seed_of(1))
    nan, most, least = y.unflatten(0, (50, 3)).unbind(1)
    assert (nan.isnan() | (nan == 0)).all()
    assert nan.isnan().sum() > 30
    assert (most.isinf() | (most == 0)).all()
    assert (least == 0).all()


def test_other_layouts_are_copied():
    h = hidden(30, 20)
    y = relu_dropout(h.t(), 0.5, seed_of(1))
    assert torch.equal(y, relu_dropout(h.t().contiguous(), 0.5, seed_of(1)))


@pytest.mark.parametrize("p", [1e-9, 0.1, 0.5, 1 - 1e-9])
def test_p_is_rounded_and_the_scale_fits_the_rounded_p(p):
    assert abs(dropped_levels(p) / LEVELS - p) <= 1 / LEVELS
    assert kept_scale(p) * (1 - dropped_levels(p) / LEVELS) == 1


def test_torch_compile_keeps_it_as_one_operation():
    h, seed = hidden(20, 30), seed_of(3)

    def layer(h):
        return relu_dropout(h * 2, 0.3, seed) * 3

    found = []
    for function in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        leaf = h.clone().requires_grad_()
        y = function(leaf)
        y.sum().backward()
        found.append((y.detach(), leaf.grad))
    torch.testing.assert_close(found[0], found[1])


def test_the_registrations_agree_with_the_kernel():
    tests = ("test_schema", "test_faketensor", "test_autograd_registration")
    arguments = (hidden(3, 20).requires_grad_(), 0.3, seed_of(1))
    torch.library.opcheck(torch.ops.usd3.relu_dropout, arguments, test_utils=tests)


@pytest.mark.gpu
def test_a_cuda_graph_draws_anew_in_every_replay():
    h = torch.ones(4096, device=DEVICE, dtype=torch.bfloat16)

    def step():
        return relu_dropout(h, 0.5, torch.randint(2**62, (1,), device=DEVICE))

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = step()
    graph.replay()
    first = y.clone()
    graph.replay()
    assert not torch.equal(first, y)
    torch.testing.assert_close(F.relu(h)[y > 0] * 2, y[y > 0])
