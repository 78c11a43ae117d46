"""The belief about an element's clean category, given its category x at time t.

`f` is the distribution of the clean category: the softmax of the network's logits, or one-hot where x_0 is known.
Every closed form of the paper needs only two numbers of f. With m_x the noise probability of x:

    untouched = r f_x,  r = abar / (abar + (1 - abar) m_x)      P(never noised until t | x)
    noised    = 1 - r f_x                                       P(noised at least once | x)

Support rule. Where m_x = 0 the element cannot have been noised: f = e_x and r = 1. f is 0 at categories that data
cannot have, the mask of `Absorbing` and those outside the `support`, as it is where the logit is -inf.

So the code reads logits only of free elements with m_x > 0, at data categories. There each logit must be finite or
-inf, with at least one finite logit in a row. All other logits may be anything, NaN included.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from usd3._internal.checks import Checks
from usd3.core.noise import Noise

__all__ = ["FINITE", "NEVER", "Belief", "Level", "data_logits", "kept_share", "model_belief", "true_belief"]

FINITE = "finite numbers (or -inf for a category that cannot be, but not for all)"
"""The requirement on logits, as error messages state it."""

NEVER = -1e30
"""Stands for log 0: finite, so that no gradient becomes NaN."""


class Level(NamedTuple):
    """Noise level of one time per object: alpha_bar and `lost` = 1 - alpha_bar, float64 (B, 1, ..., 1)."""

    alpha_bar: Tensor
    lost: Tensor


@dataclass(frozen=True)
class Belief:
    """f, given x. Fields have the shape of x and are float64; `log_f` is (..., K) in the precision of the logits."""

    x: Tensor
    noise: Noise
    m_x: Tensor
    r: Tensor
    f_x: Tensor
    not_f_x: Tensor  # 1 - f_x without cancellation, as are the two below
    untouched: Tensor
    noised: Tensor
    log_f: Tensor  # empty where f is one-hot
    log_f_x: Tensor

    @property
    def is_certain(self) -> Tensor:
        """Where m_x = 0, so that x is certainly x_0."""
        return self.m_x == 0

    def log_f_at(self, z: Tensor) -> Tensor:
        """log f_z for categories z in the shape of x, float64."""
        at_z = self.log_f.gather(-1, z[..., None]).squeeze(-1).double()
        return torch.where(z == self.x, self.log_f_x, torch.where(self.is_certain, NEVER, at_z))


def true_belief(x_0: Tensor, x: Tensor, noise: Noise, level: Level) -> Belief:
    """Belief with f = e_x0, for a known x_0 in the shape of x."""
    return _belief(x, noise, level, torch.where(x == x_0, torch.inf, -torch.inf).double(), x.new_empty(0))


def model_belief(
    logits: Tensor, x: Tensor, noise: Noise, level: Level, checks: Checks, free: Tensor | None = None
) -> Belief:
    """Belief with f = softmax(logits), logits (..., K), in float32 or better. Elements outside `free` mean nothing.

    The log-sum-exp over z != x gives 1 - f_x without cancellation, and it is NaN for bad logits.
    """
    log_f = torch.log_softmax(data_logits(_read(logits, x, noise, free), noise), -1).clamp(min=NEVER)
    others = log_f.scatter(-1, x[..., None], -torch.inf).logsumexp(-1)
    log_odds = (log_f.gather(-1, x[..., None]).squeeze(-1) - others).double()
    checks.refuse("logits", log_odds.detach().sum(), torch.isnan, FINITE)
    return _belief(x, noise, level, log_odds, log_f)


def _read(logits: Tensor, x: Tensor, noise: Noise, free: Tensor | None) -> Tensor:
    """Logits, with 0 for elements that are certain or not free: those may be anything."""
    read = noise.at(x) > 0 if noise.has_zeros else None
    if free is not None:
        read = free if read is None else read & free
    return logits if read is None else logits.masked_fill(~read[..., None], 0.0)


def data_logits(logits: Tensor, noise: Noise) -> Tensor:
    """Logits in float32 or better, -inf at categories that data cannot have."""
    logits, data = logits.to(torch.promote_types(logits.dtype, torch.float32)), noise.data_on(logits.device)
    return logits if data is None else torch.where(data, logits, -torch.inf)


def kept_share(m_x: Tensor, level: Level) -> Tensor:
    """r = abar / (abar + (1 - abar) m_x) = P(never noised | x_t = x_0 = x); 1 where m_x = 0."""
    possible = m_x > 0
    here = torch.where(possible, level.alpha_bar + level.lost * m_x, 1.0)
    return torch.where(possible, level.alpha_bar / here, 1.0)


def _belief(x: Tensor, noise: Noise, level: Level, log_odds: Tensor, log_f: Tensor) -> Belief:
    """Belief from the log odds of f_x."""
    m_x = noise.at(x)
    possible, r = m_x > 0, kept_share(m_x, level)
    here = torch.where(possible, level.alpha_bar + level.lost * m_x, 1.0)  # q(x_t = x | x_0 = x)
    log_odds = torch.where(possible, log_odds, torch.inf)
    f_x, not_f_x = torch.sigmoid(log_odds), torch.sigmoid(-log_odds)
    noised = not_f_x + torch.where(possible, level.lost * m_x / here, 0.0) * f_x
    return Belief(x, noise, m_x, r, f_x, not_f_x, r * f_x, noised, log_f, F.logsigmoid(log_odds))
