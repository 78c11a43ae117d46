"""The loop behind `projected_loss`: form the logits of some rows, turn them into their gradient, and go on."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from usd3.kernels.choice import chosen
from usd3.kernels.loss import WEIGHTED, Problem, loss_rows
from usd3.kernels.padding import padded_rows, padded_size
from usd3.kernels.projection import Projection
from usd3.kernels.read_rows import rows_read

__all__ = ["CELLS_AT_ONCE", "projected_loss_in_chunks"]

CELLS_AT_ONCE = {"cpu": 1 << 20, "cuda": 1 << 27}
"""Logits formed at once, by type of device."""


@torch.compiler.disable  # type: ignore[untyped-decorator]  # a loop over chunks
def projected_loss_in_chunks(
    logits: Projection, p: Problem, weights: Tensor, with_l2: bool, impl: str
) -> tuple[Tensor, Tensor]:
    """See `projected_loss`."""
    at_x = None if logits.at_x is None else logits.at_x.detach().reshape(-1)
    inputs = (logits.hidden, logits.weight, logits.bias)
    with_gradient = torch.is_grad_enabled() and any(v is not None and v.requires_grad for v in inputs)
    args = (*inputs, at_x, p, weights, with_l2, chosen(impl, logits.device), with_gradient)
    term_sums, loss = _ProjectedLoss.apply(*args)
    return term_sums, loss


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
        rows, K = hidden.detach().reshape(-1, hidden.shape[-1]), len(weight)
        width = padded_size(K, hidden.device)
        W = padded_rows(weight.detach().to(dtype), width)
        b = None if bias is None else padded_rows(bias.detach().to(dtype), width)
        exact = torch.promote_types(dtype, torch.float32)
        d_hidden = torch.zeros_like(rows) if with_gradient else None  # rows without a loss keep 0
        d_weight = torch.zeros_like(W, dtype=exact) if with_gradient else None
        d_bias = None if b is None or not with_gradient else torch.zeros_like(b, dtype=exact)
        sums = torch.zeros(4, dtype=torch.float64, device=hidden.device)
        with torch.autocast(device, enabled=False):
            for at in _chunks(p, max(1, CELLS_AT_ONCE.get(device, 1 << 20) // width)):
                h, (part, part_weights) = rows[at].to(dtype), p.part(at, weights)
                wide = F.linear(h, W, b)  # (n, width): the padding is 0, and so is its gradient
                logits = wide[:, :K]
                if at_x is not None:
                    logits.scatter_add_(1, part.x[:, None], at_x[at].to(dtype)[:, None])
                sums += loss_rows(logits, part, part_weights, with_l2, logits if with_gradient else None, impl).sum(1)
                if d_hidden is not None and d_weight is not None:  # now the logits hold their gradient
                    d_hidden[at] = (wide @ W).to(d_hidden.dtype)
                    _add_product(d_weight, wide.T, h)
                    if d_bias is not None:
                        d_bias += wide.sum(0, dtype=d_bias.dtype)
        if d_hidden is not None and d_weight is not None:
            d_bias = None if d_bias is None else d_bias[:K]
            ctx.save_for_backward(d_hidden.reshape(hidden.shape), d_weight[:K].to(weight.dtype), d_bias)
        ctx.bias_dtype = None if bias is None else bias.dtype
        sums = sums.to(torch.promote_types(dtype, torch.float32))
        term_sums, loss = sums[:WEIGHTED], sums[WEIGHTED].clone()  # no view: a caller may scale its loss in place
        ctx.mark_non_differentiable(term_sums)
        return term_sums, loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor, grad: Tensor) -> tuple[Tensor | None, ...]:
        d_hidden, d_weight, d_bias = ctx.saved_tensors
        d_bias = None if d_bias is None else (d_bias * grad).to(ctx.bias_dtype)
        return d_hidden * grad.to(d_hidden.dtype), d_weight * grad.to(d_weight.dtype), d_bias, *[None] * 6


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a @ b; on a GPU in one operation, which adds to a float32 total without rounding the product before."""
    if total.device.type == "cuda" and total.dtype == torch.float32 and a.dtype in (torch.float16, torch.bfloat16):
        torch.addmm(total, a, b, out_dtype=total.dtype, out=total)
    else:
        total += a @ b


def _chunks(p: Problem, size: int) -> Iterator[slice | Tensor]:
    """The rows that have a loss, at most `size` at a time: slices of all rows, or numbers of rows (n,).

    A GPU is not asked for these rows here, it would have to finish the network first: `p.read` says them, or all count.
    """
    read = rows_read(p.x, p.noise, p.free) if p.read is None and p.x.device.type == "cpu" else p.read
    if read is None:
        yield from (slice(start, min(start + size, len(p.x))) for start in range(0, len(p.x), size))
    else:
        yield from (index for index in read.index().split(size) if len(index))
