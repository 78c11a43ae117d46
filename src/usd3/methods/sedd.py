"""SEDD (Lou, Meng and Ermon 2024): the network learns the ratios q_t(z) / q_t(x_t) by score entropy."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from usd3._internal.checks import as_count, as_number, require
from usd3._internal.random import drawn_from, uniform
from usd3._internal.threads import waiting_asleep
from usd3.core.belief import FINITE, NEVER, true_belief
from usd3.core.coefficients import SMALLEST, Times, constant, is_grid, total
from usd3.core.converters import step_from_ratio
from usd3.core.diffusion import Diffusion
from usd3.core.mixture import safe_log
from usd3.core.model import Denoiser, Wrapper
from usd3.core.noisy_batch import NoisyBatch
from usd3.core.objectives import LossOutput, element_loss
from usd3.core.samplers import Run, Sampler, StepFunction
from usd3.core.schedules import Time
from usd3.methods.base import Method

__all__ = ["SEDD"]

_LARGEST = 40.0  # larger log ratios, which no data have, count as this: exp would overflow float32
_FLOOR = 1e-6  # share of the bound's decoder that is uniform, so that every x_0 has a positive probability


class SEDD(Method):
    """exp(output) = s, s_z ~ q_t(z) / q_t(x_t) for one element, the others as they are; s = 1 at z = x_t.

    The loss is the score entropy with the weights of the bound on -log p (DWDSE), for any noise m:

        beta sum over z != x of m_x (s_z - rho_z log s_z + rho_z (log rho_z - 1)),  rho_z = q(z | x_0) / q(x | x_0)

    It is 0 at s = rho, and its mean is smallest at the true ratios. "analytic" draws from U6 (`usd3.core.converters`),
    "euler" jumps with probability (t - s) beta m_x s_z. n steps go from 1 to `eps`, and one more to 0.

    Args:
        diffusion: in continuous time.
        condition: "clamp": given elements stay clean and have no loss. "project_only": training does not know of given
            elements, they are put in place when sampling.
        scale_by_sigma: s = a / (1 - a) exp(output) / (number of data categories), which takes the time dependence of
            absorbing noise out of the network; the default there, and impossible elsewhere.
        denoise: end with the U6 step from `eps` to 0, without the mask. Otherwise samples are those of time `eps`.
        eps: last time of the grid. The network has not seen times below the diffusion's t_min in training.
    """

    reads = "ratio"
    time = "continuous"
    samplers = ("analytic", "euler")
    corrects = False

    def __init__(
        self,
        diffusion: Diffusion,
        condition: Literal["clamp", "project_only"] = "clamp",
        scale_by_sigma: bool | None = None,
        denoise: bool = True,
        eps: float = 1e-5,
    ):
        super().__init__(diffusion)
        masked = diffusion.noise.is_absorbing
        require(condition in ("clamp", "project_only"), "condition", condition, "clamp or project_only")
        require(masked or not scale_by_sigma, "scale_by_sigma", scale_by_sigma, "False but for absorbing noise")
        has_mask = diffusion.noise.mask is not None
        require(denoise or not has_mask, "denoise", denoise, "True for noise with a mask, or masks would be left")
        self.condition, self.denoise, self.eps = condition, denoise, as_number(eps, "eps", 0, 0.5)
        self.scale_by_sigma = masked if scale_by_sigma is None else bool(scale_by_sigma)
        # where alpha_bar(1) = 0, ratios say nothing at 1; but for absorbing noise the loss has no limit there
        self.first = 1.0 if float(diffusion.schedule.alpha_bar(1.0)) > 0 else 1 - self.eps
        self._latest = 1.0 if masked else self.first

    # ---- training -----------------------------------------------------------------------------------------------

    def given_in_training(self, given: Tensor | None) -> Tensor | None:
        """No mask with "project_only"."""
        return given if self.condition == "clamp" else None

    def loss_of(self, denoise: Denoiser, batch: NoisyBatch) -> LossOutput:
        """Score entropy at one time for each object."""
        output = denoise(batch.x_t, batch.time)  # (B, N1, ..., Nk, K)
        return element_loss(self.diffusion, self.score_entropy(output, batch.x_t, batch.x_0, batch.time), batch)

    def score_entropy(self, output: Tensor, x_t: Tensor, x_0: Tensor, time: Tensor) -> Tensor:
        """Score entropy of each element, in the shape of x_0, from three numbers of the output (..., K):

        the sum of exp(output) over z != x, the mean of the output under m, and the output at x_0.

        m_x rho_z = kappa m_z + [z = x_0 != x] c with c = a / (1 - a) and kappa = P(noised | x_t, x_0), so the
        rest is arithmetic on numbers per element, in float64.
        """
        d, noise, time = self.diffusion, self.diffusion.noise, time.clamp(max=self._latest)
        level, to, m = d.level(time, x_t), d.rate_weights(time, x_t), noise.probs_on(x_t.device)
        truth = true_belief(x_0, x_t, noise, level)
        m_x, m_0, kappa, shift = noise.at(x_t), noise.at(x_0), truth.noised, self._shift(x_t, time)
        output = self._possible(output)
        exponentials, mean = _Sums.apply(output, x_t, m)
        at_0 = output.gather(-1, x_0[..., None]).squeeze(-1).double() + shift

        log_m_x, c = safe_log(m_x), level.alpha_bar.clamp(min=SMALLEST) / level.lost
        # sum over z != x of m_z (log rho_z - 1), with rho_z = kappa m_z / m_x
        log_rho = (1 - m_x) * (safe_log(kappa) - log_m_x - 1) + torch.xlogy(m, m).sum(-1) - torch.xlogy(m_x, m_x)
        even = m_x * shift.exp() * exponentials - kappa * (mean + (1 - m_x) * shift - log_rho)
        other = m_0 * torch.log1p(c / torch.where(m_0 > 0, m_0, 1.0))
        jump = to.to_data * (safe_log(m_0 + c) - log_m_x - 1 - at_0) + to.to_noise * other
        terms = to.to_noise * even + torch.where(x_t == x_0, 0.0, jump)
        return torch.where(truth.is_certain, 0.0, terms).to(exponentials.dtype)

    def log_ratio(self, output: Tensor, x_t: Tensor, time: Tensor) -> Tensor:
        """log s, (..., K) in float32 or better: 0 at x_t."""
        output = self._possible(output.to(torch.promote_types(output.dtype, torch.float32)).clamp(max=_LARGEST))
        log_s = output + self._shift(x_t, time)[..., None].to(output.dtype)
        return log_s.scatter(-1, x_t[..., None], 0.0)

    def _possible(self, output: Tensor) -> Tensor:
        """The output (..., K), NEVER at categories that are neither data nor noise, whose ratio is 0."""
        noise, device = self.diffusion.noise, output.device
        if noise.support is None:
            return output
        possible = noise.data_on(device) | (noise.probs_on(device) > 0)  # type: ignore[operator]
        return torch.where(possible, output, NEVER)

    def _shift(self, x: Tensor, time: Tensor) -> Tensor:
        """log s - output, float64, broadcasting to x: log(a / (1 - a) / number of data categories), or 0."""
        level, noise = self.diffusion.level(time, x), self.diffusion.noise
        if not self.scale_by_sigma:
            return torch.zeros_like(level.lost)
        data = noise.num_classes - 1 if noise.support is None else noise.data_on(x.device).sum(-1)  # type: ignore[union-attr]
        return (level.alpha_bar.clamp(min=SMALLEST) / level.lost / data).log()

    # ---- sampling -----------------------------------------------------------------------------------------------

    def analytic(self, output: Tensor, x: Tensor, t: Tensor, s: Tensor) -> Tensor:
        """p(x_s | x_t) by U6, (..., K)."""
        return step_from_ratio(self.diffusion, self.log_ratio(output, x, t), x, t, s)

    def euler(self, output: Tensor, x: Tensor, t: Tensor, s: Tensor) -> Tensor:
        """Jump to z with probability (t - s) beta m_x s_z, all scaled where their sum exceeds 1; (..., K)."""
        beta, here = self.diffusion.rate_weights(t, x).to_noise, x[..., None]
        length = (t - s).reshape(beta.shape) * beta * self.diffusion.noise.at(x)
        jumps = (length[..., None] * self.log_ratio(output, x, t).exp()).scatter(-1, here, 0.0)
        leave = jumps.sum(-1, keepdim=True)
        return jumps.scatter(-1, here, 1 - leave.clamp(max=1.0)) / leave.clamp(min=1.0)

    def denoised(self, output: Tensor, x: Tensor, t: Tensor, s: Tensor | None = None) -> Tensor:
        """p(x_0 | x_t) by U6 and without what data cannot have, (..., K)."""
        probs, data = self.analytic(output, x, t, torch.zeros_like(t)), self.diffusion.noise.data_on(x.device)
        if data is None:
            return probs
        probs = torch.where(data, probs.clamp(min=torch.finfo(probs.dtype).tiny), 0.0)
        return probs / probs.sum(-1, keepdim=True)

    def grid(self, num_steps: int | Times, sampler: str) -> int | Times:
        """n steps from 1 to eps, evenly; then 0 with `denoise`, else 0 stands for eps. A grid stays as it is."""
        if is_grid(num_steps):
            return num_steps
        count = as_count(num_steps, "num_steps", 1) + 1
        times: list[float] = torch.linspace(1, self.eps, count, dtype=torch.get_default_dtype()).tolist()
        return [*times, 0.0] if self.denoise else [*times[:-1], 0.0]

    def predictor(self, sampler: str) -> Sampler:
        """Analytic or Euler steps; the last one, to 0, by `denoised`. Where alpha_bar(1) = 0 they start at 1 - eps."""
        return partial(self._predictor, step=self.euler if sampler == "euler" else self.analytic)

    def _predictor(self, run: Run, grid: list[float], step: Callable[..., Tensor]) -> StepFunction:
        times = torch.tensor(grid, dtype=torch.float64, device=run.free.device)
        times = times.clamp(0.0 if self.denoise else self.eps, self.first)[:, None].repeat(1, len(run.free))

        def drawn(x: Tensor, t: Tensor, s: Tensor, u: Tensor, step: Callable[..., Tensor]) -> Tensor:
            output = run.denoise(x, t)
            run.checks.refuse("logits", output.sum(), torch.isnan, FINITE)
            return torch.where(run.free, drawn_from(step(output, x, t, s), u), x)

        move, last = run.replayed(partial(drawn, step=step)), partial(drawn, step=self.denoised)

        def predict(x: Tensor, i: int) -> Tensor:
            moved = last if self.denoise and i == len(grid) - 2 else move
            x = moved(x, times[i], times[i + 1], run.uniforms(x)[0])
            run.checks.raise_early(x.device)
            return x

        return predict

    def denoiser(self, model: Callable[..., Any]) -> Callable[..., Any]:
        """The model; with "project_only" it does not get the mask `given`, as in its training."""
        return model if self.condition == "clamp" else _Unprompted(model)

    @waiting_asleep()
    @torch.no_grad()
    def bound(
        self,
        model: Callable[..., Any],
        x_0: Tensor,
        num_samples: int | None = None,
        given: Tensor | None = None,
        pad: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Prior, integral of the score entropy over [t_min, 1], and -log p(x_0 | x_t) at t_min; (B,) in nats.

        The integral takes `num_samples` stratified times (128 by default). The last term is that of `denoised`, mixed
        with 1e-6 of an even distribution: U6 of ratios that belong to no distribution can give 0.
        """
        d, model = self.diffusion, self.denoiser(model)
        K = d.noise.num_classes
        num_samples = 128 if num_samples is None else as_count(num_samples, "num_samples", 1)

        def at(t: Time) -> tuple[NoisyBatch, Tensor]:
            batch = d.noisy_batch(x_0, t, given, pad, generator)
            return batch, Denoiser(model, K, batch.given, batch.pad)(batch.x_t, batch.time)

        nll = torch.zeros(x_0.shape[:1], dtype=torch.float64, device=x_0.device)
        for i in range(num_samples):
            u = (i + uniform(x_0.shape[:1], x_0.device, generator)) / num_samples
            batch, output = at(d.times_from_uniform(u))
            terms = self.score_entropy(output, batch.x_t, batch.x_0, batch.time).double()
            nll = nll + d.vlb_scale / num_samples * total(terms, batch.free)
        end, output = at(d.t_min)
        p = self.denoised(output, end.x_t, end.time).gather(-1, end.x_0[..., None]).squeeze(-1)
        p = (1 - _FLOOR) * p + _FLOOR / K
        nll = nll + total(d.prior_terms(end.x_0, constant(1.0, end.x_0), end.checks) - p.log(), end.free)
        end.checks.refuse("logits", nll, torch.isnan, FINITE)
        end.checks.raise_first()
        return nll


class _Sums(torch.autograd.Function):
    """Over z != x: the sum of exp(output_z), and that of m_z output_z, in float32 or better.

    An explicit backward pass needs one tensor of the size of the output besides its gradient, in any precision.
    """

    @staticmethod
    def forward(ctx: Any, output: Tensor, x: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
        here, dtype = x[..., None], torch.promote_types(output.dtype, torch.float32)
        work = output.to(dtype, copy=True).scatter_(-1, here, 0.0)
        m = m.to(dtype)
        mean = (work * m).sum(-1)
        exp = work.clamp_(max=_LARGEST).scatter_(-1, here, NEVER).exp_()
        ctx.save_for_backward(exp, here, m)
        ctx.kind = output.dtype
        return exp.sum(-1), mean

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_sum: Tensor, to_mean: Tensor) -> tuple[Tensor | None, ...]:
        exp, here, m = ctx.saved_tensors
        grad = (exp * to_sum[..., None]).addcmul_(to_mean[..., None], m).scatter_(-1, here, 0.0)
        return grad.to(ctx.kind), None, None


class _Unprompted(Wrapper):
    """A model that does not learn which elements are given."""

    self_conditioned = False

    def __call__(self, x_t: Tensor, t: Tensor, **masks: Tensor) -> Any:
        """The output of the model where nothing is given."""
        if "given" in masks:
            masks["given"] = torch.zeros_like(masks["given"])
        return self.model(x_t, t, **masks)
