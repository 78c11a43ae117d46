"""Categories renamed at random, so that their order says nothing."""

from dataclasses import replace

import torch

from usd3._internal.checks import as_count, require, require_type
from usd3.kinds.dataset import Dataset, compact

__all__ = ["scramble"]


def scramble(dataset: Dataset, seed: int = 0) -> Dataset:
    """The same data with randomly renamed categories. `Dataset.decoded` still returns the original categories."""
    require_type(isinstance(dataset, Dataset), "dataset", dataset, "a Dataset")
    kind = dataset.kind
    expected = f"null for {kind.plural}, as each element has categories of its own"
    require(kind.support is None, "data.scramble", seed, expected)
    generator = torch.Generator().manual_seed(as_count(seed, "seed", 0))
    new_name = torch.randperm(dataset.num_classes, generator=generator)
    names = compact(new_name, dataset.num_classes)
    former = torch.arange(dataset.num_classes) if dataset.decode is None else dataset.decode.cpu().long()
    return replace(
        dataset,
        train=dataset.train.renamed(names),
        test=dataset.test.renamed(names),
        decode=former[new_name.argsort()],
    )
