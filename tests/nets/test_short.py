"""The networks compute the same with the kernels for short sequences as with torch. The kernels run interpreted."""

import pytest
import torch

from support.problems import NEEDS_TRITON, device_of
from usd3.nets import FilmTransformer, Transformer, _short

pytestmark = list(NEEDS_TRITON)
DEVICE = device_of("triton")
X = torch.randint(7, (3, 20), generator=torch.Generator().manual_seed(1)).to(DEVICE)
T = torch.tensor([0.1, 0.5, 0.9], device=DEVICE)


@pytest.fixture
def with_kernels(monkeypatch):
    """Calls that take the kernels, by name; they have no tensor cores to wait for here."""
    calls = []
    for name in ("short_attention", "relu_dropout"):
        run = getattr(_short, name)
        monkeypatch.setattr(_short, name, lambda *args, name=name, run=run: (calls.append(name), run(*args))[1])
    monkeypatch.setattr(_short, "_has_kernels", lambda h: True)
    return calls


def network(make, **arguments):
    torch.manual_seed(0)
    net = make(7, dim=32, depth=2, heads=2, mlp=48, **arguments)
    for p in net.parameters():
        torch.nn.init.normal_(p, std=0.2)
    return net.to(DEVICE)


def gradients(net, function):
    net.zero_grad()
    logits = function(X, T)
    logits.square().mean().backward()
    return logits.detach(), [p.grad for p in net.parameters() if p.grad is not None]


@pytest.mark.parametrize("make", [FilmTransformer, Transformer])
def test_logits_and_gradients_are_those_of_torch(make, monkeypatch):
    net = network(make, dropout=0.0)
    with monkeypatch.context() as patch:
        patch.setattr(_short, "_has_kernels", lambda h: False)
        wanted = gradients(net, net)
    monkeypatch.setattr(_short, "_has_kernels", lambda h: True)
    rough = DEVICE.type == "cuda"  # products of float32 take fewer digits there
    found = gradients(net, net)
    compiled = gradients(net, torch.compile(net, fullgraph=True, backend="aot_eager"))
    for other in (found, compiled):
        torch.testing.assert_close(other, wanted, rtol=1e-2 if rough else 1e-4, atol=1e-2 if rough else 1e-5)


def test_each_kernel_is_called_where_it_fits(with_kernels):
    net = network(FilmTransformer, dropout=0.3)
    net(X, T)
    assert with_kernels == ["short_attention", "relu_dropout"] * 2
    with_kernels.clear()
    net.eval()(X, T)
    assert with_kernels == ["short_attention"] * 2
    with_kernels.clear()
    net(X, T, pad=torch.zeros_like(X, dtype=torch.bool))  # padding
    net(torch.zeros(1, 300, dtype=torch.long, device=DEVICE), T[:1])  # too long
    FilmTransformer(7, dim=24, depth=1, heads=2, mlp=8).to(DEVICE).eval()(X, T)  # heads of 12
    assert with_kernels == []


def test_nothing_but_a_gpu_takes_the_kernels():
    assert not _short._has_kernels(torch.zeros(1))
    assert not _short._has_kernels(torch.zeros(1, dtype=torch.bfloat16))
    assert not _short._has_kernels(torch.zeros(1, device="meta", dtype=torch.bfloat16))


def test_torchs_seed_decides_about_dropout(with_kernels):
    net, found = network(FilmTransformer, dropout=0.3), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(net(X, T))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


@pytest.mark.gpu
@pytest.mark.parametrize("make", [FilmTransformer, Transformer])
def test_training_in_sixteen_bits_compiles_into_one_graph(make, monkeypatch):
    net, results = network(make, dropout=0.0), []
    for kernels in (False, True):
        torch._dynamo.reset()
        if not kernels:
            monkeypatch.setattr(_short, "_has_kernels", lambda h: False)
        with torch.autocast("cuda", torch.bfloat16):
            results.append(gradients(net, torch.compile(net, fullgraph=True)))
        monkeypatch.undo()
    for found, wanted in zip([results[1][0], *results[1][1]], [results[0][0], *results[0][1]]):
        assert (found - wanted).norm() < 0.05 * wanted.norm() + 1e-6
