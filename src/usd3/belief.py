"""What is believed of an element's past, seen from its current category x at time t.

`f` is the distribution of the clean category: softmax of the network's logits, or one-hot where x_0 is known.
With m_x the noise probability of x, two numbers carry every closed form of the paper:

    untouched = r f_x,   r = abar / (abar + (1 - abar) m_x)       P(never noised until t | x)
    noised    = 1 - r f_x                                         P(noised at least once | x); DESIGN calls it c1

Support rule. Where m_x = 0 the element cannot have been noised, so f = e_x and r = 1. The mask category of
`Absorbing` is no data category, so f is 0 there.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from usd3._checks import Checks
from usd3.noise import Noise

__all__ = ["NEVER", "Belief", "Level", "known", "predicted"]

NEVER = -1e30
"""The log of nothing: finite, so that no gradient becomes NaN."""


@dataclass(frozen=True)
class Level:
    """How noisy things are at one time: alpha_bar and 1 - alpha_bar, float64, one per object, shape (B, 1, ...)."""

    alpha_bar: Tensor
    lost: Tensor


@dataclass(frozen=True)
class Belief:
    """f seen from x. All fields are float64 and have the shape of x, except `log_f` (..., K)."""

    x: Tensor
    noise: Noise
    m_x: Tensor
    r: Tensor
    f_x: Tensor
    not_f_x: Tensor  # 1 - f_x, without cancellation
    noised: Tensor
    log_f: Tensor | None = None  # None: f is one-hot
    log_f_x: Tensor | None = None

    @property
    def untouched(self) -> Tensor:
        """P(never noised | x) = r f_x."""
        return self.r * self.f_x

    @property
    def clean(self) -> Tensor:
        """Where m_x = 0: x is certainly x_0."""
        return self.m_x == 0

    def log_f_at(self, z: Tensor) -> Tensor:
        """log f_z, float64."""
        assert self.log_f is not None
        assert self.log_f_x is not None
        at_z = self.log_f.gather(-1, z[..., None]).squeeze(-1).double()
        return torch.where(z == self.x, self.log_f_x, torch.where(self.clean, NEVER, at_z))


def _belief(x: Tensor, noise: Noise, level: Level, f_x: Tensor, not_f_x: Tensor) -> Belief:
    m_x = noise.at(x)
    here = level.alpha_bar + level.lost * m_x  # q(x_t = x | x_0 = x)
    possible = m_x > 0
    safe = torch.where(possible, here, 1.0)
    r = torch.where(possible, level.alpha_bar / safe, 1.0)
    not_r = torch.where(possible, level.lost * m_x / safe, 0.0)
    return Belief(x, noise, m_x, r, f_x, not_f_x, not_f_x + not_r * f_x)


def known(x_0: Tensor, x: Tensor, noise: Noise, level: Level) -> Belief:
    """x_0 is known: f = e_x0."""
    same = (x == x_0).double()
    return _belief(x, noise, level, same, 1 - same)


def predicted(logits: Tensor, x: Tensor, noise: Noise, level: Level, checks: Checks, name: str) -> Belief:
    """f = softmax(logits), with the support rule; float32 inside (float64 for float64 logits).

    1 - f_x comes from the log-sum-exp over z != x, and NaN logits are noticed there.
    """
    log_f = log_softmax(logits, noise)
    at_x = log_f.gather(-1, x[..., None])
    others = log_f.scatter(-1, x[..., None], -torch.inf).logsumexp(-1)
    log_odds = (at_x.squeeze(-1) - others).double()
    checks.refuse(lambda: log_odds.isnan(), lambda: f"{name} contains NaN or infinite values: expected finite numbers")
    log_odds = torch.where(noise.at(x) > 0, log_odds, torch.inf)
    belief = _belief(x, noise, level, torch.sigmoid(log_odds), torch.sigmoid(-log_odds))
    return Belief(**(vars(belief) | {"log_f": log_f, "log_f_x": F.logsigmoid(log_odds)}))


def log_softmax(logits: Tensor, noise: Noise) -> Tensor:
    """log f over the data categories, in float32 or better; the mask category gets NEVER."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if noise.mask is not None:
        is_mask = torch.arange(noise.num_classes, device=logits.device) == noise.mask
        logits = logits.masked_fill(is_mask, NEVER)
    return torch.log_softmax(logits, -1)
