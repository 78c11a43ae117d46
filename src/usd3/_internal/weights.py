"""Load weights from files, checked against the network before any memory is allocated for it."""

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
_NEWER = 1  # parameters that our networks have today and files of earlier versions may lack


def require_weights(file: Path, make: Callable[[], nn.Module], prefix: str = "") -> None:
    """Raise a ValueError unless the names and shapes in a file are those of the network that `make` creates.

    The network is created on torch's "meta" device, which allocates no memory: a damaged or hostile config may ask
    for a network of any size.

    Args:
        file: A safetensors file.
        make: Creates the network.
        prefix: What the names in the file begin with.
    """
    stored = weight_shapes(file)
    try:
        with torch.device("meta"), _WithoutNormalDraws(), _at_most(len(stored) + _NEWER):
            network = make()
    except _TooMany:
        raise _wrong(file, f"it has {len(stored)} tensors, and the network would have more") from None
    except (RuntimeError, OverflowError, TypeError) as error:  # sizes that no tensor can have
        raise _wrong(file, error) from None
    expected = {prefix + name: tuple(value.shape) for name, value in network.state_dict().items()}
    try:
        bare = {name.removeprefix(prefix): torch.empty(shape, device="meta") for name, shape in stored.items()}
        network.load_state_dict(bare)  # a network may complete the weights of earlier versions
    except RuntimeError:
        name = next(name for name in [*expected, *stored] if expected.get(name) != stored.get(name))
        in_file, in_network = (_described(shapes.get(name)) for shapes in (stored, expected))
        raise _wrong(file, f"{name} is {in_file}, and {in_network} in the network") from None


def load_weights(network: nn.Module, file: Path) -> None:
    """Load the weights of a file into a network; ValueError if they do not fit."""
    try:
        network.load_state_dict(load_file(file))
    except (SafetensorError, RuntimeError) as error:
        raise _wrong(file, error) from None


def weight_shapes(file: Path) -> Shapes:
    """The shapes of the tensors in a safetensors file, by name."""
    try:
        with safe_open(file, "pt") as tensors:
            return {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise _wrong(file, error) from None


def _described(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else " x ".join(map(str, shape)) or "a number"


def _wrong(file: Path, reason: object) -> ValueError:
    return ValueError(f"{file}: expected the weights of its config ({' '.join(str(reason).split())[:200]})")


class _WithoutNormalDraws(TorchFunctionMode):
    """Inside, `nn.init.normal_` does nothing: on the meta device it would make torch import its compiler."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        return kwargs["tensor"] if func is nn.init.normal_ else func(*args, **kwargs)


class _TooMany(Exception):
    pass


@contextmanager
def _at_most(count: int) -> Iterator[None]:
    """Inside, creating more than `count` parameters raises _TooMany: billions of them take long even without memory."""
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
