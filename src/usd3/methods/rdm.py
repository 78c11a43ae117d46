"""RDM (Zheng et al., 2023): a step routes each element by b = [x_t = x_0], whether it is clean already.

    b = 0   x_s = x_0 with probability 1 - mu = (a_s - a_t) / (1 - a_t), else a draw from a_ts e_x + (1 - a_ts) m
    b = 1   x_s = x_t, or noise from m

Training knows b, and only b = 0 asks for x_0: the KL of the routed step is (1 - mu) CE there, and 0 where b = 1. With
absorbing noise that is USD3's KL of the step. With other noise it is not: there x_t = x_0 may be noise as well.
Sampling estimates b. An element starts with b = 0, and a sampler decides when its guess from f is believed. With noise
that can be taken for data these are not the exact steps of which `bound` is a bound, even for an exact f.
"""

import itertools
import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from usd3._internal.checks import as_number, require
from usd3._internal.random import invert_cdf
from usd3.core import fused
from usd3.core.belief import Level, data_logits
from usd3.core.diffusion import Diffusion
from usd3.core.mixture import Jumps
from usd3.core.noise import Uniform
from usd3.core.noisy_batch import Noised
from usd3.core.objectives import LossOutput
from usd3.core.process import column, flat
from usd3.core.samplers import MakePredictor, Run
from usd3.methods.base import Method

__all__ = ["RDM", "Decoding", "Ranked", "Vanilla"]

_WEIGHTS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "none": lambda t, T: torch.ones_like(t),
    "linear": lambda t, T: 1 - (t - 1) / T,
    "reciprocal": lambda t, T: 1 / t,
}
_RANKED = [
    "-".join(parts)
    for parts in itertools.product(("uncond", "cond"), ("deterministic", "stochastic"), ("linear", "cosine"))
]


class RDM(Method):
    """Cross entropy where x_t differs from x_0, and samplers that carry an estimate of b.

    `reweighting` weighs the step t of T: "none", "linear" 1 - (t - 1) / T, "reciprocal" 1 / t. `decoding` is the
    sampler that is used by default: "vanilla" (what the public code does for the string cmlm-dep) or a ranked one, see
    `Ranked`, for example "uncond-deterministic-cosine". `tau` is the temperature of the stochastic ones.
    """

    time = "discrete"
    samplers = ("vanilla", *_RANKED)
    corrects = False

    def __init__(self, diffusion: Diffusion, reweighting: str = "none", decoding: str = "vanilla", tau: float = 1.0):
        super().__init__(diffusion)
        require(reweighting in _WEIGHTS, "reweighting", reweighting, f"one of {', '.join(_WEIGHTS)}")
        self.reweighting, self.tau = reweighting, as_number(tau, "tau", 0, closed=True)
        self.prefer(decoding, "decoding")

    def loss_of(self, batch: Noised) -> LossOutput:
        """weight(t) CE(x_0, f) where x_t differs from x_0."""
        n, T, logits = batch, self.diffusion.num_steps or 1, batch.output()
        f = data_logits(logits, self.diffusion.noise)
        ce = F.cross_entropy(f.flatten(0, -2), n.x_0.flatten(), reduction="none").reshape(n.x_0.shape)
        weight = _WEIGHTS[self.reweighting]((n.time * T).round(), T).to(ce.dtype)
        return n.finished(torch.where(n.x_t == n.x_0, 0.0, ce) * column(weight, ce), logits=logits)

    def predictor(self, sampler: str) -> MakePredictor:
        """`Vanilla` or `Ranked`."""
        if sampler == "vanilla":
            return Vanilla
        mode, noise, schedule = sampler.split("-")
        tau = self.tau if noise == "stochastic" else 0.0
        return lambda run, grid: Ranked(run, grid, mode == "cond", tau, schedule)


class Decoding:
    """The steps of a sampler that believes some of its guesses. `held` is b, and more.

    `held` is -inf where an element is noise (b = 0), else the log probability that its category had when it was
    believed; elements that are given are inf. In each step every element has a guess x ~ f with score log f_x, and

        b = 0   `believed`: x becomes the guess and b = 1; else a draw from a_ts e_x + (1 - a_ts) m
        b = 1   `dropped`: x is drawn from m and b = 0; else x stays, whatever the guess
    """

    def __init__(self, run: Run, grid: list[float], numbers: Sequence[float] | Tensor):
        times = torch.tensor(grid, dtype=torch.float64, device=run.free.device)
        lost = run.process.between(times[:-1], times[1:], run.free).lost
        own = torch.as_tensor(numbers, dtype=torch.float64, device=lost.device).reshape(lost.shape)
        self.run, self.numbers = run, torch.stack([lost, own], 1)
        self.times = times[:-1].to(torch.get_default_dtype())[:, None].repeat(1, len(run.free))
        self.held = torch.where(run.free, -torch.inf, torch.inf).double()
        self.count = flat(run.free).sum(1, keepdim=True)
        self.support = Uniform(run.process.noise.num_classes)  # f may be anything anywhere, also where m_x = 0
        self.level = Level(lost.new_full((1,), 0.5), lost.new_full((1,), 0.5))  # of no effect
        self.move = run.replayed(self.moved)

    def __call__(self, x: Tensor, i: int) -> Tensor:
        """x after the i-th step."""
        u, v = self.run.uniforms(x), self.run.uniforms(x)
        found = self.move(x, self.held, self.times[i], self.numbers[i : i + 1], u, v)
        self.run.checks.raise_early(x.device)
        self.held = found[1]
        return found[0].long()

    def moved(self, x: Tensor, held: Tensor, time: Tensor, numbers: Tensor, u: Tensor, v: Tensor) -> Tensor:
        """x and `held` after a step, (2, ...) float64."""
        (lost, number), run, is_noise = numbers.unbind(1), self.run, held == -torch.inf
        logits = data_logits(run.denoise(x, time), run.process.noise)
        all_to_f = Jumps(torch.ones_like(self.level.lost), torch.zeros_like(self.level.lost))
        guess = fused.draw(logits, x, self.support, self.level, all_to_f, u, run.free, run.process.impl, run.checks)
        score = (logits.gather(-1, guess[..., None]).squeeze(-1) - logits.logsumexp(-1)).double()
        believed, dropped = self.routed(x, held, guess, score, number, v[0])
        noised = torch.where(is_noise, lost, 1.0)  # what of the draw comes from m
        fresh = invert_cdf(run.process.noise._cdf(x.device), v[1] / noised.clamp(min=1e-300))
        noisy = torch.where(v[1] < noised, fresh, x)
        keeps = ~is_noise & ~dropped
        x_s = torch.where(keeps, x, torch.where(is_noise & believed, guess, noisy))
        held = torch.where(keeps, held, torch.where(is_noise & believed, score, -torch.inf))
        return torch.stack([x_s.double(), held])

    def routed(
        self, x: Tensor, held: Tensor, guess: Tensor, score: Tensor, number: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Which noise is believed to have become data, and which data to be noise; `number` is that of the step."""
        raise NotImplementedError


class Vanilla(Decoding):
    """Noise is believed with probability 1 - mu, in the last step for certain. What is believed once stays."""

    def __init__(self, run: Run, grid: list[float]):
        times = torch.tensor(grid, dtype=torch.float64, device=run.free.device)
        to_f = run.process.step(times[:-1], times[1:], run.free).clean
        super().__init__(run, grid, torch.where(column(times[1:], to_f) == 0, 1.0, to_f))

    def routed(
        self, x: Tensor, held: Tensor, guess: Tensor, score: Tensor, number: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        """By chance."""
        return u < number, torch.zeros_like(self.run.free)


class Ranked(Decoding):
    """The k elements with the lowest scores are noise after step j of n, k = floor(rate * free elements).

    `schedule` of the rate: "linear" 1 - j/n or "cosine" cos(pi/2 j/n), 0 after the last step. `tau` > 0 adds Gumbel
    noise times tau times the rate to the scores. With `cond` an element that was believed is dropped only if the guess
    is its category again, with a lower score than it had. Elements with equal scores rank by their index.
    """

    def __init__(self, run: Run, grid: list[float], cond: bool, tau: float, schedule: str):
        self.cond, self.tau, n = cond, tau, len(grid) - 1
        done = [(j + 1) / n for j in range(n)]
        super().__init__(run, grid, [1 - d if schedule == "linear" else math.cos(math.pi / 2 * d) for d in done])

    def routed(
        self, x: Tensor, held: Tensor, guess: Tensor, score: Tensor, number: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        """By rank."""
        gumbel = -torch.log(-torch.log(u.clamp(min=1e-300)))
        ranked = flat(torch.where(self.run.free, score + self.tau * number * gumbel, torch.inf))
        rank = ranked.argsort(dim=1, stable=True).argsort(1)
        k = torch.floor(number.reshape(1, 1) * self.count + 1e-9)  # 0.3 * 10 is 3
        low = (rank < k).reshape(x.shape)
        return ~low, low & (guess == x) & (score < held) if self.cond else low
