"""Noise distributions m: where the forward process ends, Q(t|s) = alpha_bar(t|s) I + (1 - alpha_bar(t|s)) 1 m^T.

`Uniform` and `Absorbing` are the usual ones, and `Mixed` is some of both; `Marginal` is any distribution, shared by all
elements (probs of shape (K,)) or one for each (probs of shape (..., K)). Zeros are allowed: a category with m_x = 0 is
never noise, so an element with that category is certainly clean (the support rule, see `usd3.core.belief`).

Data may have only some categories. The mask is none of theirs, and `Noise.within` takes further ones away, from all
elements or from each its own: the columns of a table share numbers, and each has as many as it needs.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor

from usd3._internal.checks import Checks, as_categories, as_count, as_number, is_integral, require, require_type
from usd3._internal.random import invert_cdf, uniform

__all__ = ["Absorbing", "Marginal", "Mixed", "Noise", "Uniform"]


class Noise:
    """Base class: a stationary distribution, `probs` of shape (K,) or (..., K), float64.

    The sums may miss 1 by 1e-4; probs are renormalised.
    """

    mask: int | None = None
    """A category that no data can have, or None."""
    is_absorbing: ClassVar[bool] = False
    """Whether all noise is the mask, m = e_mask."""
    support: Tensor | None = None
    """(K,) or (..., K) bool on the CPU: the categories that data can have; None: all but the mask."""
    has_closed_form: ClassVar[bool] = False
    """Whether kernels know m by a formula and need no table: it is uniform, or the mask alone."""

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
        self.has_zeros = bool((probs == 0).any())  # at a category of data
        self.smallest = float(self.probs[self.probs > 0].min())  # but for zeros
        self._copies: dict[tuple[torch.device, torch.dtype], Tensor] = {}
        self._cdfs: dict[torch.device, Tensor] = {}
        self._data: dict[torch.device, Tensor] = {}

    # ---- which categories data can have -------------------------------------------------------------------------

    def within(self, support: Any) -> "Noise":
        """The noise of data that have the categories of `support` alone, bool (K,) or (..., K).

        Noise outside the support is left out, and the rest renormalised: uniform noise is uniform within it. The mask,
        where there is one, is never data, whatever `support` says.
        """
        support = torch.as_tensor(support).detach().cpu()
        require_type(support.dtype == torch.bool, "support", support, "booleans, (..., K)")
        shape = tuple(support.shape)
        fits = support.numel() > 0 and shape[-1:] == (self.num_classes,)
        require(fits, "support.shape", shape, f"(..., {self.num_classes}), the categories of each element")
        if self.mask is not None:
            support = support.clone()
            support[..., self.mask] = False
        least = int(support.sum(-1).min())
        require(least >= 1, "support", f"an element with {least} categories", "at least one category for each element")
        return self._within(support)

    def _within(self, support: Tensor) -> "Noise":
        return _Within(self, support)

    def data_on(self, device: torch.device) -> Tensor | None:
        """Which categories data can have, bool (K,) or (..., K), on a device; None: all. Copied there once."""
        if self.support is None and self.mask is None:
            return None
        if device not in self._data:
            data = torch.arange(self.num_classes).ne(self.mask or 0) if self.support is None else self.support
            with torch.inference_mode(False):  # the copy outlives this call
                self._data[device] = data.to(device)
        return self._data[device]

    def is_data(self, x: Tensor) -> Tensor:
        """Whether data can have the category of each element, bool in the shape of x."""
        data = self.data_on(x.device)
        return torch.ones_like(x, dtype=torch.bool) if data is None else _at(data, x)

    # ---- m --------------------------------------------------------------------------------------------------------

    def probs_on(self, device: torch.device, dtype: torch.dtype = torch.float64) -> Tensor:
        """m, (K,) or (..., K), on a device; copied there once."""
        key = (device, dtype)
        if key not in self._copies:
            with torch.inference_mode(False):  # the copy outlives this call
                self._copies[key] = self.probs.to(device=device, dtype=dtype)
        return self._copies[key]

    def tables(self, x: Tensor) -> tuple[int, int, bool, Tensor | None, Tensor | None]:
        """What kernels know of the noise: the arguments of `usd3.kernels.NoiseTables`, for the elements of x.

        m and the support are tables (P, K) without gaps; element i of x in row-major order has row i % P. m is None
        where kernels know it by a formula, the support where the mask alone is no data.
        """
        m = None if self.has_closed_form else _as_table(self.probs_on(x.device), x)
        data = None if self.support is None else self.data_on(x.device)
        support = None if data is None else _as_table(data, x)
        return self.num_classes, -1 if self.mask is None else self.mask, self.is_absorbing, m, support

    def at(self, x: Tensor) -> Tensor:
        """m_x, the probability of each element's category, float64 in the shape of x."""
        return _at(self.probs_on(x.device), x)

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
        upto = _at(cdf, x)
        below = upto - self.at(x)
        v = u * (below + (1 - upto))  # skip the interval of x
        return invert_cdf(cdf, torch.where(v < below, v, upto + (v - below)))

    def require_fits(self, shape: torch.Size) -> None:
        """Refuse elements of this shape unless m and the support of each element broadcast to it."""
        for name, table in (("support", self.support), ("noise.probs", self.probs)):
            if table is None or table.dim() == 1:
                continue
            try:
                fits = torch.broadcast_shapes(table.shape[:-1], shape) == shape
            except RuntimeError:
                fits = False
            require(fits, f"{name}.shape", tuple(table.shape), f"(..., K) that broadcasts to {(*shape, 'K')}")

    def cdf(self, device: torch.device) -> Tensor:
        """Cumulative sums of m, float64 (K,) or (..., K), on a device; computed once."""
        if device not in self._cdfs:
            with torch.inference_mode(False):
                cdf = self.probs.cumsum(-1)
                self._cdfs[device] = (cdf / cdf[..., -1:]).to(device)
        return self._cdfs[device]

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_copies": {}, "_cdfs": {}, "_data": {}}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.num_classes})"


class Uniform(Noise):
    """m = 1/K for every category."""

    has_closed_form = True

    def __init__(self, num_classes: int):
        num_classes = as_count(num_classes, "num_classes", 2)
        super().__init__(torch.full((num_classes,), 1 / num_classes, dtype=torch.float64))

    def at(self, x: Tensor) -> Tensor:
        """1/K everywhere."""
        return torch.full(x.shape, 1 / self.num_classes, dtype=torch.float64, device=x.device)

    def sample(self, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw uniformly, in the shape of x."""
        return (uniform(x.shape, x.device, generator) * self.num_classes).long()

    def corrupt(self, x_0: Tensor, lost: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw x_t ~ q(x_t | x_0): an element leaves x_0 with probability (1 - alpha_bar) (1 - 1/K)."""
        u, v = uniform((2, *x_0.shape), x_0.device, generator)
        return torch.where(u < lost * (1 - 1 / self.num_classes), self.other(x_0, v), x_0)

    def other(self, x: Tensor, u: Tensor) -> Tensor:
        """One of the K - 1 categories other than x."""
        z = (u * (self.num_classes - 1)).long()
        return z + (z >= x)


class Absorbing(Noise):
    """m is 1 at one extra category, the mask: by default the last of `num_classes`, which counts it."""

    has_closed_form = True
    is_absorbing = True

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

    def corrupt(self, x_0: Tensor, lost: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Draw x_t ~ q(x_t | x_0): an element becomes the mask with probability 1 - alpha_bar."""
        u, _ = uniform((2, *x_0.shape), x_0.device, generator)  # as many as any noise draws
        return torch.where(u < lost, self.mask, x_0)  # type: ignore[arg-type]

    def other(self, x: Tensor, u: Tensor) -> Tensor:
        """The mask: the only category that an unmasked element can turn into."""
        return self.sample(x)

    def _within(self, support: Tensor) -> "Absorbing":
        inside = Absorbing(self.num_classes, self.mask)
        inside.support = support
        return inside

    def __repr__(self) -> str:
        return f"Absorbing({self.num_classes}, mask={self.mask})"


class Mixed(Noise):
    """Mask and uniform noise in one: m is 1 - `uniform` at the mask, and `uniform` / (K - 1) at each other category.

    K is `num_classes`, which counts the mask, by default the last category. No data has the mask, so f is 0 there. An
    element that is not the mask may be noise all the same, so a sampler can change its mind about it.
    """

    def __init__(self, num_classes: int, uniform: float = 0.1, mask: int | None = None):
        num_classes = as_count(num_classes, "num_classes", 2)
        mask = num_classes - 1 if mask is None else as_count(mask, "mask", 0, num_classes - 1)
        uniform = as_number(uniform, "uniform", 0, 1)
        probs = torch.full((num_classes,), uniform / (num_classes - 1), dtype=torch.float64)
        probs[mask] = 1 - uniform
        super().__init__(probs)
        self.mask, self.uniform = mask, uniform

    def _within(self, support: Tensor) -> "Mixed":
        """The uniform part is uniform within the support of each element; the mask keeps 1 - `uniform`."""
        inside = Mixed(self.num_classes, self.uniform, self.mask)
        probs = self.uniform * support.double() / support.sum(-1, keepdim=True)
        probs[..., self.mask] = 1 - self.uniform
        Noise.__init__(inside, probs)
        inside.support, inside.has_zeros = support, False  # no zeros at categories of data
        return inside

    def __repr__(self) -> str:
        return f"Mixed({self.num_classes}, uniform={self.uniform:g}, mask={self.mask})"


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


class _Within(Noise):
    """Another noise, restricted to a support; see `Noise.within`."""

    def __init__(self, whole: Noise, support: Tensor):
        inside = whole.probs * (support | (torch.arange(whole.num_classes) == whole.mask))  # noise at the mask stays
        total = inside.sum(-1, keepdim=True)
        least, expected = float(total.min()), "some noise within the support of each element"
        require(least > 0, "noise.probs", f"{least:g} within the support", expected)
        super().__init__(inside / total)
        self.whole, self.mask, self.support = whole, whole.mask, support
        self.has_zeros = bool(((self.probs == 0) & support).any())

    def __repr__(self) -> str:
        return f"{self.whole!r} within a support"


def _at(table: Tensor, x: Tensor) -> Tensor:
    """The entry of each element's category, in the shape of x, of a table (K,) or (..., K) that broadcasts to x."""
    if table.dim() == 1:
        return table[x]
    return table.expand(*x.shape, table.shape[-1]).gather(-1, x[..., None]).squeeze(-1)


def _as_table(table: Tensor, x: Tensor) -> Tensor:
    """(K,) or (..., K) as (P, K) without gaps; element i of x in row-major order has row i % P."""
    K, own = table.shape[-1], x.shape[x.dim() - (table.dim() - 1) :]
    if table.numel() == K or table.shape[:-1] == own:
        return table.reshape(-1, K)
    return table.expand(*own, K).reshape(-1, K).contiguous()
