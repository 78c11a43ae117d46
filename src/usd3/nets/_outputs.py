"""The last layer of our networks."""

from torch import Tensor, nn

from usd3.kernels.padding import padded_linear

__all__ = ["OutputLayer"]


class OutputLayer(nn.Linear):
    """A linear layer (..., dim) -> (..., K) that is as fast for any K: see `usd3.kernels.padding`."""

    def forward(self, h: Tensor) -> Tensor:
        """Logits (..., K)."""
        return padded_linear(h, self.weight, self.bias)
