"""Everything that is drawn is one mixture: w_f Cat(f) + w_x e_x + w_0 e_x0 + w_m Cat(m).

Forward noising, the posterior, the backward step, the Euler step of the reverse chain and the corrector differ
only in their weights. Paper: "Reparameterization Form for Sampling".
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from usd3._checks import Checks, as_categories, require
from usd3._random import categorical, uniform
from usd3.belief import NEVER, Belief

__all__ = ["Mixture"]

_ROWS = 1 << 24  # cells of a (rows, K) float64 table held at once while drawing


@dataclass(frozen=True)
class Mixture:
    """A categorical distribution for each element. Weights broadcast to the shape of x.

    `belief` says where x is, what f is and what m is. A mixture made by the Euler step or the corrector may
    have a negative w_x although its jump mass is small; it can be drawn from, but is no distribution.
    """

    belief: Belief
    w_x: Tensor
    w_m: Tensor
    w_f: Tensor | None = None
    w_0: Tensor | None = None
    x_0: Tensor | None = None
    validate: bool = True

    def probs(self) -> Tensor:
        """All probabilities, (..., K); float64, or the precision of the logits where there are any."""
        b = self.belief
        dtype = torch.float64 if b.log_f is None else b.log_f.dtype
        m = b.noise.probs_on(b.x.device, dtype)
        probs = self._full(self.w_m).to(dtype)[..., None] * m
        w_x = self._full(self.w_x)
        if self.w_f is not None and b.log_f is not None:
            w_f = self._full(self.w_f).masked_fill(b.clean, 0.0)  # f = e_x there
            w_x = w_x + torch.where(b.clean, self.w_f, 0.0)
            probs = probs + w_f.to(dtype)[..., None] * b.log_f.exp()
        probs = probs.scatter_add(-1, b.x[..., None], w_x.to(dtype)[..., None])
        if self.w_0 is not None and self.x_0 is not None:
            probs = probs.scatter_add(-1, self.x_0[..., None], self._full(self.w_0).to(dtype)[..., None])
        return probs

    def log_prob(self, z: Tensor) -> Tensor:
        """log probability of categories z; -inf where z is impossible."""
        b = self.belief
        checks = Checks(self.validate)
        z = as_categories(z, b.noise.num_classes, "x", checks)
        require(z.shape == b.x.shape, "x.shape", tuple(z.shape), f"{tuple(b.x.shape)}")
        checks.raise_first()
        mass = self.w_x * (z == b.x) + self.w_m * b.noise.at(z)
        if self.w_0 is not None:
            mass = mass + self.w_0 * (z == self.x_0)
        log_p = safe_log(self._full(mass))
        if self.w_f is not None and b.log_f is not None:
            log_p = torch.logaddexp(log_p, safe_log(self._full(self.w_f)) + b.log_f_at(z))
            log_p = log_p.to(b.log_f.dtype)
        return torch.where(log_p > NEVER / 2, log_p, -torch.inf)

    def jumps(self) -> Iterator[tuple[str, Tensor]]:
        """The mass each branch moves away from x: (branch, mass)."""
        b = self.belief
        yield "m", self.w_m * (1 - b.m_x)
        if self.w_f is not None:
            yield "f", self.w_f * b.not_f_x
        if self.w_0 is not None:
            yield "0", self.w_0 * (self.x_0 != b.x)

    def jump_mass(self) -> Tensor:
        """L: the probability of leaving x."""
        return self._full(sum((mass for _, mass in self.jumps()), torch.zeros(())))

    def scaled(self, factor: Tensor) -> "Mixture":
        """The same jumps, `factor` times as likely."""
        scale = {name: getattr(self, name) * factor for name in ("w_m", "w_f", "w_0") if getattr(self, name) is not None}
        return replace(self, w_x=1 - sum(scale.values(), torch.zeros(())), **scale)

    @torch.no_grad()
    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Draw: first the jump away from x, then the branch it takes, then a category z != x of that branch.

        Where the jump mass exceeds 1 (only Euler steps and correctors that are too long) it is scaled to 1.
        """
        b = self.belief
        u = uniform(b.x.shape, b.x.device, generator) * self.jump_mass().clamp(min=1.0)
        drawn, edge = b.x, torch.zeros_like(u)
        for branch, mass in self.jumps():
            here = (u >= edge) & (u < edge + mass)
            edge = edge + mass
            if branch == "m":
                drawn = torch.where(here, b.noise.sample_other(b.x, generator), drawn)
            elif branch == "0":
                assert self.x_0 is not None
                drawn = torch.where(here, self.x_0, drawn)
            else:
                drawn = drawn.masked_scatter(here, self._other_from_f(here, generator))
        return drawn

    def _other_from_f(self, here: Tensor, generator: torch.Generator | None) -> Tensor:
        """Draw from f restricted to z != x, for the elements `here`, a bounded number of rows at a time."""
        b = self.belief
        assert b.log_f is not None
        u = uniform(b.x.shape, b.x.device, generator)[here]
        rows, x = here.flatten().nonzero().squeeze(-1), b.x[here]
        table = b.log_f.reshape(-1, b.log_f.shape[-1])
        size = max(1, _ROWS // table.shape[-1])
        draws = [
            categorical(table[row].scatter(-1, at[:, None], -torch.inf), v)
            for row, at, v in zip(rows.split(size), x.split(size), u.split(size))
        ]
        return torch.cat(draws)

    def _full(self, weight: Tensor) -> Tensor:
        return weight.expand(self.belief.x.shape)


def safe_log(value: Tensor) -> Tensor:
    """log, with NEVER for 0 and no NaN in its gradient."""
    positive = value > 0
    return torch.where(positive, torch.where(positive, value, 1.0).log(), NEVER)
