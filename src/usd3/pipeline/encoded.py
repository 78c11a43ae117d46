"""Objects of the user as the network knows them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from usd3._internal.checks import as_mask, as_tokens
from usd3.pipeline.labels import Labels, label_rows

if TYPE_CHECKING:
    from usd3.pipeline.pipeline import Pipeline

__all__ = ["Encoded", "without_padding"]


@dataclass(frozen=True)
class Encoded:
    """Objects in the categories of the network, with their masks and labels, on the CPU.

    Args:
        tokens: (N, ...) int64; 0 where an element is padding.
        given: (N, ...) True where an element is given, or None.
        pad: (N, ...) True where an element is padding, or None.
        label: (N, J) int64 the class of each label, -1: absent; or None.
    """

    tokens: Tensor
    given: Tensor | None
    pad: Tensor | None
    label: Tensor | None

    @classmethod
    def of(
        cls,
        pipeline: "Pipeline",
        tokens: ArrayLike,
        given: ArrayLike | None = None,
        pad: ArrayLike | None = None,
        labels: Labels | None = None,
    ) -> "Encoded":
        """What a user gave to a pipeline, checked; arguments as in `Pipeline.sample`."""
        objects = as_tokens(tokens)
        label = label_rows(labels, pipeline.config.labels, len(objects))
        known, padding = (as_mask(m, tuple(objects.shape), name) for m, name in ((given, "given"), (pad, "pad")))
        objects, padding = without_padding(objects, padding, pipeline.config.data.pad_value)
        return cls(pipeline.encoded(objects), known, padding, label)

    def __len__(self) -> int:
        return len(self.tokens)

    def on(self, device: torch.device, rows: slice) -> "Encoded":
        """Some of the objects, on a device."""
        parts = (self.tokens, self.given, self.pad, self.label)
        return Encoded(*(None if part is None else part[rows].to(device) for part in parts))  # type: ignore[arg-type]


def without_padding(tokens: Tensor, pad: Tensor | None, pad_value: int | None) -> tuple[Tensor, Tensor | None]:
    """Tokens with category 0 in place of the data's pad value, and `pad` with these elements added."""
    if pad_value is None:
        return tokens, pad
    has_pad_value = tokens == pad_value
    if not bool(has_pad_value.any()):
        return tokens, pad
    padding = has_pad_value if pad is None else has_pad_value | pad.to(has_pad_value.device)
    return tokens.masked_fill(has_pad_value, 0), padding
