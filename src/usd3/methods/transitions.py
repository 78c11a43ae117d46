"""A forward process of any matrices Q (T, K, K), rows q(x_t | x_{t-1}), in place of a I + (1 - a) 1 m^T.

With Qbar_t = Q_1 ... Q_t, Q_ts = Q_{s+1} ... Q_t and x = x_t,

    q(x_s = y | x, x_0 = k) = Q_ts[y, x] Qbar_s[k, y] / Qbar_t[k, x]                                    Bayes
    p(x_s = y | x)          = Q_ts[y, x] sum_k Qbar_s[k, y] f_k / Qbar_t[k, x]                          `backward`

Support rule: a category k with Qbar_t[k, x] = 0 cannot lead to x. It has f_k = 0, as has the mask.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from usd3._internal.checks import as_count, require, require_type
from usd3.core.belief import NEVER
from usd3.core.diffusion import Diffusion
from usd3.core.mixture import safe_log
from usd3.core.noise import Noise

__all__ = [
    "NAMES",
    "Transitions",
    "backward",
    "banded",
    "discretised_gaussian",
    "divergence",
    "possible_logits",
    "towards",
]

NAMES = ("uniform", "absorbing", "gaussian", "banded")
_BETAS = {"gaussian": (1e-4, 0.02), "banded": (0.02, 1.0)}  # of the first and the last step
_POSSIBLE = {torch.float32: 1e-30, torch.float64: 1e-280}  # below it 1 / q(x | k) would overflow: taken as 0
_MOST_ENTRIES = 2**29  # 4.3 GB in each of two tables; a folder of a few bytes could ask for any number


# ---- matrices -------------------------------------------------------------------------------------------------------


def towards(m: Tensor, betas: Tensor) -> Tensor:
    """(1 - beta_t) I + beta_t 1 m^T: uniform and absorbing noise, any noise of `Diffusion`."""
    betas = betas[:, None, None]
    return (1 - betas) * torch.eye(len(m), dtype=torch.float64) + betas * m


def discretised_gaussian(num_classes: int, betas: Tensor) -> Tensor:
    """exp(-4 (i-j)^2 / ((K-1)^2 beta_t)) over its sum for all differences -(K-1)..K-1; the diagonal is the rest.

    Symmetric, so doubly stochastic: it ends at uniform noise. For ordered categories.
    """
    distance = torch.arange(num_classes, dtype=torch.float64)
    weight = torch.exp(-4 * distance**2 / ((num_classes - 1) ** 2 * betas[:, None]))  # (T, K), by distance
    return _with_diagonal(weight / (2 * weight.sum(1, keepdim=True) - 1))


def banded(num_classes: int, betas: Tensor, width: int) -> Tensor:
    """beta_t / K for 0 < |i-j| <= width; the diagonal is the rest. For ordered categories."""
    near = torch.arange(num_classes) <= width
    return _with_diagonal(near * betas[:, None] / num_classes)


def _with_diagonal(by_distance: Tensor) -> Tensor:
    """Symmetric matrices from entries (T, K) by distance |i-j| > 0, with the diagonal that makes rows sum to 1."""
    where = torch.arange(by_distance.shape[1])
    matrices = by_distance[:, (where[:, None] - where).abs()]
    matrices.diagonal(dim1=1, dim2=2).zero_()
    matrices.diagonal(dim1=1, dim2=2).copy_(1 - matrices.sum(2))
    return matrices


def _line(betas: Sequence[float], num_steps: int, most: float) -> Tensor:
    """Betas on a line from the first to the last, (T,)."""
    expected = f"two numbers in (0, {most:g}], the first and the last"
    require_type(isinstance(betas, Sequence) and not isinstance(betas, str), "betas", betas, expected)
    require(len(betas) == 2 and all(0 < beta <= most for beta in betas), "betas", betas, expected)
    return torch.linspace(betas[0], betas[1], num_steps, dtype=torch.float64)


class Transitions:
    """A stack of matrices Q (T, K, K), each row a distribution, and its products Qbar (T + 1, K, K), Qbar_0 = I.

    Rows may miss 1 by 1e-4 and are renormalised. Both tables are float64 here, and copied to a device once, in float32
    for logits of at most that precision: 2 T K^2 floats (K = 512, T = 1000: 2.1 GB in float32).
    """

    def __init__(self, matrices: Any):
        Q = torch.as_tensor(matrices).detach().to("cpu", torch.float64)
        shape = tuple(Q.shape)
        square = len(shape) == 3 and shape[0] >= 1 and shape[1] == shape[2] >= 2
        require(square, "transitions.shape", shape, "(T, K, K), T >= 1 and K >= 2")
        require(bool((Q >= 0).all()), "transitions", float(Q.min()), "no negative and no NaN probabilities")
        whole = Q.sum(-1, keepdim=True)
        worst = float(whole.flatten()[(whole - 1).abs().argmax()])
        require(abs(worst - 1) <= 1e-4, "transitions.sum(-1)", worst, "1 within 1e-4 in every row")
        self.num_steps, self.num_classes = shape[0], shape[1]
        self.single = Q / whole
        self.whole = torch.empty(shape[0] + 1, *shape[1:], dtype=torch.float64)
        self.whole[0] = torch.eye(shape[1], dtype=torch.float64)
        for t in range(shape[0]):
            torch.matmul(self.whole[t], self.single[t], out=self.whole[t + 1])
        self._copies: dict[tuple[torch.device, torch.dtype], tuple[Tensor, Tensor]] = {}

    def __repr__(self) -> str:
        return f"Transitions({self.num_steps} of {self.num_classes} x {self.num_classes})"

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_copies": {}}

    @classmethod
    def named(
        cls, name: str, diffusion: Diffusion, betas: Sequence[float] | None = None, width: int | None = None
    ) -> "Transitions":
        """One of `NAMES` for the K and T of a diffusion; `betas` are those of the first and of the last step.

        Without `betas`, "uniform" and "absorbing" follow the diffusion's schedule, which makes them its closed form;
        "gaussian" takes (1e-4, 0.02) and "banded" (0.02, 1). The band has a `width`.
        """
        T, noise, K = diffusion.num_steps, diffusion.noise, diffusion.noise.num_classes
        assert T is not None
        require(name in NAMES, "transitions", name, f"one of {', '.join(NAMES)}, or matrices (T, K, K)")
        seen, most = f"{T} matrices of {K} x {K}", f"at most {_MOST_ENTRIES:,} numbers in them"
        require(T * K**2 <= _MOST_ENTRIES, "transitions", seen, most)
        kind = "absorbing" if name == "absorbing" else "uniform"
        even = noise.probs.dim() == 1 and bool(((noise.probs - 1 / K).abs() < 1e-9).all())
        require(even if kind == "uniform" else noise.is_absorbing, "transitions", name, f"{kind} noise for it")
        expected = "an integer >= 1 for banded, and None for the others"
        require((width is not None) == (name == "banded"), "width", width, expected)
        if betas is None and name == kind:
            times = torch.arange(T + 1, dtype=torch.float64) / T
            return cls(towards(noise.probs, diffusion.between(times[1:], times[:-1], times[1:]).lost))
        # a beta is a probability, but for the Gaussian: there it is a variance
        line = _line(_BETAS[name] if betas is None else betas, T, 1e6 if name == "gaussian" else 1.0)
        if name == "gaussian":
            return cls(discretised_gaussian(K, line))
        return cls(banded(K, line, as_count(width, "width", 1)) if name == "banded" else towards(noise.probs, line))

    def distance(self, noise: Noise) -> float:
        """Total variation between where the chain ends, from the data category that is worst off, and the noise."""
        data = [k for k in range(self.num_classes) if k != noise.mask]
        return float((self.whole[-1][data] - noise.probs).abs().sum(-1).max()) / 2

    def on(self, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Q and Qbar on a device, in float32 or float64; copied there once."""
        key = (device, torch.promote_types(dtype, torch.float32))
        if key not in self._copies:
            with torch.inference_mode(False):  # the copies outlive this call
                self._copies[key] = self.single.to(*key), self.whole.to(*key)
        return self._copies[key]

    def between(self, t: int, s: int, device: torch.device | str = "cpu") -> Tensor:
        """Q_ts = Q_{s+1} ... Q_t, (K, K) float64: a gap is never one step."""
        product = torch.eye(self.num_classes, dtype=torch.float64, device=device)
        for Q in self.single[s:t].to(device):
            product = product @ Q
        return product


# ---- formulas on gathered matrices: x (B, D), the rest (B, D, K) -----------------------------------------------------


def possible_logits(logits: Tensor, reach: Tensor, mask: int | None) -> Tensor:
    """Logits with NEVER at each k that cannot lead to x (support rule); `reach` is q(x | k), (..., K)."""
    never = reach <= _POSSIBLE[reach.dtype]
    if mask is not None:
        never = never | (torch.arange(reach.shape[-1], device=reach.device) == mask)
    return logits.to(reach.dtype).masked_fill(never, NEVER).clamp(min=NEVER)


def backward(f: Tensor, reach: Tensor, into: Tensor, whole_s: Tensor) -> Tensor:
    """p(x_s | x): `reach` = Qbar_t[:, x], `into` = Q_ts[:, x], `whole_s` = Qbar_s, (K, K) or (B, K, K)."""
    return into * _mixed(f, reach, whole_s)


def _mixed(f: Tensor, reach: Tensor, whole_s: Tensor) -> Tensor:
    """sum_k f_k / Qbar_t[k, x] Qbar_s[k, y]."""
    possible = reach > _POSSIBLE[reach.dtype]
    ratio = torch.where(possible, f / torch.where(possible, reach, 1.0), 0.0)
    with torch.autocast(f.device.type, enabled=False):  # bfloat16 would lose the small probabilities
        return ratio @ whole_s


def divergence(log_f: Tensor, x_0: Tensor, reach: Tensor, into: Tensor, whole_s: Tensor, from_0: Tensor) -> Tensor:
    """KL(q(x_s | x, x_0) || p(x_s | x)), (B, D); `from_0` = Qbar_s[x_0].

    p = f_x0 q + rest, and the first part is added in logs: finite for any f, and exactly -log f_x0 at s = 0.
    """
    q = into * from_0
    q = q / q.sum(-1, keepdim=True).clamp(min=torch.finfo(q.dtype).tiny)
    log_q = safe_log(q)
    rest = _mixed(log_f.exp().scatter(-1, x_0[..., None], 0.0), reach, whole_s)
    rest = torch.where(rest > _POSSIBLE[rest.dtype], rest, 0.0)  # 1 / rest, its gradient, must not overflow
    log_p = torch.logaddexp(log_f.gather(-1, x_0[..., None]) + log_q, safe_log(into) + safe_log(rest))
    return torch.where(q > 0, q * (log_q - log_p), 0.0).sum(-1)
