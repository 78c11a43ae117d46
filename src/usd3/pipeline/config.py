"""`config.json`, the file of a model folder that describes the model, and its class."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from usd3._internal.checks import as_count, require, require_type
from usd3._internal.fields import from_mapping, require_fields
from usd3._internal.weights import require_weights
from usd3._internal.yaml_json import parse_json
from usd3._version import __version__
from usd3.core.diffusion import Diffusion
from usd3.core.options import DiffusionConfig
from usd3.kinds.base import Kind
from usd3.kinds.options import DataConfig
from usd3.kinds.registry import kind_from, upgraded
from usd3.methods.options import MethodConfig
from usd3.nets.options import NETS, ModelConfig

__all__ = ["PipelineConfig"]

_MOST_ELEMENTS, _MOST_LOGITS = 2**22, 2**30  # of one object: a small config.json cannot ask for huge memory
_SECTIONS = {"diffusion": DiffusionConfig, "method": MethodConfig, "model": ModelConfig, "data": DataConfig}


@dataclass
class PipelineConfig:
    """The content of `config.json`.

    Args:
        num_classes: number of categories of the data, K.
        shape: shape of one object.
        diffusion: noise, schedule and time.
        method: how the network is trained and sampled.
        model: the network.
        data: the data that the model was trained on.
        kind: what the categories mean, as plain JSON: the name of the kind and its fields.
        decode: (K,) the category of the data for each category of the network, a permutation; None: they are the same.
        marginal: (K,) the frequencies of the categories in the training data, for marginal noise; (L, K) for each
            element where their kind has a support.
        labels: the labels of an object by name, each with the names of its classes; {}: there are none.
        absent: whether given elements were sometimes absent in training.
        prefix: number of elements that a prompt gives by default.
        given: which elements stayed clean in training; None: unknown.
        precision: number format of the network's computations in training.
        steps: number of training steps.
        minutes: duration of the training; None: unknown.
        planned: the steps of the training, if `training.epochs` has lowered them; None: those of its recipe.
        best_step: the step of the weights, if those with the best bound on held-out objects were kept; None: the last.
        stopped_early: whether training ended because that bound no longer improved.
        usd3_version: version of usd3 that trained the model.
    """

    num_classes: int
    shape: list[int]
    diffusion: DiffusionConfig = field(default_factory=DiffusionConfig)
    method: MethodConfig = field(default_factory=MethodConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    kind: dict[str, Any] = field(default_factory=lambda: {"name": "array"})
    decode: list[int] | None = None
    marginal: list[float] | list[list[float]] | None = None
    labels: dict[str, list[str]] = field(default_factory=dict)
    absent: bool = False
    prefix: int = 32
    given: Literal["none", "prefix", "random", "data"] | None = None
    precision: Literal["fp32", "bf16"] = "fp32"
    steps: int = 0
    minutes: float | None = None
    planned: int | None = None
    best_step: int | None = None
    stopped_early: bool = False
    usd3_version: str = __version__

    def __post_init__(self) -> None:
        require_fields(self)
        num_classes = as_count(self.num_classes, "num_classes", 2)
        elements = math.prod(as_count(side, "shape", 1) for side in self.shape)
        require(len(self.shape) > 0, "shape", self.shape, "the sides of an object")
        is_small = elements <= _MOST_ELEMENTS and elements * num_classes <= _MOST_LOGITS
        limits = f"at most {_MOST_ELEMENTS:,} elements, and {_MOST_LOGITS:,} elements times categories"
        require(is_small, "shape", f"{tuple(self.shape)} of {num_classes} categories", limits)
        is_permutation = self.decode is None or sorted(self.decode) == list(range(self.num_classes))
        require(is_permutation, "decode", self.decode, f"null or a permutation of 0..{self.num_classes - 1}")
        for name, classes in self.labels.items():
            distinct = isinstance(classes, list) and len(set(map(str, classes))) == len(classes) > 0
            require(distinct, f"labels[{name}]", classes, "a list of different class names")
        if "." not in str(self.kind.get("name")):  # an import path is checked later, once its code is trusted
            self.build_kind()

    @property
    def label_sizes(self) -> tuple[int, ...]:
        """The number of classes of each label."""
        return tuple(len(classes) for classes in self.labels.values())

    def build_network(self, diffusion: Diffusion) -> nn.Module:
        """A new network with its heads, with random weights."""
        return self.model.build(diffusion, self.shape, self.label_sizes, self.absent)

    def build_kind(self) -> Kind:
        """The kind as an object. If it is not one of ours, this imports and runs its code."""
        return kind_from(self.kind, self.num_classes, self.shape)

    def build_diffusion(self, support: Tensor | None) -> Diffusion:
        """The diffusion of the model, for data with this support, (*shape, K) bool, or None."""
        marginal = None if self.marginal is None else torch.tensor(self.marginal, dtype=torch.float64)
        if marginal is not None and marginal.dim() == 2:
            marginal = marginal.reshape(*self.shape, -1)
        return self.diffusion.build(self.num_classes, marginal, support)

    def require_weights(self, folder: Path) -> None:
        """Raise an error if the weights in `folder` do not fit the packaged network that this config describes.

        A folder without weights and a network of the user's own are not checked.
        """
        file, heads = folder / "model.safetensors", (self.model.hollow, self.model.self_conditioning)
        num_classes = self.num_classes + self.diffusion.has_mask
        if self.model.net in NETS and file.is_file():
            parts = num_classes, self.shape, self.label_sizes, self.absent
            require_weights(file, lambda: self.model.build_bare(*parts), "module." * sum(heads))

    def has_trained(self, steps: int, minutes: float | None) -> bool:
        """Whether the model was trained for this many steps, or all it was meant to be, or for this many minutes."""
        enough = min(steps, steps if self.planned is None else self.planned)
        return self.stopped_early or self.steps >= enough or (minutes is not None and (self.minutes or 0.0) >= minutes)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "PipelineConfig":
        """The config with these values, the parsed content of a config.json of this or an older version."""
        require_type(isinstance(values, dict), "config", values, "a mapping of names and values")
        values = upgraded(values)
        sections: dict[str, Any] = {
            name: from_mapping(section, values[name], name)
            for name, section in _SECTIONS.items()
            if values.get(name) is not None
        }
        return from_mapping(cls, {**values, **sections}, "config")

    @classmethod
    def read(cls, folder: Path) -> "PipelineConfig":
        """The config in the config.json of a model folder."""
        file = folder / "config.json"
        try:
            values = parse_json(file)
            # the config.json of a VQGAN or a classifier also has an entry "kind", but there it is a word
            image_network = values.get("kind") if isinstance(values, dict) else None
            if not isinstance(image_network, str):
                return cls.from_dict(values)
        except (TypeError, ValueError) as error:
            expected = "expected what usd3 wrote: restore the file, or export or train the model again"
            raise ValueError(f"{file}: {expected} ({error})") from None
        raise ValueError(f"{folder} is a {image_network}: expected the folder of a run or of a saved model")
