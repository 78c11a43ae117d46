"""Sizes of network and training by the number of training objects."""

import math
from dataclasses import replace
from typing import Any

from usd3._internal.checks import require
from usd3.kinds.dataset import Dataset
from usd3.nets.options import ModelConfig
from usd3.training.options import Recipe, TrainingConfig

__all__ = ["sized"]


def sized(recipe: Recipe, dataset: Dataset) -> Recipe:
    """The recipe for these data: numbers in place of the zeros of `model`, steps and batches for so many objects."""
    model, training = _network(recipe.model, dataset), _training(recipe.training, len(dataset.train))
    return replace(recipe.recipe, model=model, training=training)


def _network(config: ModelConfig, dataset: Dataset) -> ModelConfig:
    """The network with a size of the kind of the data in the place of each 0."""
    sizes = dataset.kind.sizes(len(dataset.train))
    zeros = [name for name in ("dim", "depth", "heads") if getattr(config, name) == 0]
    for name in zeros:
        require(name in sizes, f"model.{name}", 0, f"a number >= 1 for {dataset.kind.plural}")
    chosen: dict[str, Any] = {name: sizes[name] for name in zeros}
    return replace(config, **chosen)


def _training(config: TrainingConfig, count: int) -> TrainingConfig:
    """The training with the steps and batches that `epochs` and `least_batches` leave to so many objects."""
    batch, steps = config.batch_size, config.steps
    if config.least_batches:
        batch = min(batch, 2 ** max(0, round(math.log2(count / config.least_batches))))
    if config.epochs is not None:
        steps = min(steps, max(1, math.ceil(config.epochs * count / batch)))
    return replace(config, batch_size=batch, steps=steps, least_batches=0, epochs=None)
