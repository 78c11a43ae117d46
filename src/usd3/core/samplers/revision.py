"""Revision: a step that may take back what was drawn before, for any noise and any grid.

With weight 1 - kappa an element is drawn anew, from the forward process of a guess:

    x_s ~ kappa B(f; x_t, t -> s) + (1 - kappa) (abar_s Cat(f) + (1 - abar_s) Cat(m))

Both parts have the marginal q_s, if f is exact, so every kappa leaves it as it is. kappa = 1 is the exact sampler.
sigma = (1 - kappa) (1 - abar_s) is the probability with which a clean element becomes noise again. With absorbing noise
this is ReMDM (Wang et al., 2025), and sigma is theirs. kappa may be negative, as long as all probabilities are >= 0.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from usd3._internal.checks import as_share, require
from usd3.core.coefficients import Process, column
from usd3.core.mixture import Jumps
from usd3.core.samplers.exact import ask_and_draw
from usd3.core.samplers.run import Run, StepFunction

__all__ = ["Revision", "largest_sigma", "revision_jumps"]

_SCHEDULES = ("cap", "rescale", "loop")


@dataclass(frozen=True)
class Revision:
    """Sampler with sigma by one of ReMDM's schedules; the last step draws from f. `Diffusion.sample(sampler=...)`.

    Args:
        schedule: "cap": sigma = min(eta, sigma_max). "rescale": sigma = eta sigma_max. "loop": as "cap" in the steps
            that start at a time t with off < t <= on, and 0 in all others. ReMDM's loop also holds abar constant
            there. Here the grid says how abar moves: one with many times close together in that range does the same.
        eta: in [0, 1]; 0 is the exact sampler. `sigma_max` is `largest_sigma`.
        on: the time at which the loop begins.
        off: the time at which it ends.
    """

    schedule: str = "cap"
    eta: float = 0.02
    on: float = 0.55
    off: float = 0.05

    def __post_init__(self) -> None:
        require(self.schedule in _SCHEDULES, "schedule", self.schedule, f"one of {', '.join(_SCHEDULES)}")
        as_share(self.eta, "eta")
        as_share(self.on, "on", as_share(self.off, "off"))
        usual = (self.on, self.off) == (Revision.on, Revision.off)
        require(
            self.schedule == "loop" or usual, "on, off", (self.on, self.off), "their defaults, unless schedule=loop"
        )

    def __call__(self, run: Run, grid: list[float]) -> StepFunction:
        """One network call and one draw for each step of the grid."""
        t, s = run.steps(grid)  # (S,)
        jumps = revision_jumps(run.process, t, s, self.sigma(run.process, t, s), run.free)  # (S, 1, ..., 1)
        return run.moves(t, jumps, ask_and_draw)

    def sigma(self, process: Process, t: Tensor, s: Tensor) -> Tensor:
        """sigma of the steps t -> s, float64 (S,) as the times."""
        most = largest_sigma(process, t, s)
        if self.schedule == "rescale":
            return self.eta * most
        sigma = most.clamp(max=self.eta)
        return sigma if self.schedule == "cap" else torch.where((t > self.off) & (t <= self.on), sigma, 0.0)


def revision_jumps(process: Process, t: Tensor, s: Tensor, sigma: Tensor, x: Tensor) -> Jumps:
    """kappa (1 - mu) + (1 - kappa) abar_s to f; kappa mu (1 - a_ts) P(noised | x) + sigma to m."""
    to, lost = process.step(t, s, x), process.level(s, x).lost
    renewed = torch.where(lost > 0, column(sigma, x) / torch.where(lost > 0, lost, 1.0), 0.0)  # 1 - kappa
    kappa, alpha_bar = 1 - renewed, process.level(s, x).alpha_bar
    return Jumps(kappa * to.to_data + renewed * alpha_bar, kappa * to.to_noise, forward=renewed * lost)


def largest_sigma(process: Process, t: Tensor, s: Tensor) -> Tensor:
    """The largest sigma for which the steps t -> s are distributions whatever f is, float64 (S,).

    min(1, (1 - abar_s) (1 + m (1 - abar_t) / (a_ts (1 - m (1 - abar_s))))), with m the smallest noise probability above
    0. That is where an element with f_x = 0 never stays. With absorbing noise, m = 1, it is ReMDM's
    min(1, (1 - abar_s) / abar_t).
    """
    (_, lost_t), (_, lost_s), m = process.level(t, t), process.level(s, s), process.noise.smallest
    stays = process.between(t, s, t).alpha_bar * (1 - m * lost_s)
    return torch.where(stays > 0, lost_s * (1 + m * lost_t / stays), 1.0).clamp(max=1.0)
