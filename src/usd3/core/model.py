"""Calls of a user's model, `model(x_t, t)` with `pad=` and `given=` where they apply, and wrappers of models."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from usd3._internal.checks import require, require_logits, require_type
from usd3.core.coefficients import flat
from usd3.core.fused import Projection

__all__ = [
    "Cached",
    "Denoiser",
    "LastEstimate",
    "Tempered",
    "Wrapper",
    "device_of",
    "ignores_time",
    "is_self_conditioned",
    "keywords_of",
    "logits_of",
    "nested_models",
]


class Denoiser:
    """A model bound to the masks of one call: `denoise(x_t, time) -> logits`.

    A model whose signature names `given` always gets that mask, all False where nothing is given. A model that accepts
    any keyword gets it only where something is given.

    Args:
        model: callable, `model(x_t, t) -> logits` (..., K), or a `Projection`.
        num_classes: K.
        given: mask of the given elements, in the shape of x_t, or None.
        pad: mask of the padding, in the shape of x_t, or None.
    """

    def __init__(self, model: Callable[..., Any], num_classes: int, given: Tensor | None, pad: Tensor | None):
        require_type(callable(model), "model", model, "a callable model(x_t, t) -> logits")
        self.model, self.num_classes = model, num_classes
        names, any_keyword = keywords_of(model)
        self._needs_given = "given" in names
        self._masks = {} if pad is None else {"pad": pad}
        if given is not None and (self._needs_given or any_keyword):
            self._masks["given"] = given

    def __call__(self, x_t: Tensor, time: Tensor) -> Tensor:
        """Logits (..., K) at x_t and times (B,) in [0, 1]; the model gets the times in the default dtype."""
        return logits_of(self.output(x_t, time), x_t)

    def output(self, x_t: Tensor, time: Tensor) -> Tensor | Projection:
        """The same, but a `Projection` stays one."""
        if self._needs_given and "given" not in self._masks:  # allocated once
            self._masks["given"] = torch.zeros_like(x_t, dtype=torch.bool)
        return _checked(self.model(x_t, time.to(torch.get_default_dtype()), **self._masks), x_t, self.num_classes)


def logits_of(output: Tensor | Projection, x_t: Tensor) -> Tensor:
    """A model's output as logits (..., K); the logits of a `Projection` are formed."""
    return output.logits(x_t) if isinstance(output, Projection) else output


def _checked(output: Any, x_t: Tensor, num_classes: int) -> Tensor | Projection:
    """A model's output, refused where its type or shape is wrong."""
    if isinstance(output, Projection):
        shape = (*x_t.shape, num_classes)
        require(output.shape == shape, "model(x_t, t).shape", tuple(output.shape), f"{shape}, (*x_t.shape, K)")
    else:
        require_logits(output, x_t, num_classes, "model(x_t, t)")
    return output  # type: ignore[no-any-return]


# ---- wrappers -----------------------------------------------------------------------------------------------------


class Wrapper:
    """A model around another model. It calls the inner model and changes what goes in or what comes out.

    A wrapper takes the keywords that its model takes, and has its attributes `ignores_time` and `self_conditioned`,
    unless a subclass overrides them.
    """

    def __init__(self, model: Callable[..., Any]):
        self.model = model

    def __call__(self, x_t: Tensor, t: Tensor, **masks: Tensor) -> Any:
        """The output of the model inside."""
        return self.model(x_t, t, **masks)

    @property
    def ignores_time(self) -> bool:
        """Whether the output does not depend on t."""
        return ignores_time(self.model)

    @property
    def self_conditioned(self) -> bool:
        """Whether the model takes its last prediction as `estimate`."""
        return is_self_conditioned(self.model)


class Tempered(Wrapper):
    """A model whose logits are divided by a temperature."""

    def __init__(self, model: Callable[..., Any], temperature: float):
        super().__init__(model)
        self.temperature = temperature

    def __call__(self, x_t: Tensor, t: Tensor, **masks: Tensor) -> Tensor:
        """Logits / temperature."""
        return logits_of(self.model(x_t, t, **masks), x_t) / self.temperature


class Cached(Wrapper):
    """A model that ignores the time, called only for the objects that changed since the call before."""

    def __init__(self, model: Callable[..., Any], num_classes: int):
        super().__init__(model)
        self.num_classes = num_classes
        self._x: Tensor | None = None
        self._logits: Tensor | None = None

    def __call__(self, x_t: Tensor, t: Tensor, **masks: Tensor) -> Tensor:
        """Logits at x_t, valid until the next call. Waits for the device, to learn which objects changed."""
        if self._x is None or self._logits is None:
            self._logits = self._asked(x_t, t, masks).clone()  # the model may keep what it returns
        else:
            rows = flat(x_t != self._x).any(1).nonzero().squeeze(1)
            if len(rows):
                changed = {name: mask[rows] for name, mask in masks.items()}
                self._logits[rows] = self._asked(x_t[rows], t[rows], changed)
        self._x = x_t.clone()  # a callback may write to x_t
        return self._logits

    def _asked(self, x_t: Tensor, t: Tensor, masks: dict[str, Tensor]) -> Tensor:
        return logits_of(_checked(self.model(x_t, t, **masks), x_t, self.num_classes), x_t)


class LastEstimate(Wrapper):
    """A self-conditioned model in one sampling run: it gets the probabilities of its last call as `estimate`."""

    def __init__(self, model: Callable[..., Any], num_classes: int):
        super().__init__(model)
        self.num_classes = num_classes
        self._estimate: Tensor | None = None

    def __call__(self, x_t: Tensor, t: Tensor, **masks: Tensor) -> Tensor:
        """Logits at x_t. The estimate keeps its place in memory, as a CUDA graph needs it; it starts with zeros."""
        if self._estimate is None:
            with torch.inference_mode(False):
                self._estimate = torch.zeros(*x_t.shape, self.num_classes, device=x_t.device)
        output = self.model(x_t, t, estimate=self._estimate, **masks)
        logits = logits_of(_checked(output, x_t, self.num_classes), x_t)
        self._estimate.copy_(logits.softmax(-1))
        return logits


# ---- what a model declares ------------------------------------------------------------------------------------------


def ignores_time(model: Callable[..., Any]) -> bool:
    """Whether a model declares, by an attribute of that name, that it ignores the time."""
    return _declares(model, "ignores_time")


def is_self_conditioned(model: Callable[..., Any]) -> bool:
    """Whether a model declares, by its attribute `self_conditioned`, that it takes its last prediction."""
    return _declares(model, "self_conditioned")


def _declares(model: Callable[..., Any], attribute: str) -> bool:
    """Whether an attribute of a model is True, seen through torch's wrappers: torch.compile, DDP, averaged weights."""
    inner = getattr(model, "_orig_mod", None)
    if inner is None and type(model).__module__.startswith("torch."):
        inner = getattr(model, "module", None)
    return _declares(inner, attribute) if inner is not None else getattr(model, attribute, False) is True


def nested_models(model: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """The model, then the model inside it, and so on: through `Wrapper`, torch's wrappers and heads with `.module`."""
    inner: Any = model
    while callable(inner):
        yield inner
        if isinstance(inner, Wrapper):
            inner = inner.model
        else:
            inner = getattr(inner, "_orig_mod", None) or getattr(inner, "module", None)


def keywords_of(model: Callable[..., Any]) -> tuple[set[str], bool]:
    """The names of the arguments of a model, and whether it takes any keyword.

    A wrapper that takes any keyword hands it on, so the names of the model inside count too.
    """
    names: set[str] = set()
    for inner in nested_models(model):
        try:
            signature = inspect.signature(inner.forward if isinstance(inner, nn.Module) else inner)
        except (TypeError, ValueError):
            return names, False
        parameters = signature.parameters.values()
        names |= {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            return names, False
    return names, True


def device_of(model: Callable[..., Any]) -> torch.device:
    """The device of the first parameter of a model; the CPU where it has none."""
    for inner in nested_models(model):
        if isinstance(inner, nn.Module):
            parameter = next(inner.parameters(), None)
            return torch.device("cpu") if parameter is None else parameter.device
    return torch.device("cpu")
