"""One jump of every element, from logits: the exact step, the Euler step, tau-leaping and the corrector."""

from torch import Tensor

from usd3.kernels.choice import run_rows
from usd3.kernels.problem import Leap, as_rows

__all__ = ["draw"]


def draw(logits: Tensor, leap: Leap, u: Tensor | None, impl: str) -> Tensor:
    """New categories (R,) by uniforms u, (2, ...), -1 where logits are not finite; without u, jump masses.

    `impl` is "chunked" or "triton".
    """
    return run_rows("draw_rows", impl, as_rows(logits), leap, None if u is None else u.reshape(2, -1))
