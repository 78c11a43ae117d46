"""torch.compile as we use it."""

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["Compiled", "compiled"]


def compiled(function: Callable[..., Any], mode: str = "default", dynamic: bool | None = None) -> Callable[..., Any]:
    """torch.compile, without one fusion on which torch 2.11 fails for some of our sizes."""
    triton = importlib.import_module("torch._inductor.config").triton  # slow to import
    if hasattr(triton, "mix_order_reduction"):
        triton.mix_order_reduction = False
    # where we say float32 we mean it
    unasked = "TensorFloat32 tensor cores for float32 matrix multiplication available but not enabled"
    warnings.filterwarnings("ignore", unasked)
    return torch.compile(function, mode=mode, dynamic=dynamic)


class Compiled:
    """A function, compiled for every size it is called with; where the compiler fails, as it is, with a warning."""

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
            said = next(iter(str(error).splitlines()), type(error).__name__)
            warnings.warn(f"the network could not be compiled and is used as it is: {said}", stacklevel=2)
            self.fast = None
        return self.plain(*args, **options)

    def __reduce__(self) -> tuple[Any, ...]:
        return Compiled, (self.plain,)  # what was compiled belongs to a process
