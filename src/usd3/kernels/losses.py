"""The losses straight from logits, for autograd and for torch.compile.

`weighted_loss` knows its weights, so it computes the gradient in the forward pass and keeps nothing else. `terms` gives
the terms of each element and computes again where their gradient is asked for.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from usd3.kernels.choice import chosen, run_rows
from usd3.kernels.problem import Problem, as_rows

__all__ = ["loss_rows", "terms", "weighted_loss"]


def loss_rows(logits: Tensor, p: Problem, weights: Tensor, with_l2: bool, gradient: Tensor | None, impl: str) -> Tensor:
    """Terms (4, R) of logits (R, K): vlb, ce, l2 and their weighted sum; `gradient` receives that of the sum."""
    return run_rows("loss_rows", impl, logits, p, weights, with_l2, gradient)


def weighted_loss(
    logits: Tensor, p: Problem, weights: Tensor, with_l2: bool, impl: str, inplace: bool = False
) -> Tensor:
    """Sums over all rows, (4,): vlb, ce, l2, and the sum with `weights`, float64 (3, B). Only the last has a gradient.

    With `inplace` the gradient overwrites the logits: they are lost, and whoever needs them later in a backward pass
    is told so by autograd.
    """
    kind = chosen(impl, logits.device)
    if torch.compiler.is_compiling():
        numbers = (p.is_step, p.num_classes, p.mask, p.elements)
        sums: Tensor = _operation(
            as_rows(logits), p.x, p.x_0, p.coefficients, p.m, p.free, weights, *numbers, with_l2, kind
        )[0]
        return sums
    wanted = logits.requires_grad and torch.is_grad_enabled()
    shown, loss = _WeightedLoss.apply(logits, p, weights, with_l2, kind, inplace, wanted)
    return torch.cat([shown, loss[None]])


def terms(logits: Tensor, p: Problem, with_l2: bool, impl: str) -> Tensor:
    """Terms of each element, (3, *shape): vlb, ce, l2 (0 unless asked for)."""
    found: Tensor = _Terms.apply(logits, p, with_l2, chosen(impl, logits.device))
    return found


class _WeightedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, p: Problem, weights: Tensor, with_l2: bool, impl: str, inplace: bool, wanted: bool
    ) -> tuple[Tensor, Tensor]:
        rows = as_rows(logits)
        inplace = inplace and rows.stride(0) >= rows.shape[1]  # rows that share memory cannot be overwritten
        late = logits.dtype == torch.float16 and not inplace  # a scaled loss must not underflow before it is scaled
        gradient = (rows if inplace else torch.empty_like(rows)) if wanted and not late else None
        sums = loss_rows(rows, p, weights, with_l2, gradient, impl).sum(1)
        if inplace and wanted:
            torch.autograd.graph.increment_version(logits)
        else:
            ctx.save_for_backward(logits)
        ctx.shape, ctx.gradient, ctx.impl, ctx.inplace = logits.shape, gradient, impl, inplace
        ctx.problem = p, weights, with_l2
        shown, loss = sums[:3], sums[3]
        ctx.mark_non_differentiable(shown)
        return shown, loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor, grad: Tensor) -> tuple[Tensor | None, ...]:
        gradient, ctx.gradient = ctx.gradient, None  # autograd may keep and change what it is given
        if gradient is not None:
            return _scaled(gradient, grad, ctx.impl).reshape(ctx.shape), *[None] * 6
        if ctx.inplace:
            raise RuntimeError("the logits were overwritten by their gradient: expected one backward pass")
        (logits,), (p, weights, with_l2) = ctx.saved_tensors, ctx.problem
        rows = as_rows(logits)
        gradient = torch.empty_like(rows)
        loss_rows(rows, p, weights * grad.double(), with_l2, gradient, ctx.impl)
        return gradient.reshape(ctx.shape), *[None] * 6


class _Terms(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, p: Problem, with_l2: bool, impl: str) -> Tensor:
        ctx.save_for_backward(logits)
        ctx.problem, ctx.with_l2, ctx.impl = p, with_l2, impl
        found = loss_rows(as_rows(logits), p, torch.zeros_like(p.coefficients[:3]), with_l2, None, impl)
        return found[:3].reshape(3, *logits.shape[:-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (logits,) = ctx.saved_tensors
        p, rows = ctx.problem, as_rows(logits)
        gradient = torch.empty_like(rows)
        by_row = replace(p, coefficients=p.coefficients.repeat_interleave(p.elements, 1), elements=1)
        loss_rows(rows, by_row, grad.reshape(3, -1).double().contiguous(), ctx.with_l2, gradient, ctx.impl)
        return gradient.reshape(logits.shape), None, None, None


def _scaled(gradient: Tensor, factor: Tensor, impl: str) -> Tensor:
    """factor * gradient, in place; where the factor is 1, as it nearly always is, nothing is read or written."""
    if impl == "triton":
        from usd3.kernels.triton_loss import scale_

        with torch.cuda.device_of(gradient):
            return scale_(gradient, factor)
    return gradient if factor.device.type == "cpu" and float(factor) == 1 else gradient.mul_(factor)


@torch.library.custom_op("usd3::weighted_loss", mutates_args=())
def _operation(
    rows: Tensor,
    x: Tensor,
    x_0: Tensor,
    coefficients: Tensor,
    m: Tensor | None,
    free: Tensor | None,
    weights: Tensor,
    is_step: bool,
    num_classes: int,
    mask: int,
    elements: int,
    with_l2: bool,
    impl: str,
) -> tuple[Tensor, Tensor]:
    """What torch.compile sees: one operation that gives the sums (4,) and the gradient (R, K) of the last."""
    p = Problem(x, x_0, coefficients, is_step, num_classes, mask, m, free, elements)
    gradient = torch.empty_like(rows, memory_format=torch.contiguous_format)
    return loss_rows(as_rows(rows), p, weights, with_l2, gradient, impl).sum(1), gradient


@_operation.register_fake
def _fake(rows: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    gradient = torch.empty_like(rows, memory_format=torch.contiguous_format)
    return rows.new_empty(4, dtype=torch.promote_types(rows.dtype, torch.float32)), gradient


def _keep_gradient(ctx: Any, inputs: Any, output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1])


def _hand_out_gradient(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    (gradient,) = ctx.saved_tensors
    return (gradient * grad[3].to(gradient.dtype), *[None] * 12)


_operation.register_autograd(_hand_out_gradient, setup_context=_keep_gradient)
