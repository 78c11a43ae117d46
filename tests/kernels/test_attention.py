"""Attention over short sequences against the formula in float64, with the dropout mask that the kernel reports."""

import pytest
import torch
from torch.nn import functional as F

from support.problems import NEEDS_TRITON, device_of
from usd3.kernels.attention import padded, short_attention, short_attention_parts
from usd3.kernels.dropout import kept_scale

pytestmark = list(NEEDS_TRITON)
DEVICE = device_of("triton")
# the interpreter computes float32 exactly, and does not know products of bfloat16
TYPE, TOLERANCE = (torch.bfloat16, 2e-2) if DEVICE.type == "cuda" else (torch.float32, 3e-6)


def inputs(B, L, H, d, dtype=TYPE, seed=0):
    """qkv (B, L, 3, H, d) and a gradient of the result (B, L, H d)."""
    generator = torch.Generator().manual_seed(seed)
    qkv = torch.randn(B, L, 3, H, d, generator=generator).to(DEVICE, dtype)
    return qkv, torch.randn(B, L, H * d, generator=generator).to(DEVICE, dtype)


def seed_of(number):
    return torch.tensor([number], device=DEVICE)


def mask_of(bits, L):
    """(B, H, L, L) True where a weight is kept."""
    return torch.stack([(bits >> i) & 1 for i in range(8)], -2).flatten(-2)[..., :L].bool()


def expected(qkv, grad, keep=None, p=0.0):
    """The result and the gradient of qkv in float64."""
    exact = qkv.detach().double().requires_grad_()
    q, k, v = exact.permute(2, 0, 3, 1, 4)
    weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
    weights = weights if keep is None else weights * keep * kept_scale(p)
    out = (weights @ v).transpose(1, 2).flatten(2)
    out.backward(grad.double())
    return out.detach(), exact.grad


def assert_close(found, wanted, tolerance=TOLERANCE):
    """The error of any number is below the tolerance, times the largest number."""
    error = (found.detach().double() - wanted).abs().max()
    assert error <= tolerance * wanted.abs().max(), error


@pytest.mark.parametrize("p", [0.0, 0.1, 0.7])
@pytest.mark.parametrize(
    ("B", "L", "H", "d"), [(2, 64, 2, 16), (1, 37, 3, 32), (2, 1, 2, 16), (1, 100, 1, 64), (1, 256, 1, 16)]
)
def test_it_is_the_formula_with_the_mask_that_it_reports(B, L, H, d, p):
    qkv, grad = inputs(B, L, H, d)
    qkv.requires_grad_()
    out, lse, bits = short_attention_parts(qkv, None, p, seed_of(3) if p else None)
    out.backward(grad)
    wanted, gradient = expected(qkv, grad, mask_of(bits, L) if p else None, p)
    assert_close(out, wanted)
    for i in range(3):  # queries, keys, values; one key has weight 1, whatever it is
        assert_close(qkv.grad[:, :, i], gradient[:, :, i]) if L > 1 or i == 2 else None
    q, k, _ = qkv.detach().double().permute(2, 0, 3, 1, 4)
    torch.testing.assert_close(
        lse.double(), (q @ k.mT / d**0.5).logsumexp(-1) / torch.tensor(2.0).log().to(q), atol=1e-3, rtol=1e-5
    )


@pytest.mark.parametrize("dtype", [torch.float16, pytest.param(torch.bfloat16, marks=pytest.mark.gpu)])
def test_sixteen_bits_cost_little(dtype):
    qkv, grad = inputs(2, 48, 2, 16, dtype)
    qkv.requires_grad_()
    out = short_attention(qkv)
    out.backward(grad)
    assert out.dtype == qkv.grad.dtype == dtype
    wanted, gradient = expected(qkv, grad)
    q, k, v = qkv.detach().permute(2, 0, 3, 1, 4)
    assert_close(out, wanted, 4 * torch.finfo(dtype).eps)
    assert_close(qkv.grad, gradient, 8 * torch.finfo(dtype).eps)
    assert_close(out, F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2).double(), 1e-2)


def test_queries_and_keys_may_lie_apart_from_values():
    """As in the transformer: queries and keys (2, B, H, L, d), values a view of their own tensor."""
    (qkv, grad), p = inputs(2, 20, 2, 16), 0.2
    apart = qkv[:, :, :2].permute(2, 0, 3, 1, 4).contiguous().requires_grad_()
    values = torch.stack([qkv[:, :, 2], qkv[:, :, 0]], -1).requires_grad_()  # its last axis has a stride of 2
    qkv.requires_grad_()
    together = short_attention(qkv, None, p, seed_of(1))
    together.backward(grad)
    out = short_attention(apart.permute(1, 3, 0, 2, 4), values[..., 0], p, seed_of(1))
    out.backward(grad)
    assert torch.equal(out, together)
    assert torch.equal(apart.grad.permute(1, 3, 0, 2, 4), qkv.grad[:, :, :2])
    assert torch.equal(values.grad[..., 0], qkv.grad[:, :, 2])


def test_strides_do_not_matter():
    qkv, grad = inputs(2, 20, 2, 16)
    wanted = short_attention(qkv)
    for order in ((4, 3, 2, 1, 0), (2, 3, 1, 0, 4)):
        inverse = [order.index(i) for i in range(5)]
        other = qkv.permute(order).contiguous().permute(inverse).requires_grad_()
        out = short_attention(other)
        assert torch.equal(out, wanted)
        out.backward(grad.mT.contiguous().mT)
        assert_close(other.grad, expected(qkv, grad)[1])


def test_a_constant_gradient_is_read_right():
    """Expanded, as that of a sum is."""
    qkv, grad = inputs(1, 8, 1, 16)
    qkv.requires_grad_()
    short_attention(qkv).sum().backward()
    assert_close(qkv.grad[:, :, 2], expected(qkv, torch.ones_like(grad))[1][:, :, 2])


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_share_of_kept_weights_is_that_of_p(p):
    """4 standard errors: a false alarm in 16,000."""
    qkv, _ = inputs(2, 256, 2, 16)
    keep = mask_of(short_attention_parts(qkv, None, p, seed_of(11))[2], 256).double()
    error = (p * (1 - p)) ** 0.5
    assert abs(keep.mean() - (1 - p)) < 4 * error / keep.numel() ** 0.5
    for axis in range(4):  # no head, query or key is favoured; 772 comparisons, 5 standard errors
        shares = keep.transpose(0, axis).flatten(1).mean(1)
        assert (shares - (1 - p)).abs().max() < 5 * error / (keep.numel() / keep.shape[axis]) ** 0.5
    flat = (keep - keep.mean()).flatten()
    for lag in (1, 2, 8, 32, 64, 256, 65536):  # neighbours in every direction know nothing of each other
        assert abs((flat[:-lag] * flat[lag:]).mean()) < 5 * error**2 / (len(flat) - lag) ** 0.5


def test_the_seed_decides():
    qkv, _ = inputs(1, 64, 1, 16)
    masks = [short_attention_parts(qkv, None, 0.5, seed_of(s))[2] for s in (5, 5, 6, 5 + 2**32)]
    assert torch.equal(masks[0], masks[1])
    for other in masks[2:]:
        agree = (mask_of(masks[0], 64) == mask_of(other, 64)).double().mean()
        assert abs(agree - 0.5) < 4 * 0.5 / 64


def test_large_logits_do_not_overflow():
    qkv, grad = inputs(1, 16, 1, 16)
    qkv = (30 * qkv).requires_grad_()
    out = short_attention(qkv)
    out.backward(grad)
    wanted, _ = expected(qkv, grad)
    assert_close(out, wanted, 10 * TOLERANCE)
    assert qkv.grad.isfinite().all()


def test_nothing_gives_nothing():
    qkv = inputs(1, 4, 2, 16)[0][:0].requires_grad_()
    out = short_attention(qkv, None, 0.1, seed_of(1))
    out.sum().backward()
    assert out.shape == (0, 4, 32)
    assert qkv.grad.shape == qkv.shape


@pytest.mark.parametrize("L", [1, 16, 17, 200, 256])
def test_the_padded_length_is_a_power_of_two(L):
    assert padded(L) >= max(L, 16)
    assert padded(L) & (padded(L) - 1) == 0
    assert padded(L) < 2 * max(L, 16)


@pytest.mark.parametrize("p", [0.0, 0.3])
def test_torch_compile_keeps_it_as_one_operation(p):
    qkv, grad = inputs(2, 20, 2, 16)
    weight = torch.randn(32, 32, device=DEVICE, dtype=TYPE)

    def layer(qkv):
        return short_attention(qkv, None, p, seed_of(1) if p else None) @ weight

    found = []
    for function in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        leaf = qkv.clone().requires_grad_()
        out = function(leaf)
        out.backward(grad)
        found.append((out.detach(), leaf.grad))
    torch.testing.assert_close(found[0], found[1])


def test_the_registrations_agree_with_the_kernel():
    qkv, _ = inputs(1, 20, 2, 16)
    tests = ("test_schema", "test_faketensor", "test_autograd_registration")
    for p, seed in ((0.0, None), (0.3, seed_of(1))):
        leaf = qkv.clone().requires_grad_()
        torch.library.opcheck(torch.ops.usd3.short_attention, (leaf, None, p, seed), test_utils=tests)
    out, lse, bits = short_attention_parts(qkv, None, 0.3, seed_of(1))
    arguments = (qkv, None, 0.3, out, lse, bits, torch.ones_like(out))
    torch.library.opcheck(torch.ops.usd3.short_attention_backward, arguments, test_utils=tests[:2])


@pytest.mark.gpu
def test_a_cuda_graph_draws_anew_in_every_replay():
    qkv, grad = inputs(2, 64, 2, 16)
    leaf = qkv.clone().requires_grad_()

    def step():
        seed = torch.randint(2**62, (1,), device=DEVICE)
        out, _, bits = short_attention_parts(leaf, None, 0.2, seed)
        return out, bits, *torch.autograd.grad(out, leaf, grad)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph, masks = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        out, bits, gradient = step()
    for _ in range(2):
        graph.replay()
        masks.append(bits.clone())
        wanted = expected(qkv, grad, mask_of(bits, 64), 0.2)
        assert_close(out, wanted[0])
        assert_close(gradient, wanted[1])
    assert not torch.equal(*masks)
