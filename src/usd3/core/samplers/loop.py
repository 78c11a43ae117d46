"""The loop over the steps of a sampler, and what comes before it: start, model and checks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from usd3._internal.checks import (
    Checks,
    LoopChecks,
    as_bool_mask,
    as_count,
    expanded,
    is_integral,
    require,
    require_type,
)
from usd3._internal.threads import waiting_asleep
from usd3.core.coefficients import Process, Times, free_elements
from usd3.core.logits import LogitOptions
from usd3.core.model import Denoiser, Wrapper, device_of, ignores_time, remembered
from usd3.core.noise import Noise
from usd3.core.samplers.corrector import CorrectorMoves
from usd3.core.samplers.names import sampler_named, shown_name
from usd3.core.samplers.run import Run, Sampler

__all__ = ["Step", "sample"]

_WORTH = 8  # steps from which a CUDA graph pays


@dataclass(frozen=True)
class Step:
    """The argument of a callback: step `index` of `num_steps` went from x_t at t to x_s at s, t and s in [0, 1]."""

    index: int
    num_steps: int
    t: float
    s: float
    x_t: Tensor
    x_s: Tensor


@waiting_asleep()
@torch.no_grad()
def sample(
    process: Process,
    model: Callable[..., Any],
    shape: Sequence[int],
    num_steps: int | Times,
    corrector: CorrectorMoves | None = None,
    given: Tensor | None = None,
    given_tokens: Tensor | None = None,
    pad: Tensor | None = None,
    generator: torch.Generator | None = None,
    callback: Callable[[Step], None] | None = None,
    sampler: str | Sampler = "exact",
    device: torch.device | str | None = None,
    graph: bool = False,
    logit_options: LogitOptions | None = None,
) -> Tensor:
    """Draw objects of `shape` (B, N1, ..., Nk) from noise, int64 (Algorithm 2).

    A model is used as it is: call its `eval()` first. A model whose attribute `self_conditioned` is True also gets
    `estimate`, the probabilities of x_0 from its last call, zeros in the first. A model whose attribute `ignores_time`
    is True is called only for the objects that changed since their last call; it must treat each object by itself.

    Args:
        process: the diffusion.
        model: callable, `model(x_t, t) -> logits`, see `Diffusion.loss`.
        shape: (B, N1, ..., Nk).
        num_steps: number of steps, or a decreasing grid of times that ends at 0.
        corrector: moves after the steps, a `Corrector` or a `GibbsCorrector`.
        given: mask of elements that are taken from `given_tokens`; it broadcasts to `shape`.
        given_tokens: categories of the given elements; they broadcast to `shape`.
        pad: mask of padding, which stays as it is in `given_tokens`; it broadcasts to `shape`.
        generator: makes the draws reproducible.
        callback: called with every `Step`.
        sampler: "exact" (the paper's), "euler", "tau_leaping", "gillespie", "first_hitting" (one element a call if
            there are enough steps, for absorbing noise), "revision" (steps that may take elements back),
            "confidence", "margin" or "entropy" (the most certain elements first), "trapezoidal" (two calls a step).
            Some have options, "revision:schedule=rescale,eta=0.1". Or a function `(run, grid) -> step`, such as
            `Revision(...)`, `CertainFirst(...)` and `Trapezoidal(...)`.
        device: by default that of `given_tokens`, or of the model's parameters.
        graph: replay a step as one CUDA graph, for models that do the same operations in every call. No effect on other
            devices and for models that wait for the GPU. The samples are the same.
        logit_options: temperature, top_k, top_p, bias and a function between the network and the draw.
    """
    make_step = sampler_named(sampler)
    is_corrector = corrector is None or isinstance(corrector, CorrectorMoves)
    require_type(is_corrector, "corrector", corrector, "None, a Corrector or a GibbsCorrector")
    fits = corrector is None or getattr(make_step, "takes_corrector", True)
    require(fits, "corrector", corrector, f"None with the sampler {shown_name(sampler)}; sampler exact takes one")
    is_options = logit_options is None or isinstance(logit_options, LogitOptions)
    require_type(is_options, "logit_options", logit_options, "None or LogitOptions(...)")
    grid, size = process.grid(num_steps), _checked_shape(shape, process.noise)
    where = _device(device, given_tokens, model)
    given, pad = as_bool_mask(given, size, "given", where), as_bool_mask(pad, size, "pad", where)
    free = free_elements(given, pad)
    free = torch.ones(size, dtype=torch.bool, device=where) if free is None else free

    checks = Checks(process.validate)
    x = _start(process, ~free, given, given_tokens, pad, checks, generator)
    K, can_replay = process.noise.num_classes, getattr(make_step, "can_replay", True)
    graph = graph and x.is_cuda and x.numel() > 0 and len(grid) > _WORTH and can_replay
    model, graph = _wrapped(model, K, x, grid, graph)
    options = (logit_options or LogitOptions()).on(where, (*size, K))
    denoise = Denoiser(model, K, given, pad, options.belief if options.changes_belief else None)
    run = Run(process, denoise, free, LoopChecks(process.validate), generator, graph, options)

    predict = make_step(run, grid)
    correct = None if corrector is None else corrector(run, grid)
    for i, (t, s) in enumerate(pairwise(grid)):
        x_s = predict(x, i)
        x_s = x_s if correct is None else correct(x_s, i)
        if callback is not None:
            callback(Step(i, len(grid) - 1, t, s, x, x_s))
        x = x_s
    checks.raise_first()
    run.checks.raise_first()
    return x


def _checked_shape(shape: Sequence[int], noise: Noise) -> torch.Size:
    require_type(isinstance(shape, Sequence), "shape", shape, "a tuple (B, N1, ..., Nk)")
    size = torch.Size([as_count(n, "shape", 0) for n in shape])
    require(len(size) >= 1, "shape", tuple(size), "(B, N1, ..., Nk)")
    noise.require_fits(size)
    return size


def _device(device: torch.device | str | None, tokens: Tensor | None, model: Callable[..., Any]) -> torch.device:
    """The user's device, that of the given tokens, or that of the model."""
    if device is not None:
        return torch.device(device)
    return tokens.device if isinstance(tokens, Tensor) else device_of(model)


def _start(
    process: Process,
    fixed: Tensor,
    given: Tensor | None,
    given_tokens: Tensor | None,
    pad: Tensor | None,
    checks: Checks,
    generator: torch.Generator | None,
) -> Tensor:
    """Noise from m, with the tokens of the fixed elements in place; padding without tokens is some data category."""
    tokens = torch.full_like(fixed, 1 if process.noise.mask == 0 else 0, dtype=torch.long)
    if given_tokens is None:
        require(given is None, "given_tokens", None, "the tokens of the given elements")
    else:
        is_tokens = isinstance(given_tokens, Tensor) and is_integral(given_tokens)
        require_type(is_tokens, "given_tokens", given_tokens, "an integer tensor")
        has_mask = given is not None or pad is not None
        require(has_mask, "given", None, "a mask that says which of given_tokens to keep")
        tokens = expanded(given_tokens.to(fixed.device).long(), fixed.shape, "given_tokens").masked_fill(~fixed, 0)
        tokens = process.data(tokens, checks, "given_tokens", except_at=~fixed if pad is None else ~fixed | pad)
        checks.raise_early(fixed.device)
    return torch.where(fixed, tokens, process.noise.sample(tokens, generator))


def _wrapped(
    model: Callable[..., Any], num_classes: int, x: Tensor, grid: list[float], graph: bool
) -> tuple[Callable[..., Any], bool]:
    """The model as the steps call it, and whether they are replayed as CUDA graphs.

    A model that ignores the time is cached, unless a graph pays more because most objects change in every step.
    """
    model = model.fresh() if isinstance(model, Wrapper) else model
    few_changes = not graph or len(grid) > x[:1].numel()
    if ignores_time(model) and not few_changes:
        return model, graph
    return remembered(model, num_classes), graph and not ignores_time(model)  # `Cached` waits for the device
