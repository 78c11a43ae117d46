"""What `usd3 compare` compares: its methods, and the data, prefix and sampling steps that they share."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from usd3.cli.entries import Entry, about_method, method_words, read_entry, require_names
from usd3.core.logits import LogitOptions
from usd3.evaluation.comparison import require_comparable
from usd3.evaluation.settings import EvaluationSettings
from usd3.kinds.class_files import absolute_places
from usd3.kinds.dataset import Dataset
from usd3.kinds.options import DataConfig
from usd3.pipeline.config import PipelineConfig
from usd3.pipeline.trust import require_trusted
from usd3.training.options import Recipe
from usd3.training.run import default_prefix, pipeline_for

__all__ = [
    "data_of",
    "read_entries",
    "require_measurable",
    "require_trusted_kind",
    "shared_prefix",
    "shared_steps",
    "with_data_path",
]

_UNLIMITED_STEPS = 10_000_000  # if the budget is in minutes


def read_entries(
    words: str | None, repeats: int, base: Sequence[str], read: Callable[[Sequence[str]], Recipe]
) -> list[Entry]:
    """The methods that the option `methods` names, each with all its trainings.

    Args:
        words: the value of the option.
        repeats: number of trainings of each method that has no number of its own.
        base: the recipes for all methods.
        read: returns the options for a list of recipes.
    """
    methods = [_entry(word, base, read) for word in method_words(words)]
    entries = [training for entry in methods for training in _trainings(entry, entry.trainings or repeats)]
    require_names(entries)
    return entries


def _entry(word: str, base: Sequence[str], read: Callable[[Sequence[str]], Recipe]) -> Entry:
    entry = read_entry(word, base, read)
    if entry.recipe is not None and entry.recipe.training.minutes is not None:
        entry.recipe.training.steps = _UNLIMITED_STEPS
        entry.recipe.training.epochs = None
    return entry


def _trainings(entry: Entry, count: int) -> list[Entry]:
    """All trainings of a method, each with its own seed. A trained model has one."""
    if entry.recipe is None:
        return [entry]
    recipes = {f"{entry.label}-{i + 1}": replace(entry.recipe, seed=entry.recipe.seed + i) for i in range(1, count)}
    further = [replace(entry, label=label, recipe=recipe, repeats=entry.label) for label, recipe in recipes.items()]
    return [entry, *further]


def data_of(entry: Entry) -> DataConfig:
    """The data of a method: those of its recipe, or those that a trained model was trained on."""
    if entry.recipe is not None:
        return entry.recipe.data
    data = _trained_config(entry).data
    return replace(data, path=entry.data_path or data.path)


def _trained_config(entry: Entry) -> PipelineConfig:
    return PipelineConfig.read(entry.folder(Path()))


def with_data_path(entries: Sequence[Entry], path: str | None) -> list[Entry]:
    """The methods with the path of the data added to exported models, which do not know it.

    Args:
        entries: the methods.
        path: the path to use if none of the methods knows one.
    """
    paths = [data_of(entry).path for entry in entries]
    first = next((path for path in paths if path is not None), None if path is None else absolute_places(path))
    return [replace(entry, data_path=first) if path is None else entry for entry, path in zip(entries, paths)]


def shared_prefix(entries: Sequence[Entry], dataset: Dataset, prefix: int | None) -> int:
    """The prefix to measure with. Raises an error unless all methods share it, their data and their split.

    Args:
        entries: the methods.
        dataset: their data.
        prefix: the prefix that the user chose; None: the one of training. Kinds with a judge, such as images, are
            drawn from nothing, so their default is 0.
    """
    length = torch.Size(dataset.shape).numel()
    chosen = 0 if prefix is None and dataset.kind.is_judged else prefix

    def prefix_of(entry: Entry) -> int:
        if chosen is not None:
            return chosen
        if entry.recipe is None:
            return _trained_config(entry).prefix
        return default_prefix(entry.recipe.training, length)

    require_comparable({entry.label: (data_of(entry), prefix_of(entry)) for entry in entries})
    return prefix_of(entries[0])


def shared_steps(entries: Sequence[Entry], steps: int | None) -> int:
    """The number of sampling steps of all methods: `steps`, or if it is None, the smallest default of the methods."""
    configs = [entry.recipe or _trained_config(entry) for entry in entries]
    return min(config.diffusion.usual_steps for config in configs) if steps is None else steps


def require_trusted_kind(entry: Entry, trust_code: bool) -> None:
    """Raise an error if a trained model has a kind that is not ours and not trusted: reading its data runs code."""
    if entry.recipe is None and not trust_code:
        config = _trained_config(entry)
        # network and method are imported in another process, which checks them
        require_trusted(config, {config.model.net, config.method.name})


def require_measurable(entry: Entry, dataset: Dataset, settings: EvaluationSettings) -> None:
    """Raise an error if a method cannot be built for the data, or cannot sample with these settings."""
    if entry.recipe is None:
        dataset.kind.require_same(_trained_config(entry).kind, f"data of {entry.label}")
        return
    with about_method(entry.label):
        pipeline = pipeline_for(entry.recipe, dataset)
        method = pipeline.method
        method.require_logits(**LogitOptions(settings.temperature).changed())
        sampler = settings.sampler or method.samplers[0]
        method.sampler_named(sampler, "evaluation.sampler")
        pipeline.diffusion.grid(method.grid(int(settings.steps or 0), sampler))
