"""RDM (Zheng et al., 2023): a step routes each element by b = [x_t = x_0], whether it is already clean.

    b = 0   x_s = x_0 with probability 1 - mu = (a_s - a_t) / (1 - a_t), else a draw from a_ts e_x + (1 - a_ts) m
    b = 1   x_s = x_t, or noise from m

Training knows b. The KL of the routed step is (1 - mu) CE where b = 0, and 0 where b = 1. With absorbing noise that is
USD3's KL of the step; with other noise it is not, because there x_t = x_0 may be noise as well. Sampling estimates b:
an element starts with b = 0, and the sampler decides when it accepts a guess from f. With other noise these are not
the exact steps that `bound` is a bound of, even for an exact f.
"""

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from usd3._internal.checks import as_number, require
from usd3._internal.random import invert_cdf
from usd3.core import fused
from usd3.core.belief import Level, data_logits
from usd3.core.coefficients import column, flat
from usd3.core.diffusion import Diffusion
from usd3.core.mixture import Jumps
from usd3.core.model import Denoiser
from usd3.core.noise import Uniform
from usd3.core.noisy_batch import NoisyBatch
from usd3.core.objectives import LossOutput, element_loss
from usd3.core.samplers import Run, Sampler
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
    default sampler: "vanilla" (what the public code does for the string cmlm-dep) or a ranked one, see `Ranked`, for
    example "uncond-deterministic-cosine". `tau` is the temperature of the stochastic ones.
    """

    time = "discrete"
    samplers = ("vanilla", *_RANKED)
    corrects = False

    def __init__(self, diffusion: Diffusion, reweighting: str = "none", decoding: str = "vanilla", tau: float = 1.0):
        super().__init__(diffusion)
        require(reweighting in _WEIGHTS, "reweighting", reweighting, f"one of {', '.join(_WEIGHTS)}")
        self.reweighting, self.tau = reweighting, as_number(tau, "tau", 0, closed=True)
        self.prefer(decoding, "decoding")

    @property
    def nat_weight(self) -> float:
        """What one nat of an object counts in the loss, which is a cross entropy."""
        return 1.0

    def loss_of(self, denoise: Denoiser, batch: NoisyBatch) -> LossOutput:
        """weight(t) CE(x_0, f) where x_t differs from x_0."""
        d, T, x_0, x_t = self.diffusion, self.diffusion.num_steps or 1, batch.x_0, batch.x_t
        logits = denoise(x_t, batch.time)  # (B, N1, ..., Nk, K)
        ce = F.cross_entropy(data_logits(logits, d.noise).flatten(0, -2), x_0.flatten(), reduction="none")
        ce = ce.reshape(x_0.shape)
        weight = _WEIGHTS[self.reweighting]((batch.time * T).round(), T).to(ce.dtype)  # (B,)
        return element_loss(d, torch.where(x_t == x_0, 0.0, ce) * column(weight, ce), batch, logits)

    def predictor(self, sampler: str) -> Sampler:
        """`Vanilla` or `Ranked`."""
        if sampler == "vanilla":
            return Vanilla
        mode, noise, schedule = sampler.split("-")
        tau = self.tau if noise == "stochastic" else 0.0
        return lambda run, grid: Ranked(run, grid, mode == "cond", tau, schedule)


class Decoding(ABC):
    """The steps of a sampler that accepts some of its guesses: `decoding(x, i)` is step i.

    `held`, float64 in the shape of x, carries b: -inf where an element is noise (b = 0), else the log probability that
    its category had when it was accepted; inf for given elements. In each step every element gets a guess x ~ f with
    score log f_x, and then

        b = 0   accepted: x becomes the guess and b = 1; else x is drawn from a_ts e_x + (1 - a_ts) m
        b = 1   dropped: x is drawn from m and b = 0; else x stays, whatever the guess

    A subclass says which elements are accepted and dropped (`routed`), from one number per step (`numbers`).
    """

    def __init__(self, run: Run, grid: list[float], numbers: Sequence[float] | Tensor):
        t, s = run.steps(grid)  # (S,)
        lost = run.process.between(t, s, run.free).lost
        numbers = torch.as_tensor(numbers, dtype=torch.float64, device=lost.device).reshape(lost.shape)
        self.run, self.numbers = run, torch.stack([lost, numbers], 1)  # (S, 2, 1, ..., 1)
        self.times = run.network_times(t)  # (S, B)
        self.held = torch.where(run.free, -torch.inf, torch.inf).double()
        self.count = flat(run.free).sum(1, keepdim=True)
        self.support = Uniform(run.process.noise.num_classes)  # f may be anything anywhere, also where m_x = 0
        self.level = Level(lost.new_full((1,), 0.5), lost.new_full((1,), 0.5))  # of no effect
        self.move = run.replayed(self.moved)

    def __call__(self, x: Tensor, i: int) -> Tensor:
        """x after the i-th step."""
        u, v = self.run.uniforms(x), self.run.uniforms(x)
        x_s, self.held = self.move(x, self.held, self.times[i], self.numbers[i : i + 1], u, v).unbind()
        self.run.checks.raise_early(x.device)
        return x_s.long()

    def moved(self, x: Tensor, held: Tensor, time: Tensor, numbers: Tensor, u: Tensor, v: Tensor) -> Tensor:
        """x and `held` after a step, (2, ...) float64."""
        (lost, number), run, is_noise = numbers.unbind(1), self.run, held == -torch.inf
        logits = data_logits(run.denoise(x, time), run.process.noise)
        all_to_f = Jumps(torch.ones_like(self.level.lost), torch.zeros_like(self.level.lost))
        shaped = run.shaped(logits)
        guess = fused.draw(shaped, x, self.support, self.level, all_to_f, u, run.free, run.process.impl, run.checks)
        score = (logits.gather(-1, guess[..., None]).squeeze(-1) - logits.logsumexp(-1)).double()
        accepted, dropped = self.routed(x, held, guess, score, number, v[0])
        noised = torch.where(is_noise, lost, 1.0)  # share of the draw that comes from m
        fresh = invert_cdf(run.process.noise.cdf(x.device), v[1] / noised.clamp(min=1e-300))
        noisy = torch.where(v[1] < noised, fresh, x)
        keeps = ~is_noise & ~dropped
        x_s = torch.where(keeps, x, torch.where(is_noise & accepted, guess, noisy))
        held = torch.where(keeps, held, torch.where(is_noise & accepted, score, -torch.inf))
        return torch.stack([x_s.double(), held])

    @abstractmethod
    def routed(
        self, x: Tensor, held: Tensor, guess: Tensor, score: Tensor, number: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Two masks: noise that becomes data, and data that becomes noise. `number` is that of the step."""


class Vanilla(Decoding):
    """A guess is accepted with probability 1 - mu, in the last step always. Accepted elements stay."""

    def __init__(self, run: Run, grid: list[float]):
        t, s = run.steps(grid)
        to_f = run.process.step(t, s, run.free).to_data
        super().__init__(run, grid, torch.where(column(s, to_f) == 0, 1.0, to_f))

    def routed(
        self, x: Tensor, held: Tensor, guess: Tensor, score: Tensor, number: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Noise becomes data at random; data stays."""
        return u < number, torch.zeros_like(self.run.free)


class Ranked(Decoding):
    """The k elements with the lowest scores are noise after step j of n, k = floor(rate * free elements).

    `schedule` is that of the rate: "linear" 1 - j/n or "cosine" cos(pi/2 j/n), 0 after the last step. `tau` > 0 adds
    Gumbel noise times tau times the rate to the scores. With `cond` an accepted element is dropped only if the guess
    is its category again, with a lower score than it had. Elements with equal scores rank by their index.
    """

    def __init__(self, run: Run, grid: list[float], cond: bool, tau: float, schedule: str):
        self.cond, self.tau, n = cond, tau, len(grid) - 1
        done = [(j + 1) / n for j in range(n)]
        super().__init__(run, grid, [1 - d if schedule == "linear" else math.cos(math.pi / 2 * d) for d in done])

    def routed(
        self, x: Tensor, held: Tensor, guess: Tensor, score: Tensor, number: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The k lowest scores are noise after the step."""
        gumbel = -torch.log(-torch.log(u.clamp(min=1e-300)))
        ranked = flat(torch.where(self.run.free, score + self.tau * number * gumbel, torch.inf))
        rank = ranked.argsort(dim=1, stable=True).argsort(1)
        k = torch.floor(number.reshape(1, 1) * self.count + 1e-9)  # 0.3 * 10 is 3
        low = (rank < k).reshape(x.shape)
        return ~low, low & (guess == x) & (score < held) if self.cond else low
