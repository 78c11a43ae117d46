"""The diffusion itself: one forward process, one backward step and their losses, for both kinds of time.

Everything follows from Q(t|s) = a_ts I + (1 - a_ts) 1 m^T (eq. 8). `num_steps=None` is continuous time, t in [0, 1];
`num_steps=T` is discrete time, t an integer 1..T that stands for t/T. Time 0 is clean data in both.

Methods that take `t` check their input. Methods that take `time`, float64 (B,) in [0, 1], trust it: they are for the
other modules and for methods of your own.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from usd3._internal.checks import Checks, as_bool_mask, require, require_logits
from usd3._internal.random import uniform
from usd3.core import fused, samplers
from usd3.core.belief import FINITE, Belief, Level, model_belief, true_belief
from usd3.core.bound import bound, prior_kl
from usd3.core.coefficients import SMALLEST, Process, column
from usd3.core.fused import LOST, FusedTerms, Projection
from usd3.core.mixture import Jumps, Mixture, Transition, backward_mixture
from usd3.core.model import Denoiser, require_output
from usd3.core.noisy_batch import NoisyBatch
from usd3.core.objectives import LossOutput, Objective, resolve, weighted_loss
from usd3.core.schedules import Time
from usd3.core.step_costs import step_costs
from usd3.core.terms import LossTerms

__all__ = ["Diffusion"]


class Diffusion(Process):
    """Noise + schedule + kind of time.

    Args:
        noise: the noise distribution m, for example `usd3.Uniform(K)`.
        schedule: alpha_bar(t), for example `usd3.Cosine()`.
        num_steps: T for discrete time, None for continuous time.
        t_min: lower cut of continuous time. The integrand of the bound behaves like 1/t near 0, so t is drawn from
            [t_min, 1], and `bound` adds the decoder term at t_min.
        validate: check values, at the cost of one device synchronisation per call. Shapes and types are always checked.
        impl: code of the losses and draws. "eager" is the reference, "chunked" runs anywhere, "cpp" and "triton" have
            fused kernels; "auto" takes the fastest.
        support: the categories that data can have, bool (K,) or (..., K) for each element. Noise lives inside it (and
            at the mask), f is 0 outside it, and x_0 outside it is refused. None: data can have every category but the
            mask.
    """

    def __repr__(self) -> str:
        return f"Diffusion({self.noise!r}, {self.schedule!r}, num_steps={self.num_steps})"

    # ---- the forward process ------------------------------------------------------------------------------------

    def q_sample(
        self, x_0: Tensor, t: Time, given: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw x_t ~ q(x_t | x_0), int64 in the shape of x_0. Elements where `given` is true stay as they are."""
        checks = Checks(self.validate)
        x_0 = self.data(x_0, checks)
        given = as_bool_mask(given, x_0.shape, "given", x_0.device)
        time = self.time(t, x_0, "t", checks)
        checks.raise_first()
        return self.draw_noisy(x_0, time, None if given is None else ~given, generator)

    def draw_noisy(
        self,
        x_0: Tensor,
        time: Tensor,
        free: Tensor | None,
        generator: torch.Generator | None,
        lost: Tensor | None = None,
    ) -> Tensor:
        """Draw x_t ~ q(x_t | x_0) for the free elements; the others stay as they are.

        `lost` is 1 - alpha_bar at these times, (B, 1, ..., 1); None: it is computed.
        """
        x_t = self.noise.corrupt(x_0, self.level(time, x_0).lost if lost is None else lost, generator)
        return x_t if free is None else torch.where(free, x_t, x_0)

    def q_probs(self, x_0: Tensor, t: Time) -> Tensor:
        """q(x_t | x_0) = abar e_x0 + (1 - abar) m, (..., K), float64."""
        checks = Checks(self.validate)
        x_0 = self.data(x_0, checks)
        time = self.time(t, x_0, "t", checks)
        checks.raise_first()
        return self.forward_probs(x_0, time)

    def forward_probs(self, x_0: Tensor, time: Tensor) -> Tensor:
        """q(x_t | x_0), (..., K), float64."""
        alpha_bar, lost = (number.expand(x_0.shape)[..., None] for number in self.level(time, x_0))
        return (lost * self.noise.probs_on(x_0.device)).scatter_add(-1, x_0[..., None], alpha_bar)

    # ---- one step back ------------------------------------------------------------------------------------------

    def posterior(self, x_0: Tensor, x_t: Tensor, t: Time, s: Time) -> Mixture:
        """q(x_s | x_t, x_0) = B(e_x0), Prop. 1."""
        checks = Checks(self.validate)
        x_0 = self.data(x_0, checks)
        x_t = self.noisy(x_t, checks, like=x_0)
        time, before = self.times(t, s, x_t, checks)
        checks.raise_first()
        truth = true_belief(x_0, x_t, self.noise, self.level(time, x_t))
        return backward_mixture(truth, self.step(time, before, x_t), x_0, self.validate)

    def backward(self, logits: Tensor, x_t: Tensor, t: Time, s: Time) -> Mixture:
        """p(x_s | x_t) = B(f), f = softmax(logits), Prop. 2."""
        checks = Checks(self.validate)
        x_t = self.noisy(x_t, checks)
        time, before = self.times(t, s, x_t, checks)
        model = self.belief(logits, x_t, time, checks)
        checks.raise_first()
        return backward_mixture(model, self.step(time, before, x_t), validate=self.validate)

    def draw(self, logits: Tensor, x_t: Tensor, t: Time, s: Time, generator: torch.Generator | None = None) -> Tensor:
        """Draw x_s ~ p(x_s | x_t), f = softmax(logits): one step of the exact sampler, in the shape of x_t."""
        checks = Checks(self.validate)
        x_t = self.noisy(x_t, checks)
        time, before = self.times(t, s, x_t, checks)
        checks.raise_early(x_t.device)

        level, to = self.unpacked(self.step_coefficients(t, s, time, before), x_t)
        u, jumps = uniform((2, *x_t.shape), x_t.device, generator), Jumps(to.to_data, to.to_noise)
        x_s = fused.draw(logits, x_t, self.noise, level, jumps, u, None, self.impl, checks)
        checks.raise_first()
        return x_s

    # ---- the reverse chain --------------------------------------------------------------------------------------

    def rate(self, logits: Tensor, x_t: Tensor, t: Time) -> Tensor:
        """Reverse rate beta H(f)_z of x_t -> z, H(f)_z = noised m_z + abar/(1-abar) f_z, (..., K); 0 at z = x_t."""
        model, _, to = self._at(logits, x_t, t)
        return _off_diagonal(model, to.to_data, to.to_noise * model.noised)

    def ratio(self, logits: Tensor, x_t: Tensor, t: Time) -> Tensor:
        """g_z = H(f)_z / m_x ~ q_t(z) / q_t(x_t), Prop. 4, (..., K); 1 at z = x_t. Finite also where m_x = 0."""
        model, level, _ = self._at(logits, x_t, t)
        m_x = torch.where(model.is_certain, 1.0, model.m_x)
        to_m = torch.where(model.is_certain, level.lost / level.alpha_bar.clamp(min=SMALLEST), model.noised / m_x)
        return _off_diagonal(model, level.alpha_bar / level.lost / m_x, to_m).scatter(-1, model.x[..., None], 1.0)

    def _at(self, logits: Tensor, x_t: Tensor, t: Time) -> tuple[Belief, Level, Transition]:
        """The belief at x_t, the level of t and the weights of the reverse rate."""
        checks = Checks(self.validate)
        x_t = self.noisy(x_t, checks)
        time = self.time(t, x_t, "t", checks, positive=True)
        model = self.belief(logits, x_t, time, checks)
        checks.raise_first()
        return model, self.level(time, x_t), self.rate_weights(time, x_t)

    # ---- losses -------------------------------------------------------------------------------------------------

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
        """Training loss (Algorithm 1): draw t and x_t, ask the network, weigh the terms.

        Sum over the free elements of an object, mean over the batch.

        Args:
            model: callable, `model(x_t, t) -> logits` with t in [0, 1], (B,), in both kinds of time. It gets `pad=`
                where there is padding, and `given=` where its signature accepts it. Logits may be a `Projection`.
            x_0: clean objects, integers (B, N1, ..., Nk).
            objective: "usd3", "usd3*", "vlb", "ce", or an `Objective`.
            t: times, a number or (B,); drawn by default.
            given: mask of elements that stay clean and have no loss; it broadcasts to x_0.
            pad: mask of padding, which has no loss.
            generator: makes the draws reproducible.
            stratified: draw one time in each of B equal parts of the time axis, which lowers the variance.
        """
        weights = resolve(objective, self.continuous)
        batch = self.noisy_batch(x_0, t, given, pad, generator, stratified)  # time (B,), x_t (B, N1, ..., Nk)
        denoise = Denoiser(model, self.noise.num_classes, batch.given, batch.pad)
        logits = denoise.output(batch.x_t, batch.time)  # (B, N1, ..., Nk, K), or hidden states and the output layer
        out = weighted_loss(self, logits, batch, weights)  # scalars: loss, vlb, ce
        batch.checks.raise_first()
        return out

    def noisy_batch(
        self,
        x_0: Tensor,
        t: Time | None = None,
        given: Tensor | None = None,
        pad: Tensor | None = None,
        generator: torch.Generator | None = None,
        stratified: bool = False,
    ) -> NoisyBatch:
        """Draw t (unless given) and x_t ~ q(x_t | x_0): where every loss begins. Arguments as in `loss`."""
        checks = Checks(self.validate)
        x_0, given, pad, free = self.masked_data(x_0, given, pad, checks)
        require(len(x_0) > 0, "x_0.shape", tuple(x_0.shape), "at least one object")  # a loss is a mean
        if t is None:
            u = self.training_uniforms(len(x_0), stratified, x_0.device, generator)
            checks.raise_early(x_0.device)
            time, coefficients = self.drawn_coefficients(u)  # of noise and loss
        else:
            time = self.time(t, x_0, "t", checks, positive=True)
            checks.raise_early(x_0.device)
            coefficients = None if self.is_eager(x_0.device) else self.training_coefficients(time)
        lost = None if coefficients is None else column(coefficients[LOST], x_0)
        x_t = self.draw_noisy(x_0, time, free, generator, lost)
        # counted now, while the network is called: whoever asked later would wait for it
        read = self.rows_read(x_t, free) if self.has_projection else None
        return NoisyBatch(x_0, x_t, time, free, given, pad, checks, generator, coefficients, read)

    def draw_times(
        self,
        batch: int,
        stratified: bool = False,
        device: torch.device | str = "cpu",
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Training times (batch,): uniform on [t_min, 1] or on 1..T; stratified: one in each of `batch` equal parts."""
        return self.times_from_uniform(self.training_uniforms(batch, stratified, torch.device(device), generator))

    def training_uniforms(
        self, batch: int, stratified: bool, device: torch.device, generator: torch.Generator | None
    ) -> Tensor:
        """Uniforms (batch,) that training times are made of, float64 on [0, 1)."""
        u = uniform((batch,), device, generator)
        return (torch.arange(batch, device=device) + u) / batch if stratified else u

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
        """Training loss as in `loss`, from x_t ~ q(x_t | x_0) and logits at x_t, (..., K) or a `Projection`.

        With `inplace` the gradient overwrites the logits, which saves their memory; a backward pass that needs them
        again raises an error.
        """
        weights = resolve(objective, self.continuous)
        checks = Checks(self.validate)
        x_0, given, pad, free = self.masked_data(x_0, given, pad, checks)
        require(len(x_0) > 0, "x_0.shape", tuple(x_0.shape), "at least one object")
        x_t = self.noisy(x_t, checks, like=x_0, except_at=pad)
        time = self.time(t, x_0, "t", checks, positive=True)
        checks.raise_early(x_0.device)
        batch = NoisyBatch(x_0, x_t, time, free, given, pad, checks, None)
        require_output(logits, x_t, self.noise.num_classes, "logits")
        out = weighted_loss(self, logits, batch, weights, inplace)
        checks.raise_first()
        return out

    def loss_terms(self, logits: Tensor, x_t: Tensor, x_0: Tensor, t: Time, s: Time | None = None) -> LossTerms:
        """Terms at one time in the shape of x_0: `.vlb`, `.ce`, and for a step `.l2` and `.kl2`.

        Discrete time compares the step t -> t - 1. With `s` it is the step t -> s, in either kind of time: the term of
        the partial-time VLB (eq. 15).
        """
        checks = Checks(self.validate)
        x_0 = self.data(x_0, checks)
        x_t = self.noisy(x_t, checks, like=x_0)
        if s is None:
            time, before = self.time(t, x_t, "t", checks, positive=True), None
        else:
            time, before = self.times(t, s, x_t, checks)
        checks.raise_early(x_t.device)
        terms = self.element_terms(logits, x_t, x_0, time, before, checks)
        checks.raise_first()
        return terms

    def element_terms(
        self,
        logits: Tensor,
        x_t: Tensor,
        x_0: Tensor,
        time: Tensor,
        before: Tensor | None,
        checks: Checks,
        free: Tensor | None = None,
    ) -> LossTerms:
        """Terms of each element; those outside `free` mean nothing, and their logits are not read.

        `before` is the time s of a step t -> s; None takes the default of `transition`.
        """
        require_logits(logits, x_t, self.noise.num_classes, "logits")

        def eager() -> LossTerms:
            level, to = self.transition(time, before, x_t)
            model = model_belief(logits, x_t, self.noise, level, checks, free)
            return LossTerms(true_belief(x_0, x_t, self.noise, level), model, x_0, to)

        if self.is_eager(x_t.device) or torch.compiler.is_compiling():
            return eager()
        is_step = before is not None or self.num_steps is not None  # else a rate
        problem = self.problem(x_t, x_0, self.coefficients(time, before), is_step, free)
        terms = FusedTerms(logits, problem, self.impl, eager)
        if checks.enabled:
            checks.refuse("logits", terms.ce.detach().sum(), torch.isnan, FINITE)
        return terms

    # ---- the bound, and samples ---------------------------------------------------------------------------------

    bound = bound
    step_costs = step_costs

    def prior(self, x_0: Tensor, t: Time | None = None) -> Tensor:
        """KL(q(x_t | x_0) || m), float64 in the shape of x_0; t is the last time by default."""
        checks = Checks(self.validate)
        x_0 = self.data(x_0, checks)
        time = self.time((self.num_steps or 1) if t is None else t, x_0, "t", checks)
        prior = self.prior_terms(x_0, time, checks)
        checks.raise_first()
        return prior

    def prior_terms(self, x_0: Tensor, time: Tensor, checks: Checks) -> Tensor:
        """KL(q(x_t | x_0) || m), float64 in the shape of x_0."""
        return prior_kl(x_0, self.noise, self.level(time, x_0), checks)

    sample = samplers.sample


def _off_diagonal(model: Belief, to_f: Tensor, to_m: Tensor) -> Tensor:
    """to_f f_z + to_m m_z for z != x, 0 at x, (..., K) in the precision of the logits."""
    to_f = torch.where(model.is_certain, 0.0, to_f)  # f = e_x there
    rates = to_f[..., None] * model.log_f.exp() + to_m[..., None] * model.noise.probs_on(model.x.device)
    return rates.scatter(-1, model.x[..., None], 0.0).to(model.log_f.dtype)
