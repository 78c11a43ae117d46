"""The networks compute the same with the kernel for dropout as with torch. The kernel runs interpreted."""

import pytest
import torch

from support.problems import NEEDS_TRITON, device_of
from usd3.nets import FilmTransformer, _dropout

pytestmark = list(NEEDS_TRITON)
DEVICE = device_of("triton")
X = torch.randint(7, (3, 20), generator=torch.Generator().manual_seed(1)).to(DEVICE)
T = torch.tensor([0.1, 0.5, 0.9], device=DEVICE)


@pytest.fixture
def calls(monkeypatch):
    """The calls that take the kernel."""
    found, run = [], _dropout.relu_dropout
    monkeypatch.setattr(_dropout, "relu_dropout", lambda *args: (found.append(args[1]), run(*args))[1])
    monkeypatch.setattr(_dropout, "_has_kernel", lambda h: True)
    return found


def network(**arguments):
    torch.manual_seed(0)
    net = FilmTransformer(7, dim=32, depth=2, heads=2, mlp=48, **arguments)
    for p in net.parameters():
        torch.nn.init.normal_(p, std=0.2)
    return net.to(DEVICE)


def test_the_kernel_is_called_in_training_alone(calls):
    net = network(dropout=0.3)
    net(X, T)
    assert calls == [0.3, 0.3]
    net.eval()(X, T)
    network(dropout=0.0)(X, T)
    assert calls == [0.3, 0.3]


def test_a_gradient_passes_where_an_element_is_kept(calls):
    h = torch.randn(40, 50, device=DEVICE, requires_grad=True)
    y = _dropout.dropped_relu(h, 0.25)
    y.sum().backward()
    kept = y > 0
    assert 0.2 < kept.float().mean() < 0.5  # three quarters of a half
    torch.testing.assert_close(y[kept], h[kept] / 0.75, rtol=1e-4, atol=0)
    torch.testing.assert_close(h.grad, torch.where(kept, 1 / 0.75, 0.0), rtol=1e-4, atol=0)
    assert len(calls) == 1


def test_nothing_but_a_gpu_takes_the_kernels():
    assert not _dropout._has_kernel(torch.zeros(1))
    assert not _dropout._has_kernel(torch.zeros(1, dtype=torch.bfloat16))
    assert not _dropout._has_kernel(torch.zeros(1, device="meta", dtype=torch.bfloat16))


def test_torchs_seed_decides_about_dropout(calls):
    net, found = network(dropout=0.3), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(net(X, T))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert calls


def test_a_network_with_the_kernel_compiles_into_one_graph(calls):
    net, found = network(dropout=0.3), []
    for function in (net, torch.compile(net, fullgraph=True, backend="aot_eager")):
        torch.manual_seed(1)
        net.zero_grad()
        logits = function(X, T)
        logits.square().mean().backward()
        found.append([logits.detach(), *(p.grad for p in net.parameters() if p.grad is not None)])
    torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-4)
    assert calls


@pytest.mark.gpu
def test_training_in_sixteen_bits_takes_the_kernel_and_compiles():
    net = network(dropout=0.3)
    with torch.autocast("cuda", torch.bfloat16):
        torch.compile(net, fullgraph=True)(X, T).square().mean().backward()
    assert all(p.grad.isfinite().all() for p in net.parameters() if p.grad is not None)
