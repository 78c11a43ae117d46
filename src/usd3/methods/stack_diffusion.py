"""A diffusion whose forward process is a stack of matrices, see `usd3.methods.transitions`."""

import warnings
from typing import Any, NoReturn

import torch
from torch import Tensor

from usd3._internal.checks import Checks, require, require_logits
from usd3._internal.random import drawn_from, uniform
from usd3.core.belief import FINITE, NEVER
from usd3.core.coefficients import flat
from usd3.core.diffusion import Diffusion
from usd3.core.mixture import safe_log
from usd3.core.terms import LossTerms
from usd3.methods.transitions import Transitions, divergence, possible_logits

__all__ = ["StackDiffusion"]

_FAR = 0.05  # total variation between the end of the chain and m from which we warn


class _Terms(LossTerms):
    """VLB and cross entropy of each element."""

    def __init__(self, log_f: Tensor, x_0: Tensor, tables: tuple[Tensor, ...]):
        self._log_f, self._flat_x_0, self._tables, self._vlb = log_f, flat(x_0), tables, None
        self._shape = x_0.shape

    @property
    def vlb(self) -> Tensor:
        """KL(q(x_s|x_t,x_0) || p(x_s|x_t))."""
        if self._vlb is None:
            self._vlb = divergence(self._log_f, self._flat_x_0, *self._tables).reshape(self._shape)
        return self._vlb

    @property
    def ce(self) -> Tensor:
        """-log f_x0."""
        return -self._log_f.gather(-1, self._flat_x_0[..., None]).reshape(self._shape)


class StackDiffusion(Diffusion):
    """A `Diffusion` in discrete time whose forward process is a stack of matrices; samples start from its noise m.

    `loss`, `loss_terms`, `bound`, `prior` and `q_sample` follow the matrices. The rest needs a closed form: it raises.
    """

    def __init__(self, diffusion: Diffusion, transitions: Transitions):
        vars(self).update(diffusion.__getstate__())
        self._source, self.transitions = diffusion, transitions
        T, K, m = diffusion.num_steps, diffusion.noise.num_classes, diffusion.noise.probs
        seen, expected = (transitions.num_steps, transitions.num_classes), f"T = {T} and K = {K}, as the diffusion has"
        require(seen == (T, K), "transitions (T, K)", seen, expected)
        require(m.dim() == 1, "noise.probs.shape", tuple(m.shape), "(K,): one noise for all elements")
        expected = "None where data have a support, out of which matrices lead"
        require(diffusion.noise.support is None, "transitions", "a stack of matrices", expected)
        far = transitions.distance(diffusion.noise)
        if far > _FAR:
            warnings.warn(
                f"{transitions!r} does not end at {diffusion.noise!r}: a row of their product is {far:.3g} away in "
                f"total variation, expected at most {_FAR}. Samples start from the noise: take larger betas, more "
                "steps, or the noise in which the chain ends.",
                UserWarning,
                stacklevel=4,
            )

    def __repr__(self) -> str:
        return f"StackDiffusion({self.noise!r}, {self.transitions!r})"

    @property
    def validate(self) -> bool:
        """The flag of the diffusion it was made from: training turns it off there."""
        return self._source.validate

    @validate.setter
    def validate(self, value: bool) -> None:
        self._source.validate = value

    @property
    def T(self) -> int:
        """The number of steps."""
        return self.transitions.num_steps

    def at(self, time: Tensor) -> Tensor:
        """Times in [0, 1] as indices 0..T."""
        return (time.double() * self.T).round().long().clamp(0, self.T)

    def reach(self, x_t: Tensor, time: Tensor, dtype: torch.dtype) -> Tensor:
        """q(x_t | x_0 = k) for every k, (..., K)."""
        whole = self.transitions.on(x_t.device, dtype)[1]
        return whole[self.at(time)[:, None], :, flat(x_t)].reshape(*x_t.shape, self.noise.num_classes)

    def full_from_hollow(self, logits: Tensor, x_t: Tensor, time: Tensor) -> Tensor:
        """Logits of p(x_0 | x_t) from those of p(x_0 | the other elements): plus log q(x_t | x_0)."""
        reach = self.reach(x_t, time, logits.dtype)
        return possible_logits(logits.to(reach.dtype) + safe_log(reach), reach, self.noise.mask)

    # ---- the parts that `Diffusion` builds on -----------------------------------------------------------------------

    def is_eager(self, device: torch.device) -> bool:
        """True: the kernels know no matrices."""
        return True

    def draw_noisy(
        self,
        x_0: Tensor,
        time: Tensor,
        free: Tensor | None,
        generator: torch.Generator | None,
        lost: Tensor | None = None,
    ) -> Tensor:
        """Draw x_t ~ Qbar_t[x_0] for the free elements; the others stay as they are. There is no `lost` here."""
        whole = self.transitions.on(x_0.device, torch.get_default_dtype())[1]
        x_t = drawn_from(whole[self.at(time)[:, None], flat(x_0)], uniform(x_0.shape, x_0.device, generator))
        return x_t if free is None else torch.where(free, x_t, x_0)

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
        """VLB and cross entropy of each element, by the matrices."""
        require_logits(logits, x_t, self.noise.num_classes, "logits")
        logits = logits if free is None else logits.masked_fill(~free[..., None], 0.0)
        single, whole = self.transitions.on(x_t.device, logits.dtype)
        t, x = self.at(time), flat(x_t)
        reach = whole[t[:, None], :, x]
        if before is None:
            s, into = t - 1, single[(t - 1).clamp(min=0)[:, None], :, x]
        else:
            s = self.at(before)
            steps, which = torch.stack([t, s], 1).unique(dim=0, return_inverse=True)
            gaps = torch.stack([self.transitions.between(i, j, x.device) for i, j in steps.tolist()])
            into = gaps.to(whole.dtype)[which[:, None], :, x]
        s = s.clamp(min=0)
        log_f = torch.log_softmax(possible_logits(logits.reshape(reach.shape), reach, self.noise.mask), -1)
        terms = _Terms(log_f.clamp(min=NEVER), x_0, (reach, into, whole[s], whole[s[:, None], flat(x_0)]))
        checks.refuse("logits", terms.ce.detach().sum(), torch.isnan, FINITE)
        return terms

    def prior_terms(self, x_0: Tensor, time: Tensor, checks: Checks) -> Tensor:
        """KL(Qbar_t[x_0] || m)."""
        ends, which = self.at(time).unique(return_inverse=True)
        q = self.transitions.whole[ends.cpu()]
        kl = torch.where(q > 0, q * (safe_log(q) - self.noise.probs.log()), 0.0).sum(-1).clamp(min=0.0)
        kl = kl.to(x_0.device)[which[:, None], flat(x_0)].reshape(x_0.shape)
        checks.refuse("prior", kl, torch.isinf, "finite numbers: the last matrices must end where the noise is not 0")
        return kl

    def _closed_form(self, *_: Any) -> NoReturn:
        raise NotImplementedError(f"{self.transitions!r} has no closed form: see loss, loss_terms, bound and q_sample")

    step = rate_weights = forward_probs = _closed_form  # type: ignore[assignment]  # all of them pass here
