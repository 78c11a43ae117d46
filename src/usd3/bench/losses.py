"""The contestants of a loss with its gradient, from logits or from hidden states."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from usd3._internal.compile import compiled as compile_function
from usd3.bench.other import Other
from usd3.bench.problem import DTYPES, Inputs, Problem
from usd3.bench.timing import Call
from usd3.core.diffusion import Diffusion
from usd3.kernels import Projection

__all__ = ["CROSS_ENTROPY", "compiled", "cross_entropy", "loss_calls", "projection_calls"]

CROSS_ENTROPY = "cross entropy"
Loss = Callable[[Inputs], Tensor]


def loss_calls(
    problem: Problem,
    sets: Sequence[Inputs],
    compile_eager: bool = False,
    other: Other | None = None,
    brief: bool = False,
) -> list[Call]:
    """Our loss and its variants, the eager code, cross entropy, and, if given, another implementation.

    Args:
        problem: the size and the diffusion.
        sets: inputs, taken in turn.
        compile_eager: also the eager code under `torch.compile`.
        other: another implementation.
        brief: without the variants of ours.
    """
    ours, eager, chunked = (partial(_ours, problem, problem.diffusion(i)) for i in ("auto", "eager", "chunked"))
    calls = [_call("usd3", ours, sets)]
    if not brief:
        calls.append(_in_place(problem, sets))
        if problem.device.type == "cpu":  # on a GPU it is slow, and used only if nothing else is there
            calls.append(_call("usd3 chunked", chunked, sets))
    calls.append(_call("usd3 eager", eager, sets))
    if compile_eager:
        calls.append(_call("usd3 compiled", compiled(eager), sets))
    calls.append(cross_entropy(problem, sets))
    if other is not None and other.loss is not None:
        calls.append(_call(other.name, partial(_other, problem, other.loss), sets, capture=False))
    return calls


def projection_calls(problem: Problem, hidden_size: int) -> list[Call]:
    """The loss from hidden states (B, D, H) and an output projection (K, H), with the gradients of both."""
    inputs, diffusion, dtype = problem.inputs(), problem.diffusion(), DTYPES[problem.dtype]
    chance = torch.Generator(problem.device).manual_seed(0)
    B, D, K = problem.size
    draw = partial(torch.randn, generator=chance, device=problem.device, dtype=dtype, requires_grad=True)
    hidden, weight = draw(B, D, hidden_size), draw(K, hidden_size)
    scale = hidden_size**-0.5
    with torch.no_grad():
        weight.mul_(scale)
    _, x_t, x_0, t, _ = inputs

    def ours(logits: Tensor | Projection, inplace: bool = False) -> Tensor:
        return diffusion.loss_from_logits(logits, x_t, x_0, t, problem.objective, inplace=inplace).loss

    losses: dict[str, Callable[[], Tensor]] = {
        "projection": lambda: ours(Projection(hidden, weight)),
        "linear + usd3": lambda: ours(F.linear(hidden, weight)),
        "linear + usd3 in place": lambda: ours(F.linear(hidden, weight), inplace=True),
        f"linear + {CROSS_ENTROPY}": lambda: F.cross_entropy(F.linear(hidden, weight).flatten(0, 1), x_0.flatten()),
    }

    def both(loss: Callable[[], Tensor]) -> tuple[Tensor, ...]:
        value = loss()
        return value.detach(), *torch.autograd.grad(value, (hidden, weight))

    return [Call(name, [partial(both, loss)]) for name, loss in losses.items()]


def cross_entropy(problem: Problem, sets: Sequence[Inputs]) -> Call:
    """Cross entropy on the same logits, forward and backward, to compare with."""
    K = problem.num_classes
    return _call(CROSS_ENTROPY, lambda i: F.cross_entropy(i.logits.reshape(-1, K), i.x_0.reshape(-1)), sets)


def compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function under torch.compile for one problem, as training compiles it."""
    torch._dynamo.reset()
    return compile_function(function)


def _call(name: str, loss: Loss, sets: Sequence[Inputs], capture: bool = True) -> Call:
    return Call(name, [partial(_forward_backward, loss, inputs) for inputs in sets], capture=capture)


def _forward_backward(loss: Loss, inputs: Inputs) -> tuple[Tensor, ...]:
    value = loss(inputs)
    return value.detach(), *torch.autograd.grad(value, inputs.logits)


def _ours(problem: Problem, diffusion: Diffusion, inputs: Inputs, inplace: bool = False) -> Tensor:
    logits, x_t, x_0, t, _ = inputs
    return diffusion.loss_from_logits(logits, x_t, x_0, t, problem.objective, inplace=inplace).loss


def _other(problem: Problem, loss: Callable[..., Tensor], inputs: Inputs) -> Tensor:
    logits, x_t, x_0, t, _ = inputs
    return loss(logits, x_t, x_0, t, problem)


def _in_place(problem: Problem, sets: Sequence[Inputs]) -> Call:
    """Our loss in place: the gradient overwrites copies of the logits, which are restored before each sample."""
    copies = [inputs._replace(logits=inputs.logits.detach().clone().requires_grad_()) for inputs in sets]

    def restore() -> None:
        for copied, inputs in zip(copies, sets):
            copied.logits.detach().copy_(inputs.logits.detach())

    call = _call("usd3 in place", partial(_ours, problem, problem.diffusion(), inplace=True), copies)
    return Call(call.name, call.sets, reset=restore)
