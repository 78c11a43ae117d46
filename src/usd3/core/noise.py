"""Noise distributions m: where the forward process ends, Q(t|s) = alpha_bar(t|s) I + (1 - alpha_bar(t|s)) 1 m^T.

`Uniform` and `Absorbing` are the usual ones; `Marginal` is any distribution, shared by all elements (probs of shape
(K,)) or one for each (probs of shape (..., K)). Zeros are allowed: a category with m_x = 0 is never noise, so an
element with that category is certainly clean (the support rule, see `usd3.core.belief`).
"""

from typing import Any

import torch
from torch import Tensor

from usd3._internal.checks import Checks, as_categories, as_count, as_number, is_integral, require, require_type
from usd3._internal.random import invert_cdf, uniform

__all__ = ["Absorbing", "Marginal", "Noise", "Uniform"]


class Noise:
    """Base class: a stationary distribution, `probs` of shape (K,) or (..., K), float64.

    The sums may miss 1 by 1e-4; probs are renormalised. `mask` is the category that no data can have, or None.
    """

    mask: int | None = None

    def __init__(self, probs: Any):
        probs = probs if isinstance(probs, Tensor) else torch.as_tensor(probs, dtype=torch.float64)
        probs = probs.detach().to("cpu", torch.float64)
        shape = tuple(probs.shape)
        require(probs.numel() > 0 and probs.dim() >= 1 and shape[-1] >= 2, "probs.shape", shape, "(..., K), K >= 2")
        require(bool((probs >= 0).all()), "probs", float(probs.min()), "no negative and no NaN probabilities")
        total = probs.sum(-1, keepdim=True)
        worst = float(total.flatten()[(total - 1).abs().argmax()])
        require(abs(worst - 1) <= 1e-4, "probs.sum(-1)", worst, "1 within 1e-4 (Marginal.from_data counts data)")
        self.probs = (probs / total).contiguous()  # kernels read it row by row
        self.num_classes: int = shape[-1]
        self.has_zeros = bool((probs == 0).any())
        self.smallest = float(self.probs[self.probs > 0].min())  # but for zeros
        self._copies: dict[tuple[torch.device, torch.dtype], Tensor] = {}
        self._cdfs: dict[torch.device, Tensor] = {}

    def probs_on(self, device: torch.device, dtype: torch.dtype = torch.float64) -> Tensor:
        """m, (K,) or (..., K), on a device; copied there once."""
        key = (device, dtype)
        if key not in self._copies:
            with torch.inference_mode(False):  # the copy outlives this call
                self._copies[key] = self.probs.to(device=device, dtype=dtype)
        return self._copies[key]

    def table_on(self, device: torch.device, dtype: torch.dtype, shape: torch.Size) -> Tensor:
        """m as a contiguous table (P, K) for elements of `shape` in row-major order: element i has row i % P."""
        m, leading = self.probs_on(device, dtype), self.probs.dim() - 1
        if m.numel() == self.num_classes or m.shape[:-1] == shape[len(shape) - leading :]:
            return m.reshape(-1, self.num_classes)
        return m.expand(*shape[len(shape) - leading :], self.num_classes).reshape(-1, self.num_classes).contiguous()

    def at(self, x: Tensor) -> Tensor:
        """m_x, the probability of each element's category, float64 in the shape of x."""
        m = self.probs_on(x.device)
        if m.dim() == 1:
            return m[x]
        return m.expand(*x.shape, self.num_classes).gather(-1, x[..., None]).squeeze(-1)

    def sample(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw from m, in the shape of x."""
        return invert_cdf(self.cdf(x.device), uniform(x.shape, x.device, generator))

    def corrupt(self, x_0: Tensor, lost: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw x_t ~ q(x_t | x_0) = alpha_bar e_x0 + (1 - alpha_bar) m (eq. 46), in the shape of x_0.

        An element leaves x_0 with probability (1 - alpha_bar) (1 - m_x0), and then for a category z != x_0 of m.
        `lost` is 1 - alpha_bar, float64; it broadcasts to x_0.
        """
        u, v = uniform((2, *x_0.shape), x_0.device, generator)
        return torch.where(u < lost * (1 - self.at(x_0)), self.other(x_0, v), x_0)

    def sample_other(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw from m restricted to z != x. Where m_x = 1 no such z exists, and the result means nothing."""
        return self.other(x, uniform(x.shape, x.device, generator))

    def other(self, x: Tensor, u: Tensor) -> Tensor:
        """The draw of `sample_other` for given uniforms u, float64 in the shape of x."""
        cdf = self.cdf(x.device)
        upto = cdf[x] if cdf.dim() == 1 else cdf.expand(*x.shape, -1).gather(-1, x[..., None]).squeeze(-1)
        below = upto - self.at(x)
        v = u * (below + (1 - upto))  # skip the interval of x
        return invert_cdf(cdf, torch.where(v < below, v, upto + (v - below)))

    def require_fits(self, shape: torch.Size) -> None:
        """Refuse elements of this shape unless m of each element broadcasts to it."""
        if self.probs.dim() == 1:
            return
        try:
            fits = torch.broadcast_shapes(self.probs.shape[:-1], shape) == shape
        except RuntimeError:
            fits = False
        require(fits, "noise.probs.shape", tuple(self.probs.shape), f"(..., K) that broadcasts to {(*shape, 'K')}")

    def cdf(self, device: torch.device) -> Tensor:
        """Cumulative sums of m, float64 (K,) or (..., K), on a device; computed once."""
        if device not in self._cdfs:
            with torch.inference_mode(False):
                cdf = self.probs.cumsum(-1)
                self._cdfs[device] = (cdf / cdf[..., -1:]).to(device)
        return self._cdfs[device]

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_copies": {}, "_cdfs": {}}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.num_classes})"


class Uniform(Noise):
    """m = 1/K for every category."""

    def __init__(self, num_classes: int):
        num_classes = as_count(num_classes, "num_classes", 2)
        super().__init__(torch.full((num_classes,), 1 / num_classes, dtype=torch.float64))

    def at(self, x: Tensor) -> Tensor:
        """1/K everywhere."""
        return torch.full(x.shape, 1 / self.num_classes, dtype=torch.float64, device=x.device)

    def sample(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw uniformly, in the shape of x."""
        return (uniform(x.shape, x.device, generator) * self.num_classes).long()

    def other(self, x: Tensor, u: Tensor) -> Tensor:
        """One of the K - 1 categories other than x."""
        z = (u * (self.num_classes - 1)).long()
        return z + (z >= x)


class Absorbing(Noise):
    """m is 1 at one extra category, the mask: by default the last of `num_classes`, which counts it."""

    def __init__(self, num_classes: int, mask: int | None = None):
        num_classes = as_count(num_classes, "num_classes", 2)
        mask = num_classes - 1 if mask is None else as_count(mask, "mask", 0, num_classes - 1)
        probs = torch.zeros(num_classes, dtype=torch.float64)
        probs[mask] = 1
        super().__init__(probs)
        self.mask = mask

    def sample(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """The mask, in the shape of x."""
        return torch.full_like(x, self.mask)  # type: ignore[arg-type]

    def other(self, x: Tensor, u: Tensor) -> Tensor:
        """The mask: the only category that an unmasked element can turn into."""
        return self.sample(x)

    def __repr__(self) -> str:
        return f"Absorbing({self.num_classes}, mask={self.mask})"


class Marginal(Noise):
    """Any distribution, shared, `probs` (K,), or one for each element, `probs` (..., K)."""

    @classmethod
    def from_data(
        cls, x: Any, num_classes: int | None = None, smoothing: float = 1.0, per_element: bool = False
    ) -> "Marginal":
        """The frequencies of the categories in data x, integers (N, ...).

        `smoothing` is added to every count, so that no category has probability 0 by accident. With `per_element` each
        element of an object gets its own distribution, probs of shape (..., K).
        """
        x = torch.as_tensor(x)
        require_type(is_integral(x), "x", x, "an integer array")
        require(x.numel() > 0, "x.shape", tuple(x.shape), "at least one object")
        smoothing = as_number(smoothing, "smoothing", 0, closed=True)
        num_classes = as_count(int(x.long().max()) + 1 if num_classes is None else num_classes, "num_classes", 2)
        checks = Checks(enabled=True)
        x = as_categories(x, num_classes, "x", checks)
        checks.raise_first()
        if not per_element:
            counts = torch.bincount(x.flatten(), minlength=num_classes).double()
        else:
            elements = x[0].numel()
            cells = torch.arange(elements, device=x.device) * num_classes + x.reshape(len(x), elements)
            counts = torch.bincount(cells.flatten(), minlength=elements * num_classes).double()
            counts = counts.reshape(*x.shape[1:], num_classes)
        counts = counts + smoothing
        return cls(counts / counts.sum(-1, keepdim=True))
