"""The losses of every row from logits, with their gradient, for autograd and for torch.compile.

Per element, with f = softmax(logits), the truth x_0 and the noise m:

    vlb   sum over z of k log(k/h) - k + h      k_z = A [z = x_0] + N c_k m_z      h_z = A f_z + N c_h m_z   (z != x)
    ce    -log f_x0
    l2    || f - e_x0 + min(1, phi) (f_x - [x = x_0]) (e_x - m) ||^2

A = to_data and N = to_noise are coefficients of the object, c_k and c_h the probability that x is noise under the truth
and under the model; docs/kernels.md has the rest. `chunked_loss.py` and `triton_loss.py` compute the rows.

`weighted_loss` knows the weights of its terms, so it computes the gradient in the forward pass and stores nothing else.
`terms` returns the terms of each element and computes them again when their gradient is needed.
"""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from usd3.kernels.choice import chosen
from usd3.kernels.padding import empty_as_wide

if TYPE_CHECKING:
    from usd3.kernels.projection import Projection
    from usd3.kernels.read_rows import RowsRead

__all__ = [
    "ALPHA_BAR",
    "CE",
    "L2",
    "LOST",
    "STAY",
    "TO_DATA",
    "TO_NOISE",
    "VLB",
    "WEIGHTED",
    "NoiseTables",
    "Problem",
    "as_rows",
    "flattened",
    "loss_rows",
    "terms",
    "weighted_loss",
]

TO_DATA, TO_NOISE, STAY, ALPHA_BAR, LOST = range(5)
"""Rows of `Problem.coefficients`; LOST is 1 - alpha_bar."""

VLB, CE, L2, WEIGHTED = range(4)
"""Rows of the terms; the first three are also the rows of their weights, and WEIGHTED is the weighted sum."""


@dataclass(frozen=True)
class NoiseTables:
    """The noise m, and the categories that data can have. `usd3.core.noise.Noise.tables` has its arguments.

    Args:
        num_classes: K.
        mask: a category that no data has, so that f is 0 there; -1: there is none.
        absorbing: all noise is the mask, m = e_mask.
        m: float64 table (P, K) of noise probabilities; row i of the whole problem has m[i % P]. None where a kernel
            knows m: uniform and absorbing noise.
        support: bool table (S, K) of the categories that data can have, the mask not among them; row i has
            support[i % S]. f is 0 elsewhere. None: all categories but the mask.
    """

    num_classes: int
    mask: int = -1
    absorbing: bool = False
    m: Tensor | None = None
    support: Tensor | None = None


@dataclass(frozen=True)
class Problem:
    """R = B D rows, one per element, whose losses are wanted. The D rows of an object follow one another.

    Args:
        x: (R,) int64, the current categories x_t.
        x_0: (R,) int64, the true categories.
        coefficients: (5, B) float64, the rows TO_DATA, TO_NOISE, STAY, ALPHA_BAR and LOST for each object.
        is_step: True for a step t -> s, whose coefficients are probabilities and where z = x counts; False for a rate.
        noise: the noise, and the categories of data.
        free: (R,) bool. Rows that are not free are not read: their terms and gradients are 0. None: all are free.
        elements: D, the number of rows of an object.
        first: number of the first row, where these rows are a part of a larger problem.
        read: the rows that have a loss, if they were counted. None: whoever needs them counts.
    """

    x: Tensor
    x_0: Tensor
    coefficients: Tensor
    is_step: bool
    noise: NoiseTables
    free: Tensor | None = None
    elements: int = 1
    first: int = 0
    read: "RowsRead | None" = None

    @classmethod
    def of(
        cls,
        x: Tensor,
        x_0: Tensor,
        coefficients: Tensor,
        is_step: bool,
        noise: NoiseTables,
        free: Tensor | None = None,
        read: "RowsRead | None" = None,
    ) -> "Problem":
        """The problem of x, x_0 and `free`, each (B, N1, ..., Nk), as rows. The other arguments are the fields."""
        return cls(
            x=flattened(x),
            x_0=flattened(x_0),
            coefficients=coefficients,
            is_step=is_step,
            noise=noise,
            free=None if free is None else flattened(free),
            elements=math.prod(x.shape[1:]),
            read=read,
        )

    def part(self, rows: slice | Tensor, weights: Tensor) -> tuple["Problem", Tensor]:
        """The problem of these rows alone, slice(start, stop) or an index (n,), and its weights.

        Rows of an index are objects of one element each: their numbers and their rows of tables come with them.
        """
        free = None if self.free is None else self.free[rows]
        part = replace(self, x=self.x[rows], x_0=self.x_0[rows], free=free, read=None)
        if isinstance(rows, slice):
            return replace(part, first=self.first + rows.start), weights
        place = rows + self.first
        of = place // self.elements
        noise = replace(self.noise, m=_table_rows(self.noise.m, place), support=_table_rows(self.noise.support, place))
        return replace(part, coefficients=self.coefficients[:, of], noise=noise, elements=1, first=0), weights[:, of]


def _table_rows(table: Tensor | None, place: Tensor) -> Tensor | None:
    """The rows of a table (P, K) that belong to these rows of the whole problem, (n, K), or (1, K) where all share."""
    return table if table is None or len(table) == 1 else table[place % len(table)]


def flattened(x: Tensor) -> Tensor:
    """(B, N1, ..., Nk) as rows (R,) without gaps."""
    return x.reshape(-1).contiguous()


def as_rows(logits: Tensor) -> Tensor:
    """(..., K) as (R, K) with adjacent categories; a view where that is possible."""
    rows = logits.reshape(-1, logits.shape[-1])
    return rows if rows.stride(-1) == 1 or rows.numel() == 0 else rows.contiguous()


def weighted_loss(
    logits: "Tensor | Projection", p: Problem, weights: Tensor, with_l2: bool, impl: str, inplace: bool = False
) -> tuple[Tensor, Tensor]:
    """Sums over all rows: those of vlb, ce and l2, (3,), and the weighted loss, (), which alone has a gradient.

    Args:
        logits: (..., K), R rows in all; or a `Projection`, whose logits are never held all at once.
        p: what the rows are.
        weights: (3, B) float64, the weights of vlb, ce and l2 of each object.
        with_l2: whether l2 is computed; else it is 0.
        impl: one of `usd3.kernels.IMPLEMENTATIONS` except "eager".
        inplace: let the gradient overwrite the logits. Their values are lost: a second backward pass raises, and
            autograd raises where an earlier operation needs them.
    """
    kind = chosen(impl, logits.device)
    if not isinstance(logits, Tensor):
        from usd3.kernels.projection import projected_loss  # it imports this module

        return projected_loss(logits, p, weights, with_l2, kind)
    if torch.compiler.is_compiling():
        tensors = (as_rows(logits), p.x, p.x_0, p.coefficients, p.noise.m, p.noise.support, p.free, weights)
        numbers = (p.is_step, p.noise.num_classes, p.noise.mask, p.noise.absorbing, p.elements)
        sums: Tensor = _operation(*tensors, *numbers, with_l2, kind)[0]
        return sums[:WEIGHTED], sums[WEIGHTED]
    with_gradient = logits.requires_grad and torch.is_grad_enabled()
    term_sums, loss = _WeightedLoss.apply(logits, p, weights, with_l2, kind, inplace, with_gradient)
    return term_sums, loss


def terms(logits: Tensor, p: Problem, with_l2: bool, impl: str) -> Tensor:
    """vlb, ce and l2 of each element, (3, ...) for logits (..., K); each has a gradient.

    The arguments are those of `weighted_loss`.
    """
    each: Tensor = _Terms.apply(logits, p, with_l2, chosen(impl, logits.device))
    return each


def loss_rows(logits: Tensor, p: Problem, weights: Tensor, with_l2: bool, gradient: Tensor | None, impl: str) -> Tensor:
    """Terms (4, R) of each row: vlb, ce, l2 and their weighted sum. float32, or float64 where the logits are.

    Args:
        logits: (R, K) with adjacent categories; the rows may lie apart.
        p: what the rows are.
        weights: float64 weights of vlb, ce and l2, (3, B) for each object or (3, R) for each row.
        with_l2: whether l2 is computed; else it is 0.
        gradient: (R, K), receives the gradient of the weighted sum. It may be the logits themselves. None: no gradient.
        impl: "chunked", "cpp" or "triton".

    Rows that are not free, or that are certainly clean (m_x = 0), are not read; their terms and gradient are 0.
    """
    if impl == "triton":
        from usd3.kernels.triton_loss import loss_rows as rows  # needs Triton
    elif impl == "cpp":
        from usd3.kernels.cpp_loss import loss_rows as rows
    else:
        from usd3.kernels.chunked_loss import loss_rows as rows
    with torch.cuda.device_of(logits):  # a kernel starts on the current device
        return rows(logits, p, weights, with_l2, gradient)


class _WeightedLoss(torch.autograd.Function):
    """Forms the gradient in the forward pass; the backward pass only scales it."""

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        p: Problem,
        weights: Tensor,
        with_l2: bool,
        impl: str,
        inplace: bool,
        with_gradient: bool,
    ) -> tuple[Tensor, Tensor]:
        rows = as_rows(logits)
        inplace = inplace and rows.stride(0) >= rows.shape[1]  # rows that share memory cannot be overwritten
        # float16: wait for the backward pass, as a small gradient would underflow before a scaled loss scales it
        late = logits.dtype == torch.float16 and not inplace
        wide = (rows if inplace else empty_as_wide(rows)) if with_gradient and not late else None
        gradient = None if wide is None else wide[:, : rows.shape[1]]
        sums = loss_rows(rows, p, weights, with_l2, gradient, impl).sum(1)
        if inplace and with_gradient:
            torch.autograd.graph.increment_version(logits)
        else:
            ctx.save_for_backward(logits)
        ctx.shape, ctx.wide, ctx.impl, ctx.inplace = logits.shape, wide, impl, inplace
        ctx.problem = p, weights, with_l2
        term_sums, loss = sums[:WEIGHTED], sums[WEIGHTED].clone()  # no view: a caller may scale its loss in place
        ctx.mark_non_differentiable(term_sums)
        ctx.set_materialize_grads(False)  # no zeros for the sums, which have no gradient
        return term_sums, loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: None, grad: Tensor | None) -> tuple[Tensor | None, ...]:
        if grad is None:  # of nothing that depends on the loss
            return (None,) * 7
        wide, ctx.wide = ctx.wide, None  # autograd may keep and change what it is given
        if wide is not None:
            return _scaled(wide, grad, ctx.impl)[:, : ctx.shape[-1]].reshape(ctx.shape), *[None] * 6
        if ctx.inplace:
            raise RuntimeError("the logits were overwritten by their gradient: expected one backward pass")
        (logits,), (p, weights, with_l2) = ctx.saved_tensors, ctx.problem
        rows = as_rows(logits)
        gradient = torch.empty_like(rows)
        loss_rows(rows, p, weights * grad.double(), with_l2, gradient, ctx.impl)
        return gradient.reshape(ctx.shape), *[None] * 6


class _Terms(torch.autograd.Function):
    """Keeps the logits and computes the gradient when its weights, the gradients of the terms, are there."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, p: Problem, with_l2: bool, impl: str) -> Tensor:
        ctx.save_for_backward(logits)
        ctx.problem, ctx.with_l2, ctx.impl = p, with_l2, impl
        unweighted = torch.zeros_like(p.coefficients[:3])
        each = loss_rows(as_rows(logits), p, unweighted, with_l2, None, impl)
        return each[:WEIGHTED].reshape(3, *logits.shape[:-1])

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
    """factor * gradient, in place. No-op where the factor is 1, as it nearly always is."""
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
    support: Tensor | None,
    free: Tensor | None,
    weights: Tensor,
    is_step: bool,
    num_classes: int,
    mask: int,
    absorbing: bool,
    elements: int,
    with_l2: bool,
    impl: str,
) -> tuple[Tensor, Tensor]:
    """The sums (4,) and the gradient (R, K) of the last, as one operation that torch.compile does not look into."""
    noise = NoiseTables(num_classes, mask, absorbing, m, support)
    p = Problem(x, x_0, coefficients, is_step, noise, free, elements)
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
    return (gradient * grad[WEIGHTED].to(gradient.dtype), *[None] * 14)


_operation.register_autograd(_hand_out_gradient, setup_context=_keep_gradient)
