"""The network of a recipe, its section `model`, and the registry of packaged networks."""

import importlib
import inspect
import math
import pkgutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

from torch import nn

import usd3.nets
from usd3._internal.checks import as_count, as_number, require
from usd3._internal.fields import require_fields
from usd3._internal.imports import imported_class
from usd3.core.diffusion import Diffusion
from usd3.nets.heads.hollow import Hollow
from usd3.nets.heads.self_conditioned import SelfConditioned

__all__ = ["NETS", "ModelConfig", "is_packaged"]


class _PackagedNets(Mapping[str, type[nn.Module]]):
    """The networks of `usd3.nets` by name: each public module beside this one, with one class in its `__all__`.

    A new file in that folder is a new network. Looking a network up imports its module; listing the names does not.
    """

    def __iter__(self) -> Iterator[str]:
        modules = (module for module in pkgutil.iter_modules(usd3.nets.__path__) if not module.ispkg)
        return (module.name for module in modules if module.name != "options" and not module.name.startswith("_"))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return any(name == packaged for packaged in self)

    def __getitem__(self, name: str) -> type[nn.Module]:
        if name not in self:
            raise KeyError(name)
        module = importlib.import_module(f"usd3.nets.{name}")
        (class_name,) = module.__all__
        return getattr(module, class_name)  # type: ignore[no-any-return]


NETS = _PackagedNets()


def is_packaged(net: object) -> bool:
    """Whether `net` is an object of one of the classes in `NETS`."""
    package, _, name = type(net).__module__.rpartition(".")
    return package == usd3.nets.__name__ and name in NETS and type(net) is NETS[name]


@dataclass
class ModelConfig:
    """The network.

    Args:
        net: "transformer" (our default), "film" (the paper's), "hollow_transformer" or "masked_transformer" (SDDM's),
            "voices" (for chorales), "sudoku" (for boards), or the import path of a class of your own, as in
            "mypackage.nets.MyNet": it is created as MyNet(num_classes=..., **options) and called as model(x_t, t).
        dim: width.
        depth: number of layers.
        heads: attention heads.
        mlp: hidden width of the MLPs; null: 4 dim.
        dropout: dropout rate.
        time_dim: size of the time features; SDDM's networks use `dim`.
        output_blocks: residual blocks before the logits; not for "transformer".
        projection: pass hidden states and the output layer to the loss, which then computes the logits in parts and
            never holds all of them. For very many categories.
        hollow: combine the network's prediction with each element's own noisy value. Much easier to train in
            continuous time.
        timeless: for absorbing noise: the network does not see the time; sampling then skips network calls for
            objects that did not change.
        self_conditioning: the network also sees its prediction of the previous step; about 30 % more time in training.
            Only for "transformer", and for methods that read its output as p(x_0 | x_t).
        own_vocabulary: each element has embeddings and an output layer of its own, for tables, whose columns mean
            different things. Only for "transformer".
        options: further arguments of the network, for example {"readout": "concat"} for "hollow_transformer"; for a
            class of your own, all arguments but num_classes.
    """

    net: str = "transformer"
    dim: int = 192
    depth: int = 8
    heads: int = 6
    mlp: int | None = None
    dropout: float = 0.0
    time_dim: int = 128
    output_blocks: int = 1
    hollow: bool = True
    timeless: bool = False
    projection: bool = False
    self_conditioning: bool = False
    own_vocabulary: bool = False
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_fields(self, "model")
        for name in ("dim", "depth", "heads"):
            as_count(getattr(self, name), f"model.{name}", 1)
        as_count(4 if self.mlp is None else self.mlp, "model.mlp", 1)
        as_count(self.output_blocks, "model.output_blocks", 0)
        even = as_count(self.time_dim, "model.time_dim", 4) % 2 == 0
        require(even, "model.time_dim", self.time_dim, "an even number >= 4")
        as_number(self.dropout, "model.dropout", 0, 1, closed=True)
        for name in ("timeless", "projection") if self.self_conditioning else ():
            require(not getattr(self, name), f"model.{name}", True, "false with model.self_conditioning")

    def build(
        self, diffusion: Diffusion, shape: Sequence[int] = (), labels: Sequence[int] = (), absent: bool = False
    ) -> nn.Module:
        """The network with its heads for this diffusion on objects of `shape`, freshly initialised.

        Args:
            diffusion: the diffusion.
            shape: shape of an object.
            labels: number of classes of each label of an object.
            absent: whether given elements can be absent.
        """
        net = self.build_bare(diffusion.noise.num_classes, shape, labels, absent)
        net = Hollow(net, diffusion) if self.hollow else net
        return SelfConditioned(net) if self.self_conditioning else net

    def build_bare(
        self, num_classes: int, shape: Sequence[int] = (), labels: Sequence[int] = (), absent: bool = False
    ) -> nn.Module:
        """The network without its heads. Each head adds the prefix "module." to the names of the weights."""
        parameters = inspect.signature(NETS[self.net]).parameters if self.net in NETS else {}
        expected = "transformer for data with labels, which no other network takes, or --data.labels false"
        require("labels" in parameters or not labels, "model.net", self.net, expected)
        expected = "transformer with training.absent, as elements can be absent in no other network"
        require("absent" in parameters or not absent, "model.net", self.net, expected)
        if self.net not in NETS:
            return self._build_imported(num_classes)
        kind = NETS[self.net]
        for name in ("timeless", "projection", "self_conditioning", "own_vocabulary"):
            require(name in parameters or not getattr(self, name), f"model.{name}", True, f"false for {self.net}")
        named = {one.name: getattr(self, one.name) for one in fields(self)}
        named["mlp"] = 4 * self.dim if self.mlp is None else self.mlp
        from_data = {"length": math.prod(shape), "axes": max(1, len(shape)), "labels": tuple(labels), "absent": absent}
        further = [name for name in parameters if name not in {"num_classes", *named, *from_data}]
        unknown = set(self.options) - set(further)
        require(not unknown, "model.options", self.options, f"only {', '.join(further) or 'none'} for {self.net}")
        with _named_as_options(self.options):
            arguments = {name: value for name, value in (named | from_data).items() if name in parameters}
            return kind(num_classes=num_classes, **arguments, **self.options)

    def _build_imported(self, num_classes: int) -> nn.Module:
        """A network of the user's own."""
        expected = f"false for {self.net}: a network of your own says so itself, by an attribute ignores_time"
        require(not self.timeless, "model.timeless", self.timeless, expected)
        expected = f"false for {self.net}: a network of your own returns a usd3.Projection by itself"
        require(not self.projection, "model.projection", self.projection, expected)
        expected = f"false for {self.net}: a network of your own is wrapped in usd3.nets.SelfConditioned"
        require(not self.self_conditioning, "model.self_conditioning", True, expected)
        require(not self.own_vocabulary, "model.own_vocabulary", True, f"false for {self.net}")
        return imported_class(self.net, nn.Module, "model.net", NETS)(num_classes=num_classes, **self.options)


@contextmanager
def _named_as_options(options: Mapping[str, Any]) -> Iterator[None]:
    """Inside, an error about an argument of a network names the option instead: "model.dim" for "dim"."""
    try:
        yield
    except (TypeError, ValueError) as error:
        argument = str(error).partition(" ")[0]
        if argument in options:
            raise type(error)(f"model.options.{error}") from None
        if argument in ModelConfig.__dataclass_fields__:
            raise type(error)(f"model.{error}") from None
        raise
