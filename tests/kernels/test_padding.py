"""Logits that are formed a little wider than K: the same numbers, and weights of the same shape."""

import pytest
import torch
from torch.nn import functional as F

import usd3
from support.kernel_cases import WIDE
from support.problems import device_of
from usd3.kernels import padding
from usd3.kernels.padding import padded_linear, padded_size
from usd3.nets import FilmTransformer, HollowTransformer, Transformer

B, D, H, K = 2, 3, 5, 13


@pytest.fixture
def padded(monkeypatch):
    """Padding on every device, from few categories on, to a multiple of 8."""
    monkeypatch.setattr(padding, "PADDED_ON", {"cpu", "cuda"})
    monkeypatch.setattr(padding, "_LEAST", 1)
    monkeypatch.setattr(padding, "_MULTIPLE", 8)


@pytest.mark.parametrize(
    ("K", "device", "size"),
    [(50257, "cuda", 50304), (50304, "cuda", 50304), (1025, "cuda", 1088), (129, "cuda", 129), (50257, "cpu", 50257)],
)
def test_many_categories_are_padded_to_a_multiple_of_64_on_a_gpu(K, device, size):
    assert padded_size(K, torch.device(device)) == size


@pytest.mark.usefixtures("padded")
@pytest.mark.parametrize("with_bias", [True, False])
def test_a_padded_layer_is_a_linear_layer(with_bias):
    hidden, weight, bias = (torch.randn(*size, dtype=torch.float64) for size in ((B, D, H), (K, H), (K,)))
    inputs = [v.requires_grad_() for v in (hidden, weight, bias)[: 3 if with_bias else 2]]
    arguments = inputs if with_bias else [*inputs, None]
    logits, expected = padded_linear(*arguments), F.linear(*arguments)
    assert logits.shape == (B, D, K)
    assert logits.stride() == (D * 16, 16, 1)
    up = torch.randn_like(expected)
    torch.testing.assert_close(logits, expected, rtol=1e-13, atol=1e-13)
    for a, b in zip(torch.autograd.grad(logits, inputs, up), torch.autograd.grad(expected, inputs, up)):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("padded")
@pytest.mark.parametrize("width", [K, 16])
def test_a_gradient_of_any_width_trains_a_padded_layer(width):
    """The columns of a wide gradient beyond K, which hold anything, are not read."""
    inputs = [torch.randn(*size, requires_grad=True) for size in ((B, D, H), (K, H), (K,))]
    up = torch.full((B, D, width), torch.nan)[..., :K]
    up.copy_(torch.randn(B, D, K))
    found = torch.autograd.grad(padded_linear(*inputs), inputs, up)
    for a, b in zip(found, torch.autograd.grad(F.linear(*inputs), inputs, up)):
        torch.testing.assert_close(a, b)


@pytest.mark.usefixtures("padded")
def test_a_padded_layer_under_autocast_is_a_linear_layer():
    inputs = [torch.randn(*size, requires_grad=True) for size in ((B, D, H), (K, H), (K,))]
    with torch.autocast("cpu", torch.bfloat16):
        logits, expected = padded_linear(*inputs), F.linear(*inputs)
    assert logits.dtype == torch.bfloat16
    up = torch.randn_like(expected)
    for a, b in zip(torch.autograd.grad(logits, inputs, up), torch.autograd.grad(expected, inputs, up)):
        assert a.dtype == torch.float32
        torch.testing.assert_close(a, b, rtol=2e-2, atol=2e-2)


@pytest.mark.usefixtures("padded")
def test_a_gradient_is_formed_only_where_it_is_needed():
    hidden, weight = torch.randn(D, H), torch.randn(K, H, requires_grad=True)
    padded_linear(hidden, weight, None).sum().backward()
    torch.testing.assert_close(weight.grad, hidden.sum(0).expand(K, H))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", ["uniform", "absorbing", "mixed_support"])
def test_no_padding_reaches_the_loss_the_gradient_or_a_draw(fused, name, dtype):
    """The padding holds infinity here, and in memory the gradient is as wide as the logits."""
    d, device = usd3.Diffusion(WIDE[name](K), usd3.Cosine(), impl=fused), device_of(fused)
    generator = torch.Generator().manual_seed(1)
    x_0 = torch.zeros(B, 4, dtype=torch.long, device=device)
    x_t = d.q_sample(x_0, 0.6, generator=generator)
    wide = torch.randn(B, 4, 16, generator=generator, dtype=torch.float64).to(device, dtype)
    wide[..., K:] = torch.inf
    seen = []
    for logits in (wide[..., :K], wide[..., :K].contiguous()):
        leaf = logits.detach().requires_grad_()
        out = d.loss_from_logits(leaf, x_t, x_0, 0.6)
        (gradient,) = torch.autograd.grad(2 * out.loss, leaf)
        drawn = d.draw(logits, x_t, 0.6, 0.3, torch.Generator().manual_seed(2))
        seen.append((out.loss.detach(), out.vlb, out.ce, gradient, drawn))
    assert seen[0][3].stride() == (64, 16, 1)
    assert torch.equal(seen[0][4], seen[1][4])
    for a, b in zip(*(numbers[:4] for numbers in seen)):
        torch.testing.assert_close(a, b, rtol=1e-12 if dtype == torch.float64 else 1e-5, atol=1e-12)


@pytest.mark.parametrize("net", [Transformer, FilmTransformer, HollowTransformer])
def test_a_network_that_pads_has_the_logits_and_weights_of_one_that_does_not(net, monkeypatch):
    options = {"length": D} if net is HollowTransformer else {}
    model = net(K, dim=16, depth=1, heads=2, mlp=16, dropout=0.0, **options)
    for parameter in model.parameters():  # our networks begin with logits of 0
        torch.nn.init.normal_(parameter, std=0.3)
    x_t, t = torch.randint(K, (B, D)), torch.rand(B)
    expected = model(x_t, t)
    wanted = torch.autograd.grad(expected.square().sum(), list(model.parameters()), allow_unused=True)
    shapes = {name: value.shape for name, value in model.state_dict().items()}
    assert (K, 16) in shapes.values() or (K, 32) in shapes.values()
    monkeypatch.setattr(padding, "PADDED_ON", {"cpu"})
    monkeypatch.setattr(padding, "_LEAST", 1)
    logits = model(x_t, t)
    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)
    seen = torch.autograd.grad(logits.square().sum(), list(model.parameters()), allow_unused=True)
    for a, b in zip(seen, wanted):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("padded")
@pytest.mark.parametrize("name", ["uniform", "absorbing", "per_element_zeros"])
def test_a_projection_is_padded_and_has_the_loss_and_the_gradients_of_a_linear_layer(fused, name):
    d, device = usd3.Diffusion(WIDE[name](K), usd3.Cosine(), impl=fused), device_of(fused)
    generator = torch.Generator().manual_seed(3)
    inputs = [
        torch.randn(*size, generator=generator, dtype=torch.float64).to(device).requires_grad_()
        for size in ((B, 4, H), (K, H), (K,))
    ]
    x_0 = torch.zeros(B, 4, dtype=torch.long, device=device)
    x_t = d.q_sample(x_0, 0.6, generator=generator)
    seen = []
    for logits in (usd3.Projection(*inputs), F.linear(*inputs)):
        out = d.loss_from_logits(logits, x_t, x_0, 0.6)
        seen.append([out.loss.detach(), out.vlb, out.ce, *torch.autograd.grad(out.loss, inputs)])
    for a, b in zip(*seen):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)
