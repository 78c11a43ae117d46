"""Weights in a file: they are compared with a network before there is one, so that no folder asks for any memory."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode

__all__ = ["load_weights", "require_weights", "weight_shapes"]

Shapes = Mapping[str, tuple[int, ...]]
_NEWER = 1  # parameters that networks of ours have and weights of earlier versions may lack


def require_weights(file: Path, make: Callable[[], nn.Module], prefix: str = "") -> None:
    """Refuse a file that does not have the weights of what `make` makes, which is made without any memory.

    `prefix` is what stands before the names in the file.
    """
    stored = weight_shapes(file)
    try:
        with torch.device("meta"), _Undrawn(), _at_most(len(stored) + _NEWER):
            network = make()
    except _TooMany:
        raise _wrong(file, f"it has {len(stored)} tensors, and the network would have more") from None
    except (RuntimeError, OverflowError, TypeError) as error:  # sizes that no tensor can have
        raise _wrong(file, error) from None
    wanted = {prefix + name: tuple(value.shape) for name, value in network.state_dict().items()}
    try:
        bare = {name.removeprefix(prefix): torch.empty(shape, device="meta") for name, shape in stored.items()}
        network.load_state_dict(bare)  # it may know what weights of earlier versions lack
    except RuntimeError:
        name = next(name for name in [*wanted, *stored] if wanted.get(name) != stored.get(name))
        seen, expected = (_shown(shapes.get(name)) for shapes in (stored, wanted))
        raise _wrong(file, f"{name} is {seen}, and {expected} in the network") from None


def load_weights(network: nn.Module, file: Path) -> None:
    """Give a network the weights of a file."""
    try:
        network.load_state_dict(load_file(file))
    except (SafetensorError, RuntimeError) as error:
        raise _wrong(file, error) from None


def weight_shapes(file: Path) -> Shapes:
    """The shapes of what a file of weights has, by name."""
    try:
        with safe_open(file, "pt") as tensors:
            return {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise _wrong(file, error) from None


def _shown(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else " x ".join(map(str, shape)) or "a number"


def _wrong(file: Path, reason: object) -> ValueError:
    return ValueError(f"{file}: expected the weights of its config ({' '.join(str(reason).split())[:200]})")


class _Undrawn(TorchFunctionMode):
    """Inside, normal numbers are not drawn into tensors: where there is no memory, torch would load its compiler."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        return kwargs["tensor"] if func is nn.init.normal_ else func(*args, **kwargs)


class _TooMany(Exception):
    pass


@contextmanager
def _at_most(count: int) -> Iterator[None]:
    """Inside, a network of more parameters ends with _TooMany: even without memory, billions take their time."""
    left, here = count, threading.get_ident()

    def count_down(*_: Any) -> None:
        nonlocal left
        left -= threading.get_ident() == here
        if left < 0:
            raise _TooMany

    hook = register_module_parameter_registration_hook(count_down)
    try:
        yield
    finally:
        hook.remove()
