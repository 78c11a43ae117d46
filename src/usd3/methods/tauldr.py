"""tauLDR (Campbell et al., 2022): the continuous-time bound with an auxiliary state, and tau-leaping.

The loss is Prop. 5 with S = the forward rate: x ~ q_t, and x~ is x after one jump of the forward chain. x~ has density
q(x~) M(x~). With h the model's reverse rates and k the true ones,

    reg(y) = sum over elements and z != y of h_z
    sig(y) = sum over elements and z != y of k_z log(k_z / h_z) - k_z

    two_pass           reg(x)  + sig(x~) / M(x~)    the network at x and at x~
    one_pass_biased    reg(x~) + sig(x~) / M(x~)    the network at x~ alone, as released; reg has the wrong mean
    one_pass_exact    (reg(x~) + sig(x~)) / M(x~)   the same with the right mean

The constants in sig make the first and the last equal USD3's single pass (Prop. 6) in expectation. The last has heavy
tails: near t = 0 it sees reg, which is large at x = x_0, only where x~ = x_0, with the weight 1 / M of a rare event.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from usd3._internal.checks import as_count, as_number, require
from usd3.core.belief import FINITE, NEVER, Level, data_logits
from usd3.core.coefficients import SMALLEST, Times, column, flat, is_grid, total
from usd3.core.diffusion import Diffusion
from usd3.core.mixture import Transition
from usd3.core.model import Denoiser, Wrapper, nested_models
from usd3.core.noisy_batch import NoisyBatch
from usd3.core.objectives import LossOutput
from usd3.core.samplers import (
    Run,
    Sampler,
    StepFunction,
    ask_and_draw,
    corrector_jumps,
    likeliest,
    tau_leaping_jumps,
)
from usd3.core.two_pass import ForwardRate, importance_weighted
from usd3.methods.base import Method
from usd3.nets.hollow import Hollow

__all__ = ["TauLDR", "WholeTime", "outflow"]

_PASSES = ("two_pass", "one_pass_biased", "one_pass_exact")


class TauLDR(Method):
    """The bound plus `ce` times the cross entropy, at x for two passes and at x~ for one; tau-leaping.

    Leaps go down to `diffusion.t_min`, and from there to 0.

    Args:
        diffusion: in continuous time.
        passes: one of the three losses above. "one_pass_exact" is for comparison, not for training: few objects carry
            most of its mean (docs/methods.md).
        time_mode: "zero" gives the network floor(t), 0 for t < 1: the public code casts the time to an integer.
        ce: weight of the cross entropy.
        ce_reduction: "mean" averages the cross entropy over the free elements of an object, as the public code does;
            the bound is a sum.
        corrector_steps: moves after a leap in "predictor_corrector".
        corrector_size: length of a move, as a share of the leap.
        corrector_entry: only leaps from t <= `corrector_entry` are corrected.
    """

    time = "continuous"
    samplers = ("tau_leaping", "predictor_corrector")
    corrects = False

    def __init__(
        self,
        diffusion: Diffusion,
        passes: str = "two_pass",
        time_mode: str = "real",
        ce: float = 0.001,
        ce_reduction: str = "sum",
        corrector_steps: int = 2,
        corrector_size: float = 0.1,
        corrector_entry: float = 0.9,
    ):
        super().__init__(diffusion)
        require(passes in _PASSES, "passes", passes, f"one of {', '.join(_PASSES)}")
        require(time_mode in ("real", "zero"), "time_mode", time_mode, "real or zero")
        require(ce_reduction in ("sum", "mean"), "ce_reduction", ce_reduction, "sum or mean")
        self.passes, self.time_mode, self.ce_reduction = passes, time_mode, ce_reduction
        self.ce = as_number(ce, "ce", 0, closed=True)
        self.corrector_steps = as_count(corrector_steps, "corrector_steps", 0)
        self.corrector_size = as_number(corrector_size, "corrector_size", 0)
        self.corrector_entry = as_number(corrector_entry, "corrector_entry", 0, closed=True)
        self.jump = ForwardRate(diffusion.noise)

    def denoiser(self, model: Callable[..., Any]) -> Callable[..., Any]:
        """The model, with `time_mode` applied to its time."""
        return model if self.time_mode == "real" else WholeTime(model)

    def model_in_training(self, model: Callable[..., Any]) -> Callable[..., Any]:
        """The same model as in sampling."""
        return self.denoiser(model)

    def loss_of(self, denoise: Denoiser, batch: NoisyBatch) -> LossOutput:
        """One of the three losses above, plus the cross entropy.

        The logged `vlb` has the right mean in all three, and heavy tails where the network is called once.
        """
        d, x_0, x_t, time = self.diffusion, batch.x_0, batch.x_t, batch.time
        free = torch.ones_like(x_0, dtype=torch.bool) if batch.free is None else batch.free
        level = d.level(time, x_0)
        z, weight = self.jump.pair(x_t, x_0, level, free, batch.generator)
        to = d.rate_weights(time, x_0, level)

        def at(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            """The logits at x (..., K), reg and the cross entropy, both (B,)."""
            logits, m_x = denoise(x, time), d.noise.at(x)
            log_f = torch.log_softmax(data_logits(logits, d.noise), -1)
            log_f_x, log_f_0 = log_f.gather(-1, torch.stack([x, x_0], -1)).clamp(min=NEVER).unbind(-1)
            out = outflow(m_x, log_f_x.double(), level, to)
            return logits, total(out, free), -total(torch.where(m_x > 0, log_f_0, 0.0), free)

        logits, reg, ce = at(z)
        whole = total(d.element_terms(logits, z, x_0, time, None, batch.checks).vlb, free)  # reg + sig
        if self.passes == "two_pass":
            _, reg_x, ce = at(x_t)
            loss = vlb = reg_x + importance_weighted(whole - reg, weight)
        else:
            vlb = importance_weighted(whole, weight)
            loss = vlb if self.passes == "one_pass_exact" else reg + importance_weighted(whole - reg, weight)
        entropy = ce / flat(free).sum(1).clamp(min=1) if self.ce_reduction == "mean" else ce
        result = (loss + self.ce * entropy).mean().to(torch.promote_types(logits.dtype, torch.float32))
        batch.checks.refuse("logits", result.detach(), torch.isnan, FINITE)
        return LossOutput(result, d.vlb_scale * vlb.detach().mean(), ce.detach().mean())

    # ---- sampling -----------------------------------------------------------------------------------------------

    def grid(self, num_steps: int | Times, sampler: str) -> int | Times:
        """`num_steps` times from 1 to t_min, evenly, and then 0."""
        if is_grid(num_steps):
            return num_steps
        count, dtype = as_count(num_steps, "num_steps", 1), torch.get_default_dtype()
        return [*torch.linspace(1, self.diffusion.t_min, count, dtype=dtype).tolist(), 0.0]

    def predictor(self, sampler: str) -> Sampler:
        """Tau-leaping, corrected or not; samples end with the likeliest category."""
        return self._corrected if sampler == "predictor_corrector" else self._leaps

    def _leaps(self, run: Run, grid: list[float]) -> StepFunction:
        """Tau-leaping in every step, also in the last, to 0 with the rates of its start; then the argmax of f."""
        t, s = run.steps(grid)  # (S,)
        leap = run.moves(t, tau_leaping_jumps(run.process, t, s, run.free), ask_and_draw)
        return lambda x, i: leap(x, i) if grid[i + 1] > 0 else likeliest(run, leap(x, i), self.diffusion.t_min)

    def _corrected(self, run: Run, grid: list[float]) -> StepFunction:
        """The same; after a leap from t to s > 0, leaps with the rates r + r_hat of s, which leave q_s invariant."""
        leap, (t, s) = self._leaps(run, grid), run.steps(grid[:-1])
        jumps = corrector_jumps(run.process, s, run.free).scaled(self.corrector_size * column(t - s, run.free))
        correct = run.moves(s, replace(jumps, damped=True), ask_and_draw)

        def step(x: Tensor, i: int) -> Tensor:
            x = leap(x, i)
            due = grid[i] <= self.corrector_entry and grid[i + 1] > 0
            for _ in range(self.corrector_steps if due else 0):
                x = correct(x, i)
            return x

        return step


def outflow(m_x: Tensor, log_f_x: Tensor, level: Level, to: Transition) -> Tensor:
    """The model's rate of leaving x, the sum of h_z over z != x, in the shape of x. It depends on f through f_x alone.

    H(f)_z = P(noised | x) m_z + abar / (1 - abar) f_z. Certain elements, m_x = 0, stay.
    """
    f_x, not_f_x, back = log_f_x.exp(), -torch.expm1(log_f_x), level.lost * m_x
    noised = not_f_x + f_x * back / (level.alpha_bar + back).clamp(min=SMALLEST)
    return torch.where(m_x > 0, to.to_data * not_f_x + to.to_noise * noised * (1 - m_x), 0.0)


class WholeTime(Wrapper):
    """A network that gets floor(t) as its time: 0 except for t = 1."""

    def __init__(self, model: Callable[..., Any]):
        super().__init__(model)
        fits = not any(isinstance(inner, Hollow) for inner in nested_models(model))
        expected = "real for a network with the hollow head (model.hollow), which needs the time"
        require(fits, "time_mode", "zero", expected)

    def __call__(self, x_t: Tensor, t: Tensor, **masks: Tensor) -> Any:
        """The network's output at floor(t)."""
        return self.model(x_t, t.floor(), **masks)
