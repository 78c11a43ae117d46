"""The loop behind `projected_loss`: form the logits of some rows, turn them into their gradient, and go on."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from usd3.kernels.choice import chosen
from usd3.kernels.loss import WEIGHTED, Problem, loss_rows
from usd3.kernels.projection import Projection

__all__ = ["CELLS_AT_ONCE", "projected_loss_in_chunks"]

CELLS_AT_ONCE = {"cpu": 1 << 20, "cuda": 1 << 26}
"""Logits formed at once, by type of device."""


@torch.compiler.disable  # type: ignore[untyped-decorator]  # a loop over chunks
def projected_loss_in_chunks(logits: Projection, p: Problem, weights: Tensor, with_l2: bool, impl: str) -> Tensor:
    """See `projected_loss`."""
    at_x = None if logits.at_x is None else logits.at_x.detach().reshape(-1)
    inputs = (logits.hidden, logits.weight, logits.bias)
    with_gradient = torch.is_grad_enabled() and any(v is not None and v.requires_grad for v in inputs)
    args = (*inputs, at_x, p, weights, with_l2, chosen(impl, logits.device), with_gradient)
    term_sums, loss = _ProjectedLoss.apply(*args)
    return torch.cat([term_sums, loss[None]])


class _ProjectedLoss(torch.autograd.Function):
    """Forms the gradients of hidden states, weight and bias in the forward pass, chunk by chunk."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,  # (..., H)
        weight: Tensor,  # (K, H)
        bias: Tensor | None,  # (K,)
        at_x: Tensor | None,  # (R,)
        p: Problem,
        weights: Tensor,  # (3, B)
        with_l2: bool,
        impl: str,
        with_gradient: bool,
    ) -> tuple[Tensor, Tensor]:
        device = hidden.device.type
        dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
        rows, W = hidden.detach().reshape(-1, hidden.shape[-1]), weight.detach().to(dtype)
        b = None if bias is None else bias.detach().to(dtype)
        d_hidden = torch.empty_like(rows) if with_gradient else None
        d_weight = torch.zeros_like(weight, dtype=torch.promote_types(dtype, torch.float32)) if with_gradient else None
        d_bias = None if bias is None or d_weight is None else torch.zeros_like(bias, dtype=d_weight.dtype)
        sums = torch.zeros(4, dtype=torch.float64, device=hidden.device)
        size = max(1, CELLS_AT_ONCE.get(device, 1 << 20) // len(W))
        with torch.autocast(device, enabled=False):
            for start in range(0, len(rows), size):
                chunk = slice(start, min(start + size, len(rows)))
                h, part = rows[chunk].to(dtype), p.part(chunk)
                logits = F.linear(h, W, b)  # (n, K)
                if at_x is not None:
                    logits.scatter_add_(1, part.x[:, None], at_x[chunk].to(dtype)[:, None])
                sums += loss_rows(logits, part, weights, with_l2, logits if with_gradient else None, impl).sum(1)
                if d_hidden is not None and d_weight is not None:  # now the logits hold their gradient
                    d_hidden[chunk] = logits @ W
                    d_weight += logits.T @ h
                    if d_bias is not None:
                        d_bias += logits.sum(0, dtype=d_bias.dtype)
        if d_hidden is not None and d_weight is not None:
            ctx.save_for_backward(d_hidden.reshape(hidden.shape), d_weight.to(weight.dtype), d_bias)
        ctx.bias_dtype = None if bias is None else bias.dtype
        sums = sums.to(torch.promote_types(dtype, torch.float32))
        term_sums, loss = sums[:WEIGHTED], sums[WEIGHTED]
        ctx.mark_non_differentiable(term_sums)
        return term_sums, loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor, grad: Tensor) -> tuple[Tensor | None, ...]:
        d_hidden, d_weight, d_bias = ctx.saved_tensors
        d_bias = None if d_bias is None else (d_bias * grad).to(ctx.bias_dtype)
        return d_hidden * grad.to(d_hidden.dtype), d_weight * grad.to(d_weight.dtype), d_bias, *[None] * 6
