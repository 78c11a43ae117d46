"""How a user's model is called: `model(x_t, t)`, with `pad=` and `given=` where they apply."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from usd3._checks import require, require_logits, require_type
from usd3.kernels import Projection

__all__ = ["Denoiser"]


class Denoiser:
    """A model bound to the masks of one call.

    A model whose signature names `given` always gets that mask, all False where nothing is given; one that
    merely accepts any keyword gets it only where something is given.
    """

    def __init__(self, model: Callable[..., Any], num_classes: int, given: Tensor | None, pad: Tensor | None):
        require_type(callable(model), "model", model, "a callable model(x_t, t) -> logits")
        self.model, self.num_classes = model, num_classes
        self.given, self.pad = given, pad
        names, any_keyword = _keywords(model)
        self._pass_given = "given" in names or (any_keyword and given is not None)

    def __call__(self, x_t: Tensor, t: Tensor) -> Tensor:
        """Logits (..., K) at x_t and times t (B,) in [0, 1]."""
        logits = self.output(x_t, t)
        return logits.logits(x_t) if isinstance(logits, Projection) else logits

    def output(self, x_t: Tensor, t: Tensor) -> Tensor | Projection:
        """The same, left as a `Projection` where the model gives one."""
        masks = {} if self.pad is None else {"pad": self.pad}
        if self._pass_given:
            masks["given"] = self.given if self.given is not None else torch.zeros_like(x_t, dtype=torch.bool)
        logits = self.model(x_t, t.to(torch.get_default_dtype()), **masks)
        if isinstance(logits, Projection):
            shape = (*x_t.shape, self.num_classes)
            require(logits.shape == shape, "model(x_t, t).shape", tuple(logits.shape), f"{shape}, (*x_t.shape, K)")
        else:
            require_logits(logits, x_t, self.num_classes, "model(x_t, t)")
        return logits  # type: ignore[no-any-return]


def _keywords(model: Callable[..., Any]) -> tuple[set[str], bool]:
    """The parameter names of the model, and whether it takes any keyword, seen through wrappers (compile, DDP)."""
    try:
        parameters = inspect.signature(model.forward if isinstance(model, nn.Module) else model).parameters.values()
    except (TypeError, ValueError):
        return set(), False
    names = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    any_keyword = any(p.kind is p.VAR_KEYWORD for p in parameters)
    wrapped = getattr(model, "_orig_mod", None) or getattr(model, "module", None)
    if any_keyword and isinstance(wrapped, nn.Module):  # what it takes is what the module inside takes
        inner, any_keyword = _keywords(wrapped)
        names |= inner
    return names, any_keyword
