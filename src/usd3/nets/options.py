"""The network of a recipe: its section `model`."""

import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from usd3._internal.checks import as_count, as_number, require
from usd3._internal.fields import require_fields
from usd3._internal.imports import imported_class
from usd3.core.diffusion import Diffusion
from usd3.nets.film_transformer import FilmTransformer
from usd3.nets.hollow import Hollow
from usd3.nets.hollow_transformer import HollowTransformer
from usd3.nets.masked_transformer import MaskedTransformer
from usd3.nets.self_conditioned import SelfConditioned
from usd3.nets.transformer import Transformer

__all__ = ["NETS", "ModelConfig"]

NETS: dict[str, type[nn.Module]] = {
    "transformer": Transformer,
    "film": FilmTransformer,
    "hollow_transformer": HollowTransformer,
    "masked_transformer": MaskedTransformer,
}


@dataclass
class ModelConfig:
    """The network.

    Args:
        net: "transformer" (our default), "film" (the paper's), "hollow_transformer" or "masked_transformer" (SDDM's),
            or the import path of a class of your own, as in "mypackage.nets.MyNet": it is made as
            MyNet(num_classes=..., **options) and called as model(x_t, t).
        dim: width.
        depth: number of layers.
        heads: attention heads.
        mlp: hidden width of the MLPs; null: 4 dim.
        dropout: dropout rate.
        time_dim: size of the time features; SDDM's networks have `dim` of them.
        output_blocks: residual blocks before the logits; not for "transformer".
        projection: give hidden states and the output layer to the loss in place of logits, which are then never held
            at once. For very many categories.
        hollow: complete the logits by what the element itself shows. Much easier to train in continuous time.
        timeless: for absorbing noise: the network does not see the time; sampling then skips network calls for
            objects that did not change.
        self_conditioning: tell the network what it said in the step before; about 30 % more time in training. Only for
            "transformer", and for methods that read its output as p(x_0 | x_t).
        options: arguments of a class of your own.
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

    def build(self, diffusion: Diffusion, shape: Sequence[int] = ()) -> nn.Module:
        """The network for this diffusion on objects of `shape`, freshly initialised."""
        net = self.build_bare(diffusion.noise.num_classes, shape)
        net = Hollow(net, diffusion) if self.hollow else net
        return SelfConditioned(net) if self.self_conditioning else net

    def build_bare(self, num_classes: int, shape: Sequence[int] = ()) -> nn.Module:
        """The network alone, whose weights in a file have the word "module" before them for each head around it."""
        if self.net in NETS:
            require(not self.options, "model.options", self.options, f"nothing for model.net {self.net!r}")
            takes = inspect.signature(NETS[self.net]).parameters
            for name in ("timeless", "projection", "self_conditioning"):
                require(name in takes or not getattr(self, name), f"model.{name}", True, f"false for {self.net}")
            sizes = {name: getattr(self, name) for name in vars(self) if name in takes}
            sizes["mlp"] = 4 * self.dim if self.mlp is None else self.mlp
            if "length" in takes:
                sizes["length"] = math.prod(shape)
            if "axes" in takes:
                sizes["axes"] = max(1, len(shape))
            self._require_sizes(sizes.get("axes", 1), 4 if "length" in takes else 1)
            return NETS[self.net](num_classes, **sizes)
        else:
            own = f"false for {self.net}: a network of your own says so itself, by an attribute ignores_time"
            require(not self.timeless, "model.timeless", self.timeless, own)
            own = f"false for {self.net}: a network of your own returns a usd3.Projection by itself"
            require(not self.projection, "model.projection", self.projection, own)
            own = f"false for {self.net}: a network of your own is wrapped in usd3.nets.SelfConditioned"
            require(not self.self_conditioning, "model.self_conditioning", True, own)
            return imported_class(self.net, nn.Module, "model.net", NETS)(num_classes=num_classes, **self.options)

    def _require_sizes(self, axes: int, least: int) -> None:
        """Refuse sizes that a network of ours cannot have; it says so itself, but not in the names of options."""
        heads = f"model.heads {self.heads}"
        require(self.dim % (2 * self.heads) == 0, "model.dim", self.dim, f"a multiple of {2 * self.heads} with {heads}")
        require(self.dim >= least, "model.dim", self.dim, f"at least {least} for {self.net}")
        fits = self.dim >= 2 * self.heads * axes
        objects = f"on objects of {axes} dimensions"
        require(fits, "model.dim", self.dim, f"at least {2 * self.heads * axes} with {heads}, {objects}")
