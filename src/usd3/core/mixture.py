"""Every distribution we draw from is one mixture: w_f Cat(f) + w_x e_x + w_0 e_x0 + w_m Cat(m).

The posterior, the backward step, the Euler step of the reverse chain and the corrector differ only in their weights
(paper: "Reparameterization Form for Sampling", eq. 46 and 47).
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from usd3._internal.checks import Checks, as_categories, require
from usd3._internal.random import categorical, uniform
from usd3.core.belief import NEVER, Belief

__all__ = ["Jumps", "Mixture", "Transition", "backward_mixture", "jump_mixture", "safe_log"]

_CELLS = 1 << 24  # of a (rows, K) float64 table held at once while drawing


@dataclass(frozen=True)
class Transition:
    """How much of an element leaves x, and where to: float64 weights (B, 1, ..., 1).

    A = `to_data` goes to f, N = `to_noise` times P(noised | x) goes to m. A step t -> s has the probabilities
    A = 1 - mu and N = mu (1 - a_ts), and `stay` = mu a_ts remains on x. The reverse rate has A = beta abar / (1 - abar)
    and N = beta; `stay` is None, because a rate has no entry at z = x.
    """

    to_data: Tensor
    to_noise: Tensor
    stay: Tensor | None = None


@dataclass(frozen=True)
class Jumps:
    """The same weights for a draw that moves an element away from x, float64, broadcasting to x.

    An element jumps to f with weight `to_data`, and to m with weight `to_noise` P(noised | x) + `forward`. Exact steps
    take the weights of their `Transition`, Euler steps and tau-leaping those of the reverse rate. The corrector adds
    the rate of the forward process, `forward`. `damped` multiplies all weights by exp(-L), L being their sum
    (tau-leaping: exactly one Poisson jump).
    """

    to_data: Tensor
    to_noise: Tensor
    forward: Tensor | None = None
    damped: bool = False

    def scaled(self, factor: Tensor | float) -> "Jumps":
        """The same jumps, `factor` times as likely."""
        forward = None if self.forward is None else self.forward * factor
        return replace(self, to_data=self.to_data * factor, to_noise=self.to_noise * factor, forward=forward)


@dataclass(frozen=True)
class Mixture:
    """A categorical distribution for each element of x. `belief` holds x, f and m; the weights broadcast to x.

    The mixture of an Euler step or of the corrector may have w_x < 0 although its jump mass is small: `sample` works,
    but `probs` is not a distribution.
    """

    belief: Belief
    w_x: Tensor
    w_m: Tensor
    w_f: Tensor | None = None
    w_0: Tensor | None = None
    x_0: Tensor | None = None
    validate: bool = True

    def probs(self) -> Tensor:
        """Probabilities (..., K): in the precision of the logits, or float64 for a mixture without f."""
        b = self.belief
        dtype = torch.float64 if self.w_f is None else b.log_f.dtype
        w_x, probs = self.w_x, self._column(self.w_m, dtype) * b.noise.probs_on(b.x.device, dtype)
        if self.w_f is not None:
            w_x = w_x + torch.where(b.is_certain, self.w_f, 0.0)  # f = e_x there
            probs = probs + self._column(torch.where(b.is_certain, 0.0, self.w_f), dtype) * b.log_f.exp()
        probs = probs.scatter_add(-1, b.x[..., None], self._column(w_x, dtype))
        if self.w_0 is not None and self.x_0 is not None:
            probs = probs.scatter_add(-1, self.x_0[..., None], self._column(self.w_0, dtype))
        return probs

    def log_prob(self, x: Tensor) -> Tensor:
        """Log probability of categories x, in the shape of x; -inf for impossible ones."""
        b, checks = self.belief, Checks(self.validate)
        x = as_categories(x, b.noise.num_classes, "x", checks)
        require(x.shape == b.x.shape, "x.shape", tuple(x.shape), f"{tuple(b.x.shape)}")
        checks.raise_first()
        mass = self.w_x * (x == b.x) + self.w_m * b.noise.at(x)
        if self.w_0 is not None:
            mass = mass + self.w_0 * (x == self.x_0)
        log_p = safe_log(mass)
        if self.w_f is not None:
            log_p = torch.logaddexp(log_p, safe_log(self.w_f) + b.log_f_at(x)).to(b.log_f.dtype)
        return torch.where(log_p > NEVER / 2, log_p, -torch.inf)

    def jump_masses(self) -> tuple[Tensor, Tensor, Tensor]:
        """Probability of leaving x for m, for f and for x_0, each in the shape of x."""
        b = self.belief
        to_m = self.w_m * (1 - b.m_x)
        to_f = torch.zeros_like(to_m) if self.w_f is None else self.w_f * b.not_f_x
        to_0 = torch.zeros_like(to_m) if self.w_0 is None else self.w_0 * (b.x != self.x_0)
        return to_m, to_f, to_0

    def jump_mass(self) -> Tensor:
        """L, the probability of leaving x, in the shape of x."""
        return torch.stack(self.jump_masses()).sum(0)

    def scaled(self, factor: Tensor) -> "Mixture":
        """The same jumps to f and m, `factor` times as likely."""
        assert self.w_f is not None
        w_f, w_m = self.w_f * factor, self.w_m * factor
        return replace(self, w_x=1 - w_f - w_m, w_f=w_f, w_m=w_m)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Draw one category per element: first the branch (stay, m, f or x_0), then a category z != x of that branch.

        A jump mass above 1 (an Euler step or a corrector move that is too long) is scaled to 1.
        """
        b = self.belief
        return self.drawn(*uniform((2, *b.x.shape), b.x.device, generator))

    def drawn(self, u: Tensor, v: Tensor) -> Tensor:
        """The draw for given uniforms, float64 in the shape of x: u chooses the branch, v the category."""
        b = self.belief
        with torch.no_grad():
            to_m, to_f, to_0 = self.jump_masses()
            u = u * self.jump_mass().clamp(min=1.0)
            drawn = torch.where(u < to_m, b.noise.other(b.x, v), b.x)
            if self.x_0 is not None:
                drawn = torch.where((u >= to_m + to_f) & (u < to_m + to_f + to_0), self.x_0, drawn)
            if self.w_f is not None:
                here = (u >= to_m) & (u < to_m + to_f)
                drawn = drawn.masked_scatter(here, self._other_from_f(here, v))
        return drawn

    def _other_from_f(self, here: Tensor, v: Tensor) -> Tensor:
        """Draw from f restricted to z != x for the elements `here`, in chunks of rows."""
        b = self.belief
        table, rows = b.log_f.reshape(-1, b.log_f.shape[-1]), here.flatten().nonzero().squeeze(-1)
        size = max(1, _CELLS // table.shape[-1])
        chunks = zip(rows.split(size), b.x.flatten()[rows].split(size), v.flatten()[rows].split(size))
        return torch.cat([categorical(table[row].scatter(-1, x[:, None], -torch.inf), w) for row, x, w in chunks])

    def _column(self, weight: Tensor, dtype: torch.dtype) -> Tensor:
        return weight.expand(self.belief.x.shape).to(dtype)[..., None]


def backward_mixture(belief: Belief, to: Transition, x_0: Tensor | None = None, validate: bool = True) -> Mixture:
    """Backward step B(f; x, t -> s), Prop. 2; with `x_0` the posterior B(e_x0; x, t -> s), Prop. 1.

    B(f) = (1-mu) f + mu (a_ts + (1-a_ts) untouched) e_x + mu (1-a_ts) noised m
    """
    assert to.stay is not None
    w_x, w_m = to.stay + to.to_noise * belief.untouched, to.to_noise * belief.noised
    if x_0 is None:
        return Mixture(belief, w_x, w_m, w_f=to.to_data, validate=validate)
    return Mixture(belief, w_x, w_m, w_0=to.to_data, x_0=x_0, validate=validate)


def jump_mixture(belief: Belief, jumps: Jumps) -> Mixture:
    """Jump from x to f and to m with these weights, else stay."""
    to_f, to_m = jumps.to_data, jumps.to_noise * belief.noised
    to_m = to_m if jumps.forward is None else to_m + jumps.forward
    mixture = Mixture(belief, w_x=1 - to_f - to_m, w_m=to_m, w_f=to_f)
    return mixture.scaled(torch.exp(-mixture.jump_mass())) if jumps.damped else mixture


def safe_log(value: Tensor) -> Tensor:
    """log, with NEVER for 0 and no NaN in the gradient."""
    positive = value > 0
    return torch.where(positive, torch.where(positive, value, 1.0).log(), NEVER)
