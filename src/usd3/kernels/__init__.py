"""The hot path: losses with their gradient and draws, straight from logits, without a temporary of size (B, D, K).

`eager` is the clear code of `usd3.core.objectives` and `usd3.core.mixture`, and the reference; `chunked` runs anywhere,
a bounded number of rows at a time; `triton` has one kernel for the losses and one for the draws.
"""

from usd3.kernels.choice import IMPLEMENTATIONS, chosen
from usd3.kernels.drawing import draw
from usd3.kernels.hidden import Projection
from usd3.kernels.losses import terms, weighted_loss
from usd3.kernels.problem import Leap, Problem

__all__ = [
    "IMPLEMENTATIONS",
    "Leap",
    "Problem",
    "Projection",
    "chosen",
    "draw",
    "terms",
    "weighted_loss",
]
