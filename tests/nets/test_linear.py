"""Linear layers without gradients on the CPU."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune

from usd3.nets import _linear
from usd3.nets._linear import linear, linear_gelu

COMPUTED_BY_ONEDNN = pytest.mark.skipif(not _linear._RUNS_WELL, reason="oneDNN or AVX-512 is missing")


@pytest.fixture
def fused(monkeypatch):
    """How often oneDNN is called."""
    calls, operation = [], _linear._FUSED
    monkeypatch.setattr(_linear, "_FUSED", lambda *args: (calls.append(args[3]), operation(*args))[1])
    return calls


@pytest.mark.parametrize("shape", [(2, 30, 48), (1, 48), (0, 48)])
@pytest.mark.parametrize("bias", [True, False])
def test_inference_gives_what_the_layer_gives(shape, bias):
    layer, h = nn.Linear(48, 20, bias=bias), torch.randn(shape)
    expected = layer(h).detach()
    with torch.inference_mode():
        torch.testing.assert_close(linear(layer, h), expected)
        torch.testing.assert_close(linear_gelu(layer, h), F.gelu(expected, approximate="tanh"))


@COMPUTED_BY_ONEDNN
def test_onednn_computes_inference_alone(fused):
    layer, h = nn.Linear(48, 20), torch.randn(3, 48)
    linear(layer, h).sum().backward()
    assert layer.weight.grad is not None
    assert fused == []
    with torch.no_grad():
        linear(layer, h), linear_gelu(layer, h)
    assert fused == ["none", "gelu"]


@COMPUTED_BY_ONEDNN
def test_other_precisions_keep_the_layer(fused):
    with torch.no_grad():
        assert linear(nn.Linear(4, 3).double(), torch.randn(2, 4).double()).dtype == torch.float64
        with torch.autocast("cpu", torch.bfloat16):
            assert linear(nn.Linear(4, 3), torch.randn(2, 4)).dtype == torch.bfloat16
    assert fused == []


class Doubled(nn.Module):
    """A layer as adapters make them: it shows the weight of the layer inside, and computes something else."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.weight, self.bias = inner, inner.weight, inner.bias

    def forward(self, h):
        return 2 * self.inner(h)


def quantised(layer):
    return torch.ao.quantization.quantize_dynamic(nn.Sequential(layer), {nn.Linear})[0]


def pruned(layer):
    layer = prune.identity(layer, "weight")
    with torch.no_grad():
        layer.weight_orig *= 3  # the weight follows in the next call
    return layer


def hooked(layer):
    layer.register_forward_hook(lambda module, args, out: -out)
    return layer


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:torch.quantize_per_tensor")
@pytest.mark.parametrize("changed", [Doubled, quantised, pruned, hooked])
def test_a_layer_that_users_changed_computes_itself(changed):
    layer, h = changed(nn.Linear(8, 6)), torch.randn(3, 8)
    with torch.no_grad():
        found = linear(layer, h), linear_gelu(layer, h)
        expected = layer(h)
    torch.testing.assert_close(found, (expected, F.gelu(expected, approximate="tanh")))


@pytest.fixture
def in_product(monkeypatch):
    """How often the operation of a GPU is called; a CPU takes it as well, with the exact GELU."""
    calls, operation = [], _linear._GELU_IN_PRODUCT
    monkeypatch.setattr(_linear, "_GPU", "cpu")
    monkeypatch.setattr(_linear, "_GELU_IN_PRODUCT", lambda *a, **kw: (calls.append(1), operation(*a, **kw))[1])
    return calls


@pytest.mark.parametrize("shape", [(2, 30, 48), (1, 48), (48,)])
@pytest.mark.parametrize("compile", [False, True])
def test_gelu_is_computed_with_the_product_in_16_bits(in_product, shape, compile):
    layer, h = nn.Linear(48, 20), torch.randn(shape)
    call = torch.compile(linear_gelu, backend="aot_eager", fullgraph=True) if compile else linear_gelu
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found = call(layer, h)
        assert found.dtype == torch.bfloat16
        torch.testing.assert_close(found, F.gelu(layer(h)), rtol=0.02, atol=0.01)
    assert in_product == [1]


def test_gelu_is_computed_by_itself_where_the_product_has_none(in_product):
    layer, h = nn.Linear(8, 6), torch.randn(3, 8)
    with torch.autocast("cpu", torch.bfloat16):
        linear_gelu(layer, h).sum().backward()  # with gradients
        with torch.no_grad():
            linear_gelu(layer, h[:0])
            linear_gelu(nn.Linear(8, 6, bias=False), h)
            linear_gelu(hooked(nn.Linear(8, 6)), h)
            assert linear_gelu(nn.Linear(8, 6).double(), h.double()).dtype == torch.float64  # autocast leaves it alone
    with torch.no_grad():
        linear_gelu(layer, h)  # in float32
        with pytest.raises(RuntimeError, match="dtype"):
            linear_gelu(layer, h.bfloat16())
    assert in_product == []


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("compile", [False, True])
def test_the_product_of_a_gpu_has_gelu(dtype, compile):
    layer, h = nn.Linear(64, 48).cuda(), 4 * torch.randn(5, 7, 64, device="cuda")
    call = torch.compile(linear_gelu, fullgraph=True) if compile else linear_gelu
    exact = F.gelu(layer(h), approximate="tanh")
    with torch.no_grad(), torch.autocast("cuda", dtype):
        found = call(layer, h)
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), exact, rtol=0.02, atol=0.05)
