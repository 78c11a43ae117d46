"""torch.compile with our settings, and a fallback where it fails."""

import importlib
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

import torch

__all__ = ["Compiled", "compiled", "compiled_in_parts"]

Method = TypeVar("Method", bound=Callable[..., Any])


def compiled(function: Callable[..., Any], mode: str = "default", dynamic: bool | None = None) -> Callable[..., Any]:
    """torch.compile(function) without one kernel fusion, on which torch 2.11 fails for some of our sizes."""
    while _in_parts:
        owner, name = _in_parts.pop()
        setattr(owner, name, torch.compiler.disable(getattr(owner, name), recursive=False))
    triton = importlib.import_module("torch._inductor.config").triton  # slow to import
    if hasattr(triton, "mix_order_reduction"):
        triton.mix_order_reduction = False
    # torch suggests TensorFloat32, which is less exact; our float32 products are float32 on purpose
    suggestion = "TensorFloat32 tensor cores for float32 matrix multiplication available but not enabled"
    warnings.filterwarnings("ignore", suggestion)
    # the compiler asks results that enter a second compiled part for a gradient that only weights have
    warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf Tensor")
    return torch.compile(function, mode=mode, dynamic=dynamic)


class _InParts:
    """A method that `compiled` leaves as it is from its first call on; it is a plain function in its class."""

    def __init__(self, method: Callable[..., Any]):
        self.method = method

    def __set_name__(self, owner: type, name: str) -> None:
        setattr(owner, name, self.method)
        _in_parts.append((owner, name))


_in_parts = list[tuple[type, str]]()


def compiled_in_parts(method: Method) -> Method:
    """The method; where it is compiled, it runs as it is, and the functions that it calls are compiled.

    `torch.compiler.disable` loads the compiler, which takes a second, so it waits until something is compiled.
    """
    return _InParts(method)  # type: ignore[return-value]  # Python puts the method in its place


class Compiled:
    """A function compiled for each input size. If the compiler fails, a warning says so and `function` runs as is."""

    def __init__(self, function: Callable[..., Any]):
        self.plain = function
        self.fast: Callable[..., Any] | None = compiled(function, dynamic=False)

    def __call__(self, *args: Any, **options: Any) -> Any:
        """function(*args, **options)."""
        if self.fast is None:
            return self.plain(*args, **options)
        try:
            return self.fast(*args, **options)
        except RuntimeError as error:
            if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
                raise
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            warnings.warn(f"the network could not be compiled and is used as it is: {reason}", stacklevel=2)
            self.fast = None
        return self.plain(*args, **options)

    def __reduce__(self) -> tuple[Any, ...]:
        return Compiled, (self.plain,)  # compiled code belongs to one process
