"""Another implementation, in a Python file of the user, to time beside ours."""

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

__all__ = ["Other", "load_other"]


@dataclass(frozen=True)
class Other:
    """Another implementation: its name in the tables, and one or both of its functions.

    loss(logits, x_t, x_0, t, problem)  returns a scalar tensor with a gradient
    step(logits, x_t, t, s, problem)    returns x_s, integers in the shape of x_t
    """

    name: str
    loss: Callable[..., Tensor] | None = None
    step: Callable[..., Tensor] | None = None


def load_other(path: Path | str) -> Other:
    """Run the file and take its `loss` and `step`; the tables call it `NAME` if the file defines that."""
    path = Path(path)
    if not path.is_file() or path.suffix != ".py":
        raise FileNotFoundError(f"other = {path}: expected a Python file, .py")
    spec = importlib.util.spec_from_file_location(f"_other_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickle look it up there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        reason = " ".join(str(error).split())
        raise ImportError(f"other = {path}: it fails when it is loaded, {type(error).__name__}: {reason}") from error
    functions = {name: getattr(module, name, None) for name in ("loss", "step")}
    if not any(callable(function) for function in functions.values()):
        raise ValueError(f"other = {path}: expected a function loss(logits, x_t, x_0, t, problem) or step(...) in it")
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise TypeError(f"{name} of other = {path} is a {type(function).__name__}: expected a function")
    return Other(str(getattr(module, "NAME", path.stem)), **functions)
