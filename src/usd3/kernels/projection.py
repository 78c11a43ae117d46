"""The loss from hidden states and the output layer: logits are formed a bounded number of rows at a time.

A network for many categories spends most of its memory on logits (B, D, K) and their gradient. It can return a
`Projection` in their place: `Diffusion.loss` then never holds more than `CELLS_AT_ONCE` of them.

Imported where it is needed: `torch.compiler.disable` brings torch's compiler, which takes a second.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from usd3.kernels.choice import chosen
from usd3.kernels.hidden import Projection
from usd3.kernels.losses import loss_rows
from usd3.kernels.problem import Problem

__all__ = ["projected_loss"]

CELLS_AT_ONCE = {"cpu": 1 << 20, "cuda": 1 << 26}
"""Logits that are formed at once."""


@torch.compiler.disable  # type: ignore[untyped-decorator]  # a loop over chunks
def projected_loss(logits: Projection, p: Problem, weights: Tensor, with_l2: bool, impl: str) -> Tensor:
    """Sums over all rows, (4,): vlb, ce, l2, and the sum with `weights`, float64 (3, B), which alone has a gradient."""
    kind = chosen(impl, logits.device)
    at_x = None if logits.at_x is None else logits.at_x.detach().reshape(-1)
    inputs = (logits.hidden, logits.weight, logits.bias)
    wanted = torch.is_grad_enabled() and any(v is not None and v.requires_grad for v in inputs)
    args = (*inputs, at_x, p, weights, with_l2, kind, wanted)
    shown, loss = _ProjectedLoss.apply(*args)
    return torch.cat([shown, loss[None]])


class _ProjectedLoss(torch.autograd.Function):
    """The gradients of all three inputs are formed in the forward pass, chunk by chunk."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        at_x: Tensor | None,
        p: Problem,
        weights: Tensor,
        with_l2: bool,
        impl: str,
        wanted: bool,
    ) -> tuple[Tensor, Tensor]:
        device = hidden.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        rows, W = hidden.detach().reshape(-1, hidden.shape[-1]), weight.detach().to(dtype)
        b = None if bias is None else bias.detach().to(dtype)
        to_hidden = torch.empty_like(rows) if wanted else None
        to_weight = torch.zeros_like(weight, dtype=torch.promote_types(dtype, torch.float32)) if wanted else None
        to_bias = None if bias is None or not wanted else torch.zeros_like(bias, dtype=to_weight.dtype)  # type: ignore[union-attr]
        sums = torch.zeros(4, dtype=torch.float64, device=hidden.device)
        size = max(1, CELLS_AT_ONCE.get(device, 1 << 20) // len(W))
        with torch.autocast(device, enabled=False):
            for start in range(0, len(rows), size):
                own = slice(start, min(start + size, len(rows)))
                h, part = rows[own].to(dtype), p.part(own)
                logits = F.linear(h, W, b)
                if at_x is not None:
                    logits.scatter_add_(1, part.x[:, None], at_x[own].to(dtype)[:, None])
                found = loss_rows(logits, part, weights, with_l2, logits if wanted else None, impl)
                sums += found.sum(1)
                if to_hidden is not None and to_weight is not None:
                    to_hidden[own] = logits @ W
                    to_weight += logits.T @ h
                    if to_bias is not None:
                        to_bias += logits.sum(0, dtype=to_bias.dtype)
        if wanted:
            ctx.save_for_backward(to_hidden.reshape(hidden.shape), to_weight.to(weight.dtype), to_bias)  # type: ignore[union-attr]
        ctx.bias_dtype = None if bias is None else bias.dtype
        sums = sums.to(torch.promote_types(dtype, torch.float32))
        shown, loss = sums[:3], sums[3]
        ctx.mark_non_differentiable(shown)
        return shown, loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor, grad: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias = ctx.saved_tensors
        to_bias = None if bias is None else (bias * grad).to(ctx.bias_dtype)
        return hidden * grad.to(hidden.dtype), weight * grad.to(weight.dtype), to_bias, *[None] * 6
