"""usd3 export: write a small folder of a trained model, to share it."""

import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from usd3._internal.checks import require
from usd3._internal.fields import require_fields
from usd3._internal.files import is_free, write_whole
from usd3._internal.yaml_json import read_json, read_yaml
from usd3.evaluation.cards import Card, measured_table, needed_options
from usd3.kinds.class_files import shared_places
from usd3.kinds.dataset import Dataset
from usd3.kinds.options import naming_data_path
from usd3.kinds.registry import KINDS
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.pipeline import Pipeline, save_pretrained

__all__ = ["ExportOptions", "export", "rounded", "without_places"]

_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


@dataclass
class ExportOptions:
    """Write a small folder of a trained model to share: rounded weights and a model card.

    The folder gets config.json, which has no path of this machine, model.safetensors and README.md. Other commands use
    it like the folder of a run.

    Args:
        run: folder of a run.
        out: the new folder.
        dtype: how the weights are stored, "fp16", "bf16" or "fp32"; they are loaded as float32.
        name: title of the card; null: the name of the folder.
        data_licence: licence of the data, for the card.
        metrics: what `usd3 evaluate` wrote about the run, a .json file, for the card.
        data_path: where the data are, which are counted for the card; null: where they were in training.
        trust_code: import a kind, network or method of the run that is not ours. This runs its code.
    """

    run: str = ""
    out: str | None = None
    dtype: Literal["fp16", "bf16", "fp32"] = "fp16"
    name: str | None = None
    data_licence: str | None = None
    metrics: str | None = None
    data_path: str | None = None
    trust_code: bool = False

    def __post_init__(self) -> None:
        require_fields(self)


def export(options: ExportOptions) -> None:
    """Write the folder. Errors are raised before anything is written."""
    require(options.out is not None, "out", None, "the new folder")
    out, run = Path(str(options.out)), Path(options.run)
    require(is_free(out), "out", out, "a folder that is new or empty")
    recipe = _recipe(run)
    pipeline = Pipeline.from_pretrained(run, trust_code=options.trust_code, device="cpu")
    _warn_unfinished(recipe, pipeline.config)
    config = without_places(pipeline.config)
    for name in ("data", "model", "method"):
        _require_no_place(f"{name}.options", getattr(config, name).options)
    if config.kind["name"] not in KINDS:  # ours have no places left, but their texts may look like some
        _require_no_place("kind", config.kind)
    size = sum(weight.numel() for weight in pipeline.model.parameters())
    about_data = _about_data(pipeline, options.data_path)
    measured = None
    if options.metrics is not None:
        file = Path(options.metrics)
        trained = {"parameters": size, "steps": config.steps}
        measured = measured_table(_read(file), out.resolve().name, file, trained, needed_options(config))
    save_pretrained(out, config, rounded(pipeline.model, options.dtype))
    pipeline.save_step_costs(out)
    shutil.copymode(out / "config.json", out / "model.safetensors")  # others may read what is shared
    card = Card(
        title=options.name or out.resolve().name,
        folder=out.resolve().name,
        config=config,
        recipe=recipe,
        parameters=size,
        dtype=options.dtype,
        size=(out / "model.safetensors").stat().st_size,
        licence=options.data_licence,
        measured=measured,
        **about_data,
    )
    write_whole(out / "README.md", card.as_markdown())
    print(f"{card.summary()}\nconfig.json, model.safetensors and README.md in {out}")


def _warn_unfinished(recipe: Mapping[str, Any], config: PipelineConfig) -> None:
    """Warn if the training was interrupted."""
    steps, minutes = recipe["training"]["steps"], recipe["training"].get("minutes")
    if not config.has_trained(steps, minutes):
        time = "" if minutes is None else f", {config.minutes or 0:.1f} of {minutes:g} minutes"
        warnings.warn(f"the run is not finished: {config.steps:,} of {steps:,} steps{time}", stacklevel=2)


def rounded(model: nn.Module, dtype: str) -> dict[str, Tensor]:
    """The state dict of a network with its parameters in a shorter number format; buffers stay as they are.

    Raises an error if a weight is too large for the format `dtype`, "fp16", "bf16" or "fp32".
    """
    number_format, names = _DTYPES[dtype], {name for name, _ in model.named_parameters()}
    state = {}
    for name, value in model.state_dict().items():
        state[name] = value.to(number_format) if name in names else value
        fits = not value.is_floating_point() or bool(torch.isfinite(state[name]).eq(torch.isfinite(value)).all())
        require(fits, "dtype", dtype, f"bf16 or fp32, as {name} has numbers up to {value.abs().max():.3g}")
    return state


def without_places(config: PipelineConfig) -> PipelineConfig:
    """The config without paths of this machine: that of the data, and those in the kind."""
    kind = config.build_kind().without_places()
    return replace(config, data=config.data.without_places(), kind=kind.as_dict())


def _require_no_place(name: str, value: Any) -> None:
    """Raise an error if `value`, the options called `name`, has an absolute path: other machines do not have it."""
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        _require_no_place(name, part)
    is_place = isinstance(value, str) and Path(value).is_absolute()
    require(not is_place, name, value, "no path of this machine, which others do not have")


def _recipe(run: Path) -> dict[str, Any]:
    """The content of a run's recipe.yaml, with the name of the data's file instead of its path."""
    file = run / "recipe.yaml"
    if not file.is_file():
        raise FileNotFoundError(f"run = {run}: expected the folder of a run, with its recipe.yaml")
    recipe = read_yaml(file)
    try:
        path, steps, minutes = recipe["data"]["path"], recipe["training"]["steps"], recipe["training"].get("minutes")
        valid = isinstance(path, str | None) and isinstance(steps, int) and isinstance(minutes, float | int | None)
    except (KeyError, TypeError, AttributeError):
        valid = False
    if not valid:
        raise ValueError(f"{file}: expected the recipe of a run, with its data and its training")
    data = {name: _named(part) if isinstance(part, dict) else part for name, part in recipe["data"].items()}
    shared: dict[str, Any] = recipe | {"data": data | {"path": None if path is None else shared_places(path)}}
    return shared


def _named(options: dict[str, Any]) -> dict[str, Any]:
    """Options with the names of files instead of their paths on this machine."""
    is_path = {name: isinstance(value, str) and Path(value).is_absolute() for name, value in options.items()}
    return {name: Path(value).name if is_path[name] else value for name, value in options.items()}


def _about_data(pipeline: Pipeline, path: str | None) -> dict[str, Any]:
    """The fields of the card about the data. Without the data there are fewer, unless the user said where they are."""
    data = pipeline.config.data
    name = None if data.path is None else shared_places(data.path)
    try:
        with naming_data_path():
            data = data.at(path)
            dataset: Dataset = data.load(pipeline.kind)
    except (OSError, ImportError, ValueError) as error:
        if path is not None:
            raise
        warnings.warn(f"the card does not say how many sequences the data have: {error}", stacklevel=2)
        return {"data_name": Path(name or data.source).stem, "file": name}
    counts = len(dataset.train), len(dataset.test)
    return {"data_name": dataset.name, "file": name, "counts": counts, "split": data.kind_class.describe_split(data)}


def _read(file: Path) -> Any:
    try:
        return read_json(file)
    except FileNotFoundError:
        raise FileNotFoundError(f"metrics = {file}: no such file") from None
    except ValueError as error:
        raise ValueError(f"metrics = {file}: expected what `usd3 evaluate` wrote ({error})") from None
