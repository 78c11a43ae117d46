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
    "BoundKeywords",
    "Cached",
    "Denoiser",
    "LastEstimate",
    "Wrapper",
    "bound_keywords",
    "device_of",
    "ignores_time",
    "is_hollow",
    "is_self_conditioned",
    "keywords_of",
    "logits_of",
    "nested_models",
    "remembered",
    "require_output",
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
        adjust: `adjust(logits, x_t, t)` changes the logits, or None.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        num_classes: int,
        given: Tensor | None,
        pad: Tensor | None,
        adjust: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None,
    ):
        require_type(callable(model), "model", model, "a callable model(x_t, t) -> logits")
        self.model, self.num_classes, self.adjust = model, num_classes, adjust
        names, any_keyword = keywords_of(model)
        self._needs_given = "given" in names
        self._masks = {} if pad is None else {"pad": pad}
        if given is not None and (self._needs_given or any_keyword):
            self._masks["given"] = given
        self._masks |= bound_keywords(model)

    def __call__(self, x_t: Tensor, time: Tensor) -> Tensor:
        """Logits (..., K) at x_t and times (B,) in [0, 1]; the model gets the times in the default dtype."""
        return self.adjusted(logits_of(self.output(x_t, time), x_t), x_t, time)

    def adjusted(self, logits: Tensor, x_t: Tensor, time: Tensor) -> Tensor:
        """Logits of the network, changed by `adjust`."""
        if self.adjust is None:
            return logits
        changed = self.adjust(logits, x_t, time.to(torch.get_default_dtype()))
        require_logits(changed, x_t, self.num_classes, "adjust(logits, x_t, t)")
        return changed

    def output(self, x_t: Tensor, time: Tensor) -> Tensor | Projection:
        """What the network returns, logits or a `Projection`."""
        return require_output(self.asked(self.model, x_t, time), x_t, self.num_classes)

    def asked(self, function: Callable[..., Any], x_t: Tensor, time: Tensor) -> Any:
        """function(x_t, t), with the masks that the model gets."""
        if self._needs_given and "given" not in self._masks:  # allocated once
            self._masks["given"] = torch.zeros_like(x_t, dtype=torch.bool)
        return function(x_t, time.to(torch.get_default_dtype()), **self._masks)


def logits_of(output: Tensor | Projection, x_t: Tensor) -> Tensor:
    """A model's output as logits (..., K); the logits of a `Projection` are formed."""
    return output.logits(x_t) if isinstance(output, Projection) else output


def require_output(output: Any, x_t: Tensor, num_classes: int, name: str = "model(x_t, t)") -> Tensor | Projection:
    """The output `name` of a model; refused unless it is logits (*x_t.shape, K) or a `Projection` of that shape."""
    if isinstance(output, Projection):
        shape = (*x_t.shape, num_classes)
        require(output.shape == shape, f"{name}.shape", tuple(output.shape), f"{shape}, (*x_t.shape, K)")
    else:
        require_logits(output, x_t, num_classes, name)
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

    def fresh(self) -> "Wrapper":
        """The wrapper for a new sampling run; one that keeps something of its last call returns a copy without it."""
        return self

    @property
    def ignores_time(self) -> bool:
        """Whether the output does not depend on t."""
        return ignores_time(self.model)

    @property
    def self_conditioned(self) -> bool:
        """Whether the model takes its last prediction as `estimate`."""
        return is_self_conditioned(self.model)


class BoundKeywords(Wrapper):
    """A model bound to the labels of its objects, and to those of their given elements that are absent.

    A `Denoiser` passes them with its masks, so that a `Cached` model is asked with the rows of the changed objects.

    Args:
        model: a model that takes the keyword `label`, or `absent`.
        label: (B, J) int64 the class of each label of each object, -1: absent; None: all are absent.
        absent: (B, ...) True where an element is absent; None: nowhere.
    """

    def __init__(self, model: Callable[..., Any], label: Tensor | None, absent: Tensor | None = None):
        super().__init__(model)
        bound = {"label": label, "absent": absent}
        self.bound_keywords = {name: value for name, value in bound.items() if value is not None}

    def __call__(self, x_t: Tensor, t: Tensor, **masks: Tensor) -> Any:
        """The output of the model inside, for these labels or, where a call has its own, for those."""
        return self.model(x_t, t, **(self.bound_keywords | masks))


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
        return logits_of(require_output(self.model(x_t, t, **masks), x_t, self.num_classes), x_t)


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
        logits = logits_of(require_output(output, x_t, self.num_classes), x_t)
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


def is_hollow(model: Callable[..., Any]) -> bool:
    """Whether a network declares, by an attribute of that name, that its output at an element does not see it."""
    return any(getattr(inner, "is_hollow", False) is True for inner in nested_models(model))


def remembered(model: Callable[..., Any], num_classes: int) -> Callable[..., Any]:
    """A model for one sampling run that keeps what it needs of its last call: see `Cached` and `LastEstimate`."""
    if ignores_time(model):
        return Cached(model, num_classes)
    return LastEstimate(model, num_classes) if is_self_conditioned(model) else model


def nested_models(model: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """The model, then the model inside it, and so on: through `Wrapper`, torch's wrappers and heads with `.module`."""
    inner: Any = model
    while callable(inner):
        yield inner
        if isinstance(inner, Wrapper):
            inner = inner.model
        else:
            inner = getattr(inner, "_orig_mod", None) or getattr(inner, "module", None)


def bound_keywords(model: Callable[..., Any]) -> dict[str, Tensor]:
    """What the wrappers of a model pass to it in each call, see `BoundKeywords`; the outermost wrapper decides."""
    found: dict[str, Tensor] = {}
    for inner in nested_models(model):
        if isinstance(inner, BoundKeywords):
            found = inner.bound_keywords | found
    return found


def keywords_of(model: Callable[..., Any]) -> tuple[set[str], bool]:
    """The names of the arguments of a model, and whether it takes any keyword.

    A wrapper that takes any keyword hands it on, so the names of the model inside count too.
    """
    names: set[str] = set()
    for inner in nested_models(model):
        own, any_keyword = _arguments_of(inner.forward if isinstance(inner, nn.Module) else inner)
        names |= own
        if not any_keyword:
            return names, False
    return names, True


def _arguments_of(function: Callable[..., Any]) -> tuple[set[str], bool]:
    """The same of one function. Inspecting it takes as long as ten operations of torch, so the answer is kept."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    is_plain = code is not None and not hasattr(function, "__wrapped__") and not torch.compiler.is_compiling()
    key = (code, hasattr(function, "__self__")) if is_plain else None
    if key in _ARGUMENTS:
        return _ARGUMENTS[key]
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return set(), False
    names = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    answer = names, any(p.kind is p.VAR_KEYWORD for p in parameters)
    if key is not None:
        _ARGUMENTS[key] = answer
    return answer


_ARGUMENTS: dict[Any, tuple[set[str], bool]] = {}  # by the code of a function, and whether it is a method


def device_of(model: Callable[..., Any]) -> torch.device:
    """The device of the first parameter of a model; the CPU where it has none."""
    for inner in nested_models(model):
        if isinstance(inner, nn.Module):
            parameter = next(inner.parameters(), None)
            return torch.device("cpu") if parameter is None else parameter.device
    return torch.device("cpu")
