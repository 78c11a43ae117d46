"""How a user's model is called: `model(x_t, t)`, with `pad=` and `given=` where they apply."""

import copy
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from usd3._internal.checks import require, require_logits, require_type
from usd3.core.fused import Projection
from usd3.core.process import flat

__all__ = ["Denoiser", "Remembering", "Told", "ignores_time", "is_self_conditioned"]


class Denoiser:
    """A model bound to the masks of one call.

    A model whose signature names `given` always gets that mask, all False where nothing is given; one that
    merely accepts any keyword gets it only where something is given.
    """

    def __init__(self, model: Callable[..., Any], num_classes: int, given: Tensor | None, pad: Tensor | None):
        require_type(callable(model), "model", model, "a callable model(x_t, t) -> logits")
        self.model, self.num_classes = model, num_classes
        names, any_keyword = _keywords(model)
        self._asks_given = "given" in names
        self._masks = {} if pad is None else {"pad": pad}
        if given is not None and (self._asks_given or any_keyword):
            self._masks["given"] = given

    def wrapped(self, model: Callable[..., Any]) -> "Denoiser":
        """The same masks for another model, which takes what this one takes."""
        other = copy.copy(self)
        other.model = model
        return other

    def __call__(self, x_t: Tensor, t: Tensor, rows: Tensor | None = None, **more: Tensor) -> Tensor:
        """Logits (..., K) at x_t and times t (B,) in [0, 1]; `rows` says which objects of the call these are.

        `more` is said to the model besides.
        """
        logits = self.output(x_t, t, rows, **more)
        return logits.logits(x_t) if isinstance(logits, Projection) else logits

    def output(self, x_t: Tensor, t: Tensor, rows: Tensor | None = None, **more: Tensor) -> Tensor | Projection:
        """The same, left as a `Projection` where the model gives one."""
        if self._asks_given and "given" not in self._masks:  # made once
            self._masks["given"] = torch.zeros_like(x_t, dtype=torch.bool)
        masks = self._masks if rows is None else {name: mask[rows] for name, mask in self._masks.items()}
        logits = self.model(x_t, t.to(torch.get_default_dtype()), **masks, **more)
        if isinstance(logits, Projection):
            shape = (*x_t.shape, self.num_classes)
            require(logits.shape == shape, "model(x_t, t).shape", tuple(logits.shape), f"{shape}, (*x_t.shape, K)")
        else:
            require_logits(logits, x_t, self.num_classes, "model(x_t, t)")
        return logits  # type: ignore[no-any-return]


class Remembering:
    """A denoiser that ignores the time, called only for the objects that changed since their logits were computed."""

    def __init__(self, denoise: Denoiser):
        self.denoise = denoise
        self._x: Tensor | None = None
        self._logits: Tensor | None = None

    def __call__(self, x_t: Tensor, t: Tensor) -> Tensor:
        """Logits at x_t, valid until the next call. Asks the device which objects changed."""
        if self._x is None or self._logits is None:
            self._logits = self.denoise(x_t, t).clone()  # the model may keep what it returns
        else:
            rows = flat(x_t != self._x).any(1).nonzero().squeeze(1)
            if len(rows):
                self._logits[rows] = self.denoise(x_t[rows], t[rows], rows)
        self._x = x_t.clone()  # a callback may write to what it sees
        return self._logits


class Told:
    """The denoiser of a self-conditioned network in one sampling run: it is told what it said in the call before."""

    def __init__(self, denoise: Denoiser):
        self.denoise = denoise
        self._said: Tensor | None = None

    def __call__(self, x_t: Tensor, t: Tensor) -> Tensor:
        """Logits at x_t. What was said keeps its place in memory, as a CUDA graph needs it."""
        if self._said is None:
            with torch.inference_mode(False):
                self._said = torch.zeros(*x_t.shape, self.denoise.num_classes, device=x_t.device)
        logits = self.denoise(x_t, t, estimate=self._said)
        self._said.copy_(logits.softmax(-1))
        return logits


def ignores_time(model: Callable[..., Any]) -> bool:
    """Whether a model says that it ignores the time."""
    return _says(model, "ignores_time")


def is_self_conditioned(model: Callable[..., Any]) -> bool:
    """Whether a model says that it takes what it said before, as `estimate`."""
    return _says(model, "self_conditioned")


def _says(model: Callable[..., Any], attribute: str) -> bool:
    """Whether an attribute of a model is True; seen through torch's wrappers and ours."""
    wrapped = getattr(model, "_orig_mod", None)
    if wrapped is None and type(model).__module__.startswith("torch."):  # DDP, an average of weights
        wrapped = getattr(model, "module", None)
    return _says(wrapped, attribute) if wrapped is not None else getattr(model, attribute, False) is True


def _keywords(model: Callable[..., Any]) -> tuple[set[str], bool]:
    """The parameter names of the model, and whether it takes any keyword, seen through wrappers (compile, DDP)."""
    try:
        parameters = inspect.signature(model.forward if isinstance(model, nn.Module) else model).parameters.values()
    except (TypeError, ValueError):
        return set(), False
    names = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    any_keyword = any(p.kind is p.VAR_KEYWORD for p in parameters)
    wrapped = getattr(model, "_orig_mod", None) or getattr(model, "module", None)
    if any_keyword and callable(wrapped):  # what it takes is what the model inside takes
        inner, any_keyword = _keywords(wrapped)
        names |= inner
    return names, any_keyword
