"""The diffusion itself: one forward process, one backward step and their losses, for both kinds of time.

Everything follows from Q(t|s) = a_ts I + (1 - a_ts) 1 m^T. `num_steps=None` is continuous time, t in [0, 1];
`num_steps=T` is discrete time, t an integer 1..T that stands for t/T. Time 0 is clean data in both.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from usd3._internal.checks import Checks, as_bool_mask, as_count, require, require_logits, require_type
from usd3._internal.random import uniform
from usd3._internal.threads import waiting_asleep
from usd3.core import fused, samplers
from usd3.core.belief import FINITE, Belief, Level, known, predicted
from usd3.core.fused import FusedTerms, Projection
from usd3.core.mixture import Jumps, Mixture, Transition, backward_mixture
from usd3.core.model import Denoiser
from usd3.core.noisy_batch import Noised
from usd3.core.objectives import LossOutput, LossTerms, Objective, resolve
from usd3.core.process import SMALLEST, Process, Times, column, constant, free_elements, total
from usd3.core.schedules import Time

__all__ = ["Diffusion"]

_SMALLEST_M = 1e-12  # noise with smaller probabilities, but for zeros, is left to the eager code


class Diffusion(Process):
    """Noise + schedule + kind of time.

    `t_min` is the lower cut of continuous time: the integrand behaves like 1/t there, so t is drawn from
    [t_min, 1] and `bound` adds the decoder term at t_min. `validate=False` skips the checks on values (they cost
    one device synchronisation per call); checks on shapes and types stay. `impl` chooses the code of the losses and
    draws: "eager" is the reference, "chunked" runs anywhere, "triton" has fused kernels; "auto" takes the fastest.
    """

    def __repr__(self) -> str:
        return f"Diffusion({self.noise!r}, {self.schedule!r}, num_steps={self.num_steps})"

    # ---- the forward process ------------------------------------------------------------------------------------

    def q_sample(
        self, x_0: Tensor, t: Time, given: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw x_t ~ q(x_t | x_0). Elements where `given` is true stay as they are."""
        checks = Checks(self.validate)
        x_0 = self.data(x_0, checks)
        given = as_bool_mask(given, x_0.shape, "given", x_0.device)
        time = self.time(t, x_0, "t", checks)
        checks.raise_first()
        return self._noisy(x_0, time, None if given is None else ~given, generator)

    def q_probs(self, x_0: Tensor, t: Time) -> Tensor:
        """q(x_t | x_0) = abar e_x0 + (1 - abar) m, (..., K), float64."""
        checks = Checks(self.validate)
        x_0 = self.data(x_0, checks)
        time = self.time(t, x_0, "t", checks)
        checks.raise_first()
        return self._forward(x_0, time).probs()

    # ---- one step back ------------------------------------------------------------------------------------------

    def posterior(self, x_0: Tensor, x_t: Tensor, t: Time, s: Time) -> Mixture:
        """q(x_s | x_t, x_0) = B(e_x0), Prop. 1."""
        checks = Checks(self.validate)
        x_0 = self.data(x_0, checks)
        x_t = self.categories(x_t, "x_t", checks, like=x_0)
        time, before = self.times(t, s, x_t, checks)
        checks.raise_first()
        truth = known(x_0, x_t, self.noise, self.level(time, x_t))
        return backward_mixture(truth, self.step(time, before, x_t), x_0, self.validate)

    def backward(self, logits: Tensor, x_t: Tensor, t: Time, s: Time) -> Mixture:
        """p(x_s | x_t) = B(f), f = softmax(logits), Prop. 2."""
        checks = Checks(self.validate)
        x_t = self.categories(x_t, "x_t", checks)
        time, before = self.times(t, s, x_t, checks)
        model = self.believe(logits, x_t, time, checks)
        checks.raise_first()
        return backward_mixture(model, self.step(time, before, x_t), validate=self.validate)

    # ---- the reverse chain --------------------------------------------------------------------------------------

    def rate(self, logits: Tensor, x_t: Tensor, t: Time) -> Tensor:
        """Reverse rate beta H(f)_z of x_t -> z, H(f)_z = noised m_z + abar/(1-abar) f_z, (..., K); 0 at z = x_t."""
        model, _, to = self._at(logits, x_t, t)
        return _off_diagonal(model, to.clean, to.noise * model.noised)

    def ratio(self, logits: Tensor, x_t: Tensor, t: Time) -> Tensor:
        """g_z = H(f)_z / m_x ~ q_t(z) / q_t(x_t), Prop. 4, (..., K); 1 at z = x_t. Finite also where m_x = 0."""
        model, level, _ = self._at(logits, x_t, t)
        m_x = torch.where(model.clean, 1.0, model.m_x)
        to_m = torch.where(model.clean, level.lost / level.alpha_bar.clamp(min=SMALLEST), model.noised / m_x)
        return _off_diagonal(model, level.alpha_bar / level.lost / m_x, to_m).scatter(-1, model.x[..., None], 1.0)

    # ---- losses -------------------------------------------------------------------------------------------------

    def loss_terms(self, logits: Tensor, x_t: Tensor, x_0: Tensor, t: Time, s: Time | None = None) -> LossTerms:
        """Per-element terms at one time: `.vlb`, `.ce`, and in discrete time `.l2`, `.kl2`.

        Discrete time compares the step t -> t - 1. With `s` it is the step t -> s, in either kind of time: the
        term of the partial-time VLB.
        """
        checks = Checks(self.validate)
        x_0 = self.data(x_0, checks)
        x_t = self.categories(x_t, "x_t", checks, like=x_0)
        if s is None:
            time, before = self.time(t, x_t, "t", checks, positive=True), None
        else:
            time, before = self.times(t, s, x_t, checks)
        checks.raise_early(x_t.device)
        terms = self._terms(logits, x_t, x_0, time, before, checks)
        checks.raise_first()
        return terms

    def loss(
        self,
        model: Callable[..., Any],
        x_0: Tensor,
        objective: str | Objective = "usd3",
        t: Time | None = None,
        given: Tensor | None = None,
        pad: Tensor | None = None,
        generator: torch.Generator | None = None,
        stratified: bool = False,
    ) -> LossOutput:
        """Training loss: draw t and x_t, call the model, weigh the terms. Sum over elements, mean over the batch.

        `objective` is a name ("usd3", "usd3*", "vlb", "ce") or an `Objective`. `stratified` spreads the times of
        the batch evenly, which lowers the variance.
        """
        weights = resolve(objective, self.continuous)
        return self.noised(model, x_0, t, given, pad, generator, stratified).weighed(weights)

    def noised(
        self,
        model: Callable[..., Any],
        x_0: Tensor,
        t: Time | None = None,
        given: Tensor | None = None,
        pad: Tensor | None = None,
        generator: torch.Generator | None = None,
        stratified: bool = False,
    ) -> Noised:
        """Draw t and x_t, as every loss begins; the model is not called yet."""
        checks = Checks(self.validate)
        x_0, given, pad, free = self._masked(x_0, given, pad, checks)
        t = self._training_times(x_0, t, stratified, generator)
        time = self.time(t, x_0, "t", checks, positive=True)
        checks.raise_early(x_0.device)
        x_t = self._noisy(x_0, time, free, generator)
        denoise = Denoiser(model, self.noise.num_classes, given, pad)
        return Noised(self, x_0, x_t, time, free, denoise, checks, generator)

    def loss_from_logits(
        self,
        logits: Tensor | Projection,
        x_t: Tensor,
        x_0: Tensor,
        t: Time,
        objective: str | Objective = "usd3",
        given: Tensor | None = None,
        pad: Tensor | None = None,
        inplace: bool = False,
    ) -> LossOutput:
        """The training loss where x_t ~ q(x_t | x_0) and the model's logits are there already, as `loss` computes it.

        With `inplace` the gradient overwrites the logits, which saves their memory; they are lost, and a backward
        pass that needs them raises. Logits may be a `Projection`, which is never formed whole.
        """
        weights = resolve(objective, self.continuous)
        checks = Checks(self.validate)
        x_0, given, pad, free = self._masked(x_0, given, pad, checks)
        require(len(x_0) > 0, "x_0.shape", tuple(x_0.shape), "at least one object")
        x_t = self.categories(x_t, "x_t", checks, like=x_0)
        time = self.time(t, x_0, "t", checks, positive=True)
        checks.raise_early(x_0.device)
        out = self._weighted(logits, x_t, x_0, time, weights, free, checks, inplace)
        checks.raise_first()
        return out

    def draw(self, logits: Tensor, x_t: Tensor, t: Time, s: Time, generator: torch.Generator | None = None) -> Tensor:
        """Draw x_s ~ p(x_s | x_t), f = softmax(logits): one step of the exact sampler."""
        checks = Checks(self.validate)
        x_t = self.categories(x_t, "x_t", checks)
        time, before = self.times(t, s, x_t, checks)
        checks.raise_early(x_t.device)
        name = ("draw", self.schedule, self.num_steps)
        numbers = self._replays(name, lambda t, s: fused.coefficients_of(*self._numbers(t, s, t)), time, before)
        clean, noise, _, alpha_bar, lost = (column(number, x_t) for number in numbers)
        u, level = uniform((2, *x_t.shape), x_t.device, generator), Level(alpha_bar, lost)
        drawn = fused.draw(logits, x_t, self.noise, level, Jumps(clean, noise), u, None, self.impl, checks)
        checks.raise_first()
        return drawn

    def draw_times(
        self,
        batch: int,
        stratified: bool = False,
        device: torch.device | str = "cpu",
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Training times (batch,): uniform on [t_min, 1] or on 1..T; stratified: one in each of `batch` equal parts."""
        u = uniform((batch,), torch.device(device), generator)
        return self.spread((torch.arange(batch, device=device) + u) / batch if stratified else u)

    def prior(self, x_0: Tensor, t: Time | None = None) -> Tensor:
        """KL(q(x_t | x_0) || m) per element, float64; t is the last time by default."""
        checks = Checks(self.validate)
        x_0 = self.data(x_0, checks)
        time = self.time((self.num_steps or 1) if t is None else t, x_0, "t", checks)
        prior = self._prior(x_0, time, checks)
        checks.raise_first()
        return prior

    @waiting_asleep()
    @torch.no_grad()
    def bound(
        self,
        model: Callable[..., Any],
        x_0: Tensor,
        num_samples: int | None = None,
        times: Times | None = None,
        given: Tensor | None = None,
        pad: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """An upper bound on -log p(x_0), or on -log p(free | given), (B,) in nats, with one draw of x_t per time.

        Discrete time takes every t once, or `num_samples` stratified ones. Continuous time takes `num_samples`
        stratified ones (128 by default). `times`, a decreasing grid that ends at 0, gives the bound of the
        sampler that takes those steps.
        """
        checks = Checks(self.validate)
        x_0, given, pad, free = self._masked(x_0, given, pad, checks)
        checks.raise_early(x_0.device)
        require(num_samples is None or times is None, "num_samples", num_samples, "None where `times` is given")
        num_samples = (self.num_steps or 128) if num_samples is None else as_count(num_samples, "num_samples", 1)
        grid = [1.0] if times is None else self.grid(times)
        denoise = Denoiser(model, self.noise.num_classes, given, pad)

        def terms(time: Tensor, before: Tensor | None) -> LossTerms:
            x_t = self._noisy(x_0, time, free, generator)
            found = self._terms(denoise(x_t, time), x_t, x_0, time, before, checks, free)
            checks.raise_early(x_0.device)
            return found

        nll = total(self._prior(x_0, constant(grid[0], x_0), checks), free)
        checks.raise_early(x_0.device)
        if times is not None:
            for t, s in pairwise(grid):
                nll = nll + total(terms(constant(t, x_0), constant(s, x_0)).vlb, free)
        else:
            for i in range(num_samples):
                u = (i + uniform(x_0.shape[:1], x_0.device, generator)) / num_samples
                time = self.time(self.spread(u), x_0, "t", Checks(False))
                nll = nll + self.span / num_samples * total(terms(time, None).vlb, free)
            if self.continuous:
                nll = nll + total(terms(constant(self.t_min, x_0), None).ce, free)
        checks.raise_first()
        return nll

    sample = samplers.sample

    # ---- inside: arguments are checked ----------------------------------------------------------------------------

    def _forward(self, x_0: Tensor, time: Tensor) -> Mixture:
        """q(x_t | x_0), a mixture around x_0."""
        level = self.level(time, x_0)
        return Mixture(known(x_0, x_0, self.noise, level), w_x=level.alpha_bar, w_m=level.lost)

    def _noisy(self, x_0: Tensor, time: Tensor, free: Tensor | None, generator: torch.Generator | None) -> Tensor:
        x_t = self._forward(x_0, time).sample(generator)
        return x_t if free is None else torch.where(free, x_t, x_0)

    def _at(self, logits: Tensor, x_t: Tensor, t: Time) -> tuple[Belief, Level, Transition]:
        checks = Checks(self.validate)
        x_t = self.categories(x_t, "x_t", checks)
        time = self.time(t, x_t, "t", checks, positive=True)
        model = self.believe(logits, x_t, time, checks)
        checks.raise_first()
        return model, self.level(time, x_t), self.rate_weights(time, x_t)

    def _numbers(self, time: Tensor, before: Tensor | None, x: Tensor) -> tuple[Level, Transition]:
        """What a loss compares: the step t -> s, in discrete time t -> t - 1 by default, or the reverse rate."""
        if before is None and self.num_steps is not None:
            before = (time * self.num_steps - 1).round() / self.num_steps
        if before is None:
            level = self.level(time, x)
            return level, self.rate_weights(time, x, level)
        levels = self.levels(time, before, x)
        return levels[0], self.step(time, before, x, levels)

    def _terms(
        self,
        logits: Tensor,
        x_t: Tensor,
        x_0: Tensor,
        time: Tensor,
        before: Tensor | None,
        checks: Checks,
        free: Tensor | None = None,
    ) -> LossTerms:
        """Terms of each element; those of elements that are not free mean nothing, and their logits are not read."""
        require_logits(logits, x_t, self.noise.num_classes, "logits")
        level, to = self._numbers(time, before, x_t)

        def eager() -> LossTerms:
            model = predicted(logits, x_t, self.noise, level, checks, free)
            return LossTerms(known(x_0, x_t, self.noise, level), model, x_0, to)

        if self._is_eager(x_t.device) or torch.compiler.is_compiling():
            return eager()
        coefficients, is_step = fused.coefficients_of(level, to), to.keep is not None
        problem = fused.problem_of(self.noise, coefficients, is_step, x_t, x_0, free)
        terms = FusedTerms(logits, problem, self.impl, eager)
        if checks.enabled:
            checks.refuse("logits", terms.ce.detach().sum(), torch.isnan, FINITE)
        return terms

    def _is_eager(self, device: torch.device) -> bool:
        """Whether losses take the eager code: it is chosen, float32 cannot hold 1/m, or the schedule learns."""
        chosen = fused.chosen(self.impl, device) == "eager"
        return chosen or self.noise.smallest < _SMALLEST_M or self._schedule_learns(device)

    def _schedule_learns(self, device: torch.device) -> bool:
        """Whether the schedule has a gradient; asked once."""
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return False
        if self.schedule not in self._learning:
            probe = torch.full((1,), 0.5, dtype=torch.float64, device=device)
            self._learning[self.schedule] = self.schedule._kept(probe).requires_grad
        return self._learning[self.schedule]

    def _weighted_numbers(self, time: Tensor, objective: Objective) -> tuple[Tensor, Tensor]:
        """Coefficients (5, B) and weights (3, B) of a loss for each object. In discrete time they are looked up."""

        def numbers(time: Tensor) -> Tensor:
            coefficients = fused.coefficients_of(*self._numbers(time, None, time))
            clip = objective.clip(lambda: self.schedule._beta(time))
            return torch.cat([coefficients, objective.weights(coefficients, clip)])

        T = self.num_steps
        key = (objective, time.device, self.schedule, T)
        if T is None:
            found = self._replays(key, numbers, time)
        elif torch.compiler.is_compiling() or (key not in self._tables and _is_capturing(time.device)):
            found = numbers(time)
        else:
            if key not in self._tables:
                with torch.inference_mode(False), torch.no_grad():
                    grid = torch.arange(1, T + 1, dtype=torch.float64, device=time.device) / T
                    self._tables[key] = numbers(grid)
            found = self._tables[key][:, ((time * T).round().long() - 1).clamp(0, T - 1)]
        return found[:5], found[5:] / len(time)

    def _weighted(
        self,
        logits: Tensor | Projection,
        x_t: Tensor,
        x_0: Tensor,
        time: Tensor,
        objective: Objective,
        free: Tensor | None,
        checks: Checks,
        inplace: bool = False,
    ) -> LossOutput:
        """The loss of a batch."""
        if self._is_eager(x_t.device) or objective.kl2:
            clip = objective.clip(lambda: self.schedule._beta(time))
            whole = logits.logits(x_t) if isinstance(logits, Projection) else logits
            terms = self._terms(whole, x_t, x_0, time, None, checks, free)
            loss = total(objective.combine(terms, None if clip is None else column(clip, x_0)), free).mean()
            with torch.no_grad():
                vlb, ce = (total(term.detach(), free).mean() for term in (terms.vlb, terms.ce))
            return LossOutput(loss, self.span * vlb, ce)
        coefficients, weights = self._weighted_numbers(time, objective)
        problem = fused.problem_of(self.noise, coefficients, self.num_steps is not None, x_t, x_0, free)
        sums = fused.weighted_sums(logits, x_t, problem, weights, objective.l2 > 0, self.impl, inplace)
        shown = sums.detach() / len(x_0)
        checks.refuse("logits", shown[1], torch.isnan, FINITE)
        return LossOutput(sums[3], self.span * shown[0], shown[1])

    def _prior(self, x_0: Tensor, time: Tensor, checks: Checks) -> Tensor:
        (left, lost), m_0 = self.level(time, x_0), self.noise.at(x_0)
        if self.noise.has_zeros:
            expected = "0, as the prior is infinite where the noise has zeros (Cosine and Linear end at 0)"
            checks.refuse("alpha_bar at the last time", left, lambda v: v > 0, expected)
        here = left + lost * m_0
        kl = torch.xlogy(here, here) - torch.xlogy(here, m_0) + (1 - m_0) * torch.xlogy(lost, lost)
        return kl.clamp(min=0.0)

    def _masked(
        self, x_0: Tensor, given: Tensor | None, pad: Tensor | None, checks: Checks
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """x_0, the masks in its shape, and which elements are free (None: all)."""
        require_type(isinstance(x_0, Tensor), "x_0", x_0, "an integer tensor")
        given, pad = (as_bool_mask(m, x_0.shape, n, x_0.device) for m, n in ((given, "given"), (pad, "pad")))
        x_0 = self.data(x_0, checks, except_at=pad)
        return x_0, given, pad, free_elements(given, pad)

    def _training_times(self, x_0: Tensor, t: Time | None, stratified: bool, generator: torch.Generator | None) -> Time:
        """The user's t, or drawn ones; a loss is a mean, so there must be an object."""
        require(len(x_0) > 0, "x_0.shape", tuple(x_0.shape), "at least one object")
        return self.draw_times(len(x_0), stratified, x_0.device, generator) if t is None else t


def _off_diagonal(model: Belief, to_f: Tensor, to_m: Tensor) -> Tensor:
    """to_f f_z + to_m m_z for z != x, 0 at x, in the precision of the logits."""
    to_f = torch.where(model.clean, 0.0, to_f)  # f = e_x there
    rates = to_f[..., None] * model.log_f.exp() + to_m[..., None] * model.noise.probs_on(model.x.device)
    return rates.scatter(-1, model.x[..., None], 0.0).to(model.log_f.dtype)


def _is_capturing(device: torch.device) -> bool:
    """Whether a CUDA graph is being recorded: what it allocates is its own."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()
