"""Guidance with a classifier p(y | x_t): the reverse rate of a jump x -> z, times (p(y | z) / p(y | x))^g.

With the exact classifier of the noisy objects, g = 1 gives the reverse chain of p(x | y). Any module or function of the
user's may be the classifier.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from usd3._internal.checks import as_count, as_number, require, require_type
from usd3._internal.random import drawn_from
from usd3.core.belief import model_belief
from usd3.core.mixture import Jumps, jump_mixture
from usd3.core.samplers.euler import euler_jumps
from usd3.core.samplers.run import Run, StepFunction

__all__ = ["Classifier", "ClassifierGuided"]

_LARGEST_TILT = 80.0  # the largest log of a factor on a rate; the jump is certain long before

Classifier = Callable[[Tensor, Tensor], Tensor]
"""`classifier(x_t, t)`: log p(y | x_t) of the wanted y, (B,)."""


@dataclass(frozen=True)
class ClassifierGuided:
    """A sampler that follows a classifier: Euler steps, or tau-leaping, of the guided rates.

    The step t -> s leaves x for z with probability (t - s) rate_z (p(y | z) / p(y | x))^g, where z is x with one
    element changed. The last step draws each element from f_z (p(y | z) / p(y | x))^g, normalised.

    Args:
        classifier: `classifier(x_t, t) -> log p(y | x_t)`, (B,), for the y that is wanted; t as the network gets it.
        scale: g; 0 follows the model alone.
        method: "exact" asks the classifier about every object that one jump can reach. "gradient" asks it once and
            takes the first order, log p(y | z) - log p(y | x) ~ the gradient at z minus that at x; then the classifier
            gets one-hot floats (B, N1, ..., Nk, K) in place of x_t.
        steps: "euler" or "tau_leaping".
        batch_size: objects in one call of an exact classifier.
    """

    takes_corrector: ClassVar[bool] = False  # its moves would not be guided

    classifier: Classifier
    scale: float = 1.0
    method: Literal["exact", "gradient"] = "exact"
    steps: Literal["euler", "tau_leaping"] = "euler"
    batch_size: int = 4096

    def __post_init__(self) -> None:
        require_type(callable(self.classifier), "classifier", self.classifier, "a callable classifier(x_t, t)")
        as_number(self.scale, "scale", 0, closed=True)
        require(self.method in ("exact", "gradient"), "method", self.method, 'one of "exact", "gradient"')
        require(self.steps in ("euler", "tau_leaping"), "steps", self.steps, 'one of "euler", "tau_leaping"')
        as_count(self.batch_size, "batch_size", 1)

    def __call__(self, run: Run, grid: list[float]) -> StepFunction:
        """`step(x, i)`: x_s from x = x_t, one network call."""
        t, s = run.steps(grid)

        def step(x: Tensor, i: int) -> Tensor:
            probs = self.probs(run, x, t[i], s[i], is_last=grid[i + 1] == 0)
            x_s = torch.where(run.free, drawn_from(probs, run.uniforms(x)[0]), x)
            run.checks.raise_early(x.device)
            return x_s

        return step

    def probs(self, run: Run, x: Tensor, t: Tensor, s: Tensor, is_last: bool) -> Tensor:
        """The distribution of each element after the step t -> s, (..., K) float64; t and s are float64 numbers.

        A jump mass above 1 is scaled to 1.
        """
        process, time = run.process, t.expand(len(x))
        level, at_x = process.level(time, x), x[..., None]
        network_time = time.to(torch.get_default_dtype())
        logits = run.shaped(run.denoise(x, network_time))
        belief = model_belief(logits, x, process.noise, level, run.checks, run.free)
        all_to_f = Jumps(torch.ones_like(level.lost), torch.zeros_like(level.lost))
        jumps = all_to_f if is_last else euler_jumps(process, time, s.expand(len(x)), x)
        plain = jump_mixture(belief, jumps).probs().double()
        reached = (plain > 0).scatter(-1, at_x, False) & run.free[..., None]
        log_ratio = self.log_ratios(x, network_time, reached)
        expected = "log probabilities: no NaN, and -inf neither at x_t nor at all objects that it can jump to"
        run.checks.refuse("classifier(x_t, t)", log_ratio, lambda v: v.isnan() | (v == torch.inf), expected)
        tilt = (self.scale * log_ratio).clamp(max=_LARGEST_TILT)
        if is_last:  # f_z ratio_z, in logs: a ratio may be huge
            tilted = torch.where(plain > 0, plain.log() + tilt, -torch.inf)
            best = torch.where(run.free, tilted.amax(-1), 0.0)
            run.checks.refuse("classifier(x_t, t)", best, lambda v: v == -torch.inf, expected)
            return torch.softmax(tilted, -1)
        leave = torch.where(reached, plain * tilt.exp(), 0.0)
        total = leave.sum(-1, keepdim=True)
        leave = leave * torch.exp(-total) if self.steps == "tau_leaping" else leave / total.clamp(min=1.0)
        return leave.scatter(-1, at_x, 1 - leave.sum(-1, keepdim=True))

    @torch.no_grad()
    def log_ratios(self, x: Tensor, t: Tensor, reached: Tensor) -> Tensor:
        """log p(y | z) - log p(y | x), float64 (..., K), for z = x with one element changed to each category.

        0 at x itself, and where `reached` (..., K) is False: those are not asked.
        """
        if self.scale == 0:
            return torch.zeros(reached.shape, dtype=torch.float64, device=x.device)
        return self._by_gradient(x, t, reached) if self.method == "gradient" else self._by_neighbours(x, t, reached)

    def _by_neighbours(self, x: Tensor, t: Tensor, reached: Tensor) -> Tensor:
        here = self._asked(x, t)
        ratios = torch.zeros(reached.shape, dtype=torch.float64, device=x.device)
        flat, table = x.reshape(len(x), -1), ratios.view(len(x), -1, reached.shape[-1])
        for part in reached.reshape(table.shape).nonzero().split(self.batch_size):
            row, element, category = part.unbind(1)
            z = flat[row]  # a copy
            z[torch.arange(len(z), device=x.device), element] = category
            table[row, element, category] = self._asked(z.reshape(-1, *x.shape[1:]), t[row]) - here[row]
        return ratios

    def _by_gradient(self, x: Tensor, t: Tensor, reached: Tensor) -> Tensor:
        with torch.inference_mode(False), torch.enable_grad():
            one_hot = F.one_hot(x.clone(), reached.shape[-1]).to(torch.get_default_dtype()).requires_grad_()
            (slope,) = torch.autograd.grad(self._asked(one_hot, t.clone()).sum(), one_hot)
        ratios = slope.double() - slope.double().gather(-1, x[..., None])
        return torch.where(reached, ratios, 0.0)

    def _asked(self, x: Tensor, t: Tensor) -> Tensor:
        log_p = self.classifier(x, t)
        fits = isinstance(log_p, Tensor) and log_p.shape == x.shape[:1]
        seen = tuple(log_p.shape) if isinstance(log_p, Tensor) else type(log_p).__name__
        require(fits, "classifier(x_t, t).shape", seen, f"{tuple(x.shape[:1])}, log p(y | x_t) of each object")
        return log_p.double()
