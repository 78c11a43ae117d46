"""The kinds by name, and their options side by side: the one place that lists them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from usd3._internal.checks import require, require_type
from usd3._internal.fields import from_mapping
from usd3._internal.imports import Registry, imported_class
from usd3._internal.messages import suggestion
from usd3.kinds.base import Kind
from usd3.kinds.board.options import BoardSettings
from usd3.kinds.image.options import ImageOptions, ImageSettings
from usd3.kinds.melody.options import MelodyOptions
from usd3.kinds.options import DataConfig
from usd3.kinds.sequence.options import SequenceSettings
from usd3.kinds.table.options import TableSettings
from usd3.recipes import list_recipes

__all__ = [
    "KINDS",
    "KindSettings",
    "RenderOptions",
    "kind_from",
    "kind_named",
    "kind_of_data",
    "kind_of_file",
    "kind_of_objects",
    "recipe_of_kind",
    "require_consistent",
    "require_own_options",
    "require_own_settings",
    "settings_section",
    "upgraded",
]

KINDS: Registry[Kind] = Registry(
    {
        "melody": "usd3.kinds.melody.kind.Melody",
        "chorale": "usd3.kinds.chorale.kind.Chorale",
        "image_tokens": "usd3.kinds.image.kind.ImageTokens",
        "text": "usd3.kinds.text.kind.Text",
        "sequence": "usd3.kinds.sequence.kind.LetterSequence",
        "table": "usd3.kinds.table.kind.Table",
        "board": "usd3.kinds.board.kind.Board",
        "array": "usd3.kinds.array.Array",  # last, as every model of an older version that is nothing else is an array
    }
)
"""The kinds by the names that recipes use. A kind is imported on first use."""

_OPTIONS: dict[str, type[Any]] = {
    "melody": MelodyOptions,
    "chorale": MelodyOptions,
    "image_tokens": ImageOptions,
}
_SETTINGS = {"image_tokens": "images", "board": "boards", "sequence": "sequences", "table": "tables"}


@dataclass
class RenderOptions(ImageOptions, MelodyOptions):
    """How samples are written: the options of all kinds."""


@dataclass
class KindSettings:
    """Settings of an evaluation that only some kinds have.

    Args:
        images: for a model of image tokens.
        boards: for a model of boards.
        sequences: for a model of sequences.
        tables: for a model of tables.
    """

    images: ImageSettings = field(default_factory=ImageSettings)
    boards: BoardSettings = field(default_factory=BoardSettings)
    sequences: SequenceSettings = field(default_factory=SequenceSettings)
    tables: TableSettings = field(default_factory=TableSettings)


def kind_named(name: str, option: str) -> type[Kind]:
    """The kind of this name, or the class at this import path. Importing a class that is not ours runs its code.

    Args:
        name: a name of `KINDS` or an import path.
        option: the option with this value, for error messages.
    """
    if name in KINDS:
        return KINDS[name]
    require("." in name, option, name, f"one of {', '.join(sorted(KINDS))}, or an import path{suggestion(name, KINDS)}")
    return imported_class(name, Kind, option, KINDS)


def kind_of_data(data: DataConfig) -> type[Kind]:
    """The kind that reads `data.source`."""
    kind = next((kind for kind in KINDS.values() if kind.claims(data)), None)
    if kind is None:
        sources = sorted(source for kind in KINDS.values() for source in kind.sources)
        hint = suggestion(data.source, sources)
        raise ValueError(f"data.source = {data.source}: expected one of {', '.join(sources)}{hint}")
    return kind


def kind_of_file(path: Path) -> type[Kind] | None:
    """The kind of the data in a file, by its ending, or in a folder; None: no kind claims it."""
    if path.is_dir():
        return KINDS["melody"] if any(_has_ending(file, KINDS["melody"]) for file in path.rglob("*.mid*")) else None
    return next((kind for kind in KINDS.values() if _has_ending(path, kind)), None)


def _has_ending(path: Path, kind: type[Kind]) -> bool:
    return path.name.lower().endswith(kind.files)


def kind_of_objects(objects: Any) -> type[Kind]:
    """The kind of objects in memory: an array, a DataFrame, a list of strings."""
    kind = next((kind for kind in KINDS.values() if kind.claims_objects(objects)), None)
    if kind is None:
        expected = "an array (N, ...) of integers, a DataFrame, a list of strings, a text, or the path of a file"
        dtype, shape = getattr(objects, "dtype", None), getattr(objects, "shape", None)
        if dtype is not None and shape is not None:
            raise TypeError(f"data is an array {tuple(shape)} of {dtype}: expected {expected}")
        hint = "; rows must have the same length" if isinstance(objects, list | tuple) else ""
        hint = "; pandas.DataFrame(data) makes one of a dict" if isinstance(objects, dict) else hint
        require_type(False, "data", objects, expected + hint)
    return kind  # type: ignore[return-value]


def recipe_of_kind(kind: type[Kind], name: str = "") -> str:
    """The name of the packaged recipe `name` for a kind of data; without a name, the one that the kind begins with.

    Where a kind has a recipe of its own, it counts: `small` of tables is `table-small`. A kind of the user's own begins
    with the recipe of arrays.
    """
    first = kind.recipe or kind.name or "array"
    own = f"{first}-{name}"
    return first if not name else own if own in list_recipes() else name


def require_consistent(data: DataConfig) -> None:
    """Raise an error unless the source of data belongs to their kind, one of ours, which takes no `data.options`."""
    implied = kind_of_data(data)
    kind = implied if data.kind is None else kind_named(data.kind, "data.kind")
    fits = kind is implied or (data.source in kind.also_reads and not data.music)
    because = "data.music says so" if data.music else f"data.source is {data.source}"
    require(fits, "data.kind", data.kind, f"{implied.name}, as {because}")
    require(not data.options, "data.options", data.options, f"{{}}, as the kind {kind.name} takes none")


def kind_from(values: Any, num_classes: int, shape: Any) -> Kind:
    """The kind that the plain JSON of a model folder describes. If it is not one of ours, its code runs.

    Args:
        values: the name of the kind and its fields.
        num_classes: number of categories.
        shape: shape of one object.
    """
    require_type(isinstance(values, dict) and "name" in values, "kind", values, "a mapping with a name")
    kind_fields = {key: value for key, value in values.items() if key != "name"}
    kind = kind_named(str(values["name"]), "kind.name")
    return from_mapping(kind, {"num_classes": num_classes, "shape": shape, **kind_fields}, "kind")


def upgraded(config: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a config.json in today's form. Older versions have `music` and `source` instead of `kind`."""
    if "kind" in config:
        return dict(config)
    kind = next(values for kind in KINDS.values() if (values := kind.upgraded(config)) is not None)
    return {key: value for key, value in config.items() if key not in ("music", "source")} | {"kind": kind}


def require_own_options(kind: Kind, options: RenderOptions) -> None:
    """Raise an error if an option that only another kind has is set."""
    for name, group in _OPTIONS.items():
        for option in fields(group) if group is not _OPTIONS.get(kind.name) else ():
            value, default = getattr(options, option.name), "null" if option.default is None else option.default
            if value != option.default:
                expected = f"{default}, as the model is not about {KINDS[name].plural}"
                raise ValueError(f"{option.name} = {value}: expected {expected}")


def settings_section(kind: Kind) -> str | None:
    """The name of the section of `KindSettings` that belongs to a kind, such as "boards"; None: it has none."""
    return _SETTINGS.get(kind.name)


def require_own_settings(kind: Kind, settings: KindSettings) -> None:
    """Raise an error if a setting of an evaluation that only another kind has is set."""
    for name, part in _SETTINGS.items():
        group = getattr(settings, part)
        for setting in fields(group) if name != kind.name else ():
            value = getattr(group, setting.name)
            if value != setting.default:
                expected = f"no such option, as the data are no {KINDS[name].plural}"
                raise ValueError(f"{part}.{setting.name} = {value}: expected {expected}")
