"""The loss from hidden states and an output layer, without the logits."""

import pytest
import torch
from torch.nn import functional as F

import usd3
from support.kernel_cases import WIDE
from support.problems import LargestTensor, device_of
from usd3.kernels import chunked_projection

H, B, D, K = 5, 3, 4, 9


def case(impl, name, num_steps=10, dtype=torch.float64):
    generator, device = torch.Generator().manual_seed(4), device_of(impl)
    d = usd3.Diffusion(WIDE[name](K), usd3.Cosine(), num_steps, impl=impl)
    data = torch.tensor([z for z in range(K) if z != d.noise.mask])
    x_0 = data[torch.randint(len(data), (B, D), generator=generator)]
    t = torch.tensor([1, 6, 10]) if num_steps else torch.tensor([0.01, 0.6, 0.99])
    x_t = d.q_sample(x_0, t, generator=generator)
    hidden, weight, bias = (
        torch.randn(*size, generator=generator, dtype=torch.float64).to(device, dtype).requires_grad_()
        for size in ((B, D, H), (K, H), (K,))
    )
    return d, *(v.to(device) for v in (x_0, x_t, t)), hidden, weight, bias


def by_projection(d, x_0, x_t, t, inputs, at_x=None, **options):
    logits = usd3.Projection(*inputs, at_x=at_x) if len(inputs) == 3 else usd3.Projection(*inputs, None, at_x)
    out = d.loss_from_logits(logits, x_t, x_0, t, "usd3*", **options)
    return torch.stack([out.loss, out.vlb, out.ce]), torch.autograd.grad(out.loss, inputs)


def by_linear(d, x_0, x_t, t, inputs, at_x=None, **options):
    """By the eager code."""
    d, logits = usd3.Diffusion(d.noise, d.schedule, d.num_steps, impl="eager"), F.linear(*inputs)
    if at_x is not None:
        logits = logits.scatter_add(-1, x_t[..., None], at_x[..., None])
    out = d.loss_from_logits(logits, x_t, x_0, t, "usd3*", **options)
    return torch.stack([out.loss, out.vlb, out.ce]), torch.autograd.grad(out.loss, inputs)


@pytest.fixture
def small_chunks(monkeypatch):
    """Five rows at once: chunks that end in the middle of an object."""
    for device in ("cpu", "cuda"):
        monkeypatch.setitem(chunked_projection.CELLS_AT_ONCE, device, 5 * K + 2)


@pytest.mark.parametrize("name", ["uniform", "absorbing", "per_element_zeros"])
@pytest.mark.parametrize("num_steps", [10, None])
@pytest.mark.usefixtures("small_chunks")
def test_the_loss_and_its_gradients_are_those_of_a_linear_layer(impl, name, num_steps):
    d, x_0, x_t, t, *inputs = case(impl, name, num_steps)
    masks = {"given": torch.tensor([True, False, False, False]), "pad": torch.zeros(B, D, dtype=torch.bool)}
    masks["pad"][2, 1:] = True
    at_x = torch.linspace(-2, 2, B * D, dtype=torch.float64, device=x_0.device).reshape(B, D)
    for inputs_, shift, options in ((inputs, None, {}), (inputs, at_x, masks), (inputs[:2], None, masks)):
        values, gradients = by_projection(d, x_0, x_t, t, inputs_, shift, **options)
        expected, expected_gradients = by_linear(d, x_0, x_t, t, inputs_, shift, **options)
        torch.testing.assert_close(values, expected, rtol=1e-10, atol=1e-13)
        for a, b in zip(gradients, expected_gradients, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("small_chunks")
def test_the_gradient_scales_and_adds_up(fused):
    d, x_0, x_t, t, *inputs = case(fused, "random")
    _, plain = by_projection(d, x_0, x_t, t, inputs)
    (-2 * d.loss_from_logits(usd3.Projection(*inputs), x_t, x_0, t, "usd3*").loss).backward()
    (5 * d.loss_from_logits(usd3.Projection(*inputs), x_t, x_0, t, "usd3*").loss).backward()
    for tensor, gradient in zip(inputs, plain):
        torch.testing.assert_close(tensor.grad, 3 * gradient, rtol=1e-12, atol=1e-14)


@pytest.mark.usefixtures("small_chunks")
def test_only_what_asks_for_a_gradient_gets_one(fused):
    d, x_0, x_t, t, *inputs = case(fused, "uniform")
    _, expected = by_linear(d, x_0, x_t, t, inputs)
    for alone in range(3):
        tensors = [tensor.detach().requires_grad_(i == alone) for i, tensor in enumerate(inputs)]
        d.loss_from_logits(usd3.Projection(*tensors), x_t, x_0, t, "usd3*").loss.backward()
        assert [tensor.grad is not None for tensor in tensors] == [i == alone for i in range(3)]
        torch.testing.assert_close(tensors[alone].grad, expected[alone], rtol=1e-9, atol=1e-12)
    with torch.no_grad():
        assert not d.loss_from_logits(usd3.Projection(*inputs), x_t, x_0, t).loss.requires_grad


@pytest.mark.usefixtures("small_chunks")
def test_under_autocast_it_is_bfloat16_as_a_linear_layer_is(impl):
    """Both round logits and their gradients to 8 bits; the weights and their gradients stay float32."""
    d, x_0, x_t, t, *inputs = case(impl, "random", dtype=torch.float32)
    with torch.autocast(device_of(impl).type, torch.bfloat16):
        values, gradients = by_projection(d, x_0, x_t, t, inputs)
        expected, expected_gradients = by_linear(d, x_0, x_t, t, inputs)
    exact, exact_gradients = by_linear(d, x_0, x_t, t, inputs)
    assert not torch.equal(values, exact)  # bfloat16 is really taken
    torch.testing.assert_close(values, expected, rtol=1e-4, atol=1e-5)
    for a, b, c in zip(gradients, expected_gradients, exact_gradients):
        assert a.dtype == torch.float32
        scale = float(c.abs().max())
        torch.testing.assert_close(a, b, rtol=0, atol=0.03 * scale)
        torch.testing.assert_close(a, c, rtol=0, atol=0.03 * scale)


def test_no_logits_of_the_whole_batch_are_made(monkeypatch):
    """B D K numbers would be 20 times what is allowed at once."""
    k, h, rows = 500, 8, 400
    allowed = rows * k // 20
    monkeypatch.setitem(chunked_projection.CELLS_AT_ONCE, "cpu", allowed)
    d = usd3.Diffusion(usd3.Uniform(k), usd3.Cosine(), impl="chunked")
    hidden, weight, bias = (torch.randn(*size).requires_grad_() for size in ((20, 20, h), (k, h), (k,)))
    x_0 = torch.randint(k, (20, 20))
    x_t, whole = d.q_sample(x_0, 0.5), 4 * rows * k
    seen = []
    for logits in (usd3.Projection(hidden, weight, bias), F.linear(hidden, weight, bias)):
        with LargestTensor() as largest:
            d.loss_from_logits(logits, x_t, x_0, 0.5).loss.backward()
        seen.append(largest.bytes)
    assert seen[0] <= 4 * max(allowed, k * h)
    assert seen[1] >= whole


@pytest.mark.usefixtures("small_chunks")
def test_a_model_may_return_a_projection(impl, generator):
    """In a loss, in a bound and in a sampler it is as good as the logits."""
    d, x_0, _, _, hidden, weight, bias = case(impl, "per_element_zeros", num_steps=None)
    device = device_of(impl)
    at_x = torch.full((B, D), 0.7, dtype=torch.float64, device=device)

    def lazy(x, t):
        return usd3.Projection(hidden * t[:, None, None], weight, bias).shifted(at_x).shifted(at_x)

    def plain(x, t):
        logits = F.linear(hidden * t[:, None, None], weight, bias)
        return logits.scatter_add(-1, x[..., None], 2 * at_x[..., None])

    seeded = lambda: torch.Generator().manual_seed(8)
    a, b = (d.loss(model, x_0, generator=seeded()).loss for model in (lazy, plain))
    torch.testing.assert_close(a, b, rtol=1e-10, atol=0)
    a, b = (d.bound(model, x_0, 3, generator=seeded()) for model in (lazy, plain))
    torch.testing.assert_close(a, b, rtol=1e-10, atol=0)
    a, b = (d.sample(model, (B, D), 4, generator=seeded(), device=device) for model in (lazy, plain))
    assert torch.equal(a, b)


def test_a_network_of_the_package_learns_through_a_projection(generator):
    """Its parameters get the gradients that they get from the logits."""
    d = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine(), impl="chunked")
    body, head = torch.nn.Embedding(K, H), torch.nn.Linear(H, K)
    x_0 = torch.randint(K, (B, D), generator=generator)
    models = (lambda x, t: usd3.Projection(body(x), head.weight, head.bias), lambda x, t: head(body(x)))
    parameters = [body.weight, head.weight, head.bias]
    a, b = (
        torch.autograd.grad(d.loss(model, x_0, generator=torch.Generator().manual_seed(1)).loss, parameters)
        for model in models
    )
    for left, right in zip(a, b):
        torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-6)


def test_shapes_that_do_not_fit_are_refused():
    hidden, weight = torch.zeros(2, 3, H), torch.zeros(K, H)
    with pytest.raises(ValueError, match=r"weight.shape = \(9, 4\): expected \(K, 5\), as hidden has 5"):
        usd3.Projection(hidden, torch.zeros(K, 4))
    with pytest.raises(ValueError, match=r"bias.shape = \(8,\): expected \(9,\)"):
        usd3.Projection(hidden, weight, torch.zeros(8))
    d, x_0 = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine()), torch.zeros(2, 4, dtype=torch.long)
    with pytest.raises(ValueError, match=r"model\(x_t, t\).shape = \(2, 3, 9\): expected \(2, 4, 9\)"):
        d.loss(lambda x, t: usd3.Projection(hidden, weight), x_0)


@pytest.mark.parametrize("impl", ["eager", "chunked"])
@pytest.mark.parametrize("shape", [(2, 3, K), (2, 4, K - 1)])
def test_a_projection_of_another_shape_is_refused_by_loss_from_logits(impl, shape):
    d, x = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine(), impl=impl), torch.zeros(2, 4, dtype=torch.long)
    logits = usd3.Projection(torch.zeros(*shape[:-1], H), torch.zeros(shape[-1], H))
    with pytest.raises(ValueError, match=r"logits.shape = .* expected \(2, 4, 9\)"):
        d.loss_from_logits(logits, x, x, 0.5)


@pytest.mark.parametrize("impl", ["eager", "chunked"])
def test_hidden_states_that_are_not_finite_are_refused(impl):
    d, x = usd3.Diffusion(usd3.Uniform(K), usd3.Cosine(), impl=impl), torch.zeros(2, 4, dtype=torch.long)
    hidden = torch.zeros(2, 4, H)
    hidden[1, 2, 0] = torch.nan
    with pytest.raises(ValueError, match="logits contains nan: expected finite numbers"):
        d.loss_from_logits(usd3.Projection(hidden, torch.ones(K, H)), x, x, 0.5)
