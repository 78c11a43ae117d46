"""Linear layers as samplers and bounds call them: without gradients.

On the CPU torch's own linear layers call MKL, which on AMD's processors takes twice the time of oneDNN, and its tanh
GELU takes longer than the layer before it. oneDNN computes both in one operation, in float32. torch.compile calls the
same operation; nothing else in torch has it in public.

On a GPU, in 16 bits, cuBLAS computes the same GELU where it writes the product, which saves a pass over the widest
hidden states. Nor is this operation public: what it computes is that of torch's own decomposition of it.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["linear", "linear_gelu"]

_FUSED = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None
_RUNS_WELL = _FUSED is not None and torch.backends.cpu.get_cpu_capability().startswith("AVX512")
_GELU_IN_PRODUCT = getattr(torch, "_addmm_activation", None)
_GPU, _SIXTEEN_BITS = "cuda", (torch.float16, torch.bfloat16)


def linear(layer: nn.Linear, h: Tensor) -> Tensor:
    """layer(h)."""
    if not _is_inference(layer, h):
        return layer(h)  # type: ignore[no-any-return]
    return _FUSED(h, layer.weight, layer.bias, "none", [], "")  # type: ignore[misc, no-any-return]


def linear_gelu(layer: nn.Linear, h: Tensor) -> Tensor:
    """GELU(layer(h)), with the tanh approximation of GELU."""
    if _is_inference(layer, h):
        return _FUSED(h, layer.weight, layer.bias, "gelu", [], "tanh")  # type: ignore[misc, no-any-return]
    dtype = _gpu_dtype(layer, h)
    if dtype is None:
        return F.gelu(layer(h), approximate="tanh")
    rows, weight, bias = (z.to(dtype) for z in (h.reshape(-1, h.shape[-1]), layer.weight, layer.bias))
    return _GELU_IN_PRODUCT(bias, rows, weight.t(), use_gelu=True).reshape(*h.shape[:-1], -1)  # type: ignore[misc, no-any-return]


def _is_inference(layer: nn.Linear, h: Tensor) -> bool:
    """Whether oneDNN computes the layer: on a CPU with AVX-512, in float32 and without gradients."""
    if not _RUNS_WELL or torch.compiler.is_compiling() or torch.is_grad_enabled() or h.device.type != "cpu":
        return False
    if not _is_plain(layer):
        return False
    return h.dtype == layer.weight.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")


def _gpu_dtype(layer: nn.Linear, h: Tensor) -> torch.dtype | None:
    """The 16 bits in which cuBLAS computes the layer with its GELU; None: it does not."""
    if _GELU_IN_PRODUCT is None or h.device.type != _GPU or torch.version.hip is not None or torch.is_grad_enabled():
        return None
    if torch.is_autocast_enabled(_GPU):
        dtype = torch.get_autocast_dtype(_GPU)
        casts = h.dtype in (torch.float32, *_SIXTEEN_BITS) and layer.weight.dtype in (torch.float32, *_SIXTEEN_BITS)
    else:
        dtype, casts = h.dtype, h.dtype == layer.weight.dtype
    fits = casts and dtype in _SIXTEEN_BITS and h.numel() > 0 and layer.bias is not None and _is_plain(layer)
    return dtype if fits else None


def _is_plain(layer: nn.Module) -> bool:
    """Whether the layer does nothing but its product: users may quantise, adapt or prune it, or register hooks."""
    hooks = layer._forward_hooks or layer._forward_pre_hooks
    return type(layer) is nn.Linear and type(layer.weight) is nn.Parameter and not hooks
