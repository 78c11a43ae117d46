"""How often each category occurs in the training objects."""

import torch
from torch import Tensor

from usd3.kinds.dataset import Dataset
from usd3.kinds.rows import PIECE, in_chunks

__all__ = ["frequencies", "frequencies_of_elements"]


def frequencies(dataset: Dataset) -> Tensor:
    """(K,) float64; each category counts once more than it occurs, so that none has probability 0."""
    counts = torch.ones(dataset.num_classes, dtype=torch.float64)
    for tokens, pad in dataset.train.pieces():
        real = tokens.flatten() if pad is None else tokens[~pad]
        counts += torch.bincount(real.long(), minlength=dataset.num_classes)
    return counts / counts.sum()


def frequencies_of_elements(dataset: Dataset) -> Tensor:
    """(*shape, K) float64, the same for each element; categories that it cannot have, by the support, have 0."""
    K, elements, train = dataset.num_classes, torch.Size(dataset.shape).numel(), dataset.train
    support = dataset.kind.support
    counts = torch.ones(elements, K, dtype=torch.float64)
    if support is not None:
        counts = support.reshape(elements, K).double()
    first = K * torch.arange(elements)
    for index in in_chunks(len(train), max(1, PIECE // elements)):
        tokens, pad = train.take(index)
        cells = first + tokens.flatten(1).long()
        real = cells.flatten() if pad is None else cells[~pad.flatten(1)]
        counts += torch.bincount(real, minlength=elements * K).reshape(elements, K)
    return (counts / counts.sum(-1, keepdim=True)).reshape(*dataset.shape, K)
