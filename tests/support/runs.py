"""A tiny experiment that trains in about a second, and how much memory a call takes."""

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from usd3.core.options import DiffusionConfig
from usd3.kinds.options import DataConfig
from usd3.nets.options import ModelConfig
from usd3.training.options import Recipe, TrainingConfig

__all__ = ["memory_below", "tiny_recipe", "weights_of"]


def tiny_recipe(folder: Path, **training) -> Recipe:
    """Sequences that count up modulo 5, length 8, in folder/data.npz."""
    path = folder / "data.npz"
    if not path.exists():
        rows = (np.arange(8) + np.arange(60)[:, None]) % 5
        np.savez(path, train=rows[:50], test=rows[50:])
    config = {
        "steps": 8,
        "batch_size": 8,
        "warmup": 2,
        "log_every": 2,
        "validate_every": 4,
        "checkpoint_every": 4,
        "lr": 3e-3,
        "accelerator": "cpu",
        "prefix": 2,
    }
    return Recipe(
        data=DataConfig(source="array", path=str(path)),
        diffusion=DiffusionConfig(num_steps=20),
        model=ModelConfig(dim=16, depth=1, heads=2, mlp=16, time_dim=8, dropout=0.1),
        training=replace(TrainingConfig(**config), **training),
    )


def weights_of(pipeline) -> torch.Tensor:
    """All weights of a pipeline in one vector."""
    return torch.cat([p.detach().flatten() for p in pipeline.model.parameters()])


@contextmanager
def memory_below(size: float) -> Iterator[None]:
    """Inside, Python and NumPy must not have more than so many bytes more at any time."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < size
