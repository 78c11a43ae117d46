"""From noise to data. All objects share the time, so a sampler prepares the coefficients of its whole grid up front;
a step is then one network call and one draw, `predict(x, i) -> x_s`, and the loop is thin.

`exact` is the paper's sampler (Algorithm 2). `euler`, `tau_leaping` and `gillespie` simulate the reverse chain by its
rates, for comparison. `correction` is the MCMC corrector (Algorithm 3).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from usd3._internal.checks import (
    Checks,
    LoopChecks,
    as_bool_mask,
    as_count,
    as_number,
    expanded,
    is_integral,
    require,
    require_type,
)
from usd3._internal.graphs import GraphedFunction
from usd3._internal.random import uniform
from usd3._internal.threads import waiting_asleep
from usd3.core import fused
from usd3.core.belief import FINITE, Level, data_logits
from usd3.core.mixture import Jumps
from usd3.core.model import Denoiser, Remembering, Told, ignores_time, is_self_conditioned
from usd3.core.process import Process, Times, column, constant, flat, free_elements

__all__ = [
    "SAMPLERS",
    "Corrector",
    "MakePredictor",
    "Predictor",
    "Run",
    "Step",
    "leaping",
    "likeliest",
    "network_time",
    "sample",
]

_WORTH = 8  # steps from which a CUDA graph pays
_FIRST = 1e-6  # Gillespie starts where this much signal has survived: below it the chain is at its noise
_AUTO = 1e-3  # the corrector's step where none is chosen
_MOST = 0.8  # the largest probability with which a corrector's move takes an element away


@dataclass(frozen=True)
class Corrector:
    """MCMC corrector: `num_steps` moves of `step_size` after each of the last `last` steps that end before time 0.

    `last=None` corrects after every step. Nothing is corrected at time 0, which is clean data.
    A move is shorter than `step_size` where one of an object's elements would else jump with a probability above 0.8:
    the jumps of that object are scaled, so that none does. `step_size="auto"` is 1e-3. Long steps do harm, as all
    elements move at once, each as if the others stood still (docs/training.md has numbers): 0.05 can be too long.
    """

    num_steps: int = 5
    step_size: float | str = _AUTO
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
    """What every move of one sampling run shares. A move is one network call and one draw."""

    process: Process
    denoise: Callable[[Tensor, Tensor], Tensor]
    free: Tensor
    checks: Checks
    generator: torch.Generator | None
    graph: bool = False

    def replayed(self, move: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """A function of tensors on the device, called once or more in every step: as a CUDA graph where that is on."""
        return GraphedFunction(move) if self.graph else move

    def uniforms(self, x: Tensor) -> Tensor:
        """Two for each element."""
        return uniform((2, *x.shape), x.device, self.generator)

    def moves(self, time: Tensor, jumps: Jumps, capped: bool = False) -> "Moves":
        """The moves at times (S,) with their jumps, prepared."""
        level = self.process.level(time, self.free)
        anew = [] if jumps.anew is None else [jumps.anew]
        weights = torch.stack([*level, jumps.clean, jumps.noise, *anew], 1)
        times = time.to(torch.get_default_dtype())[:, None].repeat(1, len(self.free))
        move = partial(self.moved, damped=jumps.damped, capped=capped)
        return Moves(self, times, weights, self.replayed(move))

    def moved(self, x: Tensor, time: Tensor, weights: Tensor, u: Tensor, damped: bool, capped: bool) -> Tensor:
        """One move; where it is `capped`, an object's jumps are scaled so that the largest mass is at most 0.8."""
        alpha_bar, lost, clean, noise, *anew = weights.unbind(1)
        level, jumps = Level(alpha_bar, lost), Jumps(clean, noise, anew[0] if anew else None, damped)
        logits, process = self.denoise(x, time), self.process
        if capped:
            mass = fused.jump_mass(logits, x, process.noise, level, jumps, self.free, process.impl, self.checks)
            busiest = torch.cat([flat(mass), mass.new_full((len(x), 1), _MOST)], 1).amax(1)
            jumps = jumps.scaled(column(_MOST / busiest, x))
        return fused.draw(logits, x, process.noise, level, jumps, u, self.free, process.impl, self.checks)


@dataclass(frozen=True)
class Moves:
    """Moves at S times, all coefficients computed up front: `moves(x, i)` makes the i-th.

    `times` are (S, B), as the network sees them; `weights` (S, 4 or 5, 1, ..., 1) the level and the jumps, float64.
    """

    run: Run
    times: Tensor
    weights: Tensor
    move: Callable[..., Tensor]

    def __call__(self, x: Tensor, i: int) -> Tensor:
        """x after the i-th move."""
        x = self.move(x, self.times[i], self.weights[i : i + 1], self.run.uniforms(x))
        self.run.checks.raise_early(x.device)
        return x


def exact_jumps(process: Process, t: Tensor, s: Tensor, x: Tensor) -> Jumps:
    """x_s ~ p(x_s | x_t) in closed form (Prop. 2, Algorithm 2). At s = 0 this is a draw from f."""
    to = process.step(t, s, x)
    return Jumps(to.clean, to.noise)


def euler_jumps(process: Process, t: Tensor, s: Tensor, x: Tensor) -> Jumps:
    """Jump with probability (t - s) times the reverse rate at t."""
    rate = process.rate_weights(t, x)
    return Jumps(rate.clean, rate.noise).scaled(column(t - s, x))


def tau_leaping_jumps(process: Process, t: Tensor, s: Tensor, x: Tensor) -> Jumps:
    """Poisson jumps at the rates of t; an element with more than one jump stays, as categories cannot be added.

    P(x -> z) = l_z exp(-L) with l_z = (t - s) rate_z and L their sum.
    """
    return replace(euler_jumps(process, t, s, x), damped=True)


def corrector_jumps(process: Process, s: Tensor, x: Tensor) -> Jumps:
    """Algorithm 3 at time s: r_hat + r, moves that leave q_s as it is."""
    rate = process.rate_weights(s, x)
    return Jumps(rate.clean, rate.noise, anew=rate.noise)


Predictor = Callable[[Tensor, int], Tensor]
MakePredictor = Callable[["Run", list[float]], Predictor]


def exact(run: Run, grid: list[float]) -> Predictor:
    """The paper's sampler: `exact_jumps` at every step."""
    t, s = _steps(run, grid)
    return run.moves(t, exact_jumps(run.process, t, s, run.free))


def euler(run: Run, grid: list[float]) -> Predictor:
    """`euler_jumps`; the last step draws from f."""
    return _leaps(run, grid, euler_jumps)


def tau_leaping(run: Run, grid: list[float]) -> Predictor:
    """`tau_leaping_jumps`; the last step draws from f."""
    return _leaps(run, grid, tau_leaping_jumps)


def gillespie(run: Run, grid: list[float]) -> Predictor:
    """Simulate the reverse chain exactly from t to s (to t_min, and then a draw from f, where s = 0).

    An element leaves x at a rate below beta / (1 - abar), which is 1 per unit of logit(abar). So candidates come
    as a Poisson process of unit rate per element on that scale, and each is kept with its share of that rate.
    """
    t_min = run.process.t_min
    last = exact(run, [min(grid[-2], t_min), 0.0])

    def step(x: Tensor, i: int) -> Tensor:
        t, s = grid[i], grid[i + 1]
        x = _thinned_jumps(run, x, t, max(s, t_min)) if t > max(s, t_min) else x
        return last(x, 0) if s == 0 else x

    return step


SAMPLERS: dict[str, MakePredictor] = {
    "exact": exact,
    "euler": euler,
    "tau_leaping": tau_leaping,
    "gillespie": gillespie,
}


def correction(run: Run, grid: list[float], corrector: Corrector) -> Predictor:
    """What the corrector does after each step of the grid, each of its moves evaluated at the current state.

    Where no network can make a move too long, the masses are not asked for.
    """
    s, size = _steps(run, grid)[1], corrector.step_size
    first = 0 if corrector.last is None else len(grid) - 2 - corrector.last
    jumps = corrector_jumps(run.process, s, run.free).scaled(_AUTO if isinstance(size, str) else size)
    most = (jumps.clean + 2 * jumps.noise).flatten().tolist()  # no mass is larger than that
    capped = {i: most[i] > _MOST for i, end in enumerate(grid[1:]) if i >= first and end > 0}
    moves = {kind: run.moves(s, jumps, kind) for kind in set(capped.values())}

    def correct(x: Tensor, i: int) -> Tensor:
        for _ in range(corrector.num_steps if i in capped else 0):
            x = moves[capped[i]](x, i)
        return x

    return correct


@waiting_asleep()
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
    sampler: str | MakePredictor = "exact",
    device: torch.device | str | None = None,
    graph: bool = False,
) -> Tensor:
    """Draw objects of `shape` (B, N1, ..., Nk) from noise, Algorithm 2; int64.

    `num_steps` is a number of steps or a decreasing grid of times that ends at 0. Where `given` is true the elements
    are those of `given_tokens`; `pad` elements are fixed too; all three broadcast to `shape`. `sampler` is "exact" (the
    paper's), "euler", "tau_leaping" or "gillespie" for comparison, or a function of a `Run` and its grid that makes the
    steps. `callback` sees every `Step`. A model is used as it is: call its `eval()` first.

    A model whose attribute `self_conditioned` is True also gets `estimate`, the probabilities of x_0 that it gave in
    its last call, zeros in the first. One whose attribute `ignores_time` is True is called only for the objects that
    changed since their last call; it must treat each object by itself. `graph=True` replays a step as one CUDA graph,
    for models that do the same operations in every call; it does nothing on other devices and for models that wait for
    the GPU. The samples are the same in all cases.
    """
    known = callable(sampler) or sampler in SAMPLERS
    require(known, "sampler", sampler, f"one of {sorted(SAMPLERS)}, or a function of a run and its grid")
    make = sampler if callable(sampler) else SAMPLERS[sampler]
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
    denoise = Denoiser(model, process.noise.num_classes, given, pad)
    graph = graph and x.is_cuda and x.numel() > 0 and len(grid) > _WORTH and make is not gillespie
    few_changes = not graph or len(grid) > x[:1].numel()  # else most objects change in every step
    remember = few_changes and ignores_time(model)
    run = Run(
        process,
        Remembering(denoise) if remember else Told(denoise) if is_self_conditioned(model) else denoise,
        free,
        LoopChecks(process.validate),
        generator,
        graph and not remember,
    )
    predict = make(run, grid)
    correct = None if corrector is None else correction(run, grid, corrector)
    for i, (t, s) in enumerate(pairwise(grid)):
        x_s = predict(x, i)
        x_s = x_s if correct is None else correct(x_s, i)
        if callback is not None:
            callback(Step(i, len(grid) - 1, t, s, x, x_s))
        x = x_s
    checks.raise_first()
    run.checks.raise_first()
    return x


def _steps(run: Run, grid: list[float]) -> tuple[Tensor, Tensor]:
    """The times t and s of all steps."""
    times = torch.tensor(grid, dtype=torch.float64, device=run.free.device)
    return times[:-1], times[1:]


def likeliest(run: Run, x: Tensor, t: float) -> Tensor:
    """The argmax of f at x and t for the free elements: how some methods end. What is certainly clean stays."""
    noise = run.process.noise
    highest, best = data_logits(run.denoise(x, network_time(t, x)), noise).max(-1)
    read = run.free & (noise.at(x) > 0)
    run.checks.refuse("logits", torch.where(read, highest, 0.0), lambda v: ~v.isfinite(), FINITE)
    return torch.where(read, best, x)


def network_time(t: float, x: Tensor) -> Tensor:
    """One time for all objects of x, as a network sees it, (B,)."""
    return torch.full(x.shape[:1], t, dtype=torch.get_default_dtype(), device=x.device)


def leaping(run: Run, grid: list[float], jumps: Callable[[Process, Tensor, Tensor, Tensor], Jumps]) -> Predictor:
    """Jumps by the rates of its start at every step."""
    t, s = _steps(run, grid)
    return run.moves(t, jumps(run.process, t, s, run.free))


def _leaps(run: Run, grid: list[float], jumps: Callable[[Process, Tensor, Tensor, Tensor], Jumps]) -> Predictor:
    """The same but for the last step, which draws from f."""
    leap, last = leaping(run, grid, jumps), exact(run, grid[-2:])
    return lambda x, i: last(x, 0) if grid[i + 1] == 0 else leap(x, i)


def _thinned_jumps(run: Run, x: Tensor, t: float, s: float) -> Tensor:
    """The reverse chain from t down to s, one candidate per object at a time."""
    process, elements = run.process, flat(run.free)
    times = (constant(v, x) for v in (t, s))
    where, end = (torch.logit(process.level(time, time).alpha_bar.clamp(min=_FIRST)) for time in times)
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
        jumps, chosen, u = Jumps(level.alpha_bar, level.lost), chosen.reshape(x.shape), run.uniforms(x)
        logits = run.denoise(x, time)
        x = fused.draw(logits, x, process.noise, level, jumps, u, chosen, process.impl, run.checks)
        run.checks.raise_early(x.device)


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
