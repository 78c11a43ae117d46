"""Labels and given elements that are absent in training, drawn from torch's global generator.

All shapes are the same in every step and nothing waits for the device, so that a CUDA graph can replay a step.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from usd3.core.model import BoundKeywords, Wrapper, nested_models
from usd3.training.options import TrainingConfig

__all__ = ["LabelTraining", "with_absences"]


def with_absences(
    model: Callable[..., Any], given: Tensor | None, label: Tensor | None, config: TrainingConfig
) -> Callable[..., Any]:
    """The network for one training step: some objects are without their label, some without their given elements.

    Args:
        model: the network.
        given: (B, ...) mask of the given elements, or None.
        label: (B, J) the classes, or None: the data have no labels.
        config: how often labels and given elements are absent.
    """
    if given is not None and config.absent > 0:
        dropped = torch.rand(len(given), *[1] * (given.dim() - 1), device=given.device) < config.absent
        model = BoundKeywords(model, None, given & dropped)
    return model if label is None else LabelTraining(model, label, config.label_dropout)


def _evenly_spread(shape: torch.Size, device: torch.device) -> Tensor:
    """Uniforms (B, J), in each column one in each of B equal parts of [0, 1).

    Nearly the same share of a batch is below any number, so that some objects are without a label.
    """
    order = torch.rand(shape, device=device).argsort(0)
    return (order + torch.rand(1, shape[1], device=device)) / shape[0]


class LabelTraining(Wrapper):
    """A network in one training step on objects with labels, each of which is absent with a probability.

    Args:
        model: the network.
        label: (B, J) int64 the classes, -1: unknown.
        dropout: the probability.
    """

    def __init__(self, model: Callable[..., Any], label: Tensor, dropout: float):
        self.truth = label
        self.dropped = _evenly_spread(label.shape, label.device) < dropout
        self.label = label.masked_fill(self.dropped, -1)
        self.outputs: list[Tensor] = []
        super().__init__(model)

    def __call__(self, x_t: Tensor, t: Tensor, **masks: Tensor) -> Any:
        """The output of the network; the logits of the labels are kept."""
        return self.model(x_t, t, label=self.label, label_out=self.outputs, **masks)

    def label_nats(self) -> Tensor:
        """The mean cross entropy of the known labels that were absent in the last call, in nats; 0 if there are none.

        Summed over the labels of an object.
        """
        classes = next(inner.labels for inner in nested_models(self.model) if hasattr(inner, "labels"))
        nats = torch.zeros((), device=self.truth.device)
        for j, logits in enumerate(self.outputs[-1].float().split(classes, -1)):
            counts = self.dropped[:, j] & (self.truth[:, j] >= 0)
            each = F.cross_entropy(logits, self.truth[:, j].clamp(min=0), reduction="none")
            nats = nats + (each * counts).sum() / counts.sum().clamp(min=1)
        return nats
