"""D3PM (Austin et al. 2021): the VLB in discrete time plus a little cross entropy, and ancestral sampling.

With f = softmax of the network's output and x = x_t, a step back is read in one of two ways:

    marginal    p(x_s = y | x) = sum_k q(y | x, k) f_k          f is p(x_0 | x_t): what the papers write
    joint       p(x_s = y | x) ~ q(x | y) sum_k q(y | k) f_k    f is p(x_0 | the other elements): the public code

They are one map: joint(f) = marginal(f'), f'_k ~ f_k q(x | k). So the joint VLB is smallest where f is proportional to
p(x_0 | x_t) / q(x_t | x_0), while the cross entropy, taken of f itself as in the public code, is smallest at
f = p(x_0 | x_t). For uniform noise the two terms of that loss disagree; for absorbing noise f' = f, and they agree.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from usd3._internal.checks import as_number, require
from usd3._internal.random import drawn_from
from usd3.core.belief import FINITE
from usd3.core.coefficients import total
from usd3.core.converters import full_from_hollow
from usd3.core.diffusion import Diffusion
from usd3.core.model import Denoiser, Wrapper, logits_of
from usd3.core.noisy_batch import NoisyBatch
from usd3.core.objectives import LossOutput, Objective, weighted_loss
from usd3.core.samplers import Run, Sampler, StepFunction, exact, likeliest, network_time
from usd3.methods.base import Method
from usd3.methods.stack_diffusion import StackDiffusion
from usd3.methods.transitions import Transitions, backward, possible_logits

__all__ = ["D3PM"]

_NOWHERE = 0.5  # refuse chains whose end is further than this from the noise, in total variation


class D3PM(Method):
    """L_t + `ce` CE at one t of 1..T, where L_t = KL(q(x_{t-1} | x_t, x_0) || p(x_{t-1} | x_t)), -log f_x0 at t = 1.

    Samples take any number of steps up to T: steps t -> s over a gap are exact.

    Args:
        diffusion: in discrete time.
        posterior: "marginal" or "joint". The public code reads f as p(x_0 | x_t) at t = 1 even where it is joint; here
            a joint f is joint at every t, so that the VLB is a bound.
        transitions: the forward process as a stack of matrices: a `Transitions`, a tensor (T, K, K), or a name,
            "uniform", "absorbing", "gaussian" or "banded". Samples start from the noise of the diffusion. The stack
            takes 2 T K^2 floats on the device. None: the closed form of the diffusion's noise and schedule.
        ce: weight of the cross entropy.
        last: "argmax" ends samples with the likeliest category, as the public code does, "draw" with a draw.
        betas: of the first and the last step, for `transitions` by name.
        width: of the band, for "banded".
    """

    time = "discrete"
    samplers = ("ancestral",)
    corrects = False

    def __init__(
        self,
        diffusion: Diffusion,
        posterior: Literal["marginal", "joint"] = "marginal",
        transitions: Transitions | Tensor | str | None = None,
        ce: float = 0.001,
        last: Literal["argmax", "draw"] = "argmax",
        betas: Sequence[float] | None = None,
        width: int | None = None,
    ):
        super().__init__(diffusion)
        require(posterior in ("marginal", "joint"), "posterior", posterior, "marginal or joint")
        require(last in ("argmax", "draw"), "last", last, "argmax or draw")
        self.posterior, self.last, self.ce = posterior, last, as_number(ce, "ce", 0, closed=True)
        self.reads, self.fuses = ("hollow", False) if posterior == "joint" else ("full", transitions is None)
        if isinstance(transitions, str):
            name, transitions = transitions, Transitions.named(transitions, diffusion, betas, width)
            far, larger = transitions.distance(diffusion.noise), "larger ones, as in [0.1, 1.0], or more steps"
            what = f"{larger}: with {name} the chain ends {far:.2f} in total variation from its noise"
            require(far < _NOWHERE, "betas", betas, what)
        else:
            require(betas is None, "betas", betas, "None unless transitions is a name")
            require(width is None, "width", width, "None unless transitions is a name")
        self._stack: StackDiffusion | None = None
        if transitions is not None:
            stack = transitions if isinstance(transitions, Transitions) else Transitions(transitions)
            self.diffusion = self._stack = StackDiffusion(diffusion, stack)

    def loss_of(self, denoise: Denoiser, batch: NoisyBatch) -> LossOutput:
        """L_t + ce CE. In closed form and marginal the first is USD3's VLB."""
        d, (x_0, x_t, time, checks) = self.diffusion, (batch.x_0, batch.x_t, batch.time, batch.checks)
        if self.posterior == "marginal":
            return weighted_loss(d, denoise.output(x_t, time), batch, Objective(vlb=1, ce=self.ce))
        logits = denoise(x_t, time)  # of p(x_0 | the other elements), (B, N1, ..., Nk, K)
        full = d.element_terms(self._full(logits, x_t, time), x_t, x_0, time, None, checks)
        hollow = d.element_terms(logits, x_t, x_0, time, None, checks)
        vlb, ce = (total(term, batch.free).mean() for term in (full.vlb, hollow.ce))
        return LossOutput(vlb + self.ce * ce, d.vlb_scale * vlb.detach(), ce.detach())

    def denoiser(self, model: Callable[..., Any]) -> Callable[..., Any]:
        """The model with logits of p(x_0 | x_t) as its output."""
        same = self._stack is None and self.diffusion.noise.is_absorbing  # joint and marginal are the same
        return model if self.posterior == "marginal" or same else _Completed(model, self._full)

    @property
    def takes_any_sampler(self) -> bool:
        """Not with matrices: their process is another one than that of the samplers."""
        return self._stack is None

    def predictor(self, sampler: str) -> Sampler:
        """Exact backward steps; the last one by `last`."""
        return self._ancestral

    def _full(self, f: Tensor, x_t: Tensor, time: Tensor) -> Tensor:
        """Logits of p(x_0 | x_t) from those of p(x_0 | the other elements), float32 or better."""
        if self._stack is not None:
            return self._stack.full_from_hollow(f, x_t, time)
        T = self.diffusion.num_steps or 1
        return full_from_hollow(self.diffusion, f, x_t, (time.double() * T).round() / T)

    def _ancestral(self, run: Run, grid: list[float]) -> StepFunction:
        step = exact(run, grid) if self._stack is None else _by_matrices(run, grid, self._stack)
        if self.last == "draw":
            return step

        def predict(x: Tensor, i: int) -> Tensor:
            return step(x, i) if grid[i + 1] > 0 else self._likeliest(run, x, grid[i])

        return predict

    def _likeliest(self, run: Run, x: Tensor, t: float) -> Tensor:
        """argmax of f among the categories that can lead to x."""
        if self._stack is None:
            return likeliest(run, x, t)
        time = network_time(t, x)
        logits = run.denoise(x, time)
        reach = self._stack.reach(x, time, logits.dtype)
        highest, best = possible_logits(logits, reach, self.diffusion.noise.mask).max(-1)
        run.checks.refuse("logits", torch.where(run.free, highest, 0.0), lambda v: ~v.isfinite(), FINITE)
        return torch.where(run.free, best, x)


def _by_matrices(run: Run, grid: list[float], stack: StackDiffusion) -> StepFunction:
    """x_s ~ p(x_s | x_t) with Q_ts, Qbar_s and Qbar_t; a gap between t and s has its own product."""
    matrices, mask, device = stack.transitions, stack.noise.mask, run.free.device
    times = [round(t * stack.T) for t in grid]
    single, whole = matrices.on(device, torch.get_default_dtype())

    def move(x: Tensor, time: Tensor, gap: Tensor, whole_s: Tensor, whole_t: Tensor, u: Tensor) -> Tensor:
        logits = run.denoise(x, time)
        dtype = torch.promote_types(logits.dtype, whole.dtype)
        reach, into = (matrix.to(dtype).T[x] for matrix in (whole_t, gap))
        f = torch.softmax(run.shaped(possible_logits(logits, reach, mask)), -1)
        run.checks.refuse("logits", torch.where(run.free, f.sum(-1), 0.0), torch.isnan, FINITE)
        return torch.where(run.free, drawn_from(backward(f, reach, into, whole_s.to(dtype)), u), x)

    step = run.replayed(move)

    def predict(x: Tensor, i: int) -> Tensor:
        t, s = times[i], times[i + 1]
        gap = single[s] if t == s + 1 else matrices.between(t, s, device).to(whole.dtype)
        x = step(x, network_time(grid[i], x), gap, whole[s], whole[t], run.uniforms(x)[0])
        run.checks.raise_early(x.device)
        return x

    return predict


class _Completed(Wrapper):
    """A model whose output means p(x_0 | the other elements), turned into logits of p(x_0 | x_t)."""

    ignores_time = False  # q(x_t | x_0) depends on it
    self_conditioned = False

    def __init__(self, model: Callable[..., Any], full: Callable[[Tensor, Tensor, Tensor], Tensor]):
        super().__init__(model)
        self.full = full

    def __call__(self, x_t: Tensor, t: Tensor, **masks: Tensor) -> Tensor:
        """Logits of p(x_0 | x_t)."""
        return self.full(logits_of(self.model(x_t, t, **masks), x_t), x_t, t)
