"""From noise to data. One step of each sampler is one short function `(run, x, t, s) -> x_s`; the loop is thin.

`exact_step` is the paper's (Algorithm 2). `euler_step`, `tau_leaping_step` and `gillespie_step` simulate the
reverse chain by its rates, for comparison. `correct` is the MCMC corrector (Algorithm 3).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from usd3 import kernels
from usd3._checks import Checks, as_bool_mask, as_count, as_number, expanded, is_integral, require, require_type
from usd3._model import Denoiser
from usd3._random import uniform
from usd3.mixture import Jumps
from usd3.process import Process, Times, column, constant, flat, free_elements

__all__ = ["SAMPLERS", "Corrector", "Run", "Step", "sample"]

_FIRST = 1e-6  # Gillespie starts where this much signal has survived: below it the chain is at its noise


@dataclass(frozen=True)
class Corrector:
    """MCMC corrector: `num_steps` moves of `step_size` after each of the last `last` steps that end before time 0.

    `last=None` corrects after every step. Nothing is corrected at time 0, which is clean data.
    `step_size="auto"` takes, for each object, the step whose largest jump mass is 0.8. That is the longest step that
    makes sense, and often too long: all elements move at once, each as if the others stood still. Compare with small
    fixed steps before you trust it.
    """

    num_steps: int = 5
    step_size: float | str = 1e-3
    last: int | None = 20

    def __post_init__(self) -> None:
        as_count(self.num_steps, "num_steps", 1)
        if isinstance(self.step_size, str):
            require(self.step_size == "auto", "step_size", self.step_size, 'a number > 0 or "auto"')
        else:
            as_number(self.step_size, "step_size", 0)
        if self.last is not None:
            as_count(self.last, "last", 1)


@dataclass(frozen=True)
class Step:
    """What a callback sees: step `index` of `num_steps` went from x_t at t to x_s at s, with t and s in [0, 1]."""

    index: int
    num_steps: int
    t: float
    s: float
    x_t: Tensor
    x_s: Tensor


@dataclass(frozen=True)
class Run:
    """What every step of one sampling run shares."""

    process: Process
    denoise: Denoiser
    free: Tensor
    checks: Checks
    generator: torch.Generator | None

    def time(self, t: float) -> Tensor:
        """t for every object, (B,)."""
        return constant(t, self.free)

    def logits(self, x: Tensor, time: Tensor) -> Tensor:
        """One network call at x and times (B,)."""
        return self.denoise(x, time)

    def draw(self, logits: Tensor, x: Tensor, time: Tensor, jumps: Jumps, free: Tensor) -> Tensor:
        """Let the free elements jump; the others stay."""
        process = self.process
        u = uniform((2, *x.shape), x.device, self.generator)
        level = process.level(time, x)
        drawn = kernels.draw(logits, x, process.noise, level, jumps, u, free, process.impl, self.checks)
        self.checks.raise_early(x.device)
        return drawn


def exact_step(run: Run, x: Tensor, t: float, s: float) -> Tensor:
    """Draw x_s ~ p(x_s | x_t) in closed form (Prop. 2, Algorithm 2). At s = 0 this is a draw from f."""
    time = run.time(t)
    to = run.process.step(time, run.time(s), x)
    return run.draw(run.logits(x, time), x, time, Jumps(to.clean, to.noise), run.free)


def euler_step(run: Run, x: Tensor, t: float, s: float) -> Tensor:
    """Jump with probability (t - s) times the reverse rate at t. The last step draws from f."""
    return exact_step(run, x, t, s) if s == 0 else _leap(run, x, t, s, damped=False)


def tau_leaping_step(run: Run, x: Tensor, t: float, s: float) -> Tensor:
    """Poisson jumps at the rates of t; an element with more than one jump stays, as categories cannot be added.

    P(x -> z) = l_z exp(-L) with l_z = (t - s) rate_z and L their sum. The last step draws from f.
    """
    return exact_step(run, x, t, s) if s == 0 else _leap(run, x, t, s, damped=True)


def gillespie_step(run: Run, x: Tensor, t: float, s: float) -> Tensor:
    """Simulate the reverse chain exactly from t to s (to t_min, and then a draw from f, where s = 0).

    An element leaves x at a rate below beta / (1 - abar), which is 1 per unit of logit(abar). So candidates come
    as a Poisson process of unit rate per element on that scale, and each is kept with its share of that rate.
    """
    until = max(s, run.process.t_min)
    if until < t:
        x, t = _thinned_jumps(run, x, t, until), until
    return exact_step(run, x, t, s) if s == 0 else x


def correct(run: Run, x: Tensor, s: float, corrector: Corrector) -> Tensor:
    """Algorithm 3 at time s: moves that leave q_s as it is, each evaluated at the current state."""
    time = run.time(s)
    rate = run.process.rate_weights(time, x)
    moves = Jumps(rate.clean, rate.noise, anew=rate.noise)  # r_hat + r
    for _ in range(corrector.num_steps):
        logits = run.logits(x, time)
        if isinstance(corrector.step_size, str):
            level = run.process.level(time, x)
            mass = kernels.jump_mass(logits, x, run.process.noise, level, moves, run.process.impl, run.checks)
            mass = flat(torch.where(run.free, mass, 0.0))
            busiest = torch.cat([mass, mass.new_full((len(x), 1), 1e-12)], 1).amax(1)
            size: Tensor | float = column(0.8 / busiest, x)
        else:
            size = corrector.step_size
        x = run.draw(logits, x, time, moves.scaled(size), run.free)
    return x


SAMPLERS: dict[str, Callable[[Run, Tensor, float, float], Tensor]] = {
    "exact": exact_step,
    "euler": euler_step,
    "tau_leaping": tau_leaping_step,
    "gillespie": gillespie_step,
}


@torch.no_grad()
def sample(
    process: Process,
    model: Callable[..., Any],
    shape: Sequence[int],
    num_steps: int | Times,
    corrector: Corrector | None = None,
    given: Tensor | None = None,
    given_tokens: Tensor | None = None,
    pad: Tensor | None = None,
    generator: torch.Generator | None = None,
    callback: Callable[[Step], None] | None = None,
    sampler: str = "exact",
    device: torch.device | str | None = None,
) -> Tensor:
    """Draw objects of `shape` (B, N1, ..., Nk) from noise, Algorithm 2; int64.

    `num_steps` is a number of steps or a decreasing grid of times that ends at 0. Where `given` is true the elements
    are those of `given_tokens`; `pad` elements are fixed too; all three broadcast to `shape`. `sampler` is "exact" (the
    paper's), or "euler", "tau_leaping", "gillespie" for comparison. `callback` sees every `Step`. A model is used as
    it is: call its `eval()` first.
    """
    require(sampler in SAMPLERS, "sampler", sampler, f"one of {sorted(SAMPLERS)}")
    require_type(corrector is None or isinstance(corrector, Corrector), "corrector", corrector, "None or a Corrector")
    require_type(isinstance(shape, Sequence), "shape", shape, "a tuple (B, N1, ..., Nk)")
    grid, size = process.grid(num_steps), torch.Size([as_count(n, "shape", 0) for n in shape])
    require(len(size) >= 1, "shape", tuple(size), "(B, N1, ..., Nk)")
    process.noise.require_fits(size)
    where = _device(device, given_tokens, model)
    given, pad = as_bool_mask(given, size, "given", where), as_bool_mask(pad, size, "pad", where)
    free = free_elements(given, pad)
    free = torch.ones(size, dtype=torch.bool, device=where) if free is None else free
    checks = Checks(process.validate)
    x = _start(process, ~free, given, given_tokens, pad, checks, generator)
    run = Run(process, Denoiser(model, process.noise.num_classes, given, pad), free, checks, generator)
    for index, (t, s) in enumerate(pairwise(grid)):
        x_s = SAMPLERS[sampler](run, x, t, s)
        if corrector is not None and s > 0 and (corrector.last is None or index >= len(grid) - 2 - corrector.last):
            x_s = correct(run, x_s, s, corrector)
        if callback is not None:
            callback(Step(index, len(grid) - 1, t, s, x, x_s))
        x = x_s
    checks.raise_first()
    return x


def _leap(run: Run, x: Tensor, t: float, s: float, damped: bool) -> Tensor:
    """Jump with (t - s) times the reverse rate at t."""
    time = run.time(t)
    rate = run.process.rate_weights(time, x)
    jumps = Jumps(rate.clean, rate.noise, damped=damped).scaled(t - s)
    return run.draw(run.logits(x, time), x, time, jumps, run.free)


def _thinned_jumps(run: Run, x: Tensor, t: float, s: float) -> Tensor:
    """The reverse chain from t down to s, one candidate per object at a time."""
    process, elements = run.process, flat(run.free)
    where, end = (torch.logit(process.level(run.time(v), run.time(v)).alpha_bar.clamp(min=_FIRST)) for v in (t, s))
    while True:
        u = uniform((2, len(x)), x.device, run.generator)
        where = where - torch.log1p(-u[0]) / elements.sum(1)  # the next candidate; never, where nothing is free
        active = where < end
        if not bool(active.any()):
            return x
        time = process.schedule._time(torch.sigmoid(torch.where(active, where, end))).clamp(0, 1)
        level = process.level(time, x)
        rank = (u[1] * elements.sum(1)).long()  # which of the free elements the candidate is
        chosen = elements & (elements.cumsum(1) - 1 == rank[:, None]) & active[:, None]
        jumps = Jumps(level.alpha_bar, level.lost)
        x = run.draw(run.logits(x, time), x, time, jumps, chosen.reshape(x.shape))


def _start(
    process: Process,
    fixed: Tensor,
    given: Tensor | None,
    given_tokens: Tensor | None,
    pad: Tensor | None,
    checks: Checks,
    generator: torch.Generator | None,
) -> Tensor:
    """Noise, with the tokens of the fixed elements in place (padding without tokens is some data category)."""
    tokens = torch.full_like(fixed, 1 if process.noise.mask == 0 else 0, dtype=torch.long)
    if given_tokens is None:
        require(given is None, "given_tokens", None, "the tokens of the given elements")
    else:
        is_tokens = isinstance(given_tokens, Tensor) and is_integral(given_tokens)
        require_type(is_tokens, "given_tokens", given_tokens, "an integer tensor")
        known = given is not None or pad is not None
        require(known, "given", None, "a mask that says which of given_tokens to keep")
        tokens = expanded(given_tokens.to(fixed.device).long(), fixed.shape, "given_tokens").masked_fill(~fixed, 0)
        tokens = process.data(tokens, checks, "given_tokens", except_at=~fixed if pad is None else ~fixed | pad)
        checks.raise_early(fixed.device)
    return torch.where(fixed, tokens, process.noise.sample(tokens, generator))


def _device(device: torch.device | str | None, tokens: Tensor | None, model: Callable[..., Any]) -> torch.device:
    if device is not None:
        return torch.device(device)
    if isinstance(tokens, Tensor):
        return tokens.device
    parameter = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    return torch.device("cpu") if parameter is None else parameter.device
