"""Certain first: in each call the elements about which f is surest are drawn from f, the others stay noise.

After k of n elements are drawn, the n - k elements that are most probably noise, lowest 1 - P(noised | x), count as
noise. With absorbing noise these are the masked ones, because there this probability is 0 or 1. With other noise an
element that was drawn, and that the network doubts by now, is drawn once more in place of one that it believes.

A call takes so many elements that a scheduled share of all stays noise, and draws the rest of the noise anew from m:
the state is then one of the forward process, with abar the share that is drawn, and the network gets the time of that
abar. The times of the grid do not matter.

The samples are not those of the model: an order by certainty prefers what is likely. `bound` says nothing about them.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from usd3._internal.checks import as_number, require
from usd3._internal.random import invert_cdf, uniform
from usd3.core.belief import Level, kept_share
from usd3.core.coefficients import flat
from usd3.core.noise import Noise
from usd3.core.samplers.run import Run, StepFunction, best_first, by_objects, data_of, read_logits

__all__ = ["CertainFirst", "certainty"]

_SCORES = ("confidence", "margin", "entropy")
_SCHEDULES = ("linear", "cosine")
_ROUNDING = 1e-9  # 0.3 * 10 are 3 elements


@dataclass(frozen=True)
class CertainFirst:
    """Draws the surest elements first, in at most as many calls as there are elements or steps.

    Args:
        score: "confidence": the largest f. "margin": the largest minus the second. "entropy": minus the entropy of f.
        schedule: the share that is still noise after step j of S: "linear", 1 - j/S, or "cosine", cos(pi/2 j/S), which
            draws few elements at first and many at last. A call draws at least one.
        bound: a call draws more than its share, best first, as long as the entropies of what it draws, without the
            largest of them, sum up to at most `bound` nats (Ben-Hamu et al., 2025): what the elements can know of each
            other is not more than that. None: the share alone.
    """

    takes_corrector: ClassVar[bool] = False  # it would not come back to what a corrector moved

    score: str = "confidence"
    bound: float | None = None
    schedule: str = "linear"

    def __post_init__(self) -> None:
        require(self.score in _SCORES, "score", self.score, f"one of {', '.join(_SCORES)}")
        require(self.schedule in _SCHEDULES, "schedule", self.schedule, f"one of {', '.join(_SCHEDULES)}")
        if self.bound is not None:
            as_number(self.bound, "bound", 0, closed=True)

    def __call__(self, run: Run, grid: list[float]) -> StepFunction:
        """Steps that call the network as long as an object has noise left."""
        noise, free, steps = run.process.noise, flat(run.free), len(grid) - 1
        count = free.sum(1)  # (B,) elements to draw
        left = count.clone()  # of them still noise
        calls = min(steps, int(count.max())) if len(count) else 0

        def drawn(x: Tensor, left: Tensor, share: Tensor, u: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
            lost = left.double() / count.clamp(min=1)  # (B,)
            logits = run.denoise(x, run.time_of(1 - lost))
            score, entropy, f_x = (flat(v) for v in certainty(logits, noise, x, self.score))
            untouched = kept_share(flat(noise.at(x)), Level(1 - lost[:, None], lost[:, None])) * f_x
            untouched = torch.where(flat(noise.at(x)) > 0, untouched, 1.0)
            is_noise = free & (best_first(torch.where(free, -untouched, -torch.inf), keys[0]) < left[:, None])

            rank = best_first(torch.where(is_noise, score, -torch.inf), keys[1])
            kept = (count * share + _ROUNDING).floor().long()  # what is still noise after this call
            number = (left - kept).maximum(left.clamp(max=1))
            if self.bound is not None:
                ranked = torch.zeros_like(entropy).scatter(1, rank, torch.where(is_noise, entropy, torch.inf))
                shared = ranked.cumsum(1) - ranked.cummax(1).values  # NaN, so never drawn, where an entropy is inf
                number = number.maximum((shared <= self.bound).sum(1))
            chosen = (is_noise & (rank < number[:, None])).reshape(x.shape)

            guess = run.draw_from_f(logits, x, u, chosen)
            fresh = invert_cdf(noise.cdf(x.device), u[0])  # for other elements than those of the guess
            return torch.where(is_noise.reshape(x.shape) & ~chosen, fresh, guess), left - number

        replayed = run.replayed(drawn)
        done = torch.arange(1, steps + 1, dtype=torch.float64, device=free.device) / steps
        shares = 1 - done if self.schedule == "linear" else torch.cos(math.pi / 2 * done)  # (S,)

        def step(x: Tensor, i: int) -> Tensor:
            nonlocal left
            if i >= calls or (self.bound is not None and not bool(left.any())):  # a bound may end earlier
                return x
            keys = uniform((2, *free.shape), x.device, run.generator)
            x, left = replayed(x, left, shares[i], run.uniforms(x), keys)
            run.checks.raise_early(x.device)
            return x

        return step


def certainty(logits: Tensor, noise: Noise, x: Tensor, score: str) -> tuple[Tensor, Tensor, Tensor]:
    """The score of f, its entropy in nats, and f_x, each float64 in the shape of x."""

    def numbers(logits: Tensor, x: Tensor, *data: Tensor) -> Tensor:
        log_f = torch.log_softmax(read_logits(logits, *data), -1)
        f = log_f.exp()
        entropy = -torch.where(f > 0, f * log_f, f).sum(-1)
        if score == "confidence":  # as log odds, which tell 1 - 1e-9 from 1 - 1e-12
            best, at = log_f.max(-1, keepdim=True)
            found = best.squeeze(-1) - log_f.scatter(-1, at, -torch.inf).logsumexp(-1)
        else:
            first, second = f.topk(2, -1).values.unbind(-1)
            found = first - second if score == "margin" else -entropy
        return torch.stack([found, entropy, f.gather(-1, x[..., None]).squeeze(-1)], -1).double()

    found, entropy, f_x = by_objects(numbers, logits, x, *data_of(noise, logits)).unbind(-1)
    return found, entropy, f_x
