"""Everything that is drawn is one mixture: w_f Cat(f) + w_x e_x + w_0 e_x0 + w_m Cat(m).

Forward noising, the posterior, the backward step, the Euler step of the reverse chain and the corrector differ only
in their weights. Paper: "Reparameterization Form for Sampling".
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
    """Weights of leaving x, float64, one per object: A = `clean` goes to f, N = `noise` times P(noised) to m.

    For a step t -> s they are probabilities, A = 1 - mu and N = mu (1 - a_ts), and `keep` = mu a_ts stays on x. For
    the reverse rate A = beta abar / (1 - abar) and N = beta; `keep` is None, nothing is said of z = x.
    """

    clean: Tensor
    noise: Tensor
    keep: Tensor | None = None


@dataclass(frozen=True)
class Jumps:
    """How an element leaves x, float64 weights that broadcast to x: for f with weight `clean`, for m with weight
    `noise` P(noised) + `anew`. `damped` multiplies all by exp(-L), L being their sum.

    The exact step has the weights of its `Transition`; the Euler step and tau-leaping those of the reverse rate; the
    corrector adds the forward rate, `anew`.
    """

    clean: Tensor
    noise: Tensor
    anew: Tensor | None = None
    damped: bool = False

    def scaled(self, factor: Tensor | float) -> "Jumps":
        """The same jumps, `factor` times as likely."""
        anew = None if self.anew is None else self.anew * factor
        return replace(self, clean=self.clean * factor, noise=self.noise * factor, anew=anew)


@dataclass(frozen=True)
class Mixture:
    """A categorical distribution for each element; `belief` knows x, f and m, the weights broadcast to x.

    A mixture made for an Euler step or the corrector may have w_x < 0 although its jump mass is small: it can be
    drawn from, but is no distribution.
    """

    belief: Belief
    w_x: Tensor
    w_m: Tensor
    w_f: Tensor | None = None
    w_0: Tensor | None = None
    x_0: Tensor | None = None
    validate: bool = True

    def probs(self) -> Tensor:
        """All probabilities, (..., K): in the precision of the logits, or float64 where there are none."""
        b = self.belief
        dtype = torch.float64 if self.w_f is None else b.log_f.dtype
        w_x, probs = self.w_x, self._column(self.w_m, dtype) * b.noise.probs_on(b.x.device, dtype)
        if self.w_f is not None:
            w_x = w_x + torch.where(b.clean, self.w_f, 0.0)  # f = e_x there
            probs = probs + self._column(torch.where(b.clean, 0.0, self.w_f), dtype) * b.log_f.exp()
        probs = probs.scatter_add(-1, b.x[..., None], self._column(w_x, dtype))
        if self.w_0 is not None and self.x_0 is not None:
            probs = probs.scatter_add(-1, self.x_0[..., None], self._column(self.w_0, dtype))
        return probs

    def log_prob(self, x: Tensor) -> Tensor:
        """log probability of categories x; -inf where they are impossible."""
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
        """The mass that m, f and x_0 each move away from x."""
        b = self.belief
        to_m = self.w_m * (1 - b.m_x)
        to_f = torch.zeros_like(to_m) if self.w_f is None else self.w_f * b.not_f_x
        to_0 = torch.zeros_like(to_m) if self.w_0 is None else self.w_0 * (b.x != self.x_0)
        return to_m, to_f, to_0

    def jump_mass(self) -> Tensor:
        """L, the probability of leaving x."""
        return torch.stack(self.jump_masses()).sum(0)

    def scaled(self, factor: Tensor) -> "Mixture":
        """The same jumps to f and m, `factor` times as likely."""
        assert self.w_f is not None
        w_f, w_m = self.w_f * factor, self.w_m * factor
        return replace(self, w_x=1 - w_f - w_m, w_f=w_f, w_m=w_m)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Draw: whether x is left and by which branch, then a category z != x of that branch.

        Where the jump mass exceeds 1 (only an Euler step or a corrector that is too long) it is scaled to 1.
        """
        b = self.belief
        return self.drawn(*uniform((2, *b.x.shape), b.x.device, generator))

    def drawn(self, u: Tensor, v: Tensor) -> Tensor:
        """The draw that belongs to two uniforms per element, float64: u chooses the branch, v the category."""
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
        """Draw from f restricted to z != x for the elements `here`, a bounded number of rows at a time."""
        b = self.belief
        table, rows = b.log_f.reshape(-1, b.log_f.shape[-1]), here.flatten().nonzero().squeeze(-1)
        size = max(1, _CELLS // table.shape[-1])
        chunks = zip(rows.split(size), b.x.flatten()[rows].split(size), v.flatten()[rows].split(size))
        return torch.cat([categorical(table[row].scatter(-1, x[:, None], -torch.inf), w) for row, x, w in chunks])

    def _column(self, weight: Tensor, dtype: torch.dtype) -> Tensor:
        return weight.expand(self.belief.x.shape).to(dtype)[..., None]


def backward_mixture(belief: Belief, to: Transition, x_0: Tensor | None = None, validate: bool = True) -> Mixture:
    """B(f; x, t -> s), or B(e_x0; x, t -> s) where x_0 is given: Prop. 1 and 2 are one function, linear in f.

    B(f) = (1-mu) f + mu (a_ts + (1-a_ts) untouched) e_x + mu (1-a_ts) noised m
    """
    assert to.keep is not None
    w_x, w_m = to.keep + to.noise * belief.untouched, to.noise * belief.noised
    if x_0 is None:
        return Mixture(belief, w_x, w_m, w_f=to.clean, validate=validate)
    return Mixture(belief, w_x, w_m, w_0=to.clean, x_0=x_0, validate=validate)


def jump_mixture(belief: Belief, jumps: Jumps) -> Mixture:
    """Leave x for f and for m with these weights, and stay otherwise."""
    to_f, to_m = jumps.clean, jumps.noise * belief.noised
    to_m = to_m if jumps.anew is None else to_m + jumps.anew
    mixture = Mixture(belief, w_x=1 - to_f - to_m, w_m=to_m, w_f=to_f)
    return mixture.scaled(torch.exp(-mixture.jump_mass())) if jumps.damped else mixture


def safe_log(value: Tensor) -> Tensor:
    """log, with NEVER for 0 and no NaN in the gradient."""
    positive = value > 0
    return torch.where(positive, torch.where(positive, value, 1.0).log(), NEVER)
