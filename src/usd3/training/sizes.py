"""Batches and steps by the number of training objects."""

import math
from dataclasses import replace

from usd3.training.options import TrainingConfig

__all__ = ["sized"]


def sized(config: TrainingConfig, count: int) -> TrainingConfig:
    """The training with the batches and steps that `least_batches` and `epochs` leave to `count` objects."""
    batch, steps = config.batch_size, config.steps
    if config.least_batches:
        batch = min(batch, 2 ** max(0, round(math.log2(count / config.least_batches))))
    if config.epochs is not None:
        steps = min(steps, max(1, math.ceil(config.epochs * count / batch)))
    return replace(config, batch_size=batch, steps=steps)
