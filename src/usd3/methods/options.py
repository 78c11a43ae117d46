"""The section `method` of a recipe."""

import inspect
from dataclasses import dataclass, field
from typing import Any

from usd3._internal.checks import require
from usd3._internal.fields import require_fields
from usd3._internal.imports import imported_class
from usd3.core.diffusion import Diffusion
from usd3.methods import METHODS
from usd3.methods.base import Method
from usd3.methods.usd3 import USD3

__all__ = ["MethodConfig"]


@dataclass
class MethodConfig:
    """How the network is trained and how objects are drawn from it.

    Args:
        name: "usd3", one of its competitors (usd3 info lists them), or the import path of a class of your own, as in
            "mypackage.methods.MyMethod": a usd3.methods.Method, built as MyMethod(diffusion, **options).
        options: arguments of the method, for example {"posterior": "joint"} for "d3pm".
        sampler: the default sampler, one of the method's, for example "euler" for "sddm"; null: the first of them.
    """

    name: str = "usd3"
    options: dict[str, Any] = field(default_factory=dict)
    sampler: str | None = None

    def __post_init__(self) -> None:
        require_fields(self, "method")

    @property
    def kind(self) -> type[Method]:
        """The class of that name."""
        if self.name in METHODS:
            return METHODS[self.name]
        return imported_class(self.name, Method, "method.name", METHODS)  # type: ignore[type-abstract]

    def build(self, diffusion: Diffusion, objective: str = "usd3") -> Method:
        """The method on a diffusion; `objective` is the training objective of USD3."""
        kind, options = self.kind, dict(self.options)
        if issubclass(kind, USD3):
            twice = "objective" in options
            require(not twice, "method.options", options, "no objective, which training.objective says")
            options["objective"] = objective
        else:
            expected = f"usd3, its default, as {self.name} has a loss of its own"
            require(objective == "usd3", "training.objective", objective, expected)
        try:
            method = kind(diffusion, **options)
        except TypeError as error:
            names = [name for name in inspect.signature(kind).parameters if name not in ("diffusion", "objective")]
            taken = f"expected {', '.join(names) if names else 'none'} ({error})"
            raise ValueError(f"method.options = {self.options} for {self.name}: {taken}") from None
        if self.sampler is not None:
            method.prefer(self.sampler, "method.sampler")
        return method
