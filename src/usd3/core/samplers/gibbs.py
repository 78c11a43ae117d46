"""Gibbs moves: elements are drawn anew from their distribution given all others.

    q(x_t^i | the others) = abar f_hollow + (1 - abar) m,        f_hollow = p(x_0^i | the others)

A network says f = p(x_0^i | x_t), which knows x_t^i too. Bayes' rule takes that out again: f_hollow,k is proportional
to f_k / q(x_t^i | x_0^i = k). In logits only the entry at x_t falls, by log(1 + abar / ((1 - abar) m_x)): what the
hollow head adds. Where m_x = 0 the element is certainly clean, and f = e_x says nothing about the others. There the
element is put to noise first (with absorbing noise: to the mask), and the network is asked about that object.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from usd3._internal.checks import as_count, as_share, require, require_type
from usd3._internal.random import invert_cdf, uniform
from usd3.core.belief import Level
from usd3.core.coefficients import flat
from usd3.core.converters import hollow_shift
from usd3.core.mixture import Jumps
from usd3.core.model import Denoiser, is_hollow
from usd3.core.samplers.corrector import CorrectorMoves
from usd3.core.samplers.run import Run, StepFunction, best_first, by_objects, data_of, read_logits

__all__ = ["GibbsCorrector"]

_ROUNDING = 1e-9  # 0.28 of 25 elements are 7


@dataclass(frozen=True)
class GibbsCorrector(CorrectorMoves):
    """Gibbs corrector: `num_steps` moves after each of the last `last` steps that end before time 0, one call each.

    A move draws `count` random free elements of each object anew, or the `share` of them, from q(x_t^i | the others).
    One element at a time leaves q_t exactly as it is, if the network is exact. Several elements of one move are drawn
    as if they were independent.

    With `informed` a move takes, of the elements that are not masked, those that are least likely where they are, and
    draws them from q(x_t^i | the others, not masked). It looks where an error is likeliest, and an exact step never
    takes back what it unmasked; but q_t does not stay as it is, because the choice depends on the element's own value.
    It needs noise with a mask, as the steps of other noise revise unlikely elements by themselves. With absorbing noise
    it also needs a network that does not see the element itself, such as `HollowTransformer`.

    Args:
        num_steps: moves after a step.
        last: correct after this many last steps; None: after all.
        count: elements of a move.
        share: the share of the free elements of a move, rounded up, in place of `count`.
        informed: the least likely elements; False: random ones.
    """

    num_steps: int = 5
    last: int | None = 20
    count: int = field(default=1, kw_only=True)
    share: float | None = field(default=None, kw_only=True)
    informed: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        as_count(self.count, "count", 1)
        if self.share is not None:
            as_share(self.share, "share", positive=True)
        require_type(isinstance(self.informed, bool), "informed", self.informed, "True or False")

    def moves(self, run: Run, grid: list[float], due: list[int]) -> StepFunction:
        """One network call and one draw of the chosen elements."""
        if self.informed:
            _require_informed(run)
        _, s = run.steps(grid)  # (S,)
        numbers = torch.stack([*run.process.level(s, run.free)], 1)  # (S, 2, 1, ..., 1)
        times, number = run.network_times(s), self._number(run)

        def moved(x: Tensor, time: Tensor, s: Tensor, numbers: Tensor, u: Tensor, keys: Tensor) -> Tensor:
            level = Level(*numbers.unbind(1))
            return (_informed if self.informed else _random)(run, x, time, s, level, number, u, keys)

        replayed = run.replayed(moved)

        def move(x: Tensor, i: int) -> Tensor:
            keys = uniform((2, *x.shape), x.device, run.generator)
            x = replayed(x, times[i], s[i : i + 1], numbers[i : i + 1], run.uniforms(x), keys)
            run.checks.raise_early(x.device)
            return x

        return move

    def _number(self, run: Run) -> Tensor:
        """The elements of a move of each object, (B, 1)."""
        free = flat(run.free).sum(1, keepdim=True)
        return (
            torch.full_like(free, self.count) if self.share is None else (free * self.share - _ROUNDING).ceil().long()
        )


def _random(
    run: Run, x: Tensor, time: Tensor, s: Tensor, level: Level, number: Tensor, u: Tensor, keys: Tensor
) -> Tensor:
    """x with random elements drawn from abar f_hollow + (1 - abar) m."""
    noise, free = run.process.noise, flat(run.free)
    rank = best_first(torch.where(free, flat(keys[0]), -torch.inf), flat(keys[0]))
    chosen = run.free & (rank < number).reshape(x.shape)
    without = x
    if noise.has_zeros:  # where m_x = 0 the network is told nothing of the element
        without = torch.where(chosen & (noise.at(x) == 0), invert_cdf(noise.cdf(x.device), keys[1]), x)
    jumps = Jumps(level.alpha_bar, torch.zeros_like(level.lost), forward=level.lost)  # nothing is left to stay
    drawn = run.draw(_hollow_logits(run, without, time, s), without, level, jumps, u, chosen)
    return torch.where(chosen, drawn, x)


def _informed(
    run: Run, x: Tensor, time: Tensor, s: Tensor, level: Level, number: Tensor, u: Tensor, keys: Tensor
) -> Tensor:
    """x with the least likely of its unmasked elements drawn from q(x^i | the others, not masked)."""
    noise = run.process.noise
    log_q = _unmasked_logits(run, _hollow_logits(run, x, time, s), level)
    fits = log_q.gather(-1, x[..., None]).squeeze(-1) - log_q.amax(-1)  # 0 where x is the likeliest category
    shown = run.free & (x != noise.mask)
    score = torch.where(shown, -fits.double().nan_to_num(0.0), -torch.inf)
    rank = best_first(flat(score), flat(keys[0])).reshape(x.shape)
    chosen = shown & (rank < number.reshape(-1, *[1] * (x.dim() - 1)))
    drawn = run.draw_from_f(log_q, torch.where(chosen, noise.mask, x), u, chosen)  # type: ignore[arg-type]
    return torch.where(chosen, drawn, x)


def _hollow_logits(run: Run, x: Tensor, time: Tensor, s: Tensor) -> Tensor:
    """Logits of f_hollow at x, (B, N1, ..., Nk, K), in float32 or better: f without what x itself says."""
    logits = run.denoise(x, time)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    shift = hollow_shift(run.process, x, s.expand(len(x))).to(logits.dtype)
    return logits.scatter_add(-1, x[..., None], -shift[..., None])


def _unmasked_logits(run: Run, hollow: Tensor, level: Level) -> Tensor:
    """log (abar f_hollow + (1 - abar) m) at the categories of data, -inf at the others, (B, N1, ..., Nk, K)."""
    noise = run.process.noise
    m = noise.probs_on(hollow.device, hollow.dtype).expand(hollow.shape)
    kept, lost = (number[..., None].to(hollow.dtype) for number in level)  # (1, 1, ..., 1)

    def log_q(logits: Tensor, m: Tensor, data: Tensor) -> Tensor:
        f = torch.softmax(read_logits(logits, data), -1)
        return torch.where(data, kept * f + lost * m, 0.0).log()

    return by_objects(log_q, hollow, m, *data_of(noise, hollow))


def _require_informed(run: Run) -> None:
    """Refuse informed moves where the network cannot inform them."""
    noise = run.process.noise
    expected = "False for noise without a mask, whose steps revise unlikely elements by themselves"
    require(noise.mask is not None, "informed", True, expected)
    model = run.denoise.model if isinstance(run.denoise, Denoiser) else run.denoise
    expected = "False with absorbing noise, unless the network is hollow: it must not see the element that it judges"
    require(not noise.is_absorbing or is_hollow(model), "informed", True, expected)
