"""The contestants of one sampling step: x_s from logits and x_t."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from usd3.bench.losses import compiled, cross_entropy
from usd3.bench.other import Other
from usd3.bench.problem import Inputs, Problem
from usd3.bench.timing import Call
from usd3.core.diffusion import Diffusion

__all__ = ["step_calls"]

Step = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def step_calls(
    problem: Problem,
    sets: Sequence[Inputs],
    compile_eager: bool = False,
    other: Other | None = None,
    brief: bool = False,
) -> list[Call]:
    """Our step, the eager code, cross entropy, and, if given, another implementation.

    Args:
        problem: the size and the diffusion.
        sets: inputs, taken in turn.
        compile_eager: also all probabilities and their cumulative sum, under `torch.compile`.
        other: another implementation.
        brief: without cross entropy, which is measured forward and backward, to compare with.
    """
    eager = problem.diffusion("eager")
    calls = [_call("usd3", problem.diffusion().draw, sets), _call("usd3 eager", eager.draw, sets, capture=False)]
    if compile_eager:
        calls.append(_call("usd3 compiled", compiled(partial(_by_probabilities, eager)), sets))
    if not brief:
        calls.append(cross_entropy(problem, sets))
    if other is not None and other.step is not None:
        calls.append(_call(other.name, partial(_other, problem, other.step), sets, capture=False))
    return calls


def _call(name: str, step: Step, sets: Sequence[Inputs], capture: bool = True) -> Call:
    return Call(name, [partial(_without_gradient, step, inputs) for inputs in sets], capture=capture)


def _without_gradient(step: Step, inputs: Inputs) -> Tensor:
    with torch.no_grad():
        return step(inputs.logits.detach(), inputs.x_t, inputs.t, inputs.s)


def _by_probabilities(diffusion: Diffusion, logits: Tensor, x_t: Tensor, t: Tensor, s: Tensor) -> Tensor:
    """Draw x_s by the cumulative sum of all probabilities p(x_s | x_t), as one does without kernels."""
    cdf = diffusion.backward(logits, x_t, t, s).probs().float().cumsum(-1)
    u = torch.rand(x_t.shape, device=x_t.device)[..., None] * cdf[..., -1:]
    return (cdf <= u).sum(-1).clamp(max=cdf.shape[-1] - 1)


def _other(problem: Problem, step: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    return step(*inputs, problem)
