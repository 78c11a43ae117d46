"""Logits changed between the network and the draw: wishes, temperature, and the most likely categories alone.

Two groups of options. `adjust` and `bias` change f = p(x_0 | x_t) itself: everything that a sampler does with f, such
as ranking elements by their certainty, sees it. `temperature`, `top_k` and `top_p`, in this order, change only what an
element is drawn from. Categories that data cannot have do not count.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from usd3._internal.checks import as_count, as_number, as_share, require, require_type
from usd3.core.belief import data_logits
from usd3.core.noise import Noise

__all__ = ["LEAST_TEMPERATURE", "Adjust", "LogitOptions", "top_k", "top_p"]

Adjust = Callable[[Tensor, Tensor, Tensor], Tensor]
"""`adjust(logits, x_t, t)`: other logits (B, N1, ..., Nk, K)."""

LEAST_TEMPERATURE = 1e-6
"""A temperature is above this: logits divided by it are finite."""
_CELLS = 1 << 24  # logits that are sorted at once


def top_k(logits: Tensor, k: int, noise: Noise) -> Tensor:
    """The logits of the k likeliest categories that data can have, -inf for all others, in float32 or better.

    Categories as likely as the k-th are kept, too. A row with a NaN stays as it is, for the checks to find.
    """
    logits = data_logits(logits, noise)
    if k >= logits.shape[-1]:
        return logits
    least = _by_rows(logits, lambda rows: rows.topk(k, -1).values.amin(-1))
    return torch.where(logits < least, -torch.inf, logits)


def top_p(logits: Tensor, p: float, noise: Noise) -> Tensor:
    """The logits of the fewest likeliest categories whose f sum to at least p, -inf for all others.

    Categories as likely as the last of them are kept, too. In float32 or better; categories that data cannot have do
    not count.
    """
    logits = data_logits(logits, noise)
    if p >= 1:
        return logits

    def least_kept(rows: Tensor) -> Tensor:
        ordered = rows.sort(-1, descending=True).values
        f = ordered.softmax(-1, dtype=torch.float64)
        return ordered.masked_fill(f.cumsum(-1) - f >= p, torch.inf).amin(-1)  # the first one stays: its sum is 0 < p

    return torch.where(logits < _by_rows(logits, least_kept), -torch.inf, logits)


def _by_rows(logits: Tensor, number: Callable[[Tensor], Tensor]) -> Tensor:
    """`number` (n,) of rows (n, K), for all rows of the logits: (..., 1). Bounded memory."""
    rows = logits.reshape(-1, logits.shape[-1])
    parts = [number(part) for part in rows.split(max(1, _CELLS // rows.shape[-1]))]
    return torch.cat(parts).reshape(*logits.shape[:-1], 1)


@dataclass(frozen=True)
class LogitOptions:
    """What happens to logits between the network and a draw; by default nothing.

    Args:
        temperature: divides the logits of a draw.
        top_k: draw only from the k likeliest categories of each element; None: from all.
        top_p: draw only from the fewest likeliest categories with this total probability.
        bias: added to the logits of f, (K,), (N1, ..., Nk, K), or with one for each object; -inf excludes a category.
        adjust: `adjust(logits, x_t, t)` returns other logits of f; it comes before the bias.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    bias: Tensor | None = None
    adjust: Adjust | None = None

    def __post_init__(self) -> None:
        as_number(self.temperature, "temperature", LEAST_TEMPERATURE)
        if self.top_k is not None:
            as_count(self.top_k, "top_k", 1)
        as_share(self.top_p, "top_p", positive=True)
        is_bias = self.bias is None or (isinstance(self.bias, Tensor) and self.bias.is_floating_point())
        require_type(is_bias, "bias", self.bias, "None or a tensor of floats, (..., K)")
        expected = "None or a function of logits, x_t and t"
        require_type(self.adjust is None or callable(self.adjust), "adjust", self.adjust, expected)

    def changed(self) -> dict[str, Any]:
        """The arguments that are not their defaults."""
        own = ((field.name, getattr(self, field.name), field.default) for field in fields(self))
        return {name: value for name, value, usual in own if isinstance(value, Tensor) or value != usual}

    @property
    def changes_belief(self) -> bool:
        """Whether f itself is changed, not only what is drawn from it."""
        return self.adjust is not None or self.bias is not None

    def on(self, device: torch.device, shape: Sequence[int]) -> "LogitOptions":
        """The same options with the bias on a device, which must broadcast to logits of this shape (B, ..., K)."""
        if self.bias is None:
            return self
        tail = tuple(shape[len(shape) - self.bias.dim() :])
        fits = self.bias.dim() <= len(shape) and all(n in (1, m) for n, m in zip(self.bias.shape, tail))
        fits = fits and self.bias.dim() > 0 and self.bias.shape[-1] == shape[-1]
        require(fits, "bias.shape", tuple(self.bias.shape), f"one that broadcasts to {tuple(shape)}, (*x_t.shape, K)")
        return replace(self, bias=self.bias.to(device))

    def belief(self, logits: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """The logits of f, (..., K), from those of the network: `adjust`, then the bias, in float32 or better."""
        logits = logits if self.adjust is None else self.adjust(logits.clone(), x_t, t)  # it may write in place
        return logits if self.bias is None else _read(logits) + self.bias

    def drawn(self, logits: Tensor, noise: Noise) -> Tensor:
        """The logits of what an element is drawn from, (..., K), from those of f; in float32 or better if changed."""
        logits = logits if self.temperature == 1 else _read(logits) / self.temperature
        logits = logits if self.top_k is None else top_k(logits, self.top_k, noise)
        return logits if self.top_p == 1 else top_p(logits, self.top_p, noise)


def _read(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
