"""The network as samplers and bounds call it: in bfloat16 or compiled, if the pipeline asks for it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from usd3.core.model import Wrapper, logits_of

__all__ = ["InferenceModel", "network_logits"]


class InferenceModel(Wrapper):
    """A network whose calls return logits (B, ..., K).

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
            return (compiled or network_logits)(self.model, x_t, t, **masks)


def network_logits(model: Callable[..., Any], x_t: Tensor, t: Tensor, **masks: Tensor) -> Tensor:
    """Logits (B, ..., K) of a network, also of one that returns a `Projection`."""
    return logits_of(model(x_t, t, **masks), x_t)
