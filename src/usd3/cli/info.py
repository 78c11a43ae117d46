"""usd3 info: describe the installation, a recipe, a run or a saved model."""

import importlib.metadata
import inspect
import math
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from usd3._internal.weights import weight_shapes
from usd3._internal.yaml_json import read_json
from usd3._version import __version__
from usd3.core.samplers.names import ABOUT, SAMPLERS, option_names
from usd3.kernels import chosen
from usd3.kinds.registry import KINDS
from usd3.methods import METHODS, Method
from usd3.nets.options import NETS
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.packaged import find_model, list_models, model_summary
from usd3.recipes import find_recipe, list_recipes
from usd3.training.checkpoints import find_checkpoints

__all__ = ["InfoOptions", "info"]


@dataclass
class InfoOptions:
    """Describe this installation, a recipe, a run or a saved model.

    Args:
        what: the name of a recipe or of a packaged model, or the folder of a run, of a saved model, of a VQGAN or of a
            classifier; null: this installation.
    """

    what: str | None = None


def info(options: InfoOptions) -> None:
    """Print the description."""
    if options.what is None:
        _installation()
    elif Path(options.what).is_dir() or (options.what in list_models() and options.what not in list_recipes()):
        _folder(find_model(options.what))
    else:
        print(find_recipe(options.what).read_text(encoding="utf-8"), end="")
        if options.what in METHODS:
            _method(METHODS[options.what])
        if options.what in list_models():
            _packaged(options.what)


def _packaged(name: str) -> None:
    """Print the summary of a packaged model's card, and its samplers."""
    folder = find_model(name)
    print("", f"# The trained model {name} comes with the package: usd3 sample {name}", sep="\n")
    print(*(f"# {line}" for line in model_summary(folder)), f"# Its card: {folder / 'README.md'}", sep="\n")
    print(f"# More about it: usd3 info {folder}")


def _method(method: type[Method]) -> None:
    """Print the docstring, the options and the samplers of a method."""
    parameters = inspect.signature(method).parameters.values()
    options = [f"{p.name} = {p.default!r}" for p in parameters if p.name not in ("diffusion", "objective")]
    about = f"{method.__name__}: {inspect.cleandoc(method.__doc__ or '')}"
    print("", *(f"# {line}".rstrip() for line in about.splitlines()), sep="\n")
    print(f"# method.options: {', '.join(options) or 'none'}")
    print(f"# method.sampler: {', '.join(method.samplers)}")
    print(*(f"#   {line}" for line in _sampler_lines(method.samplers)), sep="\n")


def _sampler_lines(names: Iterable[str]) -> list[str]:
    """A line for each sampler: its name, and if it is one of USD3's what it does and which options it has."""
    lines = []
    for name in names:
        options = ", ".join(option_names(SAMPLERS[name])) if name in SAMPLERS else ""
        lines.append(f"{name:14} {ABOUT.get(name, '')}{f' (options: {options})' if options else ''}".rstrip())
    return lines


def _installation() -> None:
    print(f"usd3 {__version__}, Python {platform.python_version()}, torch {torch.__version__}")
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    print(f"devices: {', '.join(gpus) or 'no GPU'}, {torch.get_num_threads()} CPU threads")
    used = [f"{chosen('auto', torch.device(name))} on {name}" for name in (["cuda"] if gpus else []) + ["cpu"]]
    print(f"losses and draws: {', '.join(used)}; {_triton()}")
    for name in ("lightning", "jsonargparse", "safetensors", "pandas", "pyarrow", "tokenizers", "music21", "symusic"):
        try:
            print(f"  {name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            print(f"  {name} is not installed")
    print(f"kinds: {', '.join(sorted(KINDS))}")
    print(f"methods: {', '.join(METHODS)}")
    print(f"networks: {', '.join(NETS)}")
    print("samplers (`usd3 frontier MODEL` compares them):")
    print(*(f"  {line}" for line in _sampler_lines(SAMPLERS)), sep="\n")
    models = list_models()
    print(f"trained models: {'usd3 sample NAME draws from one' if models else 'none is packaged'}")
    for name, line in models.items():
        print(f"  {name:14} {line}")
    print("recipes (they combine, `usd3 train pop909 discrete ce`):")
    for name, line in list_recipes().items():
        print(f"  {name:14} {line}")


def _triton() -> str:
    try:
        return f"triton {importlib.metadata.version('triton')}"
    except importlib.metadata.PackageNotFoundError:
        return "triton is not installed"


def _folder(folder: Path) -> None:
    config, weights = folder / "config.json", folder / "model.safetensors"
    if not (folder / "recipe.yaml").is_file() and not config.is_file():
        raise FileNotFoundError(f"{folder}: expected the folder of a run or of a saved model")
    if config.is_file() and weights.is_file():
        size = sum(math.prod(shape) for shape in weight_shapes(weights).values())
        values = read_json(config)
        if isinstance(values, dict) and isinstance(values.get("kind"), str):
            _image_network(values, size, config)
        else:
            _diffusion_model(PipelineConfig.read(folder), size)
    if (folder / "results.json").is_file():
        print(f"results: {read_json(folder / 'results.json')}")
    if (folder / "README.md").is_file():
        print(f"card: {folder / 'README.md'}")
    for path in find_checkpoints(folder / "checkpoints"):
        print(f"checkpoint: {path}")
    if (folder / "recipe.yaml").is_file():
        print(f"recipe: {folder / 'recipe.yaml'}")


def _diffusion_model(config: PipelineConfig, size: int) -> None:
    diffusion, data = config.diffusion, config.data
    time = "continuous time" if diffusion.num_steps is None else f"{diffusion.num_steps} discrete steps"
    print(f"model: {config.model.net}, {size:,} numbers, after {config.steps} training steps")
    print(f"kind: {config.kind['name']}")
    kind = config.build_kind() if config.kind["name"] in KINDS else None  # another one runs its code
    print(f"objects: {'' if kind is None else f'{kind.describe()}; '}shape {tuple(config.shape)}", end=", ")
    print(f"{config.num_classes} categories", *([] if kind is None else kind.details()), sep="\n  ")
    print(f"diffusion: {diffusion.noise} noise, {diffusion.schedule} schedule, {time}")
    print(f"method: {config.method.name}")
    if config.method.name in METHODS and kind is not None:
        samplers = config.method.build(config.build_diffusion(kind.support), "usd3").samplers
        print(f"samplers: {', '.join(samplers)}")
    for name, classes in config.labels.items():
        print(f"{name}: {', '.join(classes)}")
    print(f"data: {data.source} {data.path or ''}".rstrip())


def _image_network(values: dict[str, Any], size: int, file: Path) -> None:
    try:
        lines = [
            f"{values['kind']}: {size:,} numbers, after {values['steps']} training steps",
            ", ".join(f"{name} {value}" for name, value in values["model"].items()),
            f"images: {' x '.join(map(str, values['size']))} from {values['images']}",
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{file}: expected what usd3 wrote ({error!r})") from None
    print(*lines, sep="\n")
    if "perceptual" in values:
        print(f"perceptual loss: {values['perceptual']}")
