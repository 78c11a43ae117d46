"""The network as samplers and bounds call it: in bfloat16 or compiled, if the pipeline asks for it."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from usd3.core.model import Cached, Wrapper, ignores_time, logits_of

__all__ = ["InferenceModel", "Restricted", "network_logits"]

_ELEMENTS_ON_CPU = 4096  # of one call: what a layer makes of more does not stay in the cache


class InferenceModel(Wrapper):
    """A network whose calls return logits (B, ..., K).

    On a CPU it is asked about a part of a large batch at a time, which takes less time for each object.

    Args:
        model: the network.
        device: where the network is.
        half: compute in bfloat16. Only on a GPU.
        compiled: a compiled `network_logits`; None: nothing is compiled.
        num: batch size that `compiled` is for; None: every batch size. Other batches run uncompiled: a network that
            ignores the time is called with the changed objects alone, a different number in every step.
    """

    def __init__(
        self,
        model: nn.Module,
        device: torch.device,
        half: bool,
        compiled: Callable[..., Tensor] | None = None,
        num: int | None = None,
    ):
        super().__init__(model)
        self.compiled, self.num = compiled, num
        self.device_type, self.half = device.type, half and device.type == "cuda"

    def __call__(self, x_t: Tensor, t: Tensor, **masks: Tensor) -> Tensor:
        """Logits of x_0."""
        # CUDA graphs need autocast without its cache
        with torch.autocast(self.device_type, torch.bfloat16, enabled=self.half, cache_enabled=False):
            compiled = self.compiled if self.num in (None, len(x_t)) else None
            if compiled is not None:
                return compiled(self.model, x_t, t, **masks)
            return torch.cat([network_logits(self.model, *part, **kept) for part, kept in self._parts(x_t, t, masks)])

    def _parts(self, x_t: Tensor, t: Tensor, masks: dict[str, Tensor]) -> Iterator[tuple[Any, dict[str, Tensor]]]:
        """What each call of the network gets: ((x_t, t), masks) of some of the objects."""
        objects = max(1, len(x_t))
        size = max(1, _ELEMENTS_ON_CPU * objects // max(1, x_t.numel())) if self.device_type == "cpu" else objects
        for first in range(0, objects, size):
            rows = slice(first, first + size)
            yield (x_t[rows], t[rows]), {name: mask[rows] for name, mask in masks.items()}


def network_logits(model: Callable[..., Any], x_t: Tensor, t: Tensor, **masks: Tensor) -> Tensor:
    """Logits (B, ..., K) of a network, also of one that returns a `Projection`."""
    return logits_of(model(x_t, t, **masks), x_t)


class Restricted(Wrapper):
    """A model that takes some categories for impossible: their logits are -inf.

    It has a row for each object, so a model that ignores the time is asked about the changed ones inside.

    Args:
        model: the model.
        possible: (B, ..., K) False where a category is impossible.
    """

    ignores_time = False

    def __init__(self, model: Callable[..., Any], possible: Tensor):
        super().__init__(Cached(model, possible.shape[-1]) if ignores_time(model) else model)
        self.possible = possible

    def __call__(self, x_t: Tensor, t: Tensor, **masks: Tensor) -> Tensor:
        """Logits at x_t of all objects, or of all objects twice, with and without their condition."""
        possible = torch.cat([self.possible] * (len(x_t) // len(self.possible)))
        return logits_of(self.model(x_t, t, **masks), x_t).masked_fill(~possible, -torch.inf)
