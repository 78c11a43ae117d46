"""The kinds by name, and their options joined: the one place that lists them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from usd3._internal.checks import require, require_type
from usd3._internal.fields import from_mapping
from usd3._internal.imports import imported_class
from usd3._internal.messages import suggestion
from usd3.kinds.array import Array
from usd3.kinds.base import Kind
from usd3.kinds.image.kind import ImageTokens
from usd3.kinds.image.options import ImageOptions, ImageSettings
from usd3.kinds.melody.kind import Melody, MelodyOptions
from usd3.kinds.options import DataConfig

__all__ = [
    "KINDS",
    "KindSettings",
    "RenderOptions",
    "kind_from",
    "kind_named",
    "kind_of_data",
    "require_own_options",
    "require_own_settings",
    "upgraded",
]

KINDS: dict[str, type[Kind]] = {kind.name: kind for kind in (Melody, ImageTokens, Array)}
"""By the names that recipes use."""

_OPTIONS: dict[str, type[Any]] = {Melody.name: MelodyOptions, ImageTokens.name: ImageOptions}


@dataclass
class RenderOptions(ImageOptions, MelodyOptions):
    """How samples are written: the options of all kinds."""


@dataclass
class KindSettings:
    """What only some kinds need to be measured.

    Args:
        images: for a model of image tokens.
    """

    images: ImageSettings = field(default_factory=ImageSettings)


_SETTINGS = {ImageTokens.name: "images"}


def kind_named(name: str, option: str) -> type[Kind]:
    """One of ours, or the class at an import path, whose code then runs."""
    if name in KINDS:
        return KINDS[name]
    require("." in name, option, name, f"one of {', '.join(sorted(KINDS))}, or an import path{suggestion(name, KINDS)}")
    return imported_class(name, Kind, option, KINDS)


def kind_of_data(data: DataConfig) -> type[Kind]:
    """The kind to which the source of data belongs."""
    kind = next((kind for kind in KINDS.values() if kind.claims(data)), None)
    if kind is None:
        sources = sorted(source for kind in KINDS.values() for source in kind.sources)
        hint = suggestion(data.source, sources)
        raise ValueError(f"data.source = {data.source}: expected one of {', '.join(sources)}{hint}")
    return kind


def kind_from(values: Any, num_classes: int, shape: Any) -> Kind:
    """A kind from its plain JSON in a model folder. Importing one that is not ours runs its code."""
    require_type(isinstance(values, dict) and "name" in values, "kind", values, "a mapping with a name")
    own = {key: value for key, value in values.items() if key != "name"}
    kind = kind_named(str(values["name"]), "kind.name")
    return from_mapping(kind, {"num_classes": num_classes, "shape": shape, **own}, "kind")


def upgraded(config: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a config.json; one from before there were kinds says `music` and `source` in their place."""
    if "kind" in config:
        return dict(config)
    kind = next(old for kind in KINDS.values() if (old := kind.upgraded(config)) is not None)
    return {key: value for key, value in config.items() if key not in ("music", "source")} | {"kind": kind}


def require_own_options(kind: Kind, options: RenderOptions) -> None:
    """Refuse options of other kinds than this one."""
    for name, group in _OPTIONS.items():
        for option in fields(group) if name != kind.name else ():
            value, usual = getattr(options, option.name), "null" if option.default is None else option.default
            expected = f"{usual}, as the model is not about {KINDS[name].plural}"
            require(value == option.default, option.name, value, expected)


def require_own_settings(kind: Kind, settings: KindSettings) -> None:
    """Refuse settings of an evaluation that other kinds than this one have."""
    for name, part in _SETTINGS.items():
        group, expected = getattr(settings, part), f"no such option, as the data are no {KINDS[name].plural}"
        for setting in fields(group) if name != kind.name else ():
            value = getattr(group, setting.name)
            require(value == setting.default, f"{part}.{setting.name}", value, expected)
